"""What changed in generated code, and bundles of it, field by field. All rows are made up."""

from __future__ import annotations

import dataclasses

import pytest
from codegen_rows import FAILED, row, side
from synthetic import facts, record, run

from warpwave.compare.changed_codegen import Bundle, Change, Concern, Delta, Diff, Kind, Trend, bundle, check_comparable, diff, merge, notes
from warpwave.errors import UsageError
from warpwave.records import Stage, StageReport, Verdict

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED = Verdict.PASSED


# --- changes ----------------------------------------------------------------------------------------------------------------------------


def test_a_change_field_by_field():
    """Retuned, worse, and one of two configurations of which the other still compiles."""
    stays = row(constants={"BLOCK": 1})
    old, new = row(constants={"BLOCK": 2}), row(constants={"BLOCK": 2}, **FAILED)
    found = diff([stays, old], [stays, new])

    assert found == Diff(
        changes=(
            Change(
                *("softmax", "_softmax_fwd", "sy_90", Kind.WORSE, "bench", "BLOCK=2", ()),
                deltas=(Delta(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 4.0),),
                before=old,
                after=new,
                survivors=1,
            ),
        ),
        compared=2,
        unchanged=1,
        same_figures=0,
    )


def test_what_was_added_or_removed_field_by_field():
    """One that is new and fails is worse than none; its verdict before is that there was none."""
    base, added = row(), row(constants={"BLOCK": 9}, origin="elsewhere")
    broken = row(constants={"BLOCK": 9}, origin="elsewhere", **FAILED)
    absent = (Delta(Concern.VERDICT, WORSE, "verdict", "absent", "failed", 4.0),)
    names = ("softmax", "_softmax_fwd", "sy_90")

    assert diff([base], [base, added]).changes == (Change(*names, Kind.ADDED, "elsewhere", "", (), (), None, added),)
    assert diff([base, added], [base]).changes == (Change(*names, Kind.REMOVED, "elsewhere", "", (), (), added, None),)
    assert diff([base], [base, broken]).changes == (Change(*names, Kind.WORSE, "elsewhere", "", (), absent, None, broken),)


def test_host_code_that_cannot_run_any_more_is_worse():
    """Where the same case ran before; where it did not, nothing is lost."""
    before = row()
    after = row(function="(host code)", signature={}, constants={}, verdict=Verdict.NOT_RUN, registers=None)
    worse, _ = diff([before], [after]).changes
    new, _ = diff([dataclasses.replace(before, origin="elsewhere")], [after]).changes

    assert (worse.kind, worse.deltas) == (Kind.WORSE, (Delta(Concern.VERDICT, WORSE, "verdict", "passed", "not-run", 3.0),))
    assert {new.kind, _.kind} == {Kind.ADDED, Kind.REMOVED}


def test_changes_are_counted_on_the_architectures_that_both_have():
    """Another binary with the same figures is counted by itself; architectures of one side are named, sorted."""
    old = [row(), row("sy_80"), row("b_1"), row("a_1")]
    new = [dataclasses.replace(old[0], binary_hash="z"), old[1], row("c_1")]
    found = diff(old, new)

    assert found == Diff((), 2, 1, 1, ("a_1", "b_1"), ("c_1",))


def test_changes_are_in_the_order_in_which_they_are_to_be_read():
    """Worse first, by the gravest concern and then how far it moved; better ones by what became better."""
    changes = {
        "f": ({}, {"registers": 35}),
        "e": ({}, {"registers": 99}),
        "d": ({}, {"spills": 1}),
        "c": ({"sgprs": 1}, {"sgprs": 2}),
        "b": ({}, {"registers": 33}),
        "a": ({"spills": 3}, {"registers": 30}),
    }
    old = [row(function=name, **before) for name, (before, _) in changes.items()]
    new = [row(function=name, **after) for name, (_, after) in changes.items()]
    found = diff([*old, row(function="h")], [*new, row(function="g")]).changes

    assert [change.function for change in found] == ["d", "e", "f", "h", "g", "c", "a", "b"]
    assert found[0].worse_in(list(Concern)) == (Concern.SPILLS,)
    assert found[0].worse_in([Concern.REGISTERS]) == ()


def test_two_targets_of_one_architecture_tell_the_graver_of_each():
    """One that is compiled twice on each stays twice."""
    passed, failed = row(), row(**FAILED)

    assert merge([[passed, passed], [failed, passed]]) == [failed, passed]
    assert merge([[failed], [passed]]) == [failed]
    assert len(merge([[passed], [row("sy_80")], [row(origin="x")], [row(function="f")], [row(kernel="k")]])) == 5


# --- bundles ----------------------------------------------------------------------------------------------------------------------------


def test_a_bundle_field_by_field():
    """Targets that compiled something, their commits and Tritons once each, and why kernels may be missing."""
    ended = StageReport(Stage.COMPILE, Verdict.TIMEOUT, reason="slow")
    runs = [
        run(compiled=(row(),), stages=(ended,)),
        run("beta", record=record("beta", commit=""), facts=None, compiled=(row("sy_80"),), missing="of 2 shards there is no 2"),
        run("gamma", record=record("gamma"), compiled=(), stages=(dataclasses.replace(ended, reason=""),)),
        run("delta", record=record("delta", verdict=Verdict.STALE)),
        run("epsilon", record=record("epsilon"), compiled=(row("sy_100"),)),
    ]
    faults = ("alpha: timeout, slow", "beta: of 2 shards there is no 2", "gamma: timeout", "delta: its files are of two runs")

    assert bundle("runs/x", runs) == Bundle(
        folder="runs/x",
        targets=("alpha", "beta", "epsilon"),
        commits=("0123abc", "unknown"),
        triton=("3.9.0", "unknown"),
        kernels=(row(), row("sy_80"), row("sy_100")),
        faults=faults,
    )


@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN])
def test_a_compile_stage_that_came_to_its_end_is_no_fault(verdict):
    """Whatever its kernels came to; nor is another stage's end."""
    stages = (StageReport(Stage.COMPILE, verdict), StageReport(Stage.BENCH, Verdict.CRASHED))

    assert bundle("x", [run(compiled=(row(),), stages=stages)]).faults == ()
    assert bundle("x", [run(compiled=(row(),), stages=(StageReport(Stage.COMPILE, Verdict.CRASHED, counts={"crashed": 1}),))]).faults == ()


def refused(made):
    with pytest.raises(UsageError) as caught:
        bundle("x", [made])
    return caught.value.meaning


def test_a_run_without_generated_code_says_why_for_each_target():
    """No stage, one that ended early, or files of two runs."""
    runs = [
        run(compiled=(), stages=()),
        run("beta", record=record("beta"), compiled=(), stages=(StageReport(Stage.COMPILE, Verdict.CRASHED, reason="it died"),)),
        run("gamma", record=record("gamma", verdict=Verdict.STALE)),
    ]
    with pytest.raises(UsageError) as caught:
        bundle("runs/x", runs)

    assert "runs/x" in caught.value.happened
    assert "(alpha: failed)" in refused(run(compiled=(), stages=(StageReport(Stage.COMPILE, Verdict.FAILED),)))
    assert "alpha: no compile stage; beta: crashed, it died; gamma: its files are of two runs" in str(caught.value.meaning)


def test_what_a_reader_of_two_bundles_has_to_know():
    """Another Triton, architectures of one side, and each side's faults, named by the side."""
    base = side(row(), row("sy_80"), row("sy_75"), facts=facts(triton="3.8.0"), missing="of 2 shards there is no 2")
    head = side(row(), row("sy_100"), missing="of 2 shards there is no 1")
    told = notes(base, head)

    assert notes(head, head)[:0] == notes(side(row()), side(row())) == ()
    assert len(told) == 5
    assert ("3.8.0 in BASE" in told[0], "3.9.0 in HEAD" in told[0]) == (True, True)
    assert "BASE compiled for sy_75, sy_80" in told[1]
    assert "BASE" in told[2]
    assert "no 2" in told[2]
    assert "HEAD compiled for sy_100" in told[3]
    assert "HEAD" in told[4]
    assert "no 1" in told[4]


def test_bundles_of_other_gpus_are_not_comparable():
    """One architecture in common is enough."""
    check_comparable(side(row(), row("sy_80")), side(row()))
    with pytest.raises(UsageError) as caught:
        check_comparable(side(row("sy_80"), row("sy_75"), folder="a"), side(row(), folder="b"))

    assert "a compiled for sy_75, sy_80, b for sy_90" in caught.value.happened
