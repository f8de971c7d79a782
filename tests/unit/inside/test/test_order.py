"""A test may need what those before it in its file leave behind. It passes also where a run leaves them out, or begins behind them."""

import json

import pytest

pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.collect.cases import read_cases
from warpwave.records import Budget, Limits, Stage

FILES = {
    # A quick run leaves out most numbers.
    "test_fixture.py": """\
import pytest
@pytest.fixture(scope="module")
def filled():
    return {}
@pytest.mark.parametrize("number", range(20))
def test_fill(number, filled):
    filled[number] = number
def test_all_are_there(filled):
    assert sorted(filled) == list(range(20))
def test_is_wrong(filled):
    assert len(filled) == 21
class TestMore:
    def test_all_are_there(self, filled):
        assert len(filled) == 20
""",
    # A new process begins in the middle.
    "test_module.py": """\
import os
FOUND = []
def test_first():
    FOUND.append(1)
def test_ends_its_process():
    os._exit(3)
def test_needs_the_first():
    assert FOUND == [1]
def test_does_not():
    pass
def test_is_wrong(record_property):
    record_property("found", len(FOUND))
    assert FOUND == [2]
""",
}
OUTCOMES = {
    "test_fixture.py::test_all_are_there": "passed",
    "test_fixture.py::test_is_wrong": "failed",
    "test_fixture.py::TestMore::test_all_are_there": "passed",
    "test_module.py::test_first": "passed",
    "test_module.py::test_ends_its_process": "crashed",
    "test_module.py::test_needs_the_first": "passed",
    "test_module.py::test_does_not": "passed",
    "test_module.py::test_is_wrong": "failed",
}


@pytest.mark.parametrize("how", [{}, {"quick": True}, {"limits": Limits(budget=Budget(120.0))}], ids=["whole", "quick", "budget"])
def test_what_a_test_needs_of_those_before_it_is_there(run_inside, tmp_path, how):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), **how)
    cases = {case.id: case for case in read_cases(output, "test/junit.xml")}
    report = next(each for each in json.loads((output / "stages.json").read_text())["reports"] if each["stage"] == "test")

    assert {name: case.verdict.value for name, case in cases.items() if "test_fill" not in name} == OUTCOMES
    assert {case.verdict.value for name, case in cases.items() if "test_fill" in name} == {"passed"}
    assert (len(cases) < 28) == ("quick" in how)
    assert cases["test_module.py::test_is_wrong"].properties["found"] == "1"  # not of its first try
    said = [note for note in report["notes"] if note.startswith("passed only when the tests before it in its file had run")]
    assert ["test_module.py::test_needs_the_first" in note for note in said] == [True]
    assert ("test_fixture.py::test_all_are_there" in said[0]) == bool(how)
    assert report["doubts"] == []


def test_a_failure_without_time_for_those_before_it_says_so(run_inside, tmp_path):
    (tmp_path / "test_slow.py").write_text(
        """\
import time, pytest
@pytest.mark.parametrize("number", range(80))
def test_many(number):
    time.sleep(0.5)
def test_is_wrong():
    assert False
"""
    )
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0)))
    (wrong,) = (case for case in read_cases(output, "test/junit.xml") if case.id == "test_slow.py::test_is_wrong")
    report = next(each for each in json.loads((output / "stages.json").read_text())["reports"] if each["stage"] == "test")

    assert wrong.verdict.value == "failed"
    assert int(wrong.properties["failed without"].removesuffix(" tests")) > 40
    assert any("no time for all tests before it in its file: test_slow.py::test_is_wrong" in note for note in report["notes"])


def test_a_fixture_of_the_module_that_raises_at_its_end_is_the_last_tests_error(run_inside, tmp_path):
    (tmp_path / "test_ends.py").write_text(
        """\
import pytest
@pytest.fixture(scope="module")
def ends():
    yield
    raise ValueError("at its end")
@pytest.mark.parametrize("number", range(20))
def test_many(number, ends):
    pass
@pytest.mark.parametrize("right", [True, False])
def test_last(right, ends):
    assert right
"""
    )
    (tmp_path / "test_next.py").write_text("def test_next():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), quick=True)
    cases = {case.id.partition("::")[2]: case for case in read_cases(output, "test/junit.xml")}

    assert {name: case.verdict.value for name, case in cases.items() if "many" not in name} == {
        **{"test_last[True]": "passed", "test_last[False]": "failed", "test_next": "passed"},
    }
    (tmp_path / "test_ends.py").write_text((tmp_path / "test_ends.py").read_text().replace("[True, False]", "[True, True]"))
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), quick=True)
    cases = {case.id.partition("::")[2]: case for case in read_cases(output, "test/junit.xml")}
    last = cases["test_last[True1]"]

    assert (last.verdict.value, last.message) == ("error", "ValueError: at its end")
    assert cases["test_next"].verdict.value == "passed"


def test_what_is_found_in_those_before_it_is_not_its_own(run_inside, tmp_path):
    """They have no result, and so no finding either."""
    (tmp_path / "test_found.py").write_text(
        """\
import pytest, torch
FILLED = {}
@pytest.mark.parametrize("number", range(20))
def test_fill(number):
    FILLED[number] = torch.empty(4, device="cuda").sum() if number == 7 else 0
def test_all_are_there():
    assert len(FILLED) == 20
"""
    )
    output = run_inside(tmp_path, Stage.TEST, benches=(), quick=True)
    cases = read_cases(output, "test/junit.xml")

    assert "test_found.py::test_fill[7]" not in {case.id for case in cases}
    assert {case.verdict.value for case in cases} == {"passed"}
    assert not [line for line in (output / "test" / "journal.jsonl").read_text().splitlines() if '"finding"' in line]


@pytest.mark.parametrize("how", [{"quick": True}, {"limits": Limits(budget=Budget(120.0))}], ids=["quick", "budget"])
def test_a_test_runs_again_after_all_where_its_first_try_changed_what_the_others_left(run_inside, tmp_path, how):
    (tmp_path / "test_class.py").write_text(
        """\
import pytest
@pytest.mark.parametrize("step", range(9))
class TestSteps:
    log = []
    def test_push(self, step):
        if step == 0:
            TestSteps.log = []
        TestSteps.log.append(step)
        assert len(TestSteps.log) == step + 1
    def test_is_wrong(self, step):
        assert step != 8
"""
    )
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), **how)
    cases = read_cases(output, "test/junit.xml")

    assert [case.id for case in cases if case.verdict.value != "passed"] == ["test_class.py::TestSteps::test_is_wrong[8]"]
    assert sum("test_push" in case.id for case in cases) >= 3
