"""A kernel package that means harm, run as any other on a real engine: what it reaches, what it leaves, and what the report makes of it."""

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forgeries import write_package

REPOSITORY = Path(__file__).parents[3]

FORKS = """
import json, os, signal
children = []
for attempt in range(200_000):
    try:
        child = os.fork()
    except OSError as error:
        print(json.dumps({"children": len(children), "error": error.strerror}), flush=True)
        break
    if child == 0:
        signal.pause()
    children.append(child)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""

PROCESSES = """
import json, os, pathlib
def told(path):
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        return type(error).__name__
found = {entry.name: told(entry / "cmdline") for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()}
def signalled(pid):
    try:
        return os.kill(pid, 0)
    except OSError as error:
        return type(error).__name__
print(json.dumps({"processes": found, "host": signalled(HOST), "init": told(pathlib.Path("/proc/1/environ"))}))
"""


def test_forking_ends_at_the_limit(run):
    """A fork bomb meets the engine's limit on processes, and the container can still be ended and removed."""
    environment, ended, lines, _ = run(FORKS)
    told = json.loads(lines[-1])

    assert ended.code == 0, lines
    assert 100 < told["children"] < environment.options["limits"]["pids"]


def test_the_processes_of_the_host_are_not_there(run):
    _, ended, lines, _ = run(PROCESSES.replace("HOST", str(os.getpid())))
    told = json.loads(lines[-1])

    assert ended.code == 0, lines
    assert len(told["processes"]) < 10
    assert not [command for command in told["processes"].values() if "pytest" in command]
    assert told["host"] in ("ProcessLookupError", None)
    if told["host"] is None:  # a process of the container's own that happens to have that number
        assert str(os.getpid()) in told["processes"]


@pytest.fixture
def done(tmp_path, offline, engine, built, data) -> subprocess.CompletedProcess[str]:
    """The run of the hostile package, as a user would start it."""
    words = ["run", "cpu", "--engine", "docker", "--stage", "test", "--test-timeout", "30", "--kernels", str(data / "hostile")]
    words += ["--out", str(tmp_path / "out"), *offline]
    (data / "hostile" / "test_hostile.py").chmod(0o644)
    variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY / "harness"), "GITHUB_TOKEN": "hunter2"}
    return subprocess.run([sys.executable, "-m", "warpwave", *words], cwd=tmp_path, capture_output=True, text=True, env=variables)


def test_a_hostile_package_costs_itself_only(done, tmp_path, ours):
    """It ends, with an exit code that is not good; nothing steers the log; what is left are files, folders, and no container."""
    out = tmp_path / "out"
    comparison = json.loads((out / "comparison.json").read_text())
    target = comparison["targets"][0]
    states = [path.lstat() for path in out.rglob("*")]
    reports = [path.read_text("utf-8") for path in out.iterdir() if path.is_file()]

    assert done.returncode in (1, 4), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert target["verdict"] != "passed"
    assert target["tests"]["failed"] == 1
    assert "facts.json: incomplete" in " ".join(comparison["problems"]) or target["facts"] is None
    for text in (done.stdout, done.stderr):
        assert not re.search(r"^\s*::(error|set-output|stop-commands)|##\[", text, re.MULTILINE)
        assert "\x1b" not in text
    assert {stat.S_IFMT(state.st_mode) for state in states} == {stat.S_IFREG, stat.S_IFDIR}
    assert {state.st_uid for state in states} == {os.getuid()}
    assert not [state for state in states if state.st_mode & 0o6000]
    assert not [text for text in reports if "root:x:0:0" in text or "hunter2" in text]
    assert [name for name in ours() if f"-{target['run_id']}-" in name] == []


DEAF = """
import os, pathlib, signal, time
def test_deaf():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    folder = pathlib.Path("/results/test")
    (folder / "many").mkdir()
    for number in range(20_000):
        (folder / "many" / str(number)).touch()
    (folder / "ready").symlink_to("/etc/hostname")
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize("seed", range(3))
def test_no_link_survives_a_cancelled_job(built, offline, tmp_path, seed):
    """SIGINT, then more signals at random moments, as a CI system and people send them: no link, and a record that is true."""
    (tmp_path / "package").mkdir(mode=0o755)
    (tmp_path / "package" / "test_deaf.py").write_text(DEAF)
    words = ["run", "cpu", "--stage", "test", "--engine", "docker", *offline, "--kernels", "package", "--out", "out", "--no-report"]
    process = subprocess.Popen(
        [sys.executable, "-m", "warpwave", *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}
    )
    raw, moments = tmp_path / "out" / "raw" / "cpu", random.Random(seed)
    until = time.monotonic() + 120
    while not os.path.lexists(raw / "test" / "ready") and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        time.sleep(moments.uniform(0, 1.0))
        process.send_signal(moments.choice([signal.SIGINT, signal.SIGTERM]))
    record = json.loads((raw / "run.json").read_text())

    assert [path for path in raw.rglob("*") if path.is_symlink()] == []
    assert (record["verdict"], record["exit"]["interrupted"]) == ("incomplete", True)
    assert record["reason"] == "stopped by the user or the CI system, in stage test"


# Packages that forge their pass, on a real engine: what a container adds to what `tests/unit/inside/test/test_forged.py` shows.

# What supervises has its memory, and the pipes on which it reports, for itself.
REACHED = """
import os
from pathlib import Path
def test_what_it_reaches():
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            command, status = (process / "cmdline").read_bytes(), (process / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if b"docker-init" in command or f"PPid:\\t{os.getppid()}\\n" in status:
            continue  # the engine's own, which only waits; another architecture's, which runs the package's code as well
        if b"warpwave.inside" in command:
            for name in ("environ", "mem", "fd"):
                try:
                    os.listdir(process / name) if name == "fd" else open(process / name, "rb").close()
                    found.append(f"{name} of {command!r}")
                except OSError:
                    pass
    assert found == []
def test_a_module_is_planted():
    Path("dataclasses.py").write_text("raise ImportError('planted')")
"""


@pytest.fixture
def run_forged(tmp_path, offline, built):
    """The run of a package of tests/unit/forgeries.py, or of given tests, as a user would start it; with the target of its report."""

    def run(name: str = "", text: str = "", stages: str = "test") -> tuple[subprocess.CompletedProcess[str], dict]:
        package = tmp_path / "package"
        package.mkdir()
        if name:
            write_package(package, name)
        else:
            (package / "test_op.py").write_text(text)
        for path in (package, *package.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        words = ["run", "cpu", "--engine", "docker", "--stage", stages, "--kernels", str(package), "--out", str(tmp_path / "out")]
        words += offline
        variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY / "harness")}
        done = subprocess.run([sys.executable, "-m", "warpwave", *words], cwd=tmp_path, capture_output=True, text=True, env=variables)
        return done, json.loads((tmp_path / "out" / "comparison.json").read_text())["targets"][0]

    return run


@pytest.mark.parametrize("name", ["makereport", "daemon"])
def test_a_forged_pass_is_invalid(run_forged, name):
    done, target = run_forged(name)

    assert (done.returncode, target["verdict"]) == (4, "invalid"), done.stdout + done.stderr
    assert target["stages"][1]["doubts"] or target["tests"].get("invalid")


def test_what_supervises_is_out_of_reach(run_forged):
    """Neither its memory nor its open files are the package's, and what the next stage imports is not either."""
    done, target = run_forged(text=REACHED, stages="test,compile")
    stages = {stage["stage"]: (stage["verdict"], stage["not_run"]) for stage in target["stages"]}

    assert stages["test"] == ("passed", {}), done.stdout + done.stderr
    assert stages["compile"] == ("not-run", {}), done.stdout + done.stderr
