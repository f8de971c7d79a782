"""Means over cases, and performance portability. All data is synthetic."""

import dataclasses

import pytest
from synthetic import pair, run, sample

from warpwave.compare import compare
from warpwave.records import Verdict

A, B = ["alpha"], ["alpha", "beta"]


def points(left, right, **more):
    return compare(pair({"samples": (left,)}, {"samples": (right,), **more}), B)


def test_the_mean_is_geometric_over_what_is_sound_on_both():
    """Twice and half give 1. Excluded cases are listed with their reasons."""
    left = (sample(1024, 1000.0), sample(2048, 2000.0), sample(4096, 1000.0))
    right = (sample(1024, 2000.0), sample(2048, 1000.0), sample(4096, 1000.0, timer="other"))
    (mean,) = compare(pair({"samples": left}, {"samples": right}), B).geomeans

    assert (mean.n, mean.ratio) == (2, pytest.approx(1.0))
    assert [exclusion.case for exclusion in mean.exclusions] == ["softmax/N=4096"]


def test_means_never_mix_kernels_providers_or_units():
    """Different units cannot be averaged."""
    samples = (sample(), sample(provider="torch"), sample(kernel="gelu"), sample(2048, unit="ms"))
    comparison = compare(pair({"samples": samples}, {"samples": samples}), B)

    assert [(mean.kernel, mean.provider, mean.unit) for mean in comparison.geomeans] == [
        ("softmax", "triton", "GB/s"),
        ("softmax", "torch", "GB/s"),
        ("gelu", "triton", "GB/s"),
        ("softmax", "triton", "ms"),
    ]


def test_a_sweep_is_condensed_to_best_median_and_largest():
    """The best bandwidth is the highest, the best time the lowest. The largest case goes by parameters, not by order."""
    samples = (sample(4096, 900.0), sample(1024, 1000.0), sample(2048, 3000.0))
    (speed,) = compare([run(samples=samples)], A).speeds
    (times,) = compare([run(samples=tuple(dataclasses.replace(entry, unit="ms") for entry in samples))], A).speeds

    assert (speed.best, speed.best_case, speed.median, speed.largest) == (3000.0, "softmax/N=2048", 1000.0, 900.0)
    assert (times.best, times.best_case) == (900.0, "softmax/N=4096")


def test_a_parameter_of_zero_makes_no_case_small():
    """An offset of 0 is in every case. The sizes beside it decide which case is the largest."""
    samples = tuple(dataclasses.replace(sample(n, float(n)), params={"N": n, "offset": 0, "causal": True}) for n in (4096, 1024, 2048))
    (speed,) = compare([run(samples=samples)], A).speeds

    assert speed.largest == 4096.0


def test_performance_portability_is_zero_where_a_benched_target_has_none():
    """It is the harmonic mean of the shares, over all benchmarked targets."""
    good = points(sample(value=2000.0), sample(value=1000.0))
    bad = points(sample(value=2000.0), sample(value=None, verdict=Verdict.ERROR))

    assert good.rows[0].portability == pytest.approx(2 / (1 / 0.5 + 1 / 0.25))
    assert bad.rows[0].portability == 0.0
    assert [row.portability for row in points(sample(1024), sample(2048)).rows] == [0.0, 0.0]
    assert compare([run()], A).rows[0].portability is None


def test_a_kernels_portability_is_over_the_cases_that_are_sound_everywhere():
    """Shares of 4000 GB/s: geometric means 0.5 and 0.25 over two cases, hence 1/3; the third case is excluded. Computed by hand."""
    left = (sample(1, 1000.0), sample(2, 4000.0), sample(3, 4000.0))
    right = (sample(1, 500.0), sample(2, 2000.0), sample(3, value=None, verdict=Verdict.ERROR))
    (found,) = compare(pair({"samples": left}, {"samples": right}), B).portabilities

    assert (found.n, found.value) == (2, pytest.approx(1 / 3))
    assert found.efficiencies == {"alpha": pytest.approx(0.5), "beta": pytest.approx(0.25)}
    assert [(gone.case, gone.reason) for gone in found.exclusions] == [("softmax/N=3", "no sound share of a ceiling on beta")]


def test_a_kernel_that_one_target_cannot_run_is_not_portable():
    """It is 0, as Pennycook defines it, and the other target's efficiency is still shown."""
    (found,) = compare(pair({"samples": (sample(1, 2000.0),)}, {"samples": ()}), B).portabilities

    assert (found.value, found.n, found.efficiencies) == (0.0, 1, {"alpha": pytest.approx(0.5), "beta": 0.0})


def test_a_kernel_that_no_target_can_run_is_not_portable_over_no_case():
    """No card has a ceiling: no case counts, and each is excluded with the targets that lack a share."""
    (found,) = compare(pair({"ceilings": (), "samples": (sample(1),)}, {"ceilings": (), "samples": (sample(1),)}), B).portabilities

    assert (found.value, found.n, found.efficiencies) == (0.0, 0, {"alpha": 0.0, "beta": 0.0})
    assert [(gone.case, gone.reason) for gone in found.exclusions] == [("softmax/N=1", "no sound share of a ceiling on alpha, beta")]
