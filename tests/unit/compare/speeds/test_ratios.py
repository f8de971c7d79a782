"""Ratios of two targets: what is faster, what is ambiguous, and what is refused. All data is synthetic."""

import dataclasses

import pytest
from synthetic import GPU_B, case, facts, pair, run, sample

from warpwave.compare import compare
from warpwave.compare.model import Change, Comparison
from warpwave.compare.speeds import cells, decide, lower_is_better
from warpwave.records import Verdict
from warpwave.stats import Interval

A, B = ["alpha"], ["alpha", "beta"]


def only(comparison: Comparison):
    """The only ratio of a comparison with one point per side."""
    (row,) = comparison.rows
    (ratio,) = row.ratios
    return ratio


def points(left, right, **more):
    return compare(pair({"samples": (left,)}, {"samples": (right,), **more}), B)


FAILED_CASE = case(verdict=Verdict.FAILED)


def test_a_ratio_is_the_second_target_over_the_first():
    """2600 over 2000 GB/s is 1.3: a ratio of values, not of times."""
    comparison = points(sample(value=2000.0), sample(value=2600.0))

    assert comparison.baseline == "alpha"
    assert (only(comparison).target, only(comparison).value, only(comparison).change) == ("beta", pytest.approx(1.3), Change.FASTER)


@pytest.mark.parametrize(
    ("value", "scatter", "change"),
    [
        (2600.0, 0.01, Change.FASTER),
        (1500.0, 0.01, Change.SLOWER),
        (2010.0, 0.001, Change.SAME),
        (2045.0, 0.02, Change.AMBIGUOUS),
    ],
)
def test_faster_and_slower_need_an_interval_beyond_the_threshold(value, scatter, change):
    """An interval that contains the threshold, here the assumed 3%, is ambiguous."""
    ratio = only(points(sample(value=2000.0), sample(value=value, scatter=scatter)))

    assert (ratio.change, ratio.speedup, ratio.threshold) == (change, pytest.approx(value / 2000.0), 0.03)
    assert ratio.low < ratio.speedup < ratio.high


def test_the_unit_does_not_turn_a_verdict_round():
    """Fewer milliseconds are faster, although the ratio of the values is below 1."""
    ratio = only(points(sample(value=2.0, unit="ms", median_ms=2.0), sample(value=1.0, unit="ms", median_ms=1.0)))

    assert (ratio.change, ratio.value, ratio.speedup) == (Change.FASTER, pytest.approx(0.5), pytest.approx(2.0))


def test_without_timings_a_difference_stays_ambiguous():
    """A value alone does not show its noise."""
    bare = {"median_ms": None, "p20_ms": None, "p80_ms": None, "times_ms": ()}
    ratio = only(points(sample(value=2000.0, **bare), sample(value=3000.0, **bare)))

    assert (ratio.change, ratio.speedup, ratio.reason) == (Change.AMBIGUOUS, None, "there are too few timings for an interval")


def test_a_weak_point_is_ambiguous_and_says_why():
    """Three times as fast is no result on a GPU that another process used."""
    ratio = only(points(sample(value=1000.0), sample(value=3000.0, weak="the clock fell to 60%")))

    assert (ratio.change, ratio.reason) == (Change.AMBIGUOUS, "weak: the clock fell to 60%")


REFUSALS = {
    "parameters": ({"params": {"N": 2048, "dtype": "fp32"}}, {}, "different parameters"),
    "unit": ({"unit": "TFLOPS"}, {}, "different units: alpha GB/s, beta TFLOPS"),
    "timer": ({"timer": "another"}, {}, "different timers: alpha synthetic, beta another"),
    "flush": ({"flush_bytes": 1}, {}, "different flush sizes: alpha 268435456, beta 1"),
    "kernel sources": (
        {},
        {"facts": facts(GPU_B, kernels_hash="0" * 64)},
        "different kernel sources: alpha 5e1f5e1f5e1f, beta 000000000000",
    ),
    "FP fusion": ({}, {"facts": facts(GPU_B, fp_fusion="0")}, "different FP fusion settings: alpha 1, beta 0"),
    "no facts": ({}, {"facts": None}, "the facts of beta are missing"),
    "unverified": ({}, {"cases": (FAILED_CASE,)}, "beta: 1 of 1 tests of softmax did not pass here"),
    "untested": ({}, {"cases": (case("gelu/t.py::t", kernel="gelu"),)}, "beta: no test of softmax passed here"),
    "suspect": ({"value": 9000.0}, {}, "times the copy bandwidth"),
    "invalid": ({"value": 0.0}, {}, "beta: 0 GB/s is not a speed"),
    "failed": ({"value": None, "verdict": Verdict.ERROR, "reason": "RuntimeError: x"}, {}, "beta: RuntimeError: x"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_compared_is_refused_by_name(name):
    """There is no ratio, and the reason is in the row, in the refusals and in the mean's exclusions."""
    changes, more, words = REFUSALS[name]

    comparison = points(sample(), sample(**changes), **more)

    assert (only(comparison).value, only(comparison).change) == (None, Change.REFUSED)
    assert words in only(comparison).reason
    assert [refusal.cases for refusal in comparison.refusals] == [("softmax/N=1024",)]
    assert [(mean.n, mean.ratio, mean.exclusions[0].reason) for mean in comparison.geomeans] == [(0, None, only(comparison).reason)]


def test_flushes_of_caches_of_two_sizes_are_the_same_where_their_margin_is():
    """Twice the cache on both, of 60 and of 256 MiB. If one flushed less, the comparison is refused."""
    left = sample(flush_bytes=120 << 20, cache_bytes=60 << 20)
    same, less = (sample(flush_bytes=flushed << 20, cache_bytes=256 << 20) for flushed in (512, 256))

    assert only(points(left, same)).change is Change.SAME
    assert only(points(left, less)).reason == "different flush sizes: alpha 2 x cache, beta 1 x cache"


def test_kernel_sources_that_differ_in_their_tail_differ():
    """Reports show only the start of a hash, but all of it is compared."""
    comparison = points(sample(), sample(), facts=facts(GPU_B, kernels_hash="5e1f" * 15 + "0000"))

    assert only(comparison).change is Change.REFUSED


def test_a_case_that_one_target_lacks_is_one_sided():
    """A missing number is a row with a reason; the row is not dropped."""
    comparison = compare(pair({"samples": (sample(1024), sample(2048))}, {"samples": (sample(1024),)}), B)

    assert [row.ratios[0].change for row in comparison.rows] == [Change.SAME, Change.ONE_SIDED]
    assert comparison.rows[1].ratios[0].reason == "beta has no result for this case"


def test_one_target_alone_has_no_ratio():
    """There is no baseline."""
    comparison = compare([run()], B)

    assert (comparison.baseline, comparison.geomeans, comparison.rows[0].ratios) == (None, (), ())


def test_a_third_target_has_its_own_ratio_to_the_first():
    """Targets are data: three work like two, and one without a GPU takes no part."""
    comparison = compare([run("cpu", None, samples=()), *pair(), run("gamma")], ["cpu", "alpha", "beta", "gamma"])

    assert comparison.baseline == "alpha"
    assert [ratio.target for ratio in comparison.rows[0].ratios] == ["beta", "gamma"]


def test_two_gpus_of_one_target_are_two_cells_and_the_first_makes_the_ratio():
    """Devices are never averaged."""
    both = (sample(value=2000.0, device=1), sample(value=1000.0, device=0))
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": both}), B)

    assert [cell.device for cell in comparison.rows[0].cells] == [0, 1, 0]
    assert only(comparison).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("low", "high", "change"),
    [
        *((1.51, 2.0, Change.FASTER), (1.5, 2.0, Change.AMBIGUOUS), (0.9, 1.5, Change.SAME), (0.9, 1.51, Change.AMBIGUOUS)),
        *((0.5, 0.66, Change.SLOWER), (0.5, 0.67, Change.AMBIGUOUS), (0.67, 1.0, Change.SAME), (0.66, 1.0, Change.AMBIGUOUS)),
        *((1 / 1.5, 1.5, Change.SAME), (0.5, 1 / 1.5, Change.AMBIGUOUS), (0.5, 2.0, Change.AMBIGUOUS)),
    ],
)
def test_a_threshold_is_a_factor_in_both_directions(low, high, change):
    """A threshold of 0.5 is beyond 1.5 and below 1 / 1.5, which is 0.667 and not 0.5; what lies on it is within."""
    assert decide(Interval(1.0, low, high), 0.5) is change


@pytest.mark.parametrize(("unit", "less"), [("ms", True), ("GiB", True), ("MB", True), ("GB/s", False), ("TFLOP/s", False), ("", False)])
def test_less_is_better_of_time_and_of_memory(unit, less):
    """More is better for every other unit."""
    assert lower_is_better(unit) is less


TIMES = {
    "zero": ((0.5, 0.0, 0.5), 0.5, Verdict.INVALID, "its timings are from 0 to 0.5 ms"),
    "negative": ((0.5, -1.0, 0.5), 0.5, Verdict.INVALID, "its timings are from -1 to 0.5 ms"),
    "another median": ((0.5, 0.6, 0.7), 0.1, Verdict.INVALID, "its median is 0.1 ms, its timings are from 0.5 to 0.7 ms"),
    "too even": ((0.5,) * 20, 0.5, Verdict.PASSED, "all of its 20 timings are 0.5 ms"),
    "few and even": ((0.5,) * 19, 0.5, Verdict.PASSED, ""),
}


@pytest.mark.parametrize("name", TIMES)
def test_timings_that_no_clock_has_given(name):
    """An impossible timing is invalid; an unlikely one makes the point weak."""
    times, median, verdict, words = TIMES[name]
    point = dataclasses.replace(sample(), times_ms=times, rounds=(), median_ms=median, p20_ms=None, p80_ms=None)
    ((_, cell),) = cells("alpha", run(samples=(point,)))

    assert cell.verdict is verdict
    assert words in (cell.reason if verdict is Verdict.INVALID else cell.weak)
    assert bool(cell.weak) == (name == "too even")
