"""The life of a run on a real engine: how it ends, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from engine_requests import change

from warpwave.collect import collect
from warpwave.engines import waiting
from warpwave.engines.choose import clean
from warpwave.engines.docker.container import boot, container_name, container_options
from warpwave.options import Cap, RunOptions
from warpwave.records import Stage, Verdict
from warpwave.report import write_report
from warpwave.run import attempt as attempt_module
from warpwave.run import run_target

READY = "import time; print('ready', flush=True); "
STUBBORN = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)]; " + READY + "time.sleep(600)"
POLITE = (
    READY
    + """
try:
    time.sleep(600)
except KeyboardInterrupt:
    open('/results/partial', 'w').write('kept')
"""
)


def test_output_of_any_kind_comes_through(run):
    """Bytes that are no text, lines without end and both streams are handed on as lines, cut where they are too long."""
    program = (
        "import os, time; os.write(1, b'\\xff\\xfe broken\\n'); os.write(1, b'y' * 50000 + b'\\n'); time.sleep(0.3); "
        "os.write(2, b'err\\n'); time.sleep(0.3); os.write(1, b'no newline')"
    )
    _, _, lines, _ = run(program)
    assert lines == ["\ufffd\ufffd broken", "y" * 10_000 + " … 40000 bytes cut", "err", "no newline"]


@pytest.mark.parametrize(("program", "code"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 11)", 139)])
def test_exit_codes_arrive(run, ours, program, code):
    """The code of the program is the code of the run, and the container is gone."""
    _, ended, _, request = run(program)
    assert (ended.code, ended.timed_out, ended.oom_killed, ended.error) == (code, False, False, "")
    assert container_name(request) not in ours()


def test_a_run_over_its_limit_may_finish_its_files(run, ours):
    """At the limit comes SIGINT first: what the program does about it is kept, and nothing is left."""
    _, ended, _, request = run(POLITE, limit_s=2.0)
    assert ended.timed_out
    assert ended.code == 0
    assert (request.raw / "partial").read_text() == "kept"
    assert container_name(request) not in ours()


def test_a_run_that_ignores_signals_is_killed(run, ours):
    """A program deaf to SIGINT and SIGTERM is killed within limit and grace."""
    _, ended, _, request = run(STUBBORN, limit_s=2.0, grace_s=1.0)
    assert ended.timed_out
    assert ended.code == 137
    assert not ended.oom_killed
    assert ended.seconds < 60
    assert container_name(request) not in ours()


def test_memory_is_limited(engine, run, monkeypatch):
    """A program that takes too much memory is killed, and the engine knows why."""
    observed = engine._host
    monkeypatch.setattr(engine, "_host", lambda request: replace(observed(request), memory_bytes=320 << 20))
    environment, ended, _, request = run("held = []\nwhile True: held.append(bytearray(1 << 24))", keep=True)
    known = engine._api.inspect_container(container_name(request))["State"]["OOMKilled"]
    engine._api.remove_container(container_name(request))
    assert ended.code == 137
    if not known:
        pytest.skip("this kernel or engine kills at the limit and does not say why")
    assert ended.oom_killed
    assert environment.options["limits"]["memory"] == "0.2 GiB"


HUNGRY = """
def test_before():
    pass

def test_that_eats():
    held = []
    while True:
        held.append(bytearray(1 << 24))

def test_after():
    pass
"""


def test_a_test_that_eats_all_memory_is_named(engine, built, request_, tmp_path, monkeypatch):
    """The limit of the container kills one process of it: that test is `oom`, with the limit; the others have run."""
    (tmp_path / "package").mkdir(mode=0o755)
    (tmp_path / "package" / "test_op.py").write_text(HUNGRY)
    observed = engine._host
    monkeypatch.setattr(engine, "_host", lambda request: replace(observed(request), memory_bytes=1920 << 20))
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
    target = replace(request_.target, interpret=False, stages=(Stage.TEST,))
    settings = RunOptions("run-oom", tmp_path / "out", tmp_path / "package", build=request_.options.build, commit=request_.options.commit)
    record = run_target(target, settings, lambda line: None, lambda event: None)
    cases = {case.id.rpartition("::")[2]: case for case in collect(tmp_path / "out" / "raw" / "cpu").cases}
    eater = cases.pop("test_that_eats")

    assert {name: case.verdict for name, case in cases.items()} == {"test_before": Verdict.PASSED, "test_after": Verdict.PASSED}
    assert (record.verdict, eater.verdict) == (Verdict.OOM, Verdict.OOM)
    assert "its limit of 1.5 GiB" in eater.message
    assert "SIGKILL" in eater.message
    assert record.attempts == ()


def test_ctrl_c_ends_the_run_and_returns(run, ours):
    """An interrupt is passed into the container, the run returns as interrupted, and what was written is there."""
    _, ended, _, request = run(POLITE, on_line=lambda line: os.kill(os.getpid(), signal.SIGINT))
    assert ended.interrupted
    assert not ended.timed_out
    assert (request.raw / "partial").read_text() == "kept"
    assert container_name(request) not in ours()


def test_a_second_ctrl_c_skips_the_grace(run, ours):
    """Who presses twice does not wait for a program that will not listen."""

    def twice(line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not waiting.asked():  # a second signal while the first one is pending would count once
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    _, ended, _, request = run(STUBBORN, on_line=twice, grace_s=60.0)
    assert ended.interrupted
    assert ended.code == 137
    assert ended.seconds < 60
    assert container_name(request) not in ours()


def test_a_container_that_vanishes_is_infrastructure(engine, run, request_):
    """Removed from under us, or lost with the engine: no exit code is made up."""
    _, ended, _, _ = run(STUBBORN, on_line=lambda line: engine._api.remove_container(container_name(request_), force=True))
    assert ended.code is None
    assert "removed while it ran" in ended.error


def test_leftovers_of_dead_runs_only(engine, run, request_, built, ours):
    """The next run removes what a killed one left; what is alive, kept on request or of another machine and running stays."""
    host = engine._host(request_)
    machine = boot()
    cases = {
        "dead": (2**22 - 1, machine, False),
        "alive": (os.getpid(), machine, False),
        "kept": (2**22 - 1, machine, True),
        "elsewhere": (2**22 - 1, "another-machine", False),
    }
    created = {}
    for name, (pid, where, keep) in cases.items():
        request = change(request_, run_id=f"{request_.options.run_id}-{name}", keep=keep)
        body = container_options(request, built[0], replace(host, pid=pid, boot=where), ["sleep", "600"])
        created[name] = container_name(request)
        engine._api.create_container_from_config(body, created[name])
        engine._api.start(created[name])
    try:
        run("pass")
        assert {name for name, container in created.items() if container in ours()} == {"alive", "kept", "elsewhere"}
        assert f"container {created['kept']}" in clean(dry_run=True)
        assert created["kept"] in ours()
        clean(dry_run=False)
        assert {name for name, container in created.items() if container in ours()} == {"alive", "elsewhere"}
    finally:
        for container in set(created.values()) & set(ours()):
            engine._api.remove_container(container, force=True)


FILLS = {
    "one large file": "f = open('/results/large', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "a file without a name": "f = open('/results/large', 'wb'); os.unlink('/results/large')\nwhile True: f.write(b'x' * (1 << 20))",
    "small files": "for n in range(10**9): open(f'/results/{n}', 'w').close()",
    "a sparse file": "os.close(os.open('/results/hole', os.O_CREAT)); os.truncate('/results/hole', 1 << 30); time.sleep(600)",
    "hard links": "open('/results/a', 'wb').write(bytes(8 << 20))\nfor n in range(900): os.link('/results/a', f'/results/{n}')\nexit(3)",
    "deaf": "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; f = open('/results/large', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
}


@pytest.mark.parametrize("fill", FILLS)
def test_results_have_a_cap(run, ours, fill):
    """However the room is taken: the run ends long before its time, and says why. What is linked often takes its room once."""
    program = "import os, signal, sys, time\ntime.sleep(0.5)\n" + FILLS[fill]
    _, ended, _, request = run(program, cap=Cap(32 << 20, 2000), limit_s=120.0)
    if fill == "hard links":
        assert (ended.code, ended.exceeded) == (3, "")
    else:
        assert "to its results; the limit is 0.03125 GiB, and 2000 files" in ended.exceeded
        assert not ended.timed_out
    assert container_name(request) not in ours()


def test_one_file_has_a_cap_between_two_looks(run):
    """A limit of the kernel's: what grows faster than anybody looks, and what only seems to be large, are refused at once."""
    program = (
        "import os\nopen('/results/hole', 'w')\ntry: os.truncate('/results/hole', 3 << 30)\nexcept OSError as error: print(error.errno)"
    )
    _, ended, lines, _ = run(program, cap=Cap(32 << 20, 2000))
    assert (ended.code, lines) == (0, ["27"])


@pytest.mark.parametrize("kib", [8, 48, 96, 512])
def test_a_disk_that_is_full_is_infrastructure(built, request_, tmp_path, kib):
    """3, on the terminal and on record: before the container is created, and in the middle of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.getuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)], capture_output=True).returncode
    ):
        pytest.skip("only root can mount a small file system")
    try:
        package = tmp_path / "package"
        package.mkdir()
        (package / "test_op.py").write_text(
            "def test_op():\n    print('x' * (1 << 20))\n    open('/results/x', 'wb').write(b'x' * (1 << 20))\n"
        )
        for path in (tmp_path, package):
            path.chmod(0o755)
        settings = RunOptions(
            "full", disk / "out", package, engine="docker", stages=(Stage.TEST,), build=request_.options.build, gpu_wait_s=1.0
        )
        record = run_target(replace(request_.target, interpret=False), settings, lambda line: None, lambda event: None)
        comparison = write_report([settings.out], settings.out, ["cpu"], [record])
        kept = json.loads((disk / "out" / "raw" / "cpu" / "run.json").read_text()) if kib > 8 else {"verdict": "infra"}
        assert kib == 512 or (record.verdict, comparison.exit_code, kept["verdict"]) == (Verdict.INFRA, 3, "infra"), record
        assert kept["verdict"] != "incomplete"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
