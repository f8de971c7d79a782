"""When a point has been measured enough, and which of its rounds count."""

from __future__ import annotations

import random

import pytest

from warpwave.inside.bench.timing import Burst, Gathered, Rule, unsettled
from warpwave.stats import ratio_of_medians


def test_a_quiet_point_ends_as_soon_as_that_is_known(device, timer):
    """Five rounds of ten timings at 1 ms a repetition, of an eightieth of 1600 ms where that is more."""
    timer.do_bench(lambda: device.work(0.5), warmup=25, rep=100)
    assert (timer.last.rounds, timer.last.quiet, timer.last.discarded) == ((10,) * 5, True, 0)

    timer.do_bench(lambda: device.work(0.1), warmup=25, rep=1600)
    assert (timer.last.rounds, timer.last.quiet, timer.last.discarded) == ((33,) * 5, True, 0)


def test_a_slow_point_has_five_rounds_and_no_more(device, timer):
    """At 10 ms a repetition the author's 100 ms are over before there are fifty timings, and nobody knows how quiet they are."""
    timer.do_bench(lambda: device.work(9.5), warmup=25, rep=100)
    assert (timer.last.rounds, timer.last.quiet) == ((2,) * 5, False)


def test_a_noisy_point_takes_its_time_and_says_so(device, timer):
    """Timings that are all over the place: 100 ms of them, then it ends, and it is not called quiet."""
    draw = random.Random(1)
    timer.do_bench(lambda: device.work(draw.uniform(0.1, 0.9)), warmup=25, rep=100)

    assert 90 < sum(timer.last.times_ms) + 0.5 * len(timer.last.times_ms) < 120
    assert (timer.last.quiet, len(timer.last.rounds)) == (False, 10)


def test_first_rounds_are_discarded_by_rule(device, timer):
    """A clock that takes 40 ms to come up: the rounds until then are on record as discarded, but for the one in which it came."""
    timer.do_bench(lambda: device.work(0.2 if device.now > 40 else 0.4), warmup=0, rep=100)
    slow = sum(time > 0.3 for time in timer.last.times_ms)

    assert (timer.last.median_ms, timer.last.quiet) == (pytest.approx(0.2), True)
    assert slow < timer.last.rounds[0] < timer.last.discarded


@pytest.mark.parametrize(
    ("medians", "discarded"),
    [
        ([], 0),
        ([9.0, 1.0, 1.0, 1.0], 0),
        ([9.0, 1.0, 1.0, 1.0, 1.0], 1),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0),
        ([2.0, 1.5, 1.0, 1.1, 0.9, 1.0], 2),
        ([2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0], 3),
        ([1.3, 1.2, 1.0, 0.9, 1.1, 1.0], 0),
        ([1.0, 2.0, 1.0, 0.9, 1.1, 1.0], 0),
        ([8.0, 7.5, 4.0, 3.0, 2.0, 1.0], 2),
    ],
)
def test_what_is_far_from_the_last_half_is_not_settled(medians, discarded):
    """Hand-worked: the last four, or half, from 0.9 to 1.1, say; settled is what lies within 0.7 and 1.3."""
    assert unsettled(medians) == discarded


def test_scatter_alone_discards_next_to_nothing():
    """Of 2000 points of twenty rounds each: fewer than one round in a thousand."""
    draw = random.Random(3)

    assert sum(unsettled([draw.gauss(1, 0.1) for _ in range(20)]) for _ in range(2000)) < 40


def gathered(*medians):
    """Rounds of ten equal timings each, in ms."""
    found = Gathered(Rule(target=0.01), cap_ms=1e6)
    ends = []
    for median in medians:
        found.add(Burst([median] * 10, 0, 0.0, 0.0, median, 10 * median))
        ends.append(found.enough)
    return ends


def test_the_interval_is_looked_at_twice_and_not_after_each_round():
    """After five rounds, and after eleven, whatever it looks like in between; from the second look follows how many there will be."""
    steady, wild = [1.0] * 5, [1.0, 1.1, 0.9, 1.05, 0.95]
    assert gathered(*steady) == [False] * 4 + [True]
    assert gathered(*wild, *[1.0] * 7) == [False] * 10 + [True, True]
    ends = gathered(*wild, *[1.02, 0.98] * 30)
    assert 11 < ends.index(True) < 60
    assert all(ends[ends.index(True) :])


@pytest.mark.parametrize("scatter", [0.005, 0.02, 0.04])
def test_stopping_by_rule_leaves_intervals_what_they_are(scatter):
    """Two measurements of the same code, each ended by the rule: the interval of their ratio misses 1 less than once in ten."""
    draw = random.Random(scatter)

    def measured():
        found = Gathered(Rule(), cap_ms=20.0)
        while not found.enough:
            found.add(Burst([draw.lognormvariate(0, scatter) for _ in range(60)], 0, 0.0, 0.0, 1 / 60, 1.0))
        return found.times_ms, [len(times) for times in found.kept]

    missed = 0
    for _ in range(300):
        (base, base_rounds), (head, head_rounds) = measured(), measured()
        interval = ratio_of_medians(base, head, (base_rounds, head_rounds))
        missed += not interval.low <= 1 <= interval.high
    assert missed / 300 < 0.1
