"""A/A runs: how far a point moves though nobody changed it, and what a change has to exceed. All data is synthetic."""

import dataclasses

import pytest
from synthetic import pair, run, sample

from warpwave.compare import compare
from warpwave.compare.model import Change
from warpwave.records import Verdict

A, B = ["alpha"], ["alpha", "beta"]


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
    (found,) = compare([twice], A).noise
    (fewer,) = compare([dataclasses.replace(twice, again=twice.again[:18])], A).noise

    assert (found.n, found.enough, found.largest_case) == (19, True, "softmax/N=262144 triton")
    assert (found.largest, found.threshold) == (pytest.approx(0.019), pytest.approx(0.0475))
    assert (fewer.n, fewer.enough, fewer.threshold) == (18, False, pytest.approx(2.5 * (1 / 0.982 - 1)))


def test_scatter_that_an_interval_shows_takes_nothing_from_the_quiet_points():
    """One of twenty points is noisy by a tenth and moves by two percent, which its own timings explain."""
    samples = (sample(1, scatter=0.1), *(sample(1 << n) for n in range(1, 20)))
    (found,) = compare([run(samples=samples, again=again(samples, 0.02, *[0.0] * 19))], A).noise

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
        comparison = compare(pair({"samples": samples, "again": twice[0]}, {"samples": other, "again": twice[1]}), B)
        assert {(round(row.ratios[0].threshold, 9), row.ratios[0].change) for row in comparison.rows} == {(expected, change)}


def test_a_weak_point_says_nothing_about_noise():
    """Neither does a point that failed in the second pass."""
    samples = (sample(1), sample(2), sample(3))
    second = again(samples, 0.5, 0.5, 0.002)
    second = (dataclasses.replace(second[0], weak="throttled"), dataclasses.replace(second[1], verdict=Verdict.ERROR), second[2])
    (found,) = compare([run(samples=samples, again=second)], A).noise

    assert (found.n, found.moved) == (1, pytest.approx(0.002))
