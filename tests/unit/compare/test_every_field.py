"""Each record of a comparison, field by field: a figure under another's name would be believed. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import CEILING, GPU_A, GPU_B, case, compiled, facts, pair, record, run, sample

from harness.compare import compare
from harness.compare.cards import devices, disagreements
from harness.compare.comparison import Cell, Change, DeviceSummary, Geomean, KernelTests, Noise, Ratio, Refusal, Speed, TargetSummary
from harness.compare.speeds.changed_speeds import GroupChange, PointChange, TargetPair, changed_speeds
from harness.compare.speeds.noise import explain, noise
from harness.compare.speeds.rows import cells
from harness.compare.speeds.speedup import speedup
from harness.compare.speeds.trend import Measured, Series, trends
from harness.compare.verdict import summarise
from harness.records import (
    OPEN,
    Attempt,
    CardShare,
    DeviceFacts,
    Environment,
    Exit,
    Gates,
    Stage,
    StageReport,
    Verdict,
    Waiver,
    Which,
)

A, B = ["alpha"], ["alpha", "beta"]
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


# --- speeds -----------------------------------------------------------------------------------------------------------------------------


def test_a_cell_has_all_that_its_sample_says():
    """The share is of the 4000 GB/s that a copy reached; timings of 10 ms, 1 % to either side."""
    point = dataclasses.replace(
        sample(value=1000.0, median_ms=10.0),
        **{"low": 900.0, "high": 1100.0, "quiet": True, "graph_ms": 9.0, "cache_bytes": 1 << 26, "weak": "throttled", "warmup": 7},
    )
    ((told, cell),) = cells("alpha", run(samples=(point,)))

    assert told is point
    assert cell.half_width == pytest.approx(0.005, rel=1.0)
    assert dataclasses.replace(cell, half_width=None) == Cell(
        target="alpha",
        device=0,
        gpu=GPU_A,
        verdict=PASSED,
        unit="GB/s",
        value=1000.0,
        low=900.0,
        high=1100.0,
        median_ms=10.0,
        p20_ms=9.9,
        p80_ms=10.1,
        share=0.25,
        verified=True,
        suspect=False,
        reason="",
        timings=21,
        timer="synthetic",
        flush_bytes=1 << 28,
        warmup=7,
        bytes_moved=1024 * 4096,
        half_width=None,
        quiet=True,
        graph_ms=9.0,
        cache_bytes=1 << 26,
        weak="throttled",
    )


def test_a_cell_says_what_is_wrong_with_its_number():
    """All of it: no number, one that memory cannot reach, and no test that passed; a device that nobody named has its index."""
    points = (sample(1, value=None, verdict=Verdict.ERROR, reason="out of memory"), sample(2, value=5000.0), sample(3, device=7))
    broken, above, elsewhere = (cell for _, cell in cells("alpha", run(samples=points, cases=())))

    assert (broken.verdict, broken.value, broken.share, broken.verified) == (Verdict.ERROR, None, None, False)
    assert broken.reason.startswith("out of memory; ")
    assert (above.suspect, above.share, above.verified) == (True, 1.25, False)
    assert above.reason.startswith("1.25 times ")
    assert above.reason.count("; ") == 1
    assert (elsewhere.gpu, elsewhere.share, elsewhere.device) == ("GPU 7", None, 7)


def test_timings_that_are_all_alike_are_doubted():
    """Twenty of them: a clock resolves nanoseconds. Nineteen may be alike, and so may one that differs."""
    found = {}
    for name, times in {"alike": (1.0,) * 20, "few": (1.0,) * 19, "one differs": (1.0,) * 19 + (1.000001,)}.items():
        ((_, found[name]),) = cells("alpha", run(samples=(dataclasses.replace(sample(median_ms=1.0), times_ms=times),)))

    assert [bool(cell.weak) for cell in found.values()] == [True, False, False]
    assert "20" in found["alike"].weak


def test_a_ratio_has_all_that_two_cells_say():
    """Twice as fast in half the time, beyond the 3 % that are assumed; the interval is that of the times, 1 % to either side."""
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": (sample(value=2000.0),)}), B)
    ((ratio,),) = (row.ratios for row in comparison.rows)

    assert dataclasses.replace(ratio, low=None, high=None) == Ratio("beta", "alpha", 2.0, Change.FASTER, "", 2.0, None, None, 0.03)
    assert 1.95 < ratio.low < 2.0 < ratio.high < 2.05
    (mean,) = comparison.geomeans
    assert mean == Geomean("softmax", "triton", "GB/s", "beta", "alpha", 1, pytest.approx(2.0), ())


def test_what_was_not_compared_is_grouped_by_its_reason():
    """Cases of one reason in one line; each kernel, provider and target by itself."""
    left = tuple(sample(n, provider=p) for p in ("triton", "torch") for n in (1, 2, 3))
    right = tuple(dataclasses.replace(point, timer="another") for point in left[:5])
    found = compare(pair({"samples": left}, {"samples": right}), B).refusals
    assert [(entry.kernel, entry.provider, entry.target, entry.baseline, entry.cases) for entry in found] == [
        ("softmax", "triton", "beta", "alpha", ("softmax/N=1", "softmax/N=2", "softmax/N=3")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=1", "softmax/N=2")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=3",)),
    ]
    assert all(isinstance(entry, Refusal) and entry.reason for entry in found)
    assert "timers" in found[0].reason
    assert "beta" in found[2].reason


def test_a_sweep_is_condensed_field_by_field():
    """Hand-worked: the fastest is neither the largest nor the last; one is no number and one is more than memory can give."""
    points = (sample(4, 2000.0), sample(2, 3000.0), sample(1, 1000.0), sample(8, None, verdict=Verdict.ERROR), sample(16, 5000.0))
    (speed,) = compare([run(samples=points)], A).speeds

    assert speed == Speed(
        kernel="softmax",
        provider="triton",
        unit="GB/s",
        target="alpha",
        gpu=GPU_A,
        n=3,
        left_out=2,
        verified=True,
        reason="",
        best=3000.0,
        best_share=0.75,
        best_case="softmax/N=2",
        median=2000.0,
        median_share=0.5,
        largest=2000.0,
        largest_share=0.5,
        largest_case="softmax/N=4",
    )


def test_a_sweep_of_times_is_best_where_it_is_shortest():
    """Nothing is a share of a copy there; of points of one size the last stands for it."""
    points = tuple(sample(n, None, unit="ms", provider=p) for p, n in (("a", 1), ("a", 2)))
    points = tuple(dataclasses.replace(p, value=v, params={"N": 4, "flag": True, "M": 0}) for p, v in zip(points, (3.0, 5.0), strict=True))
    (speed,) = compare([run(samples=points, cases=())], A).speeds

    assert (speed.best, speed.best_case, speed.best_share) == (3.0, "softmax/N=1", None)
    assert (speed.median, speed.median_share, speed.largest, speed.largest_case) == (4.0, None, 5.0, "softmax/N=2")
    assert (speed.verified, bool(speed.reason)) == (False, True)


def test_a_sweep_without_a_sound_number_is_there():
    """With how many there would have been."""
    (speed,) = compare([run(samples=(sample(1, None, verdict=Verdict.ERROR), sample(2, 9000.0)))], A).speeds

    assert speed == Speed("softmax", "triton", "GB/s", "alpha", GPU_A, 0, 2, True, "")


def test_a_weak_point_keeps_its_interval():
    """It is ambiguous whatever the interval, and both sides' reasons are told once."""
    weak = dataclasses.replace(sample(value=1000.0), weak="throttled")
    found = speedup(weak, dataclasses.replace(sample(value=2000.0), weak="throttled"), 0.03)

    assert (found.change, found.interval.value, found.reason) == (Change.AMBIGUOUS, 2.0, "weak: throttled")


def test_noise_field_by_field():
    """Three points moved by 0, 10 and 50 %: too few to ask for less than is assumed; the quantile lies at 46 %. Hand-worked."""
    points = tuple(sample(n, scatter=0.0) for n in (1, 2, 3))
    second = tuple(
        dataclasses.replace(point, times_ms=tuple(time * by for time in point.times_ms))
        for point, by in zip(points, (1.0, 1.1, 1 / 1.5), strict=True)
    )
    found = noise("alpha", run(samples=points, again=second))

    assert found == Noise("alpha", 3, False, pytest.approx(1.25), pytest.approx(0.46), pytest.approx(0.5), "softmax/N=3 triton")
    assert noise("alpha", run(samples=points, again=points)) == Noise("alpha", 3, False, 0.03, 0.0, 0.0, "")
    assert noise("alpha", run(samples=points)) is None
    assert "3%" in explain([])
    assert "alpha 125.0% (3 points" in explain([found])
    assert explain([found]) != explain([dataclasses.replace(found, enough=True)])


def test_a_trend_is_relative_to_its_first_run():
    """A kernel's cases in one line, by their geometric mean; a case that is not in every run is left out. Hand-worked."""

    def series(name, *times, **more):
        points = tuple(Measured(f"r{n}", f"2026-01-0{n}", "c", time, None) for n, time in enumerate(times, 1) if time)
        return Series("k", name, "triton", "alpha", GPU_A, "timer", 1, points, **more)

    one, two, gap = series("k/1", 4.0, 2.0, 1.0), series("k/2", 1.0, 2.0, 1.0), series("k/3", 1.0, None, 1.0)
    other = dataclasses.replace(series("k/1", 1.0, 1.0, 1.0), flush_bytes=2)
    first, second = trends([one, two, gap, other], 9)
    (recent,) = trends([one, two], 2)
    by_case = trends([one, two, gap], 9, by_case=True)

    assert (first.name, first.provider, first.target, first.gpu, first.n) == ("k", "triton", "alpha", GPU_A, 2)
    assert first.speeds == pytest.approx((1.0, 1.0, 2.0))
    assert [point.run_id for point in first.runs] == ["r1", "r2", "r3"]
    assert (second.n, second.speeds) == (1, (1.0, 1.0, 1.0))
    assert recent.speeds == pytest.approx((1.0, 2.0))
    assert [(trend.name, trend.n, len(trend.speeds)) for trend in by_case] == [("k/1", 1, 3), ("k/2", 1, 3), ("k/3", 1, 2)]
    assert (first.line, second.line, by_case[0].line) == ("▁▁█", "▄▄▄", "▁▃█")


# --- two commits ------------------------------------------------------------------------------------------------------------------------


def two_commits(before, after, at_least=None, **head):
    base = run(samples=before, record=record(commit="old", run_id="run-1"))
    return changed_speeds([base], [run(samples=after, record=record(commit="new", run_id="run-2"), **head)], at_least)


def test_a_point_that_moved_field_by_field():
    """BASE's time over HEAD's, and where it lies."""
    found = two_commits((sample(1, median_ms=2.0),), (sample(1, median_ms=1.0),))
    (point,) = found.points

    assert 1.95 < point.low < 2.0 < point.high < 2.05
    assert dataclasses.replace(point, low=None, high=None) == PointChange(
        *("softmax", "softmax/N=1", "triton", "alpha", 0, Change.FASTER, 2.0, 1.0, 2.0)
    )
    assert found.groups == (GroupChange("softmax", "triton", "alpha", 1, pytest.approx(2.0), {"faster": 1}, ()),)
    assert found.pairs == (TargetPair("alpha", (GPU_A,), ("old", "new"), ("run-1", "run-2"), 0.03, versions={}),)
    assert (found.only, found.lost, found.skipped) == ((), (), ())


ERROR = {"value": None, "verdict": Verdict.ERROR, "reason": "it failed"}
IDLE = {"value": None, "verdict": Verdict.NOT_RUN, "reason": "not installed"}


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ({}, None, {"change": Change.ONE_SIDED, "base_ms": 1.0, "reason": "not in HEAD"}),
        (None, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "not in BASE"}),
        (IDLE, IDLE, {"skipped": True, "reason": "skipped in both: not installed"}),
        (IDLE, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "skipped in BASE: not installed"}),
        ({}, ERROR, {"lost": True, "base_ms": 1.0, "reason": "it failed"}),
        ({}, IDLE, {"base_ms": 1.0, "reason": "HEAD: not installed"}),
        (ERROR, {}, {"head_ms": 1.0, "reason": "BASE: it failed"}),
        (ERROR, ERROR, {"reason": "BASE: it failed; HEAD: it failed"}),
        (IDLE, ERROR, {"reason": "BASE: not installed; HEAD: it failed"}),
    ],
)
def test_a_point_that_one_run_lacks_field_by_field(base, head, expected):
    """Which of the two, and why; what failed in HEAD alone is lost, what was skipped in both is none."""
    sides = [() if more is None else (sample(1, median_ms=None if more else 1.0, **more),) for more in (base, head)]
    other = sample(2)
    (point, _) = sorted(two_commits((*sides[0], other), (*sides[1], other)).points, key=lambda point: point.case)

    assert point == dataclasses.replace(PointChange("softmax", "softmax/N=1", "triton", "alpha", 0, Change.REFUSED), **expected)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("parameters", {"params": {"N": 5}}),
        ("units", {"unit": "TFLOP/s"}),
        ("timers", {"timer": "another"}),
        ("flush sizes", {"flush_bytes": 1}),
    ],
)
def test_a_point_that_was_measured_otherwise_is_refused(what, changes):
    """Both settings are told, BASE's first."""
    (point,) = two_commits((sample(1),), (dataclasses.replace(sample(1), **changes),)).points

    assert (point.change, point.speedup) == (Change.REFUSED, None)
    assert point.reason.startswith(f"different {what}: BASE ")
    assert ", HEAD " in point.reason


def test_the_groups_of_two_commits_keep_what_they_leave_out():
    """Per kernel, provider and target; counts by verdict, and skipped ones apart."""
    idle = dataclasses.replace(sample(4, None), verdict=Verdict.NOT_RUN, reason="no")
    base = (sample(1, median_ms=4.0), sample(2, median_ms=1.0), sample(3), idle, sample(1, provider="torch"))
    head = (sample(1, median_ms=1.0), sample(2, median_ms=1.0), idle, sample(1, provider="torch"))
    first, second = two_commits(base, head).groups

    assert (first.kernel, first.provider, first.target, first.n, first.mean) == ("softmax", "triton", "alpha", 2, pytest.approx(2.0))
    assert first.changes == {"faster": 1, "same": 1, "one-sided": 1, "skipped": 1}
    assert [gone.case for gone in first.exclusions] == ["softmax/N=3", "softmax/N=4"]
    assert (second.provider, second.n, second.changes) == ("torch", 1, {"same": 1})


def test_what_differs_between_two_commits_is_on_record():
    """Versions are shown; another GPU or arithmetic, or facts that are missing, forbid any comparison on that target."""
    newer = facts(torch="2.14", python="3.13", driver="1.1", runtime="synthetic 1.1", triton="3.10")
    both = [run(record=record(name), target=name) for name in B]
    (told,) = two_commits((sample(1),), (sample(1),), 0.2, facts=newer).pairs
    assert told.versions == {
        "torch": ("2.13.0+synthetic", "2.14"),
        "triton": ("3.9.0", "3.10"),
        "runtime": ("synthetic 1.0", "synthetic 1.1"),
        "driver": ("1.0", "1.1"),
        "python": ("3.12.0", "3.13"),
    }
    assert told.threshold == 0.2

    for changes, words in (
        ({"facts": facts(GPU_B)}, f"different GPUs on alpha: BASE {GPU_A}, HEAD {GPU_B}"),
        ({"facts": facts(fp_fusion="0")}, "different FP fusion settings on alpha: BASE 1, HEAD 0"),
        ({"facts": None}, "the facts of alpha are missing in HEAD"),
    ):
        found = changed_speeds(both, [dataclasses.replace(both[0], **changes), both[1]])
        assert [pair.barriers for pair in found.pairs] == [(words,), ()]
        assert {point.target for point in found.points} == {"beta"}


def test_a_target_of_one_commit_alone_is_named():
    """With the side that has it."""
    both = {name: run(record=record(name), target=name) for name in ("alpha", "beta", "gamma")}
    found = changed_speeds([both["alpha"], both["beta"]], [both["alpha"], both["gamma"]])

    assert [(words.split()[0], words.split()[4]) for words in found.only] == [("beta", "BASE"), ("gamma", "HEAD")]


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
        samples=(sample(1), sample(2), sample(3, -1.0)),
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
        reason="failed 2 of 3 kernels",
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
        (card(1, clock_mhz=None), ("clock: 1980 MHz on GPU 0, unknown on GPU 1",)),
        (card(1, told={"power limit": "500 W"}), ("power limit: unknown on GPU 0, 500 W on GPU 1",)),
        (card(1, name="x" * 500), (f"name: Card on GPU 0, {'x' * 500}"[:400],)),
    ],
)
def test_cards_that_shared_the_work_are_held_against_each_other(second, expected):
    """Fact by fact; what one of them does not tell is unknown there."""
    assert disagreements(both_used(second)) == expected


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
def test_a_card_that_copies_more_slowly_is_told(copies, told):
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
