"""Which speeds are valid and verified, and their shares of what a copy reached. All data is synthetic."""

import dataclasses

import pytest
from synthetic import CEILING, case, pair, run, sample

from warpwave.compare import compare
from warpwave.compare.speeds import Share, products_tflops, share_of
from warpwave.errors import ExitCode
from warpwave.records import Stage, StageReport, Verdict

A, B = ["alpha"], ["alpha", "beta"]


FAILED_CASE = case(verdict=Verdict.FAILED)


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
    comparison = compare([run(samples=(sample(1024), sample(2048, **changes)))], A)
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
    comparison = compare([run(ceilings=copies)], A)

    assert comparison.rows[0].cells[0].share == pytest.approx(comparison.rows[0].cells[0].value / 8000)
    assert comparison.targets[0].devices[0].ceiling_gbps == pytest.approx(8000)


@pytest.mark.parametrize(("value", "suspect"), [(4000.0, False), (4399.0, False), (4401.0, True)])
def test_far_above_the_ceiling_is_suspect(value, suspect):
    """A kernel that mostly reads can exceed a copy by a tenth; memory cannot give more."""
    comparison = compare([run(samples=(sample(value=value),))], A)

    assert comparison.rows[0].cells[0].suspect is suspect
    assert comparison.speeds[0].left_out == int(suspect)


@pytest.mark.parametrize(("unit", "share"), [("GB/s", True), ("gb/s ", True), ("TFLOPS", False), ("ms", False), ("", False)])
def test_only_bandwidths_have_a_share(unit, share):
    """A copy says nothing about FLOPs or times."""
    comparison = compare([run(samples=(sample(unit=unit),))], A)

    assert (comparison.rows[0].cells[0].share is not None) is share


def test_without_a_ceiling_there_is_no_share():
    """No table of theoretical peaks replaces it."""
    assert compare([run(ceilings=())], A).rows[0].cells[0].share is None


def test_a_speed_is_verified_only_where_that_kernels_tests_passed():
    """Failures of other kernels or on other targets do not matter, and neither do the kernel's own skipped tests."""
    tests = (case(), case("softmax/t.py::skipped", Verdict.NOT_RUN), case("gelu/t.py::t", Verdict.FAILED, kernel="gelu"))
    both = (sample(), sample(kernel="gelu"))
    comparison = compare(pair({"cases": tests, "samples": both}, {"cases": (FAILED_CASE,), "samples": both}), B)

    found = {(row.kernel, cell.target): cell.verified for row in comparison.rows for cell in row.cells}
    assert found == {("softmax", "alpha"): True, ("softmax", "beta"): False, ("gelu", "alpha"): False, ("gelu", "beta"): False}


def test_a_test_stage_with_a_hole_verifies_nothing():
    """The tests that are there passed, but some are missing."""
    stages = (StageReport(Stage.TEST, Verdict.INCOMPLETE, reason="cut off"),)

    assert compare([run(stages=stages)], A).rows[0].cells[0].verified is False


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
    comparison = compare([run(samples=both, again=(bad,) if passes == "again" else ())], A)

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
    comparison = compare([run(ceilings=(dataclasses.replace(CEILING, **ceiling),))], A)

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
    assert compare([run(samples=(sample(1024), dataclasses.replace(sample(2048), **changes)))], A).exit_code == ExitCode.GOOD
