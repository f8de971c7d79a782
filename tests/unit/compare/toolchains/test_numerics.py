"""Errors that tests recorded, before and after an upgrade. All data is made up."""

import pytest
from synthetic import case, run

from warpwave.compare.upgrade import ChangedError, changed_errors
from warpwave.records import Verdict


def recorded(target="alpha", verdict=Verdict.PASSED, **properties):
    return run(target, cases=(case("t.py::a", verdict, properties=properties),))


@pytest.mark.parametrize(
    ("name", "before", "after", "shown"),
    [
        ("max_abs_err", "1", "2", True),
        ("error", "2", "1", True),
        ("ulps_max", "0", "1", True),
        ("rmse", "1", "0", True),
        ("a_diff", "100", "102", True),
        ("max_abs_err", "100", "101", False),  # within 1% of the larger one
        ("max_abs_err", "99", "100", False),  # exactly 1%
        ("max_abs_err", "0", "0", False),
        ("different", "1", "2", False),
        ("seconds", "1", "2", False),
        ("max_abs_err", "-1", "2", False),
        ("max_abs_err", "1", "inf", False),
        ("max_abs_err", "nan", "1", False),
        ("max_abs_err", "1", "large", False),
    ],
)
def test_which_numbers_are_errors_that_changed(name, before, after, shown):
    found = changed_errors([recorded(**{name: before})], [recorded(**{name: after})])

    assert found == ((ChangedError("alpha", "t.py::a", name, float(before), float(after)),) if shown else ())
    assert [one.worse for one in found] == ([float(after) > float(before)] if shown else [])


def test_only_tests_that_passed_on_both_sides_count():
    good, bad = recorded(err="1"), recorded(verdict=Verdict.FAILED, err="5")

    assert changed_errors([good], [bad]) == changed_errors([bad], [good]) == changed_errors([good], [recorded("beta", err="5")]) == ()
    assert len(changed_errors([good], [recorded(err="5", diff="1")])) == 1
    assert changed_errors([good], [recorded(text="x", err="5")])[0].after == 5  # what is no error hides none


def test_the_error_that_grew_most_comes_first():
    """One that was 0 before all others; equal ones by target, test and name."""
    sides = [
        {"a_err": "1", "b_err": "1", "c_err": "0", "d_err": "2", "e_err": "1"},
        {"a_err": "2", "b_err": "4", "c_err": "1", "d_err": "1", "e_err": "2"},
    ]
    found = changed_errors(*([recorded("beta", **side), recorded(**side)] for side in sides))

    assert [f"{one.name[0]} {one.target[0]}" for one in found] == ["c a", "c b", "b a", "b b", "a a", "e a", "a b", "e b", "d a", "d b"]
