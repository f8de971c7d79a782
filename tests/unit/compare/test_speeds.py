"""Ratios of two targets: what is faster, what is ambiguous, and what is refused. All data is synthetic."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest
from synthetic import CEILING, GPU_B, case, facts, pair, run, sample

from warpwave.compare import compare
from warpwave.compare.model import Change, Comparison
from warpwave.compare.speeds import Share, cells, decide, lower_is_better, products_tflops, share_of
from warpwave.errors import ExitCode
from warpwave.records import Stage, StageReport, Verdict
from warpwave.stats import Interval, geometric_mean, harmonic_mean, measurable, median, quantile, ratio_of_medians

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


# Means and quantiles, checked against the standard library's; what can have been measured.


@pytest.mark.parametrize("values", [[3.0], [4.0, 1.0], [2.0, 9.0, 4.0, 7.0], [0.5, 0.25, 8.0]])
def test_means_and_median_agree_with_the_standard_library(values):
    """They agree with the usual definitions."""
    assert statistics.median(values) == median(values)
    assert statistics.geometric_mean(values) == pytest.approx(geometric_mean(values))
    assert statistics.harmonic_mean(values) == pytest.approx(harmonic_mean(values))


def test_quantile_interpolates_as_the_inclusive_method_does():
    """The 20th percentile of five values is the second; that of six is between two."""
    values = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]

    assert pytest.approx(quantile(values, 0.2)) == 20.0
    assert statistics.quantiles(values, n=4, method="inclusive")[0] == pytest.approx(quantile(values, 0.25))
    assert (quantile(values, 0), quantile(values, 1)) == (10.0, 60.0)
    assert [quantile([5.0], q) for q in (0, 0.3, 1)] == [5.0] * 3


def test_twice_as_fast_and_half_as_fast_cancel_out():
    """The geometric mean of ratios does not depend on the choice of baseline."""
    assert pytest.approx(geometric_mean([2.0, 0.5])) == 1.0


def test_harmonic_mean_is_zero_where_one_platform_has_nothing():
    """Performance portability is 0 if one platform has no result."""
    assert harmonic_mean([0.9, 0.0]) == 0.0


@pytest.mark.parametrize("function", [geometric_mean, harmonic_mean])
@pytest.mark.parametrize("values", [[], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_no_mean_of_what_is_no_speed(function, values):
    """Only finite numbers above 0 have a mean, and there must be at least one."""
    with pytest.raises(ValueError, match=r"no values|needs finite"):
        function(values)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (geometric_mean, "geometric mean"),
        (harmonic_mean, "harmonic mean"),
        (lambda values: ratio_of_medians(values, values), "ratio of medians"),
    ],
)
def test_the_refused_mean_is_named(function, name):
    """Beside a 0, too, a number that is no speed has no mean."""
    with pytest.raises(ValueError, match=f"^a {name} of no values$"):
        function([])
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"^a {name} needs finite numbers above 0, not "):
            function([1.0, wrong, 0.0])


def test_what_can_have_been_measured_is_above_0_and_stays_in_range():
    """The bounds themselves can; a square of what is within them is a float."""
    assert [measurable(value) for value in (1e-30, 1.0, 1e30)] == [True] * 3
    assert [measurable(value) for value in (0.0, -1.0, 9e-31, 1.1e30, math.inf, math.nan)] == [False] * 6


def test_no_median_of_nothing():
    """An empty list is an error."""
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_quantile_outside_of_its_range_is_refused():
    """A percentage is not a quantile."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0], 20)


# Means over cases, and performance portability. All data is synthetic.

A_MEANS, B_MEANS = ["alpha"], ["alpha", "beta"]


def points_of_means(left, right, **more):
    return compare(pair({"samples": (left,)}, {"samples": (right,), **more}), B_MEANS)


def test_the_mean_is_geometric_over_what_is_sound_on_both():
    """Twice and half give 1. Excluded cases are listed with their reasons."""
    left = (sample(1024, 1000.0), sample(2048, 2000.0), sample(4096, 1000.0))
    right = (sample(1024, 2000.0), sample(2048, 1000.0), sample(4096, 1000.0, timer="other"))
    (mean,) = compare(pair({"samples": left}, {"samples": right}), B_MEANS).geomeans

    assert (mean.n, mean.ratio) == (2, pytest.approx(1.0))
    assert [exclusion.case for exclusion in mean.exclusions] == ["softmax/N=4096"]


def test_means_never_mix_kernels_providers_or_units():
    """Different units cannot be averaged."""
    samples = (sample(), sample(provider="torch"), sample(kernel="gelu"), sample(2048, unit="ms"))
    comparison = compare(pair({"samples": samples}, {"samples": samples}), B_MEANS)

    assert [(mean.kernel, mean.provider, mean.unit) for mean in comparison.geomeans] == [
        ("softmax", "triton", "GB/s"),
        ("softmax", "torch", "GB/s"),
        ("gelu", "triton", "GB/s"),
        ("softmax", "triton", "ms"),
    ]


def test_a_sweep_is_condensed_to_best_median_and_largest():
    """The best bandwidth is the highest, the best time the lowest. The largest case goes by parameters, not by order."""
    samples = (sample(4096, 900.0), sample(1024, 1000.0), sample(2048, 3000.0))
    (speed,) = compare([run(samples=samples)], A_MEANS).speeds
    (times,) = compare([run(samples=tuple(dataclasses.replace(entry, unit="ms") for entry in samples))], A_MEANS).speeds

    assert (speed.best, speed.best_case, speed.median, speed.largest) == (3000.0, "softmax/N=2048", 1000.0, 900.0)
    assert (times.best, times.best_case) == (900.0, "softmax/N=4096")


def test_a_parameter_of_zero_makes_no_case_small():
    """An offset of 0 is in every case. The sizes beside it decide which case is the largest."""
    samples = tuple(dataclasses.replace(sample(n, float(n)), params={"N": n, "offset": 0, "causal": True}) for n in (4096, 1024, 2048))
    (speed,) = compare([run(samples=samples)], A_MEANS).speeds

    assert speed.largest == 4096.0


def test_performance_portability_is_zero_where_a_benched_target_has_none():
    """It is the harmonic mean of the shares, over all benchmarked targets."""
    good = points_of_means(sample(value=2000.0), sample(value=1000.0))
    bad = points_of_means(sample(value=2000.0), sample(value=None, verdict=Verdict.ERROR))

    assert good.rows[0].portability == pytest.approx(2 / (1 / 0.5 + 1 / 0.25))
    assert bad.rows[0].portability == 0.0
    assert [row.portability for row in points_of_means(sample(1024), sample(2048)).rows] == [0.0, 0.0]
    assert compare([run()], A_MEANS).rows[0].portability is None


def test_a_kernels_portability_is_over_the_cases_that_are_sound_everywhere():
    """Shares of 4000 GB/s: geometric means 0.5 and 0.25 over two cases, hence 1/3; the third case is excluded. Computed by hand."""
    left = (sample(1, 1000.0), sample(2, 4000.0), sample(3, 4000.0))
    right = (sample(1, 500.0), sample(2, 2000.0), sample(3, value=None, verdict=Verdict.ERROR))
    (found,) = compare(pair({"samples": left}, {"samples": right}), B_MEANS).portabilities

    assert (found.n, found.value) == (2, pytest.approx(1 / 3))
    assert found.efficiencies == {"alpha": pytest.approx(0.5), "beta": pytest.approx(0.25)}
    assert [(gone.case, gone.reason) for gone in found.exclusions] == [("softmax/N=3", "no sound share of a ceiling on beta")]


def test_a_kernel_that_one_target_cannot_run_is_not_portable():
    """It is 0, as Pennycook defines it, and the other target's efficiency is still shown."""
    (found,) = compare(pair({"samples": (sample(1, 2000.0),)}, {"samples": ()}), B_MEANS).portabilities

    assert (found.value, found.n, found.efficiencies) == (0.0, 1, {"alpha": pytest.approx(0.5), "beta": 0.0})


def test_a_kernel_that_no_target_can_run_is_not_portable_over_no_case():
    """No card has a ceiling: no case counts, and each is excluded with the targets that lack a share."""
    (found,) = compare(pair({"ceilings": (), "samples": (sample(1),)}, {"ceilings": (), "samples": (sample(1),)}), B_MEANS).portabilities

    assert (found.value, found.n, found.efficiencies) == (0.0, 0, {"alpha": 0.0, "beta": 0.0})
    assert [(gone.case, gone.reason) for gone in found.exclusions] == [("softmax/N=1", "no sound share of a ceiling on alpha, beta")]


# A/A runs: how far a point moves though nobody changed it, and what a change has to exceed. All data is synthetic.

A_NOISE, B_NOISE = ["alpha"], ["alpha", "beta"]


def again(samples, *moves):
    """The same points measured again, each longer by its factor."""
    return tuple(
        dataclasses.replace(entry, median_ms=entry.median_ms * (1 + by), times_ms=tuple(t * (1 + by) for t in entry.times_ms))
        for entry, by in zip(samples, moves, strict=True)
    )


def test_the_threshold_is_two_and_a_half_times_what_an_aa_run_moves():
    """19 points without noise that moved by 1 to 19 per mille, up or down. 18 points are too few."""
    samples = tuple(sample(1 << n, scatter=0.0) for n in range(19))
    moves = [(-1) ** n * (n + 1) / 1000 for n in range(19)]
    twice = run("alpha", samples=samples, again=again(samples, *moves))
    (found,) = compare([twice], A_NOISE).noise
    (fewer,) = compare([dataclasses.replace(twice, again=twice.again[:18])], A_NOISE).noise

    assert (found.n, found.enough, found.largest_case) == (19, True, "softmax/N=262144 triton")
    assert (found.largest, found.threshold) == (pytest.approx(0.019), pytest.approx(0.0475))
    assert (fewer.n, fewer.enough, fewer.threshold) == (18, False, pytest.approx(2.5 * (1 / 0.982 - 1)))


def test_scatter_that_an_interval_shows_takes_nothing_from_the_quiet_points():
    """One of twenty points is noisy by a tenth and moves by two percent, which its own timings explain."""
    samples = (sample(1, scatter=0.1), *(sample(1 << n) for n in range(1, 20)))
    (found,) = compare([run(samples=samples, again=again(samples, 0.02, *[0.0] * 19))], A_NOISE).noise

    assert (found.largest, found.threshold, found.moved > 0) == (0.0, 0.01, True)


def test_the_noisier_target_sets_the_threshold_and_a_percent_is_the_least():
    """An A/A run of one target serves both, and nobody acts on less than a percent."""
    samples = tuple(sample(1 << n, value=2000.0, scatter=0.0) for n in range(19))
    other = tuple(sample(1 << n, value=2120.0, scatter=0.0) for n in range(19))
    quiet, loud = again(samples, *[0.001] * 19), again(other, *[0.08] * 19)

    for twice, expected, change in (
        ((quiet, ()), 0.01, Change.FASTER),
        ((quiet, loud), 0.2, Change.SAME),
        (((), ()), 0.03, Change.FASTER),
    ):
        comparison = compare(pair({"samples": samples, "again": twice[0]}, {"samples": other, "again": twice[1]}), B_NOISE)
        assert {(round(row.ratios[0].threshold, 9), row.ratios[0].change) for row in comparison.rows} == {(expected, change)}


def test_a_weak_point_says_nothing_about_noise():
    """Neither does a point that failed in the second pass."""
    samples = (sample(1), sample(2), sample(3))
    second = again(samples, 0.5, 0.5, 0.002)
    second = (dataclasses.replace(second[0], weak="throttled"), dataclasses.replace(second[1], verdict=Verdict.ERROR), second[2])
    (found,) = compare([run(samples=samples, again=second)], A_NOISE).noise

    assert (found.n, found.moved) == (1, pytest.approx(0.002))


# Which speeds are valid and verified, and their shares of what a copy reached. All data is synthetic.

A_SHARES, B_SHARES = ["alpha"], ["alpha", "beta"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"value": float("nan")}, "not a speed"),
        ({"value": float("inf")}, "not a speed"),
        ({"value": 0.0}, "not a speed"),
        ({"value": -5.0}, "not a speed"),
        ({"value": None}, "no value"),
        ({"median_ms": -1.0}, "possible time"),
        ({"p80_ms": float("inf")}, "possible time"),
        ({"median_ms": 0.0}, "possible time"),
    ],
)
def test_what_is_no_speed_is_invalid(changes, word):
    """It keeps its cell with the reason, has no number, and is excluded from every mean."""
    comparison = compare([run(samples=(sample(1024), sample(2048, **changes)))], A_SHARES)
    cell = comparison.rows[1].cells[0]

    assert (cell.verdict, cell.value, word in cell.reason) == (Verdict.INVALID, None, True)
    assert (comparison.speeds[0].n, comparison.speeds[0].left_out) == (1, 1)
    assert comparison.targets[0].points == {"passed": 1, "invalid": 1}


def test_the_share_is_of_the_largest_copy_on_that_device():
    """Copies on other devices and impossible copies do not count."""
    copies = (
        CEILING,
        dataclasses.replace(CEILING, median_ms=0.5, p20_ms=0.5, p80_ms=0.5, when="after"),
        dataclasses.replace(CEILING, median_ms=0.0),
        dataclasses.replace(CEILING, median_ms=0.1, p20_ms=0.1, p80_ms=0.1, device=1),
    )
    comparison = compare([run(ceilings=copies)], A_SHARES)

    assert comparison.rows[0].cells[0].share == pytest.approx(comparison.rows[0].cells[0].value / 8000)
    assert comparison.targets[0].devices[0].ceiling_gbps == pytest.approx(8000)


@pytest.mark.parametrize(("value", "suspect"), [(4000.0, False), (4399.0, False), (4401.0, True)])
def test_far_above_the_ceiling_is_suspect(value, suspect):
    """A kernel that mostly reads can exceed a copy by a tenth; memory cannot give more."""
    comparison = compare([run(samples=(sample(value=value),))], A_SHARES)

    assert comparison.rows[0].cells[0].suspect is suspect
    assert comparison.speeds[0].left_out == int(suspect)


@pytest.mark.parametrize(("unit", "share"), [("GB/s", True), ("gb/s ", True), ("TFLOPS", False), ("ms", False), ("", False)])
def test_only_bandwidths_have_a_share(unit, share):
    """A copy says nothing about FLOPs or times."""
    comparison = compare([run(samples=(sample(unit=unit),))], A_SHARES)

    assert (comparison.rows[0].cells[0].share is not None) is share


def test_without_a_ceiling_there_is_no_share():
    """No table of theoretical peaks replaces it."""
    assert compare([run(ceilings=())], A_SHARES).rows[0].cells[0].share is None


def test_a_speed_is_verified_only_where_that_kernels_tests_passed():
    """Failures of other kernels or on other targets do not matter, and neither do the kernel's own skipped tests."""
    tests = (case(), case("softmax/t.py::skipped", Verdict.NOT_RUN), case("gelu/t.py::t", Verdict.FAILED, kernel="gelu"))
    both = (sample(), sample(kernel="gelu"))
    comparison = compare(pair({"cases": tests, "samples": both}, {"cases": (FAILED_CASE,), "samples": both}), B_SHARES)

    found = {(row.kernel, cell.target): cell.verified for row in comparison.rows for cell in row.cells}
    assert found == {("softmax", "alpha"): True, ("softmax", "beta"): False, ("gelu", "alpha"): False, ("gelu", "beta"): False}


def test_a_test_stage_with_a_hole_verifies_nothing():
    """The tests that are there passed, but some are missing."""
    stages = (StageReport(Stage.TEST, Verdict.INCOMPLETE, reason="cut off"),)

    assert compare([run(stages=stages)], A_SHARES).rows[0].cells[0].verified is False


TFLOPS = sample(value=50.0, params={"dtype": "fp32"}, unit="TFLOP/s", case="matmul/fp32/N=1")


@pytest.mark.parametrize(
    ("known", "value", "share"),
    [
        ({"fp32": 100.0, "tf32": 400.0}, 50.0, Share(0.5, "the fp32 product")),
        ({"fp32": 100.0, "tf32": 400.0}, 110.0, Share(1.1, "the fp32 product")),  # that much is noise
        ({"fp32": 100.0, "tf32": 400.0}, 200.0, Share(0.5, "the tf32 product")),  # no card does that without matrix units
        ({"fp32": 100.0}, 200.0, Share(2.0, "the fp32 product")),
        ({"tf32": 400.0}, 200.0, Share(0.5, "the tf32 product")),
        ({"bf16": 400.0}, 200.0, None),
        ({}, 200.0, None),
    ],
)
def test_fp32_that_no_other_unit_reaches_is_a_share_of_tf32(known, value, share):
    assert share_of(TFLOPS, value, {}, {0: known}) == share
    assert share_of(TFLOPS, None, {}, {0: known}) is share_of(TFLOPS, value, {}, {1: known}) is None


def test_the_fastest_product_of_each_dtype_and_device_counts():
    """In whatever order they were measured; one that cannot have been measured is none."""
    measured = [("fp32", 1 << 40, 0), ("fp32", 1 << 41, 0), ("fp32", 1 << 39, 0), ("bf16", 1 << 38, 0), ("fp32", 1 << 37, 1)]
    made = [dataclasses.replace(CEILING, dtype=dtype, flops=flops, median_ms=1.0, device=device) for dtype, flops, device in measured]
    none = dataclasses.replace(CEILING, dtype="fp16", flops=1 << 40, median_ms=0.0)
    found = products_tflops([*made, none, CEILING])

    assert found == {0: {"fp32": made[1].tflops, "bf16": made[3].tflops}, 1: {"fp32": made[4].tflops}}
    assert made[1].tflops == 2 * made[0].tflops


IMPOSSIBLE = {
    "far above the copy": {"value": 4000 * 201.0},
    "far above any copy": {"unit": "TB/s", "value": 1e6},
    "far above a product": {"unit": "TFLOPS", "value": 2e5},
    "negative": {"value": -5.0},
    "a negative time as value": {"unit": "ms", "value": -5.0},
    "negative memory": {"unit": "GiB", "value": -5.0},
    "p20 above p80": {"p20_ms": 1.3, "p80_ms": 0.1},
    "p20 above the median": {"p20_ms": 5.0, "p80_ms": 9.0},
    "a time that no clock ticks in": {"median_ms": 1e-6, "p20_ms": 1e-6, "p80_ms": 1e-6, "times_ms": ()},
    "a negative time of the host": {"host_ms": -4.0},
    "a negative time in a graph": {"graph_ms": -4.0},
    "negative bytes": {"bytes_moved": -7},
    "negative bytes of arguments": {"argument_bytes": -7},
    "more bytes than the time allows": {"bytes_moved": 1 << 50},
}


@pytest.mark.parametrize("passes", ["samples", "again"])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_point_that_no_card_reaches_makes_its_target_invalid(name, passes):
    """It is named, and the exit code is not 0. Both passes of an A/A run count."""
    bad = sample(2048, **IMPOSSIBLE[name])
    both = (sample(1024), bad) if passes == "samples" else (sample(1024), sample(2048))
    comparison = compare([run(samples=both, again=(bad,) if passes == "again" else ())], A_SHARES)

    assert (comparison.targets[0].verdict, comparison.exit_code) == (Verdict.INVALID, ExitCode.INCOMPLETE)
    assert "softmax/N=2048 [triton]: " in comparison.targets[0].reason


@pytest.mark.parametrize(
    "ceiling",
    [
        {"median_ms": 4e-6, "p20_ms": 4e-6, "p80_ms": 4e-6},
        {"median_ms": 0.01, "p20_ms": 0.01, "p80_ms": 0.01},
        {"p20_ms": 1.5},
        {"p80_ms": 0.5},
        {"median_ms": -1.0},
        {"bytes_moved": -1},
        {"bytes_moved": 0},
        {"dtype": "bf16", "flops": 1 << 50},
        {"dtype": "bf16", "flops": -1},
    ],
    ids=str,
)
def test_a_ceiling_that_no_card_reaches_is_invalid_and_no_ceiling(ceiling):
    """Else it would hide what the points are."""
    comparison = compare([run(ceilings=(dataclasses.replace(CEILING, **ceiling),))], A_SHARES)

    assert (comparison.targets[0].verdict, comparison.exit_code) == (Verdict.INVALID, ExitCode.INCOMPLETE)
    assert "GPU 0: " in comparison.targets[0].reason
    assert comparison.rows[0].cells[0].share is None


@pytest.mark.parametrize(
    "changes",
    [
        {"value": 4000 * 60.0},
        {"unit": "GiB", "value": 0.0},
        {"unit": "% faster", "value": -5.0},
        {"unit": "TFLOPS", "value": 1979.0},
        {"unit": "TOPS (int4)", "value": 1e6},
        {"unit": "ms", "value": 0.004},
        {"p20_ms": 0.333333, "p80_ms": 0.333334, "median_ms": 0.33333349, "times_ms": ()},
        {"host_ms": 0.0, "graph_ms": 0.0, "argument_bytes": 1 << 40},
    ],
    ids=str,
)
def test_what_lies_in_a_cache_or_has_another_unit_is_possible(changes):
    """An honest point never makes a run red: the first-level caches of some cards are 60 times as fast as their memory."""
    assert compare([run(samples=(sample(1024), dataclasses.replace(sample(2048), **changes)))], A_SHARES).exit_code == ExitCode.GOOD
