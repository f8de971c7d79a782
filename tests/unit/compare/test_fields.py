"""Targets, their cards and their tests, field by field. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import BASE, CEILING, GPU_B, case, compiled, facts, other, record, row, run, sample, side
from synthetic import FAILED as FAILED_ROW

from warpwave.compare import compare
from warpwave.compare.changed_codegen import (
    Bundle,
    Change,
    Concern,
    Delta,
    Diff,
    Kind,
    Split,
    Trend,
    bundle,
    check_comparable,
    diff,
    merge,
    notes,
    one_vendor,
)
from warpwave.compare.codegen import align, by_generation, compare_codegen, compare_launches, configuration, held_against, use_of_waivers
from warpwave.compare.model import CardUse, CodegenCell, Deviation, DeviceSummary, Fidelity, KernelTests, Likeness, TargetSummary, WaiverUse
from warpwave.compare.verdict import devices, disagreements, summarise
from warpwave.errors import UsageError
from warpwave.records import OPEN, Attempt, CardShare, DeviceFacts, Environment, Exit, Gates, Stage, StageReport, Verdict, Waiver, Which

A, B = ["alpha"], ["alpha", "beta"]
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


# --- targets ----------------------------------------------------------------------------------------------------------------------------


def test_a_target_field_by_field():
    """All that its run told, and its tests, points and kernels by verdict."""
    gates = Gates(OPEN, waivers=(Waiver("spills", "why", Which()),))
    environment = Environment(engine="local", python="python3")
    attempts = (Attempt("2026-01-01", 3.0, Verdict.TIMEOUT, "slow"),)
    stages = (StageReport(Stage.TEST, PASSED), StageReport(Stage.COMPILE, PASSED))
    made = run(
        record=record(label="A label", seconds=7.0, hint="a hint", attempts=attempts, environment=environment),
        stages=stages,
        cases=(case(), case("b", Verdict.NOT_RUN)),
        samples=(sample(1), sample(2), sample(3, None)),
        compiled=(compiled(), compiled(verdict=FAILED, broken={"spills": "1"}), compiled(verdict=FAILED)),
        gates=gates,
        peers=("torch",),
    )
    found = summarise("alpha (2)", made)

    assert found == TargetSummary(
        target="alpha (2)",
        label="A label",
        verdict=FAILED,
        complete=True,
        reason="failed 2 of 3 binaries",
        hint="a hint",
        run_id="run-1",
        started="2026-01-02T03:04:05+00:00",
        seconds=7.0,
        commit="0123abc",
        command=("warpwave", "run", "alpha"),
        devices=devices(made),
        facts=made.facts,
        environment=environment,
        stages=stages,
        ceilings=made.ceilings,
        tests={"passed": 1, "not-run": 1},
        points={"passed": 2, "invalid": 1},
        compiled={"passed": 1, "failed": 2},
        only_gates=1,
        gates=gates,
        peers=("torch",),
        attempts=attempts,
        disagreements=(),
    )
    assert summarise("alpha", dataclasses.replace(made, stages=stages[:1])).peers == ()


def test_for_how_long_a_target_had_its_cards():
    """Seconds of several cards are added up; what was compiled meanwhile is that of the stages that held one."""
    stages = (
        StageReport(Stage.TEST, PASSED, used_s=1.25, compiled_ahead=3, compiled_here=2),
        StageReport(Stage.BENCH, PASSED, used_s=None, compiled_ahead=4, compiled_here=8),
        StageReport(Stage.COMPILE, PASSED, used_s=0.50049, compiled_here=16),
    )
    held = run(record=record(held={"test": 2.5, "bench": 4.00049}), stages=stages)

    assert summarise("a", held).card_use == CardUse(6.5, 1.75, compiled_ahead=7, compiled_meanwhile=10)
    assert summarise("a", run(stages=stages)).card_use is None


def test_a_target_has_the_hint_of_what_decided():
    """The host's first; a stage's where it has the verdict; none for one that passed."""
    stages = (StageReport(Stage.TEST, FAILED, hint="mild"), StageReport(Stage.BENCH, Verdict.CRASHED, reason="it died", hint="grave"))
    crashed = run(stages=stages, record=record(verdict=Verdict.CRASHED))
    told = run(stages=stages, record=record(verdict=Verdict.CRASHED, hint="the host's", reason="the host's reason"))
    passed = run(record=record(hint="of no use"))

    assert (summarise("a", crashed).hint, summarise("a", crashed).reason) == ("grave", "bench: it died")
    assert (summarise("a", told).hint, summarise("a", told).reason) == ("the host's", "the host's reason")
    assert (summarise("a", passed).hint, summarise("a", passed).reason) == ("", "")


ENDED = {
    "well": (Exit(0, 1.0), (), True),
    "before there were exit codes": (None, (), True),
    "with an exit code": (Exit(1, 1.0), (), False),
    "at its limit": (Exit(0, 1.0, timed_out=True), (), False),
    "by the user": (Exit(0, 1.0, interrupted=True), (), False),
    "by the engine": (Exit(0, 1.0, error="x"), (), False),
    "for its results": (Exit(0, 1.0, exceeded="x"), (), False),
    "with a file that cannot be read": (Exit(0, 1.0), ("x: invalid: y",), False),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_crashed_test_leaves_a_target_complete_only_where_its_run_ended_well(name):
    """Else nobody knows what else it would have found."""
    ended, problems, complete = ENDED[name]
    made = run(record=record(exit=ended), cases=(case(verdict=Verdict.CRASHED),), problems=problems)

    assert summarise("alpha", made).complete is complete


def test_a_stage_that_failed_by_itself_is_not_complete():
    """An exit code, or a doubt, of any stage."""
    for report in (StageReport(Stage.TEST, PASSED, exit_code=1), StageReport(Stage.TEST, PASSED, doubts=("forged",))):
        assert not summarise("alpha", run(stages=(report,), cases=(case(verdict=Verdict.CRASHED),))).complete


def test_a_test_that_is_invalid_leaves_no_target_complete():
    """It was not run as it was reported; a point that is invalid is only a point."""
    assert not summarise("alpha", run(cases=(case(verdict=Verdict.INVALID),))).complete
    assert summarise("alpha", run(record=record(verdict=Verdict.INVALID), samples=(sample(value=None),))).complete


def test_targets_of_one_name_are_numbered_past_a_name_that_is_taken():
    """A target may itself be called `alpha (2)`."""
    runs = [run(record=record(name)) for name in ("alpha (2)", "alpha", "alpha", "alpha")]

    assert [target.target for target in compare(runs, ["alpha (2)"]).targets] == ["alpha (2)", "alpha", "alpha (3)", "alpha (4)"]


def test_every_fact_that_differs_is_named():
    """Two of them forbid to compare speeds; an unknown value is one, too."""
    other = facts(
        GPU_B,
        **{"torch": "2.14", "triton": "3.10", "runtime": "r", "driver": None, "python": "3.13", "platform": "p"},
        **{"fp_fusion": "0", "kernels_hash": "0"},
    )
    first, second = run(), run("beta", record=record("beta", commit=""), facts=other)
    found = compare([first, second], B).differences

    assert {entry.name: tuple(entry.values.values()) for entry in found} == {
        "torch": ("2.13.0+synthetic", "2.14"),
        "triton": ("3.9.0", "3.10"),
        "runtime": ("synthetic 1.0", "r"),
        "driver": ("1.0", "unknown"),
        "python": ("3.12.0", "3.13"),
        "platform": ("Linux-synthetic", "p"),
        "FP fusion": ("1", "0"),
        "kernel sources": ("5e1f" * 16, "0"),
        "commit": ("0123abc", "unknown"),
    }
    assert {entry.name for entry in found if entry.refuses} == {"FP fusion", "kernel sources"}


# --- cards ------------------------------------------------------------------------------------------------------------------------------


def card(index, **more):
    base = DeviceFacts(index, "Card", "sy_90", 80 << 30, 100, uuid=f"GPU-{index}", derived_gbps=4400.0, clock_mhz=1980.0)
    return dataclasses.replace(base, **more)


def copy(device, gbps, spread=0.001):
    ms = 4e9 / gbps * 1e-6
    return dataclasses.replace(CEILING, device=device, median_ms=ms, p20_ms=ms * (1 - spread), p80_ms=ms * (1 + spread))


def test_a_card_field_by_field():
    """Its best copy, what it did of the work, and why it was given up."""
    made = run(
        facts=facts(devices=(card(0), card(1))),
        cases=(case("a", properties={"gpu": "1"}), case("b", properties={"gpu": "1"}), case("c", properties={"gpu": "0"}), case("d")),
        samples=(sample(1, device=1), sample(2, device=0), sample(3, device=0)),
        ceilings=(copy(0, 3000.0), copy(0, 4000.0), copy(0, 3500.0)),
        shares=(CardShare(Stage.TEST, 1, 2, 1.0), CardShare(Stage.BENCH, 1, 1, 1.0, "it fell off the bus")),
    )

    assert devices(made) == (
        DeviceSummary(0, "Card", "sy_90", 80 << 30, pytest.approx(4000.0), 4400.0, "GPU-0", 1, 2, ""),
        DeviceSummary(1, "Card", "sy_90", 80 << 30, None, 4400.0, "GPU-1", 2, 1, "it fell off the bus"),
    )
    assert devices(run(facts=None)) == ()


def both_used(second, ceilings=()):
    return run(facts=facts(devices=(card(0), second)), samples=(sample(1), sample(2, device=1)), ceilings=ceilings)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (card(1), ()),
        (card(1, name="Other"), ("name: Card on GPU 0, Other on GPU 1",)),
        (card(1, architecture="sy_80"), ("architecture: sy_90 on GPU 0, sy_80 on GPU 1",)),
        (card(1, memory_bytes=40 << 30), ("memory: 80.0 GiB on GPU 0, 40.0 GiB on GPU 1",)),
        (card(1, multiprocessors=99), ("multiprocessors: 100 on GPU 0, 99 on GPU 1",)),
        (card(1, derived_gbps=None), ("bandwidth by its driver's figures: 4400 GB/s on GPU 0, unknown on GPU 1",)),
        (card(1, clock_mhz=None), ("clock: 1980 MHz on GPU 0, unknown on GPU 1",)),
        (card(1, told={"power limit": "500 W"}), ("power limit: unknown on GPU 0, 500 W on GPU 1",)),
        (card(1, name="x" * 500), (f"name: Card on GPU 0, {'x' * 500}"[:400],)),
    ],
)
def test_cards_that_shared_the_work_are_held_against_each_other(second, expected):
    """Fact by fact; what one of them does not tell is unknown there."""
    assert disagreements(both_used(second)) == summarise("alpha", both_used(second)).disagreements == expected


def test_only_cards_that_did_something_are_held_against_each_other():
    """A share of the tests counts as a point does."""
    made = both_used(card(1, name="Other"))

    assert disagreements(dataclasses.replace(made, samples=made.samples[:1])) == ()
    assert len(disagreements(dataclasses.replace(made, samples=made.samples[:1], shares=(CardShare(Stage.TEST, 1, 2, 1.0),)))) == 1


@pytest.mark.parametrize(
    ("copies", "told"),
    [
        ([copy(0, 4000.0), copy(1, 3600.0)], "10.0%"),
        ([copy(1, 4000.0), copy(0, 3600.0)], "10.0%"),
        ([copy(0, 4000.0), copy(1, 3000.0), copy(1, 3600.0), copy(1, 3200.0)], "10.0%"),
        ([copy(0, 4000.0), copy(1, 3965.0)], ""),
        ([copy(0, 4000.0, 0.2), copy(1, 3600.0, 0.2)], ""),
        ([copy(0, 4000.0)], ""),
        ([copy(0, 4000.0), copy(5, 100.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), p20_ms=0.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), p80_ms=0.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), median_ms=0.0)], ""),
    ],
)
def test_a_card_that_copies_more_slowly_is_reported(copies, told):
    """Its best copy, where it is slower by a percent or more and the two do not overlap; a card that did nothing is none."""
    found = disagreements(both_used(card(1), tuple(copies)))

    assert bool(found) == bool(told)
    assert told in "".join(found)


# --- tests ------------------------------------------------------------------------------------------------------------------------------


def test_the_tests_of_a_kernel_are_counted_field_by_field():
    """Seconds that cannot be are none."""
    times = (0.25, 0.5, -1.0, 0.0, 1e12, float("nan"))
    cases = tuple(dataclasses.replace(case(str(n)), seconds=time) for n, time in enumerate(times))
    other = (case("x", FAILED, kernel="other"),)
    found = compare([run(cases=(*cases, *other)), run("beta", record=record("beta"), cases=other)], B).kernels

    assert found == (
        KernelTests("softmax", "alpha", {"passed": 6}, 0.75),
        KernelTests("other", "alpha", {"failed": 1}, 0.25),
        KernelTests("other", "beta", {"failed": 1}, 0.25),
    )


# What changed in generated code, and bundles of it, field by field. All rows are made up.

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED_CODE_FIELDS = Verdict.PASSED


# --- changes ----------------------------------------------------------------------------------------------------------------------------


def test_a_change_field_by_field():
    """Retuned, worse, and one of two configurations of which the other still compiles."""
    stays = row(constants={"BLOCK": 1})
    old, new = row(constants={"BLOCK": 2}), row(constants={"BLOCK": 2}, **FAILED_ROW)
    found = diff([stays, old], [stays, new])

    assert found == Diff(
        changes=(
            Change(
                *("softmax", "_softmax_fwd", "sy_90", Kind.WORSE, "bench", "BLOCK=2", ()),
                deltas=(Delta(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 5.0),),
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
    broken = row(constants={"BLOCK": 9}, origin="elsewhere", **FAILED_ROW)
    absent = (Delta(Concern.VERDICT, WORSE, "verdict", "absent", "failed", 5.0),)
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

    assert (worse.kind, worse.deltas) == (Kind.WORSE, (Delta(Concern.VERDICT, WORSE, "verdict", "passed", "not-run", 4.0),))
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
    passed, failed = row(), row(**FAILED_ROW)

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


# Generated code of several vendors and cards, field by field. All rows are made up.

WORSE_LAUNCH_FIELDS, BETTER_LAUNCH_FIELDS, NEITHER_LAUNCH_FIELDS = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED_LAUNCH_FIELDS = Verdict.PASSED


# --- vendors and rows -------------------------------------------------------------------------------------------------------------------


def test_a_split_field_by_field():
    """What dies is told by its first architecture's verdict and reason; another configuration is another split."""
    alive = [row(constants={"BLOCK": n}) for n in (1, 2)]
    dying = [row(name, constants={"BLOCK": n}, **{**FAILED_ROW, "reason": f"{name} {n}"}) for name in ("syn942", "syn950") for n in (1, 2)]

    assert one_vendor([*alive, *dying]) == tuple(
        Split(
            *("softmax", "_softmax_fwd", "bench", f"BLOCK={n}", ("sy_90",), ("syn942", "syn950")),
            verdict=Verdict.FAILED,
            reason=f"syn942 {n}",
        )
        for n in (1, 2)
    )


def test_stages_tell_where_both_vendors_have_them():
    """The same number of stages died there, another lives: that is no matter of vendors."""
    rows = [row(num_stages=2), row(num_stages=3, **FAILED_ROW), row("syn942", num_stages=2), row("syn942", num_stages=3, **FAILED_ROW)]

    assert one_vendor(rows) == ()
    assert len(one_vendor([*rows[:1], row(num_stages=3), *rows[2:]])) == 1


def test_architectures_are_sorted_by_their_number():
    """In every report the same; a name of digits alone, or of none, is one, too."""
    names = ["gfx1100", "sm_100", "sm_90", "gfx942", "gfx90a", "sm_90a", "none", "7"]

    assert by_generation("sm_90\nx") == ("sm_", 90, "\nx")
    assert sorted(names, key=by_generation) == ["7", "gfx90a", "gfx942", "gfx1100", "none", "sm_90", "sm_90a", "sm_100"]


def test_a_configuration_in_one_line():
    """Values that differ side by side; `-` where one has none; open options are left out."""
    assert configuration(BASE) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages"
    assert configuration(BASE, other(num_warps=8, constants={"B": 512})) == "*fp32 i32, B=1024/512 E=True/-, 4/8 warps, 2 stages"
    assert configuration(BASE, other(constants={"B": 1024, "E": True, "F": 1})) == "*fp32 i32, B=1024 E=True F=-/1, 4 warps, 2 stages"
    assert configuration(BASE, other(options={"waves_per_eu": 2})) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages, waves_per_eu=-/2"
    assert configuration(BASE, stages=False) == "*fp32 i32, B=1024 E=True, 4 warps"
    assert configuration(other(num_warps=None, num_stages=None, constants={}, signature={})) == ""


def test_two_targets_of_one_architecture_are_two_cells_of_a_row():
    """What was compiled twice on one target is a second row."""
    cells = [CodegenCell("a", row()), CodegenCell("b", row()), CodegenCell("a", row())]
    found = align(cells)

    assert [(line.kernel, line.function, line.cells) for line in found] == [
        ("softmax", "_softmax_fwd", tuple(cells[:2])),
        ("softmax", "_softmax_fwd", (cells[2],)),
    ]
    assert compare_codegen({"a": run(compiled=(row(), row())), "b": run(compiled=(row(),))}) == tuple(
        dataclasses.replace(line) for line in align([cells[0], cells[2], cells[1]])
    )


def test_only_what_one_case_launched_once_shares_a_row_with_another_tile():
    """Of another case, or of an architecture that is in the row, it is a row of its own."""

    def rows_of(*kernels):
        return [len(line.cells) for line in align([CodegenCell("a", kernel) for kernel in kernels])]

    assert rows_of(row(), row("syn942", constants={"BLOCK": 9})) == [2]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}, origin="elsewhere")) == [1, 1]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}, function="f")) == [1, 1]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}), row("syn950", constants={"BLOCK": 8})) == [3]
    # What has come into a row is in it, as is what it began with: the last one shares neither of its columns.
    again = row("syn942", constants={"BLOCK": 7})
    first = align([CodegenCell("a", row()), CodegenCell("a", row("syn942", constants={"BLOCK": 9})), CodegenCell("b", again)])
    assert [len(line.cells) for line in first] == [3]
    tiles = [CodegenCell(target, row(constants={"BLOCK": at})) for at, target in enumerate("abcd")]
    assert [len(line.cells) for line in align(tiles)] == [4]


def test_a_waivers_use_is_counted_over_all_targets():
    """What it covers and what it let through; a kernel that did not run is neither, and the first of two waivers is the reason."""
    first, second = Waiver("spills", "first", Which(("softmax",))), Waiver("spills", "second", Which(function=("_softmax_*",)))
    gates = Gates(OPEN, waivers=(first, second))
    waived = row(waived={"spills": "first"})
    runs = {
        "a": run(compiled=(waived, row(), row(kernel="other")), gates=gates),
        "b": run(compiled=(waived, row(verdict=Verdict.NOT_RUN)), gates=gates),
        "c": run(compiled=(waived,)),
        "d": run(compiled=(), gates=gates),
    }

    assert use_of_waivers(runs) == (WaiverUse(first, 3, 2), WaiverUse(second, 4, 0))


# --- what a card launched ---------------------------------------------------------------------------------------------------------------


def test_launches_are_held_against_what_was_compiled():
    """The same binary, another one, another specialization, and one that was not seen; each with its names and why."""
    same, retuned, gone = row(), row(function="g"), row(function="h", constants={"A": 1})
    compiled = [same, dataclasses.replace(retuned, binary_hash="z", registers=99), dataclasses.replace(gone, constants={"A": 2})]
    launched = [same, retuned, gone, row(function="i")]
    equal, found = held_against(launched, compiled)

    assert equal == 1
    assert [(entry.kernel, entry.function, entry.architecture, entry.origin, entry.likeness) for entry in found] == [
        ("softmax", "g", "sy_90", "bench", Likeness.ANOTHER_BINARY),
        ("softmax", "h", "sy_90", "bench", Likeness.RESPECIALIZED),
        ("softmax", "i", "sy_90", "bench", Likeness.NOT_SEEN),
    ]
    assert all(isinstance(entry, Deviation) and entry.reason for entry in found)
    assert "34 registers instead of 99" in found[0].reason
    assert "A is 1 instead of 2" in found[1].reason


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"num_warps": 8}, "num_warps is 8 instead of 4"),
        ({"num_stages": 9}, "num_stages is 9 instead of 2"),
        ({"signature": {"x": "*i8"}}, "x is *i8 instead of None, x_ptr is None instead of *fp32, n is None instead of i32"),
        ({"attributes": {"x": "aligned"}}, "x is aligned instead of None"),
    ],
)
def test_every_part_of_a_specialization_counts(part, told):
    """And is named with both values."""
    equal, (entry,) = held_against([row(**part)], [row(binary_hash=row(**part).binary_hash)])

    assert (equal, entry.likeness) == (0, Likeness.RESPECIALIZED)
    assert entry.reason.endswith(f": {told}")


def test_launches_of_a_target_field_by_field():
    """Against its own compile stage and another's with the same Triton; else with the reason why there is none."""
    lane = run("lane", record=record("lane"), compiled=(row(),))
    card = run("card", record=record("card"), compiled=(), launched=(row(), row(function="f")))
    old = dataclasses.replace(card, facts=facts(triton="3.8.0"))
    deviation = Deviation("softmax", "f", "sy_90", "bench", Likeness.NOT_SEEN, held_against(card.launched, lane.compiled)[1][0].reason)

    assert compare_launches({"card": card, "lane": lane}) == (Fidelity("card", "lane", "3.9.0", 2, 1, (deviation,)),)
    assert compare_launches({"lane": lane}) == ()
    for runs, words in (({"card": old, "lane": lane}, "3.9.0"), ({"card": card}, "sy_90")):
        (found,) = compare_launches(runs)
        assert dataclasses.replace(found, reason="") == Fidelity("card", "", runs["card"].facts.triton, 2)
        assert words in found.reason
    assert [entry.target for entry in compare_launches({"lane": lane, "card": card, "more": card})] == ["card", "more"]
    both = dataclasses.replace(card, compiled=(row(),))
    assert [entry.against for entry in compare_launches({"card": both, "lane": lane})] == ["card", "lane"]
