"""What could not be checked: it is counted, has a cause and a hint, and fails nothing unless `--strict` asks. All data is synthetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import case, compiled, pair, record, run

from warpwave.compare import compare, outcome
from warpwave.compare.answer import headline
from warpwave.compare.unchecked import cause_lines, causes, checked
from warpwave.errors import ExitCode
from warpwave.records import HOST_CODE, MOSTLY_UNSEEN, NotRun, Stage, StageReport, Verdict
from warpwave.render.sections.outline import brief

NOT_RUN = Verdict.NOT_RUN


def unchecked(name, why, message=""):
    return case(f"t.py::{name}", NOT_RUN, not_run=why, message=message)


LACKING = (
    case("t.py::good"),
    case("t.py::skipped", NOT_RUN, not_run=NotRun.SKIPPED),
    unchecked("a", NotRun.NEEDS_BUILD, "AttributeError: no lib.op\nmore"),
    unchecked("b", NotRun.NEEDS_CARD, "assert 0 < 0"),
    unchecked("c", NotRun.NEEDS_BUILD, "AttributeError: no lib.op"),
    unchecked("d", NotRun.REQUIREMENT, "ModuleNotFoundError: No module named 'x'; No module named 'y_z'"),
    unchecked("e", NotRun.REQUIREMENT, "ModuleNotFoundError: No module named 'w.part'"),
    unchecked("f", NotRun.REQUIREMENT, "ModuleNotFoundError: No module named 'x'"),
)


def test_the_first_line_counts_what_was_checked():
    """The author's skip is none of it. The exit code is 0, and 4 with `--strict`, which says why."""
    comparison = compare([run(cases=LACKING)])
    ended = outcome(comparison, strict=True)

    assert headline(comparison, ()).text.startswith("1 of 7 tests checked; ")
    assert outcome(comparison).code == comparison.exit_code == ExitCode.GOOD
    assert (ended.code, ended.reason) == (ExitCode.INCOMPLETE, "--strict: alpha: 1 of 7 tests checked")
    assert outcome(compare([run()]), strict=True).code == ExitCode.GOOD
    cut = StageReport(Stage.TEST, Verdict.PASSED, left_out=3, functions=9, untried=2)
    assert headline(compare([run(cases=LACKING, stages=(cut,))]), ()).text.startswith("1 of 10 tests checked (7 of 9 test functions); ")
    late = StageReport(Stage.COMPILE, Verdict.PASSED, out_of_time=True)
    assert headline(compare([run(stages=(late,), compiled=())]), ()).text.startswith("The budget was up before anything was compiled; all ")
    assert "budget" not in headline(compare([run(stages=(late,))]), ()).text


def test_causes_come_with_the_most_tests_first_and_a_hint_each():
    """Missing modules are one cause, and one command installs all of them."""
    found = compare([run(cases=LACKING)]).targets[0].unchecked

    assert [(cause.why, cause.count, cause.example) for cause in found] == [
        (NotRun.REQUIREMENT, 3, "t.py::d"),
        (NotRun.NEEDS_BUILD, 2, "t.py::a"),
        (NotRun.NEEDS_CARD, 1, "t.py::b"),
    ]
    assert found[1].text == "no lib.op"
    assert "--with x --with y-z --with w " in found[0].hint
    assert len({cause.hint for cause in found}) == 3


@pytest.mark.parametrize(
    "why", ["GSan needs 7 times the memory", "rocJITsu's race detector did not see it", "Triton 3.7.0 has no sanitizer"]
)
def test_what_another_sanitizer_could_not_check_is_no_undefined_lane(why):
    """Its hint would send the reader to the wrong place."""
    (cause,) = causes(run(cases=(case("t.py::good", properties={"not-followed": why}),)))
    said, hint = cause_lines(cause)
    assert said == f"t.py::good: not checked by a sanitizer: {why}"
    assert "warpwave's own checks" in hint
    stopped = run(cases=(case("t.py::good", NOT_RUN, not_run=NotRun.NOT_FOLLOWED, message=why, properties={"not-followed": why}),))
    assert [(found.count, found.text) for found in causes(stopped)] == [(1, why)]
    assert checked(compare([stopped]).targets[0]) == (0, 1)
    (other,) = causes(run(cases=(case("t.py::good", NOT_RUN, not_run=NotRun.NOT_PRETENDED, message=why),)))
    assert "warpwave's own checks" not in other.hint


def test_a_kernel_whose_undefined_lanes_were_not_followed_is_named():
    """In the test stage it is a property of a test that passed, in the compile stage a gate that could not be judged."""
    why = "total takes too long to follow"
    tested = run(cases=(case("t.py::good", properties={"not-followed": why}), case("t.py::other", properties={"not-followed": why})))
    built = run(compiled=(compiled(unjudged={"undefined_lanes": why}),))

    for leg, count in ((tested, 2), (built, 1)):
        comparison = compare([leg])
        (cause,) = comparison.targets[0].unchecked
        assert (cause.why, cause.count, cause.text) == (NotRun.NOT_FOLLOWED, count, why)
        assert any(why in str(line) for section, _ in brief(comparison, comparison).sections for line in section.lines)
        assert (outcome(comparison).code, outcome(comparison, strict=True).code) == (ExitCode.GOOD, ExitCode.INCOMPLETE)
    uncompiled = case("t.py::good", properties={"not-followed": "total could not be compiled here: why"})
    (cause,) = compare([run(cases=(uncompiled,))]).targets[0].unchecked
    assert "compiler" in cause.hint
    red = compiled(function="total", verdict=Verdict.FAILED, reason="why")
    assert compare([run(cases=(uncompiled,), compiled=(red,))]).targets[0].unchecked == ()


def test_what_the_package_declares_is_the_advice():
    """The stage knows which extra brings a module, so the two lines of one report do not differ."""
    note = "Missing here: x (extra maths): --install --extra maths."
    found = compare([run(cases=LACKING, stages=(StageReport(Stage.TEST, Verdict.PASSED, notes=("other", note)),))]).targets[0].unchecked

    assert found[0].hint == note


def test_what_was_installed_and_removed_is_said_first():
    """To ask for it again would not bring it."""
    removed = "y-z was removed: it is built for another torch than 2.13.0 (undefined symbol)"
    told = record()
    own = replace(told, environment=replace(told.environment, notes=("torch was removed: no", removed)))
    (found, *_) = compare([run(record=own, cases=LACKING)]).targets[0].unchecked

    assert found.hint == removed


def test_a_failure_is_red_beside_it():
    """And the count still stands in the first line."""
    comparison = compare([run(cases=(*LACKING, case("t.py::wrong", Verdict.FAILED)))])

    assert comparison.exit_code == ExitCode.FAILED
    assert headline(comparison, ()).text == "1 test fails on alpha; 2 of 8 tests checked."
    assert outcome(comparison, strict=True).code == ExitCode.FAILED


@pytest.mark.parametrize(("more", "code"), [({}, ExitCode.GOOD), ({"compiled": ()}, ExitCode.NOTHING_RAN)])
def test_without_a_checked_test_something_must_have_been_compiled(more, code):
    """Green never means that nothing was checked."""
    comparison = compare([run(cases=LACKING[2:4], samples=(), **more)])

    assert comparison.exit_code == code
    assert "0 of 2 tests checked" in headline(comparison, ()).text or code


def test_the_compile_stage_adds_what_the_tests_do_not_say():
    """A point that needs a build is one cause on all architectures; a test with a result of its own is none."""
    why = {"function": HOST_CODE, "verdict": NOT_RUN, "not_run": NotRun.NEEDS_BUILD, "reason": "NotBuilt: no lib.op"}
    rows = [compiled(name, origin=origin, **why) for name in ("sy_90", "sy_80") for origin in ("add/N=1", "t.py::good")]
    targets = compare(pair({"cases": LACKING[:1], "compiled": (compiled(), *rows)})).targets

    assert [(cause.count, cause.example, cause.text) for cause in targets[0].unchecked] == [(1, "add/N=1", "no lib.op")]
    assert targets[1].unchecked == ()
    assert outcome(compare([run(compiled=(compiled(), *rows))]), strict=True).code == ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    "report",
    [
        StageReport(Stage.COMPILE, Verdict.PASSED, notes=(f"{MOSTLY_UNSEEN} 1 of 9 ran to its end",)),
        StageReport(Stage.COMPILE, Verdict.PASSED, out_of_time=True),
        StageReport(Stage.BENCH, Verdict.PASSED, out_of_time=True),
        StageReport(Stage.TEST, Verdict.PASSED, left_out=3),
    ],
    ids=["launches not seen", "binaries out of time", "points out of time", "tests left out"],
)
def test_strict_wants_everything_seen(report):
    """What a budget leaves out is no failure of a run without it."""
    comparison = compare([run(stages=(StageReport(Stage.TEST, Verdict.PASSED), report))])

    assert (outcome(comparison).code, outcome(comparison, strict=True).code) == (ExitCode.GOOD, ExitCode.INCOMPLETE)
