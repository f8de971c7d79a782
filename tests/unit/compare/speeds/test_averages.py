"""Means and quantiles, checked against the standard library's; what can have been measured."""

import math
import statistics

import pytest

from warpwave.stats import geometric_mean, harmonic_mean, measurable, median, quantile, ratio_of_medians


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
