"""The numbers beside a speed: operations for each byte, dtypes by their short names, times that cannot be, and errors that tests record."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import case, run, sample

from warpwave.compare import compare
from warpwave.compare.speeds import dtype_in, intensity
from warpwave.compare.upgrade import changed_errors


def product(value: float, unit: str, argument_bytes: int = 10**9):
    """A point that takes two milliseconds."""
    return dataclasses.replace(sample(1024, value, unit=unit), median_ms=2.0, argument_bytes=argument_bytes)


def test_operations_for_each_byte_go_by_the_unit():
    """Two milliseconds at 300 TFLOP/s are 6 * 10**11 operations."""
    assert intensity(product(300.0, "TFLOP/s")) == pytest.approx(600.0)
    assert intensity(product(300_000.0, "GFLOP/s")) == pytest.approx(600.0)
    assert intensity(product(300.0, "GB/s")) is None
    assert intensity(product(1e-25, "TFLOP/s", 10**18)) is None  # too small to be a number of operations


@pytest.mark.parametrize(
    ("word", "short"), [("float8_e4m3fn", "fp8"), ("fp8e5", "fp8"), ("bfloat16", "bf16"), ("fp32", "fp32"), ("N=4", "")]
)
def test_dtypes_have_short_names(word, short):
    """Authors write them in either way."""
    assert dtype_in(f"softmax/{word}/N=4") == short


def test_a_time_that_cannot_be_is_not_shown():
    """A result from elsewhere may say anything; the row stays."""
    strange = dataclasses.replace(sample(1024, 100.0), p20_ms=0.0, p80_ms=1e300, graph_ms=-1.0)
    (row,) = compare([run(samples=(strange,))]).rows
    (cell,) = row.cells

    assert (cell.median_ms is not None, cell.p20_ms, cell.p80_ms, cell.graph_ms) == (True, None, None, None)


def test_only_errors_count_as_errors():
    """A test may record other numbers, such as the seconds that it took."""
    before, after = (
        run(cases=(case("a.py::test_a", properties={"max_abs_err": one, "seconds": one, "error_free": "yes"}),)) for one in ("1.0", "2.0")
    )

    assert [(one.name, one.before, one.after) for one in changed_errors([before], [after])] == [("max_abs_err", 1.0, 2.0)]
