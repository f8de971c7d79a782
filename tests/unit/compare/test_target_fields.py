"""Targets, their cards and their tests, field by field. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import CEILING, GPU_B, case, compiled, facts, record, run, sample

from warpwave.compare import compare
from warpwave.compare.model import CardUse, DeviceSummary, KernelTests, TargetSummary
from warpwave.compare.verdict import devices, disagreements, summarise
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
