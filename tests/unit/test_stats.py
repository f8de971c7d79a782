"""The statistics, checked against the standard library's."""

import statistics

import pytest

from harness.stats import geometric_mean, harmonic_mean, median, quantile


@pytest.mark.parametrize("values", [[3.0], [4.0, 1.0], [2.0, 9.0, 4.0, 7.0], [0.5, 0.25, 8.0]])
def test_means_and_median_agree_with_the_standard_library(values):
    """Medians and means are the ones that everybody else computes."""
    assert statistics.median(values) == median(values)
    assert statistics.geometric_mean(values) == pytest.approx(geometric_mean(values))
    assert statistics.harmonic_mean(values) == pytest.approx(harmonic_mean(values))


def test_quantile_interpolates_as_the_inclusive_method_does():
    """The 20th percentile of five values is the second, that of six lies between two."""
    values = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]

    assert pytest.approx(quantile(values, 0.2)) == 20.0
    assert statistics.quantiles(values, n=4, method="inclusive")[0] == pytest.approx(quantile(values, 0.25))
    assert (quantile(values, 0), quantile(values, 1)) == (10.0, 60.0)


def test_twice_as_fast_and_half_as_fast_cancel_out():
    """The geometric mean of ratios does not depend on which target is the baseline."""
    assert pytest.approx(geometric_mean([2.0, 0.5])) == 1.0


def test_harmonic_mean_is_zero_where_one_platform_has_nothing():
    """Performance portability is 0 as soon as one platform has no result."""
    assert harmonic_mean([0.9, 0.0]) == 0.0


@pytest.mark.parametrize("function", [geometric_mean, harmonic_mean])
@pytest.mark.parametrize("values", [[], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_no_mean_of_what_is_no_speed(function, values):
    """Nothing, and nothing but finite numbers above 0, has a mean."""
    with pytest.raises(ValueError, match=r"no values|needs finite"):
        function(values)


def test_no_median_of_nothing():
    """An empty list is an error, never a number."""
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_quantile_outside_of_its_range_is_refused():
    """A percentage given as such is a mistake, not a quantile."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0], 20)
