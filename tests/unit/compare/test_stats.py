"""Means, quantiles and intervals: against the standard library, scipy, by hand, and by simulation."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import random
import statistics

import pytest
from recorded import recorded
from synthetic import run, sample

from warpwave.compare.model import Change
from warpwave.compare.speeds import noise, speedup, threshold
from warpwave.stats import (
    Interval,
    geometric_mean,
    harmonic_mean,
    measurable,
    median,
    median_interval,
    median_weights,
    quantile,
    ratio_of_medians,
)


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


# Intervals.


def test_the_median_of_three_is_resampled_by_hand():
    """27 resamples of three values: the smallest is the median in the 7 that draw it at least twice; the same is true of the largest."""
    assert median_weights(3) == pytest.approx((7 / 27, 13 / 27, 7 / 27))


def test_the_weights_are_those_of_resampling():
    """Against 200,000 resamples of eleven values; the standard error of a weight is 0.001."""
    draw = random.Random(11)
    counts = [0] * 11
    for _ in range(200_000):
        counts[sorted(draw.choices(range(11), k=11))[5]] += 1

    assert [count / 200_000 for count in counts] == pytest.approx(list(median_weights(11)), abs=0.005)


def test_the_interval_is_scipys_bootstrap():
    """Eleven values are eleven blocks, so this is the percentile bootstrap of their median, up to scipy's random numbers."""
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    values = [1.0, 1.02, 1.05, 1.07, 1.1, 1.13, 1.17, 1.19, 1.23, 1.31, 1.4]
    theirs = stats.bootstrap((values,), numpy.median, n_resamples=50_000, method="percentile", rng=3).confidence_interval

    ours = median_interval(values)
    assert (ours.value, ours.low, ours.high) == (1.13, theirs.low, theirs.high)


def test_the_interval_of_a_ratio_is_scipys_bootstrap():
    """The two sides are resampled independently."""
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    draw = random.Random(5)
    base, head = ([center * draw.lognormvariate(0, 0.05) for _ in range(11)] for center in (2.0, 1.0))

    def ratio(one, two, axis):
        return numpy.median(one, axis=axis) / numpy.median(two, axis=axis)

    theirs = stats.bootstrap((base, head), ratio, n_resamples=50_000, method="percentile", rng=3).confidence_interval
    ours = ratio_of_medians(base, head)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.005)
    assert ours.value == pytest.approx(median(base) / median(head))


def by_hand(blocks, value):
    """The interval of these block medians: where the exact distribution of their resampled median passes 2.5% and 97.5%."""
    reached = list(itertools.accumulate(median_weights(len(blocks))))
    low, high = (next(one for one, share in zip(sorted(blocks), reached, strict=True) if share >= at - 1e-9) for at in (0.025, 0.975))
    return Interval(value, min(low, value), max(high, value))


@pytest.mark.parametrize(
    ("values", "rounds", "blocks"),
    [
        ([5.0, 1.0, 4.0, 2.0, 3.0], (), [1, 2, 3, 4, 5]),  # as many as it needs
        ([float(n) for n in range(10)], (), [0.5, 2.5, 4.5, 6.5, 8.5]),  # too few for eleven blocks
        ([float(n) for n in range(11)], (), range(11)),
        ([float(n) for n in range(12)], (), [*range(10), 10.5]),  # the last block has two
        ([float(n) for n in range(23)], (), [n + 0.5 for n in range(0, 20, 2)] + [21]),
        ([float(n) for n in range(9)], (2, 2, 2, 2, 1), [0.5, 2.5, 4.5, 6.5, 8]),  # whole rounds, also one of a single timing
        ([float(n) for n in range(9)], (2, 2, 2, 3), [0, 1.5, 3.5, 5.5, 7.5]),  # too few rounds: timings
        ([float(n) for n in range(9)], (2, 2, 2, 2, 2), [0, 1.5, 3.5, 5.5, 7.5]),  # rounds of another number of timings
        ([float(n) for n in range(9)], (3, 3, 3, 0, 0), [0, 1.5, 3.5, 5.5, 7.5]),  # rounds without one
        ([1.0] * 4 + [9.0] * 5, (1, 1, 1, 1, 5), [1, 1, 1, 1, 9]),  # the median of all is beside those of most blocks
    ],
)
def test_blocks_are_whole_rounds_or_timings_five_or_eleven(values, rounds, blocks):
    assert median_interval(values, rounds) == by_hand([float(block) for block in blocks], median(values))


def test_the_interval_of_a_ratio_is_that_of_every_pair_of_resamples():
    """Each side by its own rounds, weighed by how often both medians come up; too few timings on either side are no interval."""
    base, head = [float(n) for n in range(10, 19)], [1.0, 2.0, 4.0, 7.0, 11.0]
    sides = [([10.5, 12.5, 14.5, 16.5, 18.0], base), (head, head)]
    weights = median_weights(5)
    pairs = sorted((a / b, p * q) for a, p in zip(sides[0][0], weights, strict=True) for b, q in zip(head, weights, strict=True))
    reached = list(itertools.accumulate(weight for _, weight in pairs))
    low, high = (next(ratio for (ratio, _), share in zip(pairs, reached, strict=True) if share >= at - 1e-9) for at in (0.025, 0.975))

    assert ratio_of_medians(base, head, ((2, 2, 2, 2, 1), ())) == Interval(14.0 / 4.0, low, high)
    assert ratio_of_medians(base, head[:4]) is ratio_of_medians(head[:4], base) is None


def test_rounds_are_resampled_whole():
    """If timings differ only between rounds, they carry no more information than their rounds."""
    for levels in ([1.0, 1.1, 0.9, 1.2, 0.8], [1.0 + n * 0.01 for n in range(11)]):
        rounds = [level for level in levels for _ in range(100)]
        assert median_interval(rounds, (100,) * len(levels)) == median_interval(levels)


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0, 3.0, 4.0]])
def test_no_interval_of_too_little(values):
    """Four timings have a median but no interval, not even one of width zero."""
    assert median_interval(values) is None
    assert ratio_of_medians([1.0] * 50, values) is None


PAIRS = 600 if "WARPWAVE_SEARCH" in os.environ else 300  # nox -s fuzz

SAMPLES = [json.loads(line) for line in (recorded() / "raw" / "cuda" / "bench" / "samples.jsonl").read_text().splitlines()]


def by_round(points):
    """The timings of these points, a list per round, without points that failed or were skipped."""
    ends = [(point["times_ms"], (0, *itertools.accumulate(point["rounds"]))) for point in points if len(point["rounds"]) >= 5]
    return [[times[start:end] for start, end in itertools.pairwise(edges)] for times, edges in ends]


BANK, QUIET = by_round(SAMPLES), by_round(point for point in SAMPLES if point["quiet"])


def independent(draw):
    return lambda count: [draw.lognormvariate(0, 0.03) for _ in range(count)]


def swinging(draw):
    """Timings beat with another frequency, like most recorded ones."""

    def measure(count):
        phase, period = draw.uniform(0, 2 * math.pi), draw.uniform(2, 40)
        return [math.exp(0.04 * math.sin(2 * math.pi * n / period + phase) + draw.gauss(0, 0.01)) for n in range(count)]

    return measure


def alternating(draw):
    """Two alternating modes, as small launches on the H200 have."""
    return lambda count: [(4.25, 4.85)[n % 2] * draw.lognormvariate(0, 0.03) for n in range(draw.randrange(2), count + 1)][:count]


def sluggish(draw):
    """Each timing depends on the one before: ten neighbours have nearly the same noise."""

    def measure(count):
        found, state = [], draw.gauss(0, 1)
        for _ in range(count):
            state = 0.9 * state + math.sqrt(1 - 0.9**2) * draw.gauss(0, 1)
            found.append(math.exp(0.02 * state))
        return found

    return measure


def drifting(draw):
    """A GPU that warms up or cools down during the measurement."""

    def measure(count):
        slope = draw.gauss(0, 0.005)
        return [math.exp(slope * n / count + draw.gauss(0, 0.02)) for n in range(count)]

    return measure


def spiked(draw):
    """One timing in twenty takes up to three times as long."""
    return lambda count: [draw.lognormvariate(0, 0.03) * (draw.uniform(1, 3) if draw.random() < 0.05 else 1) for _ in range(count)]


def recorded(draw, bank=BANK):
    """As many rounds as a point took on an H200, reordered in groups of three successive ones."""
    rounds = draw.choice(bank)

    def measure(count):
        found = []
        while len(found) < len(rounds):
            start = draw.randrange(len(rounds) - 2)
            found += rounds[start : start + 3]
        return found[: len(rounds)]

    return measure


def quiet(draw):
    """Points that the bench stage did not mark as noisy."""
    return recorded(draw, QUIET)


NOISES = [independent, swinging, alternating, sluggish, drifting, spiked, recorded]


def measured(noise, draw, count=300, slower=1.0, shift=0.0):
    """One point in two runs. In the second it takes `slower` times as long. Each is off by its own `shift` (a standard deviation)."""
    measure = noise(draw)
    levels = [factor * math.exp(draw.gauss(0, shift)) for factor in (1.0, slower)]
    return [in_rounds(measure(count), level) for level in levels]


def in_rounds(found, level):
    """A sample with these timings, in one round or several, `level` times as long."""
    rounds = found if isinstance(found[0], list) else [found]
    times = tuple(time * level for timings in rounds for time in timings)
    return sample(times_ms=times, rounds=tuple(map(len, rounds)) if rounds is found else ())


def aa_run(noises, draw, number, **more):
    """The result of an A/A run of `number` points."""
    sides = [measured(noises[n % len(noises)], draw, **more) for n in range(number)]
    first, second = (tuple(dataclasses.replace(pair[side], case=f"{n}") for n, pair in enumerate(sides)) for side in (0, 1))
    return noise("alpha", run(samples=first, again=second))


@pytest.mark.parametrize("kind", [kind for kind in NOISES if kind is not drifting], ids=lambda kind: kind.__name__)
def test_an_interval_misses_the_truth_less_than_once_in_twenty(kind):
    """The interval of the ratio of two equal measurements contains 1. (No interval detects a drift between runs.)"""
    draw = random.Random(kind.__name__)
    count = 600 if kind is sluggish else 300
    pairs = [measured(kind, draw, count) for _ in range(PAIRS)]
    found = [ratio_of_medians(base.times_ms, head.times_ms, (base.rounds, head.rounds)) for base, head in pairs]

    assert sum(not one.low <= 1 <= one.high for one in found) / len(found) < 0.05


@pytest.mark.parametrize("shift", [0.003, 0.02], ids=["quiet", "loud"])
@pytest.mark.parametrize(
    ("kinds", "whole"),
    [pytest.param(NOISES, 0.11, id="every-noise", marks=pytest.mark.slow), pytest.param([recorded], 0.05, id="recorded")],
)
def test_false_alarms_stay_below_one_in_twenty(kinds, whole, shift):
    """For single points far less; for whole comparisons with recorded timings too: 60 equal points, each with its own A/A run."""
    draw = random.Random(shift)
    wrong = []
    for _ in range(50):
        limit = threshold([aa_run(kinds, draw, 60, count=120, shift=shift)])
        found = [speedup(*measured(kinds[n % len(kinds)], draw, count=120, shift=shift), limit).change for n in range(60)]
        wrong.append(found.count(Change.FASTER) + found.count(Change.SLOWER))

    assert sum(wrong) / (50 * 60) < 0.01
    assert sum(number > 0 for number in wrong) / 50 < whole


@pytest.mark.parametrize("kind", [independent, drifting, spiked, quiet], ids=lambda kind: kind.__name__)
def test_a_planted_slowdown_of_five_percent_is_found(kind):
    """It is found 19 times in 20, if runs are off by 0.3% and the threshold comes from an A/A run of 60 points."""
    draw = random.Random(kind.__name__)
    limit = threshold([aa_run(NOISES, draw, 60, shift=0.003)])
    verdicts = [speedup(*measured(kind, draw, slower=1.05, shift=0.003), limit).change for _ in range(300)]

    assert verdicts.count(Change.SLOWER) / len(verdicts) >= 0.95
