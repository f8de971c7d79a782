"""The roofline, and shares of matrix products. All data is synthetic."""

from __future__ import annotations

import dataclasses
import re

import pytest
from synthetic import record, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import overview
from warpwave.records import Ceiling
from warpwave.render.charts.roofline import roofline
from warpwave.render.html import render_html

# 1 TB/s, 500 TFLOP/s in bf16, 50 in fp32 and 250 in tf32.
CEILINGS = (
    Ceiling(0, 10**9, 1.0, 1.0, 1.0, "before"),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "bf16", 5 * 10**11),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "fp32", 5 * 10**10),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "tf32", 25 * 10**10),
)


def product(value: float, dtype: str, **changes):
    """A point of a product: a millisecond, for tensors of a gigabyte."""
    point = sample(1024, value, unit="TFLOP/s", params={"N": 1024, "dtype": dtype}, case=f"softmax/{dtype}/N=1024")
    return dataclasses.replace(
        point, **{"median_ms": 1.0, "p20_ms": 1.0, "p80_ms": 1.0, "times_ms": (), "argument_bytes": 10**9, **changes}
    )


@pytest.mark.parametrize(
    ("value", "dtype", "share", "of"),
    [
        (400.0, "bf16", 0.8, "the bf16 product"),
        (25.0, "fp32", 0.5, "the fp32 product"),
        (125.0, "fp32", 0.5, "the tf32 product"),  # faster than fp32 can be: it uses the matrix units
        (400.0, "int8", None, ""),  # no such product was measured
    ],
)
def test_operations_a_second_are_shared_against_a_product_of_their_dtype(value, dtype, share, of):
    """Measured on the same card in the same run."""
    comparison = compare([run(samples=(product(value, dtype),), ceilings=CEILINGS)])
    (cell,) = comparison.rows[0].cells

    assert (cell.share and round(cell.share, 6), cell.share_of) == (share, of)
    assert not cell.suspect


def test_a_kernel_in_tflops_has_a_gap_to_the_product():
    """Not to its fastest peer, and not to the copy."""
    (line,) = overview(compare([run(samples=(product(400.0, "bf16"),), ceilings=CEILINGS)]))

    assert line.squares[0].reached[0].ground == "product"
    assert line.gap == pytest.approx(0.2)


def test_a_product_is_no_copy():
    """The largest of both kinds would be nonsense in GB/s."""
    comparison = compare([run(samples=(sample(1024, 800.0),), ceilings=CEILINGS)])

    assert comparison.targets[0].devices[0].ceiling_gbps == 1000.0
    assert comparison.rows[0].cells[0].share == pytest.approx(0.8)


def test_points_stand_at_their_operations_a_byte():
    """400 TFLOP/s for a millisecond are 4e11 operations, for a gigabyte of tensors: 400 a byte."""
    comparison = compare([run(samples=(product(400.0, "bf16"), sample(1024, 800.0)), ceilings=CEILINGS)])
    found = roofline(comparison)

    assert comparison.rows[0].cells[0].flops_per_byte == pytest.approx(400.0)
    assert found is not None
    assert "400 TFLOP/s, 400 FLOP a byte, 80% of the bf16 product" in found.body
    assert found.body.count('class="dot') == 1
    assert 'id="roofline"' in render_html(comparison)


def test_without_bytes_or_products_there_is_no_roofline():
    """Nothing is guessed."""
    without_bytes = run(samples=(product(400.0, "bf16", argument_bytes=None),), ceilings=CEILINGS)
    without_products = run(samples=(product(400.0, "bf16"),), ceilings=CEILINGS[:1])

    for given in (without_bytes, without_products):
        assert roofline(compare([given])) is None
        assert 'id="roofline"' not in render_html(compare([given]))


def test_one_point_has_axes_that_can_be_read():
    """At least two ticks on each, although all values are within a decade."""
    found = roofline(compare([run(samples=(product(400.0, "bf16"),), ceilings=CEILINGS[:2])]))
    assert found is not None
    ticks = {anchor: re.findall(f'class="tick" text-anchor="{anchor}">([^<]+)<', found.body) for anchor in ("end", "middle")}

    assert all(len(values) >= 2 for values in ticks.values()), ticks


def test_targets_are_kept_apart_by_marks_that_are_explained():
    """The label of a slope comes after all marks, so none of them hides it."""
    both = [run(name, record=record(name), samples=(product(400.0, "bf16"),), ceilings=CEILINGS) for name in ("alpha", "beta")]
    text = render_html(compare(both))
    legend = re.findall(r'<svg viewBox="0 0 10 10" aria-hidden="true"><path d="([^"]+)" class="dot s7"/></svg>(\w+)', text)
    found = roofline(compare(both))

    assert [name for _, name in legend] == ["alpha", "beta"]
    assert len({path for path, _ in legend}) == 2
    assert found is not None
    assert found.body.rindex('class="dot') < found.body.index("alpha copy")
