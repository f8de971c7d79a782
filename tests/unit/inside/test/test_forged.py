"""Packages that forge their own pass, by design or by accident: what is found out, in which words, and what honest packages may do."""

import functools
import itertools
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import command
import pytest
from engine_requests import make_job
from forgeries import write_package

from warpwave.inside.bench.results import Sink
from warpwave.records import Sample, Stage, Verdict, dump, to_json

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
NEVER_CALLED = "the test function was never called"

# The verdict of the test stage, and what its reason says. `test_wrong` fails in each, were it run as it is written.
FORGED = {
    "makereport": ("invalid", "test_wrong: pytest reported a pass, but its call raised AssertionError: one is not two"),
    "runtest": ("invalid", "replaced what runs or reports its tests: pytest.Function.runtest"),
    "pyfunc_call": ("invalid", NEVER_CALLED),
    "protocol": ("invalid", "no call of this test either"),
    "plan": ("invalid", "no call of this test either"),
    "journal_patched": ("invalid", "replaced what runs or reports its tests: Journal.write"),
    "plugin": ("invalid", "replaced what runs or reports its tests: the reporter's journal"),
    "reporter": ("invalid", "replaced what runs or reports its tests: Reporter.pytest_runtest_logreport"),
    "unregistered": ("crashed", "before its end"),
    "journal_written": ("invalid", "3 tests were reported, none was collected"),
    "dropped_late": ("invalid", "3 tests were collected, 2 of them reported; missing: test_forged.py::test_wrong"),
    "stopped": ("invalid", "3 tests were collected, 1 of them reported"),
    "at_exit": ("invalid", "results came after the last test had ended: test_forged.py::test_wrong"),
    "retried": ("invalid", "reported more often than collected: test_forged.py::test_wrong"),
    "truncated": ("invalid", "its journal was changed after it was read"),
    "rewritten": ("invalid", "its journal was changed after it was read"),
    "garbage": ("invalid", "lines that mean nothing"),
    "assert_close": ("invalid", "torch.testing.assert_close"),
    # These have no effect, and the failure stands.
    "dumps": ("failed", "one is not two"),
    "forked": ("failed", "one is not two"),
    "exit_status": ("failed", "one is not two"),
    # Legitimate uses of pytest; what is left out is counted, where pytest had found it.
    "dropped": ("passed", ""),
    "deselected": ("passed", ""),
    "not_made": ("passed", ""),
    # A forgery with care is not found out: SECURITY.md.
    "journal_forged": ("passed", ""),
}
# One of each kind runs every time: a report, a call, a journal, a fork, and what an honest package may do. The rest are slow together.
SOON = ("makereport", "pyfunc_call", "journal_written", "truncated", "dumps", "forked", "dropped", "deselected", "not_made")


def named(names):
    return [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in names]


def verify(package: Path, output: Path, *pytest_args: str, light: bool = True) -> dict:
    """The test stage over a package, in a process of its own; its report. Not `light`: with torch and the plugins of the tests."""
    (output / "test").mkdir(parents=True)
    dump(make_job("run-1", "cpu", (Stage.TEST,), str(package), str(output), pytest_args=pytest_args, benches=()), output / "job.json")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), **({} if light else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""})}
    done = command.python("-m", "warpwave.inside.test.stage", output / "job.json", light=light, cwd=output, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads((output / "test" / "report.json").read_text())


def verdicts(output: Path) -> dict[str, str]:
    """Each test's, by name; the gravest for one that is there twice."""
    found = {}
    for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        found[case.get("name")] = "passed" if bad is None else bad.get("type") or bad.tag
    return found


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    folder, number = tmp_path_factory.mktemp("forged"), itertools.count()

    def make(name: str) -> Path:
        package = folder / f"{name}-{next(number)}" / "package"
        package.mkdir(parents=True)
        write_package(package, name)
        return package

    return make


@pytest.fixture(scope="module")
def forged(forge):
    """A function from a package's name to the report of its test stage, and the verdicts of its tests. Each runs once."""

    @functools.cache
    def told(name: str) -> tuple[dict, dict[str, str]]:
        package = forge(name)
        return verify(package, package.parent / "out", light=name != "assert_close"), verdicts(package.parent / "out")

    return told


@pytest.mark.parametrize("name", named(FORGED))
def test_a_forged_pass_is_shown_where_it_shows(forged, name):
    report, found = forged(name)
    verdict, words = FORGED[name]

    assert report["verdict"] == verdict, report
    assert words in report["reason"]
    assert bool(report["doubts"]) <= (verdict == "invalid")
    assert "SECURITY.md" in report["hint"] or not report["doubts"]
    if name not in ("unregistered", "plugin"):
        assert found["test_right"] in ("passed", "invalid")


@pytest.mark.parametrize("name", named(["retried", "at_exit", "garbage", "truncated", "dumps", "forked"]))
def test_a_failure_is_never_lost_to_a_later_pass(forged, name):
    _, found = forged(name)

    assert found == {"test_right": "passed", "test_wrong": "failed", "test_last": "passed"}


def test_what_was_left_out_is_counted(forged):
    """The package may choose among its tests, as pytest lets it; the report says how many it chose away."""
    assert {name: forged(name)[0]["deselected"] for name in ("dropped", "deselected", "not_made")} == {
        "dropped": 1,
        "deselected": 1,
        "not_made": 0,
    }


def test_honest_packages_are_believed(data, tmp_path):
    """Decorators, mocks, Hypothesis, unittest, marks, hooks that turn a failure into a skip: nothing of it is a forgery."""
    report = verify(data / "ordinary", tmp_path / "out", light=False)

    assert (report["verdict"], report["doubts"], report["deselected"]) == ("passed", [], 0), report
    assert set(verdicts(tmp_path / "out").values()) == {"passed", "skipped", "pytest.xfail"}


PACKAGE = "def test_a(): pass\ndef test_b(): assert False\ndef test_c(): pass\n"
OPTIONS = {
    "-k": (("-k", "test_a"), "passed", 2),
    "--deselect": (("--deselect", "test_op.py::test_b"), "passed", 1),
    "-x": (("-x",), "failed", 0),
    "--maxfail": (("--maxfail=1",), "failed", 0),
    "--collect-only": (("--collect-only",), "not-run", 0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_the_user_leaves_out_is_not_invalid(tmp_path, name):
    """`-k`, `-x` and the like are what was asked for; what they keep from running is a row, or counted."""
    options, verdict, deselected = OPTIONS[name]
    (package := tmp_path / "package").mkdir()
    (package / "test_op.py").write_text(PACKAGE)
    report = verify(package, tmp_path / "out", *options)

    assert (report["verdict"], report["doubts"], report["deselected"]) == (verdict, [], deselected), report


def test_tests_that_share_an_id_are_rows_of_their_own(tmp_path):
    (package := tmp_path / "package").mkdir()
    (package / "test_op.py").write_text("ran = []\ndef test_a():\n    ran.append(1)\n    assert len(ran) > 1\n")
    (package / "conftest.py").write_text("def pytest_collection_modifyitems(items):\n    items[:] = items * 2\n")
    report = verify(package, tmp_path / "out")

    assert (report["verdict"], report["counts"], report["doubts"]) == ("failed", {"passed": 1, "failed": 1}, [])


def run(package: Path, folder: Path) -> tuple[subprocess.CompletedProcess[str], dict]:
    """`warpwave run cpu` as a user would; the target of its report."""
    (folder / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")
    words = ["run", "cpu", "--engine", "local", "--kernels", str(package), "--targets", "targets.yml", "--out", "out"]
    variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY / "harness")}
    done = command.warpwave(*words, cwd=folder, env=variables, light=True)
    return done, json.loads((folder / "out" / "comparison.json").read_text())["targets"][0]


def test_a_forged_pass_has_exit_code_4(forge, tmp_path):
    done, target = run(forge("makereport"), tmp_path)

    assert (done.returncode, target["verdict"], target["tests"]) == (4, "invalid", {"passed": 2, "invalid": 1}), done.stdout
    assert "pytest reported a pass, but its call raised AssertionError" in done.stdout


def test_a_daemon_that_rewrites_results_is_ended_and_found_out(forge, tmp_path):
    """It has left its session, and makes a pass of each failure: in the files of the stage and in those of the run."""
    done, target = run(forge("daemon"), tmp_path)
    stages = json.loads((tmp_path / "out" / "raw" / "cpu" / "stages.json").read_text())

    assert done.returncode == 4, done.stdout + done.stderr
    assert target["verdict"] == "invalid"
    assert "test/junit.xml was changed by another process" in stages["reports"][1]["reason"]
    assert stages["finished"] is True
    assert [path for path in Path("/proc").glob("[0-9]*/environ") if str(tmp_path).encode() in _bytes(path)] == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


PLANTED = "import sys\nwith open({seen!r}, 'a') as seen:\n    seen.write(' '.join(sys.orig_argv) + '\\n')\nraise ImportError('planted')\n"


def test_a_stage_imports_nothing_that_an_earlier_one_has_planted(tmp_path):
    """`-m` would look in the working folder first, which is open to the package: the next stage's supervisor would be the package's."""
    (package := tmp_path / "package").mkdir()
    planted = PLANTED.format(seen=str(tmp_path / "seen"))
    (work := tmp_path / "work").mkdir()
    (package / "test_op.py").write_text(f"def test_plant():\n    open({str(work / 'dataclasses.py')!r}, 'w').write({planted!r})\n")
    (output := tmp_path / "out").mkdir()
    job = make_job("run-1", "cpu", (Stage.TEST, Stage.COMPILE), str(package), str(output), benches=())
    dump(job, output / "job.json")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}
    command.python("-m", "warpwave.inside", output / "job.json", light=True, cwd=work, env=variables)
    reports = json.loads((output / "stages.json").read_text())["reports"]

    assert (work / "dataclasses.py").exists()
    assert "warpwave.inside.compile.stage" not in ((tmp_path / "seen").read_text() if (tmp_path / "seen").exists() else "")
    assert [report["verdict"] for report in reports] == ["passed", "passed", "not-run"], reports


# --- the bench stage ----------------------------------------------------------------------------------------------------------------------


PLAN = {f"k/N={n} [mine]": {"case": f"k/N={n}", "kernel": "k", "provider": "mine", "params": {}, "device": 0} for n in (1, 2)}


def finish(n: int, verdict: str = "passed", **changes) -> dict:
    sample = Sample(
        **{"case": f"k/N={n}", "kernel": "k", "provider": "mine", "params": {}, "device": 0, "verdict": Verdict.PASSED, **changes}
    )
    return {"event": "finish", "id": f"k/N={n} [mine]", "verdict": verdict, "reason": "", "sample": to_json(sample)}


BENCHES = {
    "as planned": ([finish(1), finish(2)], ()),
    "one is missing": ([finish(1)], ("2 points were announced, 1 of them reported; missing: k/N=2 [mine]",)),
    "another's": ([finish(1), finish(2, case="k/N=4")], ("k/N=2 [mine]: its sample is that of k/N=4 [mine]",)),
    "better": ([finish(1), finish(2, verdict="error")], ("k/N=2 [mine]: its sample is passed, its worker said error",)),
}


@pytest.mark.parametrize("name", BENCHES)
def test_samples_are_held_against_the_plan(tmp_path, name):
    told, doubts = BENCHES[name]
    sink = Sink(tmp_path, "samples.jsonl")
    for event in ({"event": "collected", "points": PLAN}, *told):
        sink.on_event(event)
    report = sink.report([])

    assert report.doubts == doubts
    assert (report.verdict is Verdict.INVALID) == bool(doubts)
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) == len(told)
