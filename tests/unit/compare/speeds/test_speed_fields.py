"""Speeds, field by field: a figure under another's name would be believed. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import GPU_A, facts, pair, run, sample

from warpwave.compare import compare
from warpwave.compare.model import Cell, Change, Geomean, Noise, Portability, Ratio, Refusal, Speed
from warpwave.compare.speeds import cells, explain, noise, speedup
from warpwave.compare.trends import Measured, Series, trends
from warpwave.records import Verdict

A, B = ["alpha"], ["alpha", "beta"]
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def test_a_cell_has_all_that_its_sample_says():
    """The share is of the 4000 GB/s that a copy reached; timings of 10 ms, 1% to either side."""
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
        share_of="the copy",
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
    """Twice as fast in half the time, beyond the 3% that are assumed; the interval is that of the times, 1% to either side."""
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
        share_of="the copy",
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


def test_a_portability_field_by_field():
    """Shares of a half and a quarter: the harmonic mean of the two. Another provider is another."""
    left = (sample(1, 2000.0), sample(1, 4000.0, provider="torch"))
    right = (sample(1, 1000.0), sample(1, 4000.0, provider="torch"))
    found = compare(pair({"samples": left}, {"samples": right}), B).portabilities

    assert found == (
        Portability("softmax", "triton", {"alpha": pytest.approx(0.5), "beta": pytest.approx(0.25)}, 1, pytest.approx(1 / 3)),
        Portability("softmax", "torch", {"alpha": pytest.approx(1.0), "beta": pytest.approx(1.0)}, 1, pytest.approx(1.0)),
    )


def test_the_half_width_is_half_of_the_interval_of_the_median():
    """Five timings: the interval is from the least to the most. Hand-worked."""
    point = dataclasses.replace(sample(median_ms=10.0), times_ms=(9.0, 9.5, 10.0, 10.5, 11.0))
    ((_, cell),) = cells("alpha", run(samples=(point,)))

    assert cell.half_width == pytest.approx(0.1)


def test_kernel_sources_are_shown_by_the_beginning_of_their_hash():
    """Twelve digits of each, as they are all over the report."""
    runs = pair({"facts": facts(kernels_hash="a" * 64)}, {"facts": facts(kernels_hash="b" * 64)})
    reason = compare(runs, B).rows[0].ratios[0].reason

    assert (reason.count("a" * 12 + ","), reason.count("a" * 13), reason.endswith("b" * 12), reason.count("b" * 13)) == (1, 0, True, 0)


def test_a_weak_point_keeps_its_interval():
    """It is ambiguous whatever the interval, and both sides' reasons are told once."""
    weak = dataclasses.replace(sample(value=1000.0), weak="throttled")
    found = speedup(weak, dataclasses.replace(sample(value=2000.0), weak="throttled"), 0.03)

    assert (found.change, found.interval.value, found.reason) == (Change.AMBIGUOUS, 2.0, "weak: throttled")


def test_noise_field_by_field():
    """Three points moved by 0, 10 and 50%: too few to ask for less than is assumed; the quantile lies at 46%. Hand-worked."""
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
