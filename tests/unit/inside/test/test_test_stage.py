"""The test stage: a result for every test, whatever becomes of the process that runs it."""

import dataclasses
import json
import xml.etree.ElementTree as ElementTree

import pytest
from engine_requests import having, make_job

from warpwave.inside.compile.stage import mostly_run
from warpwave.records import MOSTLY_UNSEEN

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from slow_cases import slow_but

from warpwave.collect.cases import read_cases
from warpwave.config.targets import load_targets
from warpwave.inside.benchmarks import loading
from warpwave.inside.compile.stage import Cases, never_loaded, never_ran, never_reached
from warpwave.inside.test.settings import files_with_tests
from warpwave.records import Architecture, Chosen, NotRun, Stage, StageReport, Verdict


def test_a_test_draws_the_same_in_each_run(run_inside, tmp_path):
    """By Hypothesis and by itself. Else it could fail in one run alone, or for one architecture alone."""
    pytest.importorskip("hypothesis")
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import given, settings, strategies\ndrawn = []\n@settings(max_examples=5)\n"
        "@given(strategies.integers(0, 10**9))\ndef test_it(n):\n    drawn.append(n)\n"
        "def test_drawn(record_property):\n    import random\n    record_property('drawn', [*drawn, random.random()])\n"
    )
    runs = [run_inside(tmp_path, Stage.TEST, light=True, benches=()) for _ in range(2)]
    cases = [{case.id: case for case in read_cases(output, "test/junit.xml")} for output in runs]
    first, again = (each["test_it.py::test_drawn"].properties["drawn"] for each in cases)

    assert first == again
    assert len(first) > 2


OPS = """
def checked(x):
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x
"""
FAILING = """
import random
import unittest
import pytest
from ops import checked
class TestParts(unittest.TestCase):
    def test_parts(self):
        for part in range(4):
            with self.subTest(part=part):
                self.assertEqual(part % 2, 0)
    def test_unchecked_part(self):
        with self.subTest():
            import no_such_module
        with self.subTest():
            self.assertEqual(1, 2)
@pytest.fixture
def broken():
    checked(-1)
def test_number():
    x = random.random()
    assert x < 0, f"{x} is {id(x)}"
def test_lines():
    assert (
        checked(1)
        == 2
    )
def test_below():
    y = checked(-random.random())
def test_fixture(broken):
    pass
def test_no_error():
    with pytest.raises(ValueError):
        checked(1)
"""


def test_a_failure_says_what_it_failed_by_alike_in_each_run(run_inside, tmp_path):
    """The exception, the statement of the test, and the function of the package; no number, and no line, which an edit above moves."""
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "test_broken.py").write_text("raise RuntimeError('7 of 8')\n")
    cases = read_cases(run_inside(tmp_path, Stage.TEST, light=True, benches=()), "test/junit.xml")

    assert {case.id.rpartition("::")[2]: case.properties["failed_by"] for case in cases} == {
        "test_parts": "AssertionError at self.assertEqual(part % 2, 0)",
        "test_unchecked_part": "AssertionError at self.assertEqual(1, 2)",
        "test_number": 'AssertionError at assert x < 0, f"{x} is {id(x)}"',
        "test_lines": "AssertionError at assert checked(1) == 2",
        "test_below": "ValueError at y = checked(-random.random()) in checked",
        "test_fixture": "ValueError at checked(-1) in checked",
        "test_no_error": "Failed at with pytest.raises(ValueError):",
        "test_broken.py": "RuntimeError",
    }


@pytest.fixture(scope="module")
def cases(run_inside, data):
    """Each test of the deadly package, by name: its outcome's type and message."""
    output = run_inside(data / "deaths", Stage.TEST, light=True, benches=(), test_s=4.0)
    root = ElementTree.parse(output / "test" / "junit.xml").getroot()
    found = {}
    for case in root.iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        found[case.get("name")] = ("passed", "") if bad is None else (bad.get("type") or bad.tag, bad.get("message"))
    report = json.loads((output / "stages.json").read_text())
    return found, report, root


def test_every_death_is_named_and_the_others_run(cases):
    """Crash, exit and hang are blamed on their test; what comes after them still has a result of its own."""
    found, _, _ = cases

    assert {name: outcome for name, (outcome, _) in found.items()} == {
        "test_before": "passed",
        "test_segfault": "crashed",
        "test_exit": "crashed",
        "test_hang_in_c": "timeout",
        "test_fails": "failed",
        "test_skipped": "skipped",
        "test_error": "error",
        "test_after": "passed",
        "test_unimportable.py": "error",
    }

    # The signal is decoded, the limit is named, skip reasons and assertion texts are kept.
    found, _, _ = cases

    assert "SIGSEGV" in found["test_segfault"][1]
    assert "exited with 3" in found["test_exit"][1]
    assert "4 s" in found["test_hang_in_c"][1]
    assert found["test_skipped"][1] == "needs two GPUs"
    assert "one is not two" in found["test_fails"][1]
    assert "a_module_that_nobody_has" in found["test_unimportable.py"][1]

    _, stages, _ = cases
    report = stages["reports"][1]

    assert stages["finished"] is True
    assert report["counts"] == {"passed": 2, "not-run": 1, "failed": 1, "error": 2, "timeout": 1, "crashed": 2}
    assert report["verdict"] == "crashed"

    _, _, root = cases
    before = next(case for case in root.iter("testcase") if case.get("name") == "test_before")
    properties = {entry.get("name"): entry.get("value") for entry in before.iter("property")}

    assert properties == {"id": "test_deaths.py::test_before", "kernel": "deaths", "max_abs_err": "0.5", "launched": ""}


LAUNCHES = """
import pytest
import torch
import triton
import triton.language as tl
@triton.jit
def copy_kernel(x, y):
    tl.store(y, tl.load(x))
@triton.jit
def wrong_kernel(x, y):
    tl.store(y, tl.load(x) + 1)
def launched(*kernels):
    x, y = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
    for kernel in kernels:
        kernel[(1,)](x, y)
    return y
def test_right():
    assert launched(copy_kernel, copy_kernel) == 1
def test_wrong():
    assert launched(copy_kernel, wrong_kernel) == 1
def test_no_launch():
    pass
"""


def test_each_test_says_what_it_launched(run_inside, tmp_path):
    """By the names of the functions, whether it passes or fails; and what the test before launched is not this one's."""
    (tmp_path / "test_launches.py").write_text(LAUNCHES)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    found = {case.id.partition("::")[2]: case.properties["launched"] for case in read_cases(output, "test/junit.xml")}

    assert found == {"test_right": "copy_kernel", "test_wrong": "copy_kernel wrong_kernel", "test_no_launch": ""}


def test_nothing_found_is_not_a_pass(run_inside, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    output = run_inside(empty, Stage.TEST, light=True, benches=("bench_*.py",))
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["verdict"], report["reason"]) == ("not-run", "no test was found")


KEEPS_RUN = """
from triton.runtime.jit import JITFunction
RUN = JITFunction.run
def test_nobody_watches():
    assert JITFunction.run is RUN
"""


def test_noting_launches_replaces_nothing_that_a_package_has_seen(run_inside, tmp_path):
    """A package with a quicker way to launch keeps Triton's `run`, and leaves its own way where that was replaced later by a tool."""
    (tmp_path / "test_quick.py").write_text(KEEPS_RUN)
    (case,) = read_cases(run_inside(tmp_path, Stage.TEST, benches=(), interpret=False), "test/junit.xml")

    assert (case.verdict, case.properties["launched"]) == (Verdict.PASSED, "")


def test_scripts_with_a_hard_coded_device_run_in_the_interpreter(run_inside, data):
    """A tutorial-style script runs unmodified on the CPU, its own assertions included."""
    output = run_inside(data / "scripted", Stage.TEST)
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["verdict"], report["counts"]) == ("passed", {"passed": 1}), (output / "test" / "log.txt").read_text()


def test_progress_counts_tests_and_not_the_load_of_a_benchmark_file(tmp_path, monkeypatch):
    """As the last line of the command does: 2 of 2, and not 3 of 3."""
    from warpwave.inside.test import stage  # imports torch

    told = []
    monkeypatch.setattr(stage, "emit", lambda event, **fields: told.append((event, fields)))
    results = stage.Results(make_job("r", "t", (), "/kernels", "/out"), tmp_path)
    tests = ["a/bench_a.py::module", "a/test_a.py::one", "a/test_a.py::two"]
    results.on_event({"event": "collected", "ids": tests})
    for test in tests:
        results.on_event({"event": "start", "id": test})
        results.on_event({"event": "idle"})
        ended = {"outcome": "passed", "seconds": 0.1, "message": "", "detail": "", "properties": {}}
        results.on_event({"event": "finish", "id": test, **ended})

    assert [(fields["done"], fields["total"]) for event, fields in told if event == "case"] == [(0, 2), (0, 2), (1, 2)]


def test_a_finding_beside_other_tests_counts_only_if_the_run_alone_has_it(tmp_path):
    """The test that was postponed for it is run again, and finds it again or does not."""
    from warpwave.inside.fake_gpu.emulated_findings import finding
    from warpwave.inside.test import stage  # imports torch
    from warpwave.records import Defect

    row = dataclasses.asdict(finding(function="k", defect=Defect.RACE, access="global", file="k.py", line=1))
    results = stage.Results(make_job("r", "t", (), "/kernels", "/out"), tmp_path)
    for test in ("a/test_a.py::one", "a/test_a.py::two"):
        results.on_event({"event": "finding", "id": test, "row": row})
    results.on_event({"event": "postponed", "id": "a/test_a.py::one"})

    assert [found.case for found in results.findings] == ["a/test_a.py::two"]


def test_an_expression_that_pytest_refuses_is_shown_in_its_own_words(tmp_path):
    (tmp_path / "log.txt").write_text("collected 5 items\nERROR: Wrong expression passed to '-k': test_(: at column 7\n")
    from warpwave.inside.test import stage  # imports torch

    report = stage._report(stage.Results(make_job("r", "t", (), "/kernels", "/out"), tmp_path), [], tmp_path)

    assert (report.verdict, report.reason) == (Verdict.ERROR, "pytest ran no test: Wrong expression passed to '-k': test_(: at column 7")


EXPECTED_FAILURES = """
import unittest
import pytest
@pytest.mark.xfail(strict=True, reason="one day")
def test_marked():
    assert 1 == 2
def test_imperative():
    pytest.xfail("not here")
@pytest.fixture
def broken():
    raise KeyError("x")
@pytest.mark.xfail(raises=KeyError)
def test_fixture(broken):
    pass
class TestCase(unittest.TestCase):
    @unittest.expectedFailure
    def test_unittest(self):
        assert False
@pytest.mark.xfail(False, reason="elsewhere")
def test_condition():
    pass
@pytest.mark.xfail(reason="it passes by now")
def test_unexpected():
    pass
@pytest.mark.xfail(strict=True, reason="it passes by now")
def test_unexpected_and_strict():
    pass
@pytest.mark.xfail(raises=KeyError)
def test_other_error():
    raise ValueError("y")
@pytest.mark.skip(reason="never")
def test_skipped():
    pass
"""


def test_an_expected_failure_is_neither_a_skip_nor_a_failure(tmp_path, run_inside):
    """It has the type of pytest's own JUnit file, and the reason of its mark. A strict one that passes fails."""
    (package := tmp_path / "package").mkdir()
    (package / "test_known.py").write_text(EXPECTED_FAILURES)
    output = run_inside(package, Stage.TEST, light=True)
    cases = {case.id.rpartition(":")[2]: case for case in read_cases(output / "test", "junit.xml")}
    counts = json.loads((output / "stages.json").read_text())["reports"][1]["counts"]

    assert {name: case.verdict.value for name, case in cases.items()} == {
        **dict.fromkeys(("test_marked", "test_imperative", "test_fixture", "test_unittest"), "xfailed"),
        **dict.fromkeys(("test_condition", "test_unexpected"), "passed"),
        **dict.fromkeys(("test_unexpected_and_strict", "test_other_error"), "failed"),
        "test_skipped": "not-run",
    }
    assert (cases["test_marked"].message, cases["test_imperative"].message) == ("one day", "not here")
    assert counts == {"passed": 2, "xfailed": 4, "not-run": 1, "failed": 2}


# Each file that was matched has a row: also one that does not import, has nothing to run, or was never reached.

BROKEN = "ModuleNotFoundError: No module named 'json.no_such_module'"
FILES = {
    "conftest.py": "collect_ignore = []",
    "broken/conftest.py": "import json.no_such_module",
    "broken/test_behind.py": "def test_a(): pass",
    "good/test_good.py": "def test_a(): pass",
    "good/test_helpers.py": "WIDTH = 4",
    "asking/test_asks.py": "def test_a(no_such_fixture): pass",
    "marked/test_slow.py": "import pytest\n\n@pytest.mark.slow\ndef test_a(): pass",
    "good/bench_none.py": "def main(): pass",
    "pytest.ini": "[pytest]\naddopts = -m 'not slow'\nmarkers =\n    slow: takes long",
}
ROWS = {
    "broken/conftest.py": ("error", None, BROKEN),
    "broken/test_behind.py": ("not-run", "import-failed", f"broken/conftest.py does not import: {BROKEN}"),
    "asking/test_asks.py::test_a": ("error", None, "fixture 'no_such_fixture' not found"),
    "good/test_helpers.py": ("not-run", "empty", "there is no test in this file"),
    "marked/test_slow.py": ("not-run", "skipped", "all tests of this file are deselected"),
    "good/test_good.py::test_a": ("passed", None, ""),
}


def _package(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _cases(output):
    return {case.id: (case.verdict.value, case.not_run and case.not_run.value, case.message) for case in _read(output)}


def _read(output):
    return read_cases(output, "test/junit.xml")


def _report(output, stage=1):
    return json.loads((output / "stages.json").read_text())["reports"][stage]


def test_no_row_is_missing_from_the_test_stage(run_inside, tmp_path):
    """A conftest.py that does not import is an error with its own message, and the tests of other folders run."""
    output = run_inside(_package(tmp_path / "package", FILES), Stage.TEST, light=True, benches=())

    assert _cases(output) == ROWS
    report = _report(output)
    assert (report["verdict"], report["deselected"]) == ("error", 1)
    assert report["not_run"] == {"skipped": 1, "empty": 1, "import-failed": 1}


def test_a_broken_conftest_of_the_whole_package_is_named(run_inside, tmp_path):
    files = {"conftest.py": "import json.no_such_module", "tests/test_a.py": "def test_a(): pass"}
    output = run_inside(_package(tmp_path / "package", files), Stage.TEST, light=True, benches=())

    assert {name: row[:2] for name, row in _cases(output).items()} == {
        "conftest.py": ("error", None),
        "tests/test_a.py": ("not-run", "import-failed"),
    }
    assert _report(output)["reason"] == f"conftest.py: {BROKEN}"


def test_random_parameters_differ_between_workers(run_inside, tmp_path):
    """A file has the tests that the worker which ran it knows. That no other worker saw those is no missing row."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    text = "import os, time, pytest\n@pytest.mark.parametrize('x', [os.getpid()])\ndef test_a(x): time.sleep(0.5)"
    package = _package(tmp_path / "package", {"test_a.py": text, "test_b.py": text})
    output = run_inside(package, Stage.TEST, benches=(), test_workers=2)

    assert sorted(name.partition("::")[0] for name in _cases(output)) == ["test_a.py", "test_b.py"]
    report = _report(output)
    assert (report["verdict"], report["counts"]) == ("passed", {"passed": 2}), report
    assert any("random, or made from the time" in note for note in report["notes"]), report


@pytest.mark.parametrize("folder", ["", "tests/"])
def test_a_conftest_that_skips_its_folder_is_named(run_inside, tmp_path, folder):
    files = {f"{folder}conftest.py": "import pytest\npytest.skip('no card')", f"{folder}test_a.py": "def test_a(): pass"}
    package = _package(tmp_path / "package", {**files, "test_b.py": "def test_b(): pass"} if folder else files)
    output = run_inside(package, Stage.TEST, light=True, benches=())

    cases = _cases(output)
    assert cases.pop("test_b.py::test_b", ("passed",))[0] == "passed"
    assert {row[:2] for row in cases.values()} == {("not-run", "skipped")}
    assert f"{folder}test_a.py" in cases
    assert all("no card" in row[2] for row in cases.values())


def test_the_first_conftest_sees_the_pretended_card(run_inside, tmp_path):
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    asks = "import pytest, torch\nif not torch.cuda.is_available():\n    pytest.skip('no card')"
    package = _package(tmp_path / "package", {"conftest.py": asks, "test_a.py": "def test_a(): pass"})

    assert {row[0] for row in _cases(run_inside(package, Stage.TEST, benches=())).values()} == {"passed"}


def test_what_pytest_refuses_is_said(run_inside, tmp_path):
    """An option of a plugin that is not installed: pytest ends before it collects."""
    package = _package(tmp_path / "package", {"test_a.py": "def test_a(): pass"})
    report = _report(run_inside(package, Stage.TEST, light=True, benches=(), pytest_args=("--no-such-option",)))

    assert report["verdict"] == "error"
    assert report["reason"].startswith("pytest did not start: unrecognized arguments: --no-such-option")


def test_no_row_is_missing_from_the_compile_stage(run_inside, tmp_path):
    """The same rows for each card, and one for a bench file that has nothing to measure."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    package = _package(tmp_path / "package", FILES)
    output = run_inside(package, Stage.COMPILE, architectures=(card,), benches=("bench_*.py",))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    report = json.loads((output / "compile" / "report.json").read_text())

    expected = {name: row[2] for name, row in ROWS.items() if row[0] != "passed"}
    expected["good [loading bench_none.py]"] = (
        "no module-level perf_report; nothing to measure. If it is a script: --bench-script good/bench_none.py runs it"
    )
    assert {row["origin"]: row["reason"] for row in rows} == expected
    assert {row["origin"] for row in rows if row["verdict"] == "error"} == {"broken/conftest.py"}
    assert report["verdict"] == "error"
    assert report["not_run"] == {"skipped": 1, "empty": 2, "import-failed": 2, "raised": 1}


def test_tests_that_were_never_reached_say_so(run_inside, tmp_path):
    """When the stage's time is up, each test has a row, and the stage its counts."""
    files = {"test_a.py": "import time\n\ndef test_first(): pass\n\ndef test_long(): time.sleep(600)\n\ndef test_last(): pass"}
    output = run_inside(_package(tmp_path / "package", files), Stage.TEST, light=True, benches=(), stage_s=12.0)
    report = _report(output)

    assert {name.partition("::")[2]: row[:2] for name, row in _cases(output).items()} == {
        "test_first": ("passed", None),
        "test_long": ("not-run", "time-up"),
        "test_last": ("not-run", "time-up"),
    }
    assert (report["verdict"], report["counts"], report["not_run"]) == ("timeout", {"passed": 1, "not-run": 2}, {"time-up": 2})


def test_the_kind_is_in_the_junit_file(run_inside, tmp_path):
    """CI systems read it there: the type of `<skipped>`."""
    output = run_inside(_package(tmp_path / "package", {"test_a.py": ""}), Stage.TEST, light=True, benches=())
    root = ElementTree.parse(output / "test" / "junit.xml").getroot()

    assert [entry.get("type") for entry in root.iter("skipped")] == ["empty"]
    assert _report(output)["reason"] == "no test was found"


def test_a_card_that_was_not_begun_lacks_the_tests_of_the_others():
    cases = {"one": Cases(), "two": Cases()}
    for event in ({"event": "collected", "ids": ["a", "b"]}, {"event": "finish", "id": "a", "not_run": None}):
        cases["one"].note(event)

    assert never_reached("one", cases) == ["b"]
    assert never_reached("two", cases, ["test_x.py"]) == ["a", "b"]
    assert never_reached("one", {"one": Cases()}, ["test_x.py"]) == ["test_x.py"], "before the tests of a file are known"
    job, two = make_job("r", "t", (), "/kernels", "/out"), Architecture("synthetic", "two", 64, {}, name="two")
    assert never_ran(two, "x/test_x.py::a", job, up=True).not_run is NotRun.TIME_UP
    assert never_ran(two, "x/test_x.py", job, up=True).kernel == "x"
    assert never_ran(two, "x/test_x.py::a", job, up=False).not_run is NotRun.STOPPED


def test_no_row_is_missing_if_the_time_is_up_at_the_start(monkeypatch, tmp_path):
    from warpwave.inside.compile import stage

    def slow(*asked):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "answered", slow)
    monkeypatch.setattr(stage, "time_is_up", lambda: True)
    monkeypatch.setattr(stage.sealing, "close", lambda report, job: None)
    package = _package(tmp_path / "package", {"test_a.py": "", "bench_a.py": ""})
    (tmp_path / "compile").mkdir()
    cards = load_targets()["cpu"].architectures[:2]
    job = make_job("r", "t", (Stage.COMPILE,), str(package), str(tmp_path), architectures=cards)
    with pytest.raises(KeyboardInterrupt):
        stage.compile_all(job)

    rows = [json.loads(line) for line in (tmp_path / "compile" / "kernels.jsonl").read_text().splitlines()]
    assert [(row["origin"], row["architecture"], row["not_run"]) for row in rows] == [
        (file, card.name, "time-up") for card in cards for file in ("bench_a.py", "test_a.py")
    ]


def test_a_bench_that_was_not_loaded_is_one_that_was_not_reached(tmp_path):
    package = _package(tmp_path / "package", {"bench_a.py": "", "bench_b.py": "", "bench_c.py": ""})
    job, cases = make_job("r", "t", (), str(package), "/out"), Cases()
    for event in ("start", "ready"):
        cases.note({"event": event, "id": loading(package / "bench_a.py", job)})
    cases.note({"event": "start", "id": loading(package / "bench_b.py", job)})

    assert never_loaded(cases, job) == ["bench_b.py", "bench_c.py"]


def test_the_files_that_stand_for_their_tests(tmp_path):
    package = _package(tmp_path / "package", {"a/test_a.py": "", "a/b_test.py": "", "a/other.py": "", "conftest.py": ""})
    job = make_job("r", "t", (), str(package), "/out")

    assert files_with_tests(job) == ["a/b_test.py", "a/test_a.py"]
    assert files_with_tests(having(job, chosen=Chosen(tests=("a/test_a.py::test_x",)))) == ["a/test_a.py"]


@pytest.mark.parametrize(("whole", "data", "skipped", "said"), [(1, 1, 9, False), (1, 2, 0, True), (0, 0, 3, False)])
def test_a_stage_that_saw_little_says_so(whole, data, skipped, said):
    """Kernels that nobody launched are not checked. What the author skips does not count."""
    cases = Cases()
    cases.ended = {f"{why}{n}": why for why, n in [(None, whole), (NotRun.DATA, data), (NotRun.SKIPPED, skipped)] for n in range(n)}

    report = mostly_run(StageReport(Stage.COMPILE, Verdict.PASSED, notes=("other",)), [cases])
    assert (report.verdict, len(report.notes)) == (Verdict.PASSED, 1 + said)
    assert report.notes[0].startswith(MOSTLY_UNSEEN if said else "other")


@pytest.mark.parametrize(("stages", "shares"), [(("test",), [0.8, 1.0]), (("test", "bench", "compile"), [0.4, 0.6, 0.8, 1.0])])
def test_a_stage_leaves_time_to_those_after_it(monkeypatch, tmp_path, stages, shares):
    """Each leaves a fifth of the time to each later one; here none uses any, so all start with all of it."""
    from warpwave.inside import __main__ as inside

    given = []

    def instant(job, path, stage, left_s, *rest):
        given.append(left_s / job.limits.stage_s)
        return StageReport(stage, Verdict.PASSED)

    monkeypatch.setattr(inside, "_run_stage", instant)
    job = make_job("run-1", "cpu", tuple(map(Stage, stages)), str(tmp_path), str(tmp_path), stage_s=1000.0)
    inside.run(job, tmp_path / "job.json")

    assert given == pytest.approx(shares, abs=0.01)


LOADING = {
    "test_a.py": "def test_a(): pass",
    "test_crash.py": "import os\n\nos.abort()",
    "test_long.py": "import time\n\ntime.sleep(600)\n\n\ndef test_b(): pass",
    "test_z.py": "def test_z(): pass",
}


@pytest.mark.parametrize("workers", slow_but([1, 2], [2]))
def test_an_import_that_crashes_or_never_ends_costs_its_own_file(run_inside, tmp_path, workers):
    """A file that computes while it is imported, as scripts do, is named after a test's limit, and the tests of the others run."""
    package = _package(tmp_path / "package", LOADING)
    output = run_inside(package, Stage.TEST, light=True, benches=(), test_s=3.0, workers=workers)

    assert {name: row[:2] for name, row in _cases(output).items()} == {
        "test_a.py::test_a": ("passed", None),
        "test_crash.py": ("crashed", None),
        "test_long.py": ("timeout", None),
        "test_z.py::test_z": ("passed", None),
    }
    assert _cases(output)["test_long.py"][2] == "it ran longer than 3 s"
    assert (_report(output)["verdict"], _report(output)["counts"]) == ("crashed", {"passed": 2, "crashed": 1, "timeout": 1})


def test_a_requirement_of_a_conftest_above_the_tests(run_inside, tmp_path):
    """pytest then finds no collectors, and takes that for an error of its options; it is none."""
    (tmp_path / "tests" / "ops").mkdir(parents=True)
    for name, text in {"__init__.py": "", "conftest.py": "import nobodys_module\n", "ops/test_it.py": "def test_it():\n    pass\n"}.items():
        (tmp_path / "tests" / name).write_text(text)
    (tmp_path / "tests" / "ops" / "__init__.py").write_text("")
    output = run_inside(tmp_path / "tests" / "ops", Stage.TEST, light=True, benches=(), package_root=str(tmp_path))
    report = next(each for each in json.loads((output / "stages.json").read_text())["reports"] if each["stage"] == "test")

    assert (report["verdict"], report["reason"]) == ("not-run", "no test could be checked")
    assert report["not_run"] == {"missing-requirement": 1}
