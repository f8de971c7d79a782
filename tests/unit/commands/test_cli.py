"""The command line from outside: exit codes, three beats for every mistake, JSON that is one document, a third vendor that is data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from functools import partial

import command
import pytest
from light import light_python

pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")

THIRD = """
targets:
  third:
    label: a third vendor, as data only
    engine: local
    stages: [test]
    interpret: true
    image: {dockerfile: third.Dockerfile, base: "vendor/base:1"}
    environment: {THIRD_SETTING: "on"}
    visible_devices: THIRD_VISIBLE_DEVICES
"""
ENVIRONMENT_TEST = """
import os

def test_environment():
    assert (os.environ["THIRD_SETTING"], os.environ["THIRD_VISIBLE_DEVICES"]) == ("on", "1")
"""
PASSING = ("run", "cpu", "--stage", "test", "--kernels", "package", "--out", "out", "--json")


def variables(folder) -> dict[str, str]:
    """Of a machine without an engine."""
    # GPUs are lent by files in the temporary folder: a run of these tests beside this one may have the third vendor's.
    return {**os.environ, "DOCKER_HOST": f"unix://{folder}/no.sock", "COLUMNS": "200", "TMPDIR": str(folder)}


@pytest.fixture
def warpwave(tmp_path):
    """Run the command in an empty folder, with no engine to be found."""
    return partial(command.warpwave, cwd=tmp_path, env=variables(tmp_path), light=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which a run has passed, with its results in `out`, and what it has printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "package").mkdir()
    (folder / "package" / "test_op.py").write_text("def test_x(): pass\n")
    return folder, command.warpwave(*PASSING, cwd=folder, env=variables(folder), light=True)


@pytest.fixture
def package(tmp_path):
    """Write a kernel package of one test file."""

    def write(text: str, name: str = "test_op.py"):
        folder = tmp_path / "package"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return str(folder)

    return write


def beats(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of an error, without a traceback in them."""
    assert "Traceback" not in done.stderr + done.stdout
    return [line.strip() for line in done.stderr.strip().splitlines()]


@pytest.mark.slow
def test_a_third_vendor_runs_without_code(warpwave, package, tmp_path):
    """One entry in a file of the user's: a session's target, its environment and visible devices, its column, its suite."""
    (tmp_path / "mine.yml").write_text(THIRD)
    done = warpwave("run", "third", "--targets", "mine.yml", "--kernels", package(ENVIRONMENT_TEST), "--gpu", "1", "--out", "out")
    suites = {suite.get("name") for suite in ElementTree.parse(tmp_path / "out" / "junit.xml").getroot().iter("testsuite")}

    assert done.returncode == 0, done.stdout + done.stderr
    assert "third passed 1 test" in done.stdout
    assert any(name.startswith("third") for name in suites)


def test_both_targets_are_merged_and_a_failure_of_one_costs_the_other_nothing(warpwave, package, tmp_path):
    """Two targets, one of them without its engine: the comparison is there, says so, and has exit code 3."""
    (tmp_path / "mine.yml").write_text(THIRD)
    done = warpwave("run", "cuda", "third", "--targets", "mine.yml", "--kernels", package("def test_x(): pass\n"), "--out", "out")
    targets = json.loads((tmp_path / "out" / "comparison.json").read_text())["targets"]

    assert done.returncode == 3
    assert [(target["target"], target["verdict"]) for target in targets] == [("cuda", "infra"), ("third", "passed")]
    assert "Docker" in done.stdout


MISTAKES = {
    "unknown target": (
        ("run", "metal"),
        2,
        "metal",
        "cpu, gfx942-emulated, gfx950-emulated, gfx90a-emulated, gfx1100-emulated, gfx1201-emulated, cuda, rocm",
    ),
    "no kernel package": (("run", "cpu", "--kernels", "nowhere"), 2, "nowhere", "--kernels"),
    "wrong YAML": (("run", "cpu", "--targets", "wrong.yml"), 2, "targets.cpu.stages[0]", "targets.yml"),
    "unknown stage": (("run", "cpu", "--kernels", ".", "--stage", "fly"), 2, "'fly'", "test, bench, compile"),
    "stage of another target": (("run", "cpu", "--kernels", ".", "--stage", "bench"), 2, "'cpu'", "test, compile"),
    "unreadable raw folder": (("report", "nowhere"), 4, "nowhere", ""),
    "no raw folder": (("report", "."), 4, "", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_three_beats_and_its_exit_code(warpwave, tmp_path, mistake):
    """What happened, what it usually means, what to do; never a traceback."""
    arguments, code, happened, remedy = MISTAKES[mistake]
    (tmp_path / "wrong.yml").write_text("targets: {cpu: {stages: [tests]}}")
    done = warpwave(*arguments)
    lines = beats(done)

    assert (done.returncode, len(lines)) == (code, 3), done.stderr
    assert happened in lines[0]
    assert remedy in lines[2]


def test_no_docker_is_infrastructure_and_says_what_to_do(warpwave, package):
    """The engine was chosen, so there is no falling back."""
    done = warpwave("run", "cpu", "--engine", "docker", "--kernels", package("def test_x(): pass\n"), "--no-report")

    assert done.returncode == 3
    assert "infra" in done.stdout
    assert [line.partition(":")[0] for line in beats(done)] == ["exit code 3"]
    assert len(done.stdout.splitlines()) >= 2


def test_no_gpu_is_infrastructure_and_names_the_fix(warpwave, package):
    """A CPU build of torch where the target needs a vendor's: said before any test could fail for it."""
    done = warpwave("run", "cuda", "--engine", "local", "--kernels", package("def test_x(): assert False\n"), "--out", "out", light=False)

    assert done.returncode == 3, done.stdout
    assert "torch.version.cuda is not set" in done.stdout
    assert "nvidia-smi" in done.stdout


def test_a_package_that_does_not_import_is_named(warpwave, package):
    """Its own error, its file, and where the traceback is. What is no terminal gets no colour."""
    done = warpwave("run", "cpu", "--stage", "test", "--kernels", package("import nothing_of_this_name\n"), "--out", "out")

    assert done.returncode == 1, done.stdout
    assert "nothing_of_this_name" in done.stdout
    assert "test/log.txt" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_green_because_nothing_ran_is_not_green(warpwave, tmp_path):
    """An empty package has exit code 5."""
    (tmp_path / "empty").mkdir()

    assert warpwave("run", "cpu", "--stage", "test", "--kernels", "empty", "--out", "out").returncode == 5


def test_json_is_one_document_on_success(finished):
    """Standard output can be piped into a parser."""
    _, done = finished
    document = json.loads(done.stdout)

    assert (done.returncode, document["ok"], document["exit_code"]) == (0, True, 0)
    assert document["comparison"]["targets"][0]["target"] == "cpu"


def test_json_is_one_document_on_failure(warpwave):
    """An error too."""
    document = json.loads(warpwave("run", "metal", "--json").stdout)

    assert (document["ok"], document["exit_code"]) == (False, 2)
    assert set(document["error"]) == {"code", "message", "meaning", "hint"}


def test_results_of_another_run_are_never_overwritten(finished):
    """A target's raw folder is new, or the run does not start."""
    folder, done = finished

    assert done.returncode == 0
    assert command.warpwave(*PASSING, cwd=folder, env=variables(folder), light=True).returncode == 2


def test_a_report_can_be_made_again_from_raw(warpwave, finished, tmp_path):
    """`report` on a run's folder gives what the run gave, anywhere, any time."""
    folder, _ = finished
    done = warpwave("report", folder / "out", "--out", "again")

    assert done.returncode == 0
    assert (tmp_path / "again" / "comparison.json").read_text() == (folder / "out" / "comparison.json").read_text()


def test_an_expected_target_that_is_not_there_is_shown(warpwave, finished, tmp_path):
    """Absent with its name, exit code 4."""
    shutil.copytree(finished[0] / "out", tmp_path / "out")
    done = warpwave("report", "out", "--expect", "cpu,rocm")

    assert done.returncode == 4
    assert "rocm is absent" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_was_finished(package, tmp_path, number, code):
    """SIGINT or SIGTERM: exit 130 or 143, a JUnit file with the finished tests, a run that says incomplete, and no process left."""
    folder = package("import time, os\ndef test_a(): pass\ndef test_b():\n    open(os.environ['MARK'], 'w').close()\n    time.sleep(60)\n")
    mark = tmp_path / "mark"
    words = [light_python(), "-m", "warpwave", "run", "cpu", "--stage", "test", "--kernels", folder, "--out", "out"]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "MARK": str(mark)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    raw = tmp_path / "out" / "raw" / "cpu"
    outcomes = {
        case.get("name"): [child.tag for child in case if child.tag != "properties"]
        for case in ElementTree.parse(raw / "test" / "junit.xml").iter("testcase")
    }

    assert process.returncode == code, output
    assert outcomes == {"test_a": [], "test_b": ["skipped"]}
    assert json.loads((raw / "run.json").read_text())["verdict"] == "incomplete"
    assert subprocess.run(["pgrep", "-f", folder], capture_output=True).returncode == 1


def test_list_and_doctor_answer_on_a_bare_machine(tmp_path):
    """Both work without an engine and without a GPU; doctor skips the vendors that are not there. Started as a user starts them."""
    environment = variables(tmp_path)

    def started(*words: str) -> str:
        words = (sys.executable, "-m", "warpwave", *words)
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300).stdout

    assert "gfx942" in started("list")
    findings = json.loads(started("doctor", "--json"))["findings"]

    assert {finding["check"]: finding["state"] for finding in findings}["cpu: python"] == "pass"
    assert all(finding["fix"] for finding in findings if finding["state"] in ("warn", "fail"))
