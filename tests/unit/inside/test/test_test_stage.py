"""The test stage: a result for every test, whatever becomes of the process that runs it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from harness.records import Job, Stage, Verdict

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
    from harness.inside.test import stage  # imports torch

    report = stage._report(stage.Results(Job("r", "t", (), "/kernels", "/out"), tmp_path), [], tmp_path)

    assert (report.verdict, report.reason) == (
        Verdict.ERROR,
        "pytest ran no test: Wrong expression passed to '-k': test_(: at column 7",
    )
