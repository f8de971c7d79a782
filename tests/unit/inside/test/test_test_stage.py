"""The test stage: a result for every test, whatever becomes of the process that runs it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from synthetic import emulated

from warpwave.collect.cases import read_cases
from warpwave.compare import compare
from warpwave.compare.model import Parity
from warpwave.compare.verdict import phrase
from warpwave.records import CaseResult, Job, Stage, Verdict
from warpwave.render.junit import render_junit

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


@pytest.fixture(scope="module")
def cases(run_inside, data):
    """Each test of the deadly package, by name: its outcome's type and message."""
    output = run_inside(data / "deaths", Stage.TEST, light=True, benches=(), test_limit_s=4.0)
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


def test_messages_say_what_happened(cases):
    """The signal is decoded, the limit is named, skip reasons and assertion texts are kept."""
    found, _, _ = cases

    assert "SIGSEGV" in found["test_segfault"][1]
    assert "exited with 3" in found["test_exit"][1]
    assert "4 s" in found["test_hang_in_c"][1]
    assert found["test_skipped"][1] == "needs two GPUs"
    assert "one is not two" in found["test_fails"][1]
    assert "a_module_that_nobody_has" in found["test_unimportable.py"][1]


def test_report_has_the_worst_verdict_and_counts(cases):
    """The stage's report counts every verdict and is finished."""
    _, stages, _ = cases
    report = stages["reports"][1]

    assert stages["finished"] is True
    assert report["counts"] == {"passed": 2, "not-run": 1, "failed": 1, "error": 2, "timeout": 1, "crashed": 2}
    assert report["verdict"] == "crashed"


def test_properties_of_a_test_reach_the_junit_file(cases):
    """`record_property` is how authors hand numbers over."""
    _, _, root = cases
    before = next(case for case in root.iter("testcase") if case.get("name") == "test_before")
    properties = {entry.get("name"): entry.get("value") for entry in before.iter("property")}

    assert properties == {"id": "test_deaths.py::test_before", "kernel": "deaths", "max_abs_err": "0.5"}


def test_nothing_found_is_not_a_pass(run_inside, tmp_path):
    """An empty package gives `not-run`, never green."""
    empty = tmp_path / "empty"
    empty.mkdir()
    output = run_inside(empty, Stage.TEST, light=True, benches=("bench_*.py",))
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["verdict"], report["reason"]) == ("not-run", "no test was found")


def test_scripts_with_a_hard_coded_device_run_in_the_interpreter(run_inside, data):
    """A tutorial-style script runs unmodified on the CPU, its own assertions included."""
    output = run_inside(data / "scripted", Stage.TEST)
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["verdict"], report["counts"]) == ("passed", {"passed": 1}), (output / "test" / "log.txt").read_text()


def test_an_expression_that_pytest_refuses_is_shown_in_its_own_words(tmp_path):
    """pytest has collected by then, and ends as if there were no tests."""
    (tmp_path / "log.txt").write_text("collected 5 items\nERROR: Wrong expression passed to '-k': test_(: at column 7\n")
    from warpwave.inside.test import stage  # imports torch

    report = stage._report(stage.Results(Job("r", "t", (), "/kernels", "/out"), tmp_path), [], tmp_path)

    assert (report.verdict, report.reason) == (
        Verdict.ERROR,
        "pytest ran no test: Wrong expression passed to '-k': test_(: at column 7",
    )


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


def test_a_report_counts_expected_failures_by_themselves():
    """On the first screen, and with pytest's own type in its JUnit file; a package that has nothing else is good, too."""
    known = CaseResult("test_a.py::test_b", "a", Verdict.XFAILED, message="one day")
    passed = CaseResult("test_a.py::test_a", "a", Verdict.PASSED)
    comparison = compare([emulated(*cases, target=name) for name, cases in (("a", (passed, known)), ("b", (known,)))])

    assert [phrase(target).partition(")")[0] for target in comparison.targets] == [
        "a passed 1 test (1 expected failure",
        "b passed 0 tests (1 expected failure",
    ]
    assert [target.tests for target in comparison.targets] == [{"passed": 1, "xfailed": 1}, {"xfailed": 1}]
    assert (comparison.exit_code, comparison.tests[1].parity) == (0, Parity.PASSED_NOWHERE)
    assert '<skipped message="one day" type="pytest.xfail"' in render_junit(comparison)
