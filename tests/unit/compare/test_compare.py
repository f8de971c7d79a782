"""A comparison's rows of tests and of generated code. All data is synthetic."""

import dataclasses

import pytest
from synthetic import GPU_B, case, compiled, facts, pair, run, two_targets

from warpwave.compare import compare, exit_code
from warpwave.compare.model import Parity
from warpwave.compare.runs import outcome
from warpwave.errors import ExitCode, Outcome
from warpwave.records import Stage, Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown

A, B = ["alpha"], ["alpha", "beta"]


NAMES = {"p": Verdict.PASSED, "f": Verdict.FAILED, "c": Verdict.CRASHED, "s": Verdict.NOT_RUN}


@pytest.mark.parametrize(
    ("left", "right", "parity", "on"),
    [
        ("p", "p", Parity.ALL_PASSED, ()),
        ("p", "f", Parity.FAILED_ON, ("beta",)),
        ("c", "p", Parity.FAILED_ON, ("alpha",)),
        ("p", "s", Parity.SKIPPED_ON, ("beta",)),
        ("p", "", Parity.MISSING_ON, ("beta",)),
        ("", "p", Parity.MISSING_ON, ("alpha",)),
        ("f", "f", Parity.PASSED_NOWHERE, ()),
        ("f", "s", Parity.PASSED_NOWHERE, ()),
        ("f", "", Parity.PASSED_NOWHERE, ()),
        ("s", "s", Parity.PASSED_NOWHERE, ()),
    ],
)
def test_a_gap_counts_only_where_the_other_side_passed(left, right, parity, on):
    """If a test fails on both, the targets do not differ; the same is true of skips."""
    other = case("softmax/t.py::other")
    sides = [(*(() if not letter else (case("softmax/t.py::t", NAMES[letter]),)), other) for letter in (left, right)]
    comparison = compare(pair({"cases": sides[0]}, {"cases": sides[1]}), B)

    (row,) = [row for row in comparison.tests if row.id == "softmax/t.py::t"]
    assert (row.parity, row.on) == (parity, on)


def test_a_target_without_any_test_misses_none():
    """If the test stage was lost, every test would count as missing."""
    comparison = compare(pair(None, {"cases": ()}), B)

    assert {row.parity for row in comparison.tests} == {Parity.ONE_TARGET}


def test_tests_with_one_id_are_shown_and_not_merged():
    """The second of two equal ids is compared with the second on the other target."""
    twice = (case(), case(verdict=Verdict.FAILED))
    comparison = compare(pair({"cases": twice}, {"cases": twice[:1]}), B)

    assert [(row.occurrence, row.parity) for row in comparison.tests] == [(1, Parity.ALL_PASSED), (2, Parity.PASSED_NOWHERE)]


def test_code_is_one_row_per_configuration_over_all_targets():
    """The same launch on another architecture or target is another cell of the row."""
    left = (compiled("sy_90"), compiled("sy_90", num_warps=8))
    comparison = compare(pair({"compiled": left}, {"compiled": (compiled("sy_90"), compiled("syn942"))}), B)

    assert [row.config for row in comparison.codegen] == [
        "*fp32 i32, BLOCK=1024, 4 warps, 2 stages",
        "*fp32 i32, BLOCK=1024, 8 warps, 2 stages",
    ]
    found = [(cell.target, cell.compiled.architecture) for cell in comparison.codegen[0].cells]
    assert found == [("alpha", "sy_90"), ("beta", "sy_90"), ("beta", "syn942")]


def test_the_same_launch_compiled_twice_is_two_rows():
    """Equal rows are not dropped."""
    assert len(compare([run(compiled=(compiled(), compiled(registers=99)))], A).codegen) == 2


def test_only_facts_that_differ_are_differences():
    """A difference that alone forbids comparing speeds is marked."""
    comparison = compare(pair(None, {"facts": facts(GPU_B, triton="3.9.1", driver=None, fp_fusion="0")}), B)

    assert [(entry.name, entry.values, entry.refuses) for entry in comparison.differences] == [
        ("triton", {"alpha": "3.9.0", "beta": "3.9.1"}, False),
        ("driver", {"alpha": "1.0", "beta": "unknown"}, False),
        ("FP fusion", {"alpha": "1", "beta": "0"}, True),
    ]


def test_nothing_that_is_given_is_changed_and_the_same_comes_out_again():
    """Comparing is a pure function: the same runs give the same comparison."""
    runs = two_targets()
    first = compare(runs, B)

    assert compare(two_targets(), B) == first
    assert runs == two_targets()


def test_what_was_deselected_and_what_is_doubted_is_shown():
    """Deselected tests are counted. A stage with doubts is not complete, whatever its points are."""
    reports = tuple(dataclasses.replace(report, deselected=2 * (report.stage is Stage.TEST)) for report in run("alpha").stages)
    comparison = compare([run("alpha", stages=reports)])
    doubted = tuple(dataclasses.replace(report, verdict=Verdict.INVALID, doubts=("forged",), reason="forged") for report in reports)

    assert "2 tests deselected, by an option of the run or by the package" in render_markdown(comparison)
    assert "2 tests, by an option of the run or by the package" in render_html(comparison)
    assert exit_code(compare([run("alpha", stages=doubted)])) is ExitCode.INCOMPLETE


@pytest.mark.parametrize(("problems", "reason"), [(("a note", "The disk is full"), "The disk is full"), ((), "2 targets passed")])
def test_a_report_that_could_not_be_written_has_its_reason(problems, reason):
    """The targets' verdicts do not explain its exit code: the last problem does, or else the verdict in words, without its full stop."""
    comparison = dataclasses.replace(
        compare(two_targets(), B), exit_code=ExitCode.INFRASTRUCTURE, problems=problems, sentence="2 targets passed."
    )

    assert outcome(comparison) == Outcome(ExitCode.INFRASTRUCTURE, reason)
