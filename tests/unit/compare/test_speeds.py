"""Speeds of targets: cells, ratios, means, noise, shares of what a card reaches; what is refused or invalid. All data is synthetic."""

from __future__ import annotations

import dataclasses
import math

import pytest
from synthetic import CEILING, GPU_A, GPU_B, case, facts, pair, recorded_runs, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import headline, overview, shortfalls
from warpwave.compare.model import Cell, Change, Comparison, Geomean, Noise, Portability, Ratio, Refusal, Speed
from warpwave.compare.speeds import (
    Share,
    as_text,
    cells,
    decide,
    dtype_in,
    explain,
    first_names,
    intensity,
    judge,
    lower_is_better,
    noise,
    products_tflops,
    share_of,
    speedup,
)
from warpwave.errors import ExitCode
from warpwave.records import Stage, StageReport, Verdict
from warpwave.stats import Interval

A, B = ["alpha"], ["alpha", "beta"]


def only(comparison: Comparison):
    """The only ratio of a comparison with one point per side."""
    (row,) = comparison.rows
    (ratio,) = row.ratios
    return ratio


def points(left, right, **more):
    return compare(pair({"samples": (left,)}, {"samples": (right,), **more}), B)


FAILED_CASE = case(verdict=Verdict.FAILED)


@pytest.mark.parametrize(
    ("value", "scatter", "change"),
    [
        (2600.0, 0.01, Change.FASTER),
        (1500.0, 0.01, Change.SLOWER),
        (2010.0, 0.001, Change.SAME),
        (2045.0, 0.02, Change.AMBIGUOUS),
    ],
)
def test_faster_and_slower_need_an_interval_beyond_the_threshold(value, scatter, change):
    """An interval that contains the threshold, here the assumed 3%, is ambiguous."""
    ratio = only(points(sample(value=2000.0), sample(value=value, scatter=scatter)))

    assert (ratio.change, ratio.speedup, ratio.threshold) == (change, pytest.approx(value / 2000.0), 0.03)
    assert ratio.low < ratio.speedup < ratio.high


def test_the_unit_does_not_turn_a_verdict_round():
    """Fewer milliseconds are faster, although the ratio of the values is below 1."""
    ratio = only(points(sample(value=2.0, unit="ms", median_ms=2.0), sample(value=1.0, unit="ms", median_ms=1.0)))

    assert (ratio.change, ratio.value, ratio.speedup) == (Change.FASTER, pytest.approx(0.5), pytest.approx(2.0))


def test_without_timings_a_difference_stays_ambiguous():
    """A value alone does not show its noise."""
    bare = {"median_ms": None, "p20_ms": None, "p80_ms": None, "times_ms": ()}
    ratio = only(points(sample(value=2000.0, **bare), sample(value=3000.0, **bare)))

    assert (ratio.change, ratio.speedup, ratio.reason) == (Change.AMBIGUOUS, None, "there are too few timings for an interval")


REFUSALS = {
    "parameters": ({"params": {"N": 2048, "dtype": "fp32"}}, {}, "different parameters"),
    "unit": ({"unit": "TFLOPS"}, {}, "different units: alpha GB/s, beta TFLOPS"),
    "timer": ({"timer": "another"}, {}, "different timers: alpha synthetic, beta another"),
    "flush": ({"flush_bytes": 1}, {}, "different flush sizes: alpha 268435456, beta 1"),
    "kernel sources": (
        {},
        {"facts": facts(GPU_B, kernels_hash="0" * 64)},
        "different kernel sources: alpha 5e1f5e1f5e1f, beta 000000000000",
    ),
    "the tail of a hash": (
        {},
        {"facts": facts(GPU_B, kernels_hash="5e1f" * 15 + "0000")},
        "kernel sources",
    ),
    "FP fusion": ({}, {"facts": facts(GPU_B, fp_fusion="0")}, "different FP fusion settings: alpha 1, beta 0"),
    "no facts": ({}, {"facts": None}, "the facts of beta are missing"),
    "unverified": ({}, {"cases": (FAILED_CASE,)}, "beta: 1 of 1 tests of softmax did not pass here"),
    "untested": ({}, {"cases": (case("gelu/t.py::t", kernel="gelu"),)}, "beta: no test of softmax passed here"),
    "suspect": ({"value": 9000.0}, {}, "times the copy bandwidth"),
    "invalid": ({"value": 0.0}, {}, "beta: 0 GB/s is not a speed"),
    "failed": ({"value": None, "verdict": Verdict.ERROR, "reason": "RuntimeError: x"}, {}, "beta: RuntimeError: x"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_compared_is_refused_by_name(name):
    """There is no ratio, and the reason is in the row and in the refusals."""
    changes, more, words = REFUSALS[name]

    comparison = points(sample(), sample(**changes), **more)

    assert (only(comparison).value, only(comparison).change) == (None, Change.REFUSED)
    assert words in only(comparison).reason
    assert [refusal.cases for refusal in comparison.refusals] == [("softmax/N=1024",)]
    assert [(mean.n, mean.ratio) for mean in comparison.geomeans] == [(0, None)]


def test_flushes_of_caches_of_two_sizes_are_the_same_where_their_margin_is():
    """Twice the cache on both, of 60 and of 256 MiB. If one flushed less, the comparison is refused."""
    left = sample(flush_bytes=120 << 20, cache_bytes=60 << 20)
    same, less = (sample(flush_bytes=flushed << 20, cache_bytes=256 << 20) for flushed in (512, 256))

    assert only(points(left, same)).change is Change.SAME
    assert only(points(left, less)).reason == "different flush sizes: alpha 2 x cache, beta 1 x cache"


def test_a_case_that_one_target_lacks_is_one_sided():
    """A missing number is a row with a reason; the row is not dropped."""
    comparison = compare(pair({"samples": (sample(1024), sample(2048))}, {"samples": (sample(1024),)}), B)

    assert [row.ratios[0].change for row in comparison.rows] == [Change.SAME, Change.ONE_SIDED]
    assert comparison.rows[1].ratios[0].reason == "beta has no result for this case"


def test_a_third_target_has_its_own_ratio_to_the_first():
    """Targets are data: three work like two, and one without a GPU takes no part. One alone has no baseline."""
    alone = compare([run()], B)
    assert (alone.baseline, alone.geomeans, alone.rows[0].ratios) == (None, (), ())
    comparison = compare([run("cpu", None, samples=()), *pair(), run("gamma")], ["cpu", "alpha", "beta", "gamma"])

    assert comparison.baseline == "alpha"
    assert [ratio.target for ratio in comparison.rows[0].ratios] == ["beta", "gamma"]


def test_two_gpus_of_one_target_are_two_cells_and_the_first_makes_the_ratio():
    """Devices are never averaged."""
    both = (sample(value=2000.0, device=1), sample(value=1000.0, device=0))
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": both}), B)

    assert [cell.device for cell in comparison.rows[0].cells] == [0, 1, 0]
    assert only(comparison).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("low", "high", "change"),
    [
        *((1.51, 2.0, Change.FASTER), (1.5, 2.0, Change.AMBIGUOUS), (0.9, 1.5, Change.SAME), (0.9, 1.51, Change.AMBIGUOUS)),
        *((0.5, 0.66, Change.SLOWER), (0.5, 0.67, Change.AMBIGUOUS), (0.67, 1.0, Change.SAME), (0.66, 1.0, Change.AMBIGUOUS)),
        *((1 / 1.5, 1.5, Change.SAME), (0.5, 1 / 1.5, Change.AMBIGUOUS), (0.5, 2.0, Change.AMBIGUOUS)),
    ],
)
def test_a_threshold_is_a_factor_in_both_directions(low, high, change):
    """A threshold of 0.5 is beyond 1.5 and below 1 / 1.5, which is 0.667 and not 0.5; what lies on it is within."""
    assert decide(Interval(1.0, low, high), 0.5) is change


@pytest.mark.parametrize(("unit", "less"), [("ms", True), ("GiB", True), ("MB", True), ("GB/s", False), ("TFLOP/s", False), ("", False)])
def test_less_is_better_of_time_and_of_memory(unit, less):
    """More is better for every other unit."""
    assert lower_is_better(unit) is less


def test_the_mean_is_geometric_over_what_is_sound_on_both():
    """Twice and half give 1; a case with another timer does not count."""
    left = (sample(1024, 1000.0), sample(2048, 2000.0), sample(4096, 1000.0))
    right = (sample(1024, 2000.0), sample(2048, 1000.0), sample(4096, 1000.0, timer="other"))
    (mean,) = compare(pair({"samples": left}, {"samples": right}), B).geomeans

    assert (mean.n, mean.ratio) == (2, pytest.approx(1.0))


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


def test_a_kernels_portability_is_over_the_cases_that_are_sound_everywhere():
    """Shares of 4000 GB/s: geometric means 0.5 and 0.25 over two cases, hence 1/3; the third case is excluded. Computed by hand."""
    peer = sample(1, 4000.0, provider="torch")
    left = (sample(1, 1000.0), sample(2, 4000.0), sample(3, 4000.0), peer)
    right = (sample(1, 500.0), sample(2, 2000.0), sample(3, value=None, verdict=Verdict.ERROR), peer)
    found = compare(pair({"samples": left}, {"samples": right}), B).portabilities

    assert found == (
        Portability("softmax", "triton", {"alpha": pytest.approx(0.5), "beta": pytest.approx(0.25)}, 2, pytest.approx(1 / 3)),
        Portability("softmax", "torch", {"alpha": pytest.approx(1.0), "beta": pytest.approx(1.0)}, 1, pytest.approx(1.0)),
    )


@pytest.mark.parametrize(("copies", "n", "alpha"), [((CEILING,), 1, 0.5), ((), 0, 0.0)])
def test_a_kernel_that_one_target_cannot_run_is_not_portable(copies, n, alpha):
    """It is 0, as Pennycook defines it, and the other target's efficiency is still shown; without a ceiling, no case counts."""
    left = {"samples": (sample(1, 2000.0),), "ceilings": copies}
    (found,) = compare(pair(left, {"samples": (sample(1),) if not copies else (), "ceilings": copies}), B).portabilities

    assert (found.value, found.n, found.efficiencies) == (0.0, n, {"alpha": pytest.approx(alpha), "beta": 0.0})


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


@pytest.mark.parametrize(
    ("changes", "word"), [({"value": float("nan")}, "not a speed"), ({"value": None}, "no value"), ({"p80_ms": math.inf}, "possible time")]
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


@pytest.mark.parametrize(
    ("unit", "copies", "share"),
    [
        *(("GB/s", (CEILING,), True), ("gb/s ", (CEILING,), True), ("GB/s", (), False)),
        *(("TFLOPS", (CEILING,), False), ("ms", (CEILING,), False), ("", (CEILING,), False)),
    ],
)
def test_only_bandwidths_have_a_share(unit, copies, share):
    """A copy says nothing about FLOPs or times, and no table of theoretical peaks replaces it."""
    comparison = compare([run(samples=(sample(unit=unit),), ceilings=copies)], A)

    assert (comparison.rows[0].cells[0].share is not None) is share


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


def test_a_cell_has_all_that_its_sample_says():
    """The share is of the 4000 GB/s that a copy reached; timings of 10 ms, 1% to either side."""
    point = dataclasses.replace(
        sample(value=1000.0, median_ms=10.0),
        **{"low": 900.0, "high": 1100.0, "quiet": True, "graph_ms": 9.0, "cache_bytes": 1 << 26, "weak": "throttled", "warmup": 7},
    )
    ((told, cell),) = cells("alpha", run(samples=(point,)))

    assert told is point
    assert cell.half_width == pytest.approx(0.005, rel=1.0)
    assert dataclasses.replace(cell, half_width=None) == Cell(
        target="alpha",
        device=0,
        gpu=GPU_A,
        verdict=Verdict.PASSED,
        unit="GB/s",
        value=1000.0,
        low=900.0,
        high=1100.0,
        median_ms=10.0,
        p20_ms=9.9,
        p80_ms=10.1,
        share=0.25,
        share_of="the copy",
        verified=True,
        suspect=False,
        reason="",
        timings=21,
        timer="synthetic",
        flush_bytes=1 << 28,
        warmup=7,
        bytes_moved=1024 * 4096,
        half_width=None,
        quiet=True,
        graph_ms=9.0,
        cache_bytes=1 << 26,
        weak="throttled",
    )


def test_a_cell_says_what_is_wrong_with_its_number():
    """All of it: no number, one that memory cannot reach, and no test that passed; a device that nobody named has its index."""
    points = (sample(1, value=None, verdict=Verdict.ERROR, reason="out of memory"), sample(2, value=5000.0), sample(3, device=7))
    broken, above, elsewhere = (cell for _, cell in cells("alpha", run(samples=points, cases=())))

    assert (broken.verdict, broken.value, broken.share, broken.verified) == (Verdict.ERROR, None, None, False)
    assert broken.reason.startswith("out of memory; ")
    assert (above.suspect, above.share, above.verified) == (True, 1.25, False)
    assert above.reason.startswith("1.25 times ")
    assert above.reason.count("; ") == 1
    assert (elsewhere.gpu, elsewhere.share, elsewhere.device) == ("GPU 7", None, 7)


def test_timings_that_are_all_alike_are_doubted():
    """Twenty of them: a clock resolves nanoseconds. Nineteen may be alike, and so may one that differs."""
    found = {}
    for name, times in {"alike": (1.0,) * 20, "few": (1.0,) * 19, "one differs": (1.0,) * 19 + (1.000001,)}.items():
        ((_, found[name]),) = cells("alpha", run(samples=(dataclasses.replace(sample(median_ms=1.0), times_ms=times),)))

    assert [bool(cell.weak) for cell in found.values()] == [True, False, False]
    assert "20" in found["alike"].weak


def test_a_ratio_has_all_that_two_cells_say():
    """Twice as fast in half the time, beyond the 3% that are assumed; the interval is that of the times, 1% to either side."""
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": (sample(value=2000.0),)}), B)
    ((ratio,),) = (row.ratios for row in comparison.rows)

    assert dataclasses.replace(ratio, low=None, high=None) == Ratio("beta", "alpha", 2.0, Change.FASTER, "", 2.0, None, None, 0.03)
    assert 1.95 < ratio.low < 2.0 < ratio.high < 2.05
    (mean,) = comparison.geomeans
    assert mean == Geomean("softmax", "triton", "GB/s", "beta", "alpha", 1, pytest.approx(2.0))


def test_what_was_not_compared_is_grouped_by_its_reason():
    """Cases of one reason in one line; each kernel, provider and target by itself."""
    left = tuple(sample(n, provider=p) for p in ("triton", "torch") for n in (1, 2, 3))
    right = tuple(dataclasses.replace(point, timer="another") for point in left[:5])
    found = compare(pair({"samples": left}, {"samples": right}), B).refusals
    assert [(entry.kernel, entry.provider, entry.target, entry.baseline, entry.cases) for entry in found] == [
        ("softmax", "triton", "beta", "alpha", ("softmax/N=1", "softmax/N=2", "softmax/N=3")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=1", "softmax/N=2")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=3",)),
    ]
    assert all(isinstance(entry, Refusal) and entry.reason for entry in found)
    assert "timers" in found[0].reason
    assert "beta" in found[2].reason


def test_a_sweep_is_condensed_field_by_field():
    """Hand-worked: the fastest is neither the largest nor the last; one is no number and one is more than memory can give. Without a sound
    number, it says how many there would have been."""
    (none,) = compare([run(samples=(sample(1, None, verdict=Verdict.ERROR), sample(2, 9000.0)))], A).speeds
    assert none == Speed("softmax", "triton", "GB/s", "alpha", GPU_A, 0, 2, True, "")
    points = (sample(4, 2000.0), sample(2, 3000.0), sample(1, 1000.0), sample(8, None, verdict=Verdict.ERROR), sample(16, 5000.0))
    (speed,) = compare([run(samples=points)], A).speeds

    assert speed == Speed(
        kernel="softmax",
        provider="triton",
        unit="GB/s",
        target="alpha",
        gpu=GPU_A,
        n=3,
        left_out=2,
        verified=True,
        reason="",
        best=3000.0,
        best_share=0.75,
        share_of="the copy",
        median=2000.0,
        median_share=0.5,
        busy=2000.0,
        busy_share=0.5,
    )


def test_a_sweep_of_times_is_best_where_it_is_shortest():
    """Nothing is a share of a copy there."""
    points = tuple(sample(n, None, unit="ms", provider=p) for p, n in (("a", 1), ("a", 2)))
    points = tuple(dataclasses.replace(p, value=v, params={"N": 4, "flag": True, "M": 0}) for p, v in zip(points, (3.0, 5.0), strict=True))
    (speed,) = compare([run(samples=points, cases=())], A).speeds

    assert (speed.best, speed.best_share, speed.median, speed.median_share) == (3.0, None, 4.0, None)
    assert (speed.verified, bool(speed.reason)) == (False, True)


def test_the_half_width_is_half_of_the_interval_of_the_median():
    """Five timings: the interval is from the least to the most. Hand-worked."""
    point = dataclasses.replace(sample(median_ms=10.0), times_ms=(9.0, 9.5, 10.0, 10.5, 11.0))
    ((_, cell),) = cells("alpha", run(samples=(point,)))

    assert cell.half_width == pytest.approx(0.1)


def test_a_weak_point_keeps_its_interval():
    """It is ambiguous whatever the interval, and both sides' reasons are told once."""
    weak = dataclasses.replace(sample(value=1000.0), weak="throttled")
    found = speedup(weak, dataclasses.replace(sample(value=2000.0), weak="throttled"), 0.03)

    assert (found.change, found.interval.value, found.reason) == (Change.AMBIGUOUS, 2.0, "weak: throttled")


def test_noise_field_by_field():
    """Three points moved by 0, 10 and 50%: too few to ask for less than is assumed; the quantile lies at 46%. Hand-worked."""
    points = tuple(sample(n, scatter=0.0) for n in (1, 2, 3))
    second = tuple(
        dataclasses.replace(point, times_ms=tuple(time * by for time in point.times_ms))
        for point, by in zip(points, (1.0, 1.1, 1 / 1.5), strict=True)
    )
    found = noise("alpha", run(samples=points, again=second))

    assert found == Noise("alpha", 3, False, pytest.approx(1.25), pytest.approx(0.46), pytest.approx(0.5), "softmax/N=3 triton")
    assert noise("alpha", run(samples=points, again=points)) == Noise("alpha", 3, False, 0.03, 0.0, 0.0, "")
    assert noise("alpha", run(samples=points)) is None
    assert "3%" in explain([])
    assert "alpha 125.0% (3 points" in explain([found])
    assert explain([found]) != explain([dataclasses.replace(found, enough=True)])


def test_many_names_are_some():
    """Ten of them, and how many more."""
    names = [str(n) for n in range(12)]

    assert (first_names(names[:10]), first_names(names)) == (", ".join(names[:10]), f"{', '.join(names[:10])} and 2 more")


def test_a_setting_in_a_sentence_has_a_bound():
    """32 parameters, and 1000 characters of any of them or of all."""
    some = {str(n): n for n in range(34)}

    assert as_text(dict(list(some.items())[:32])) == str(dict(list(some.items())[:32]))
    assert as_text(some) == str(dict(list(some.items())[:32]))[:-1] + ", and 2 more}"
    assert (as_text("x" * 1000), as_text("x" * 1001)) == ("x" * 1000, "x" * 1000 + "…")
    assert as_text({"a": "y" * 2000, "b": 1}) == ("{'a': '" + "y" * 1000)[:1000] + "…"
    assert as_text(3.5) == "3.5"


JUDGED = [
    ({}, Verdict.PASSED, ""),
    ({"verdict": Verdict.ERROR, "reason": "why"}, Verdict.ERROR, "why"),
    ({"verdict": Verdict.ERROR}, Verdict.ERROR, "error"),
    ({"value": None, "reason": "why"}, Verdict.INVALID, "why"),
    ({"value": -1.0}, Verdict.INVALID, "-1 GB/s"),
    ({"value": math.inf}, Verdict.INVALID, "inf GB/s"),
    ({"value": 0.0}, Verdict.INVALID, "0 GB/s"),
    ({"median_ms": -1.0}, Verdict.INVALID, "-1 ms"),
    ({"median_ms": 0.0}, Verdict.INVALID, "0 ms"),
    ({"p20_ms": 1e40}, Verdict.INVALID, "1e+40 ms"),
    ({"p80_ms": -2.0}, Verdict.INVALID, "-2 ms"),
    ({"p20_ms": None, "p80_ms": None}, Verdict.PASSED, ""),
    ({"times_ms": (0.0, 1.0)}, Verdict.INVALID, "0 to 1 ms"),
    ({"times_ms": (1.0, 1e40)}, Verdict.INVALID, "1 to 1e+40 ms"),
    ({"median_ms": 2.0, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "2 ms"),
    ({"median_ms": 0.25, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "0.25 ms"),
    ({"median_ms": 1.000009, "times_ms": (0.5, 1.0)}, Verdict.PASSED, ""),
    ({"median_ms": 0.499991, "times_ms": (0.5, 1.0)}, Verdict.PASSED, ""),
    ({"median_ms": 1.000011, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "1.00001 ms"),
    ({"median_ms": None, "times_ms": (0.5, 1.0)}, Verdict.PASSED, ""),
    ({"times_ms": ()}, Verdict.PASSED, ""),
]


@pytest.mark.parametrize(("changes", "verdict", "words"), JUDGED, ids=[str(entry[0]) for entry in JUDGED])
def test_a_number_that_no_clock_has_given_is_invalid(changes, verdict, words):
    """With the figure that cannot be."""
    found = judge(dataclasses.replace(sample(), **{"p20_ms": None, "p80_ms": None, **changes}))

    assert found[0] is verdict
    assert found[1].startswith(words) if verdict is not Verdict.INVALID else words in found[1]


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


# Cases of any size: a large copy is no ceiling of a small case, and a launch is no fault of a kernel.


def made_of(*shares, of=4000.0, **more):
    """A point for each number of bytes and share of a bandwidth in GB/s."""
    return tuple(
        sample(moved >> 12, of * share, bytes_moved=moved, median_ms=moved / (of * share) * 1e-6, **more) for moved, share in shares
    )


def copy_of(moved, microseconds):
    return dataclasses.replace(CEILING, bytes_moved=moved, **dict.fromkeys(("median_ms", "p20_ms", "p80_ms"), microseconds / 1000))


# A made-up card: a copy waits 5 us for its launch, moves 8 MB from a cache, and more at 4000 GB/s.
CURVE = (copy_of(500_000, 5.0), copy_of(8_000_000, 6.0), copy_of(64_000_000, 21.0), copy_of(512_000_000, 133.0), CEILING)


@pytest.mark.parametrize(
    ("moved", "gbps"),
    [(250_000, 50), (500_000, 100), (8_000_000, 8_000_000 / 6e3), (36_000_000, 36_000_000 / 13.5e3), (4 << 30, 4000), (8 << 30, 4000)],
)
def test_a_case_is_compared_with_a_copy_of_its_size(moved, gbps):
    (cell,) = compare([run(samples=(sample(1, gbps / 2, bytes_moved=moved),), ceilings=CURVE)], A).rows[0].cells

    assert cell.share == pytest.approx(0.5)


def test_what_comes_from_a_cache_is_suspect_only_if_a_copy_of_its_size_is_slower():
    cached = (copy_of(500_000, 1.0), copy_of(8_000_000, 1.0), CEILING)
    cells = [compare([run(samples=made_of((8_000_000, 1.9)), ceilings=some)], A).rows[0].cells[0] for some in (cached, CURVE, (CEILING,))]

    assert [cell.suspect for cell in cells] == [False, True, True]


def judged(*runs):
    comparison = compare(runs)
    lines = overview(comparison)
    return headline(comparison, lines).text, [entry.kernel for entry in shortfalls(comparison, lines)]


@pytest.mark.parametrize("ceilings", [CURVE, (CEILING,)], ids=["curve", "one figure"])
def test_a_kernel_is_not_slow_for_its_size_alone_and_a_slow_one_is_at_any_size(ceilings):
    """At half a megabyte nothing comes near a large copy. At a size at which the card is busy, half of the copy is slow."""
    small, large = made_of((500_000, 0.02), (1_000_000, 0.04)), made_of((512_000_000, 0.5), (4_000_000_000, 0.5))
    (speed,) = compare([run(samples=small, ceilings=ceilings)]).speeds

    assert (speed.busy_share, speed.launch_bound) == (None, 2)
    assert judged(run(samples=small, ceilings=ceilings))[1] == []
    assert judged(run(samples=(*small, *large), ceilings=ceilings)) == (
        "1 kernel reaches less than 70% of the copy on alpha.",
        ["softmax"],
    )


def test_with_a_curve_a_slow_kernel_of_middling_size_is_slow_too():
    """Its launch is in the copy of its size: nothing else excuses it."""
    assert judged(run(samples=made_of((64_000_000, 0.3)), ceilings=CURVE))[1] == ["softmax"]
    assert judged(run(samples=made_of((64_000_000, 0.72)), ceilings=CURVE))[1] == []


def test_on_the_recorded_card_no_bundled_kernel_is_slow_for_its_size_and_a_planted_one_is():
    """Of its cases, the small half reaches less than the large half, and neither is the kernel's fault."""
    recorded = next(entry for entry in recorded_runs() if entry.samples)
    own = {point.kernel: point.provider for point in reversed(recorded.samples)}
    mine = [point for point in recorded.samples if point.bytes_moved and point.provider == own[point.kernel]]
    small = [point for point in mine if point.bytes_moved < 100 << 20]
    halved = {"low": None, "high": None, "p20_ms": None, "p80_ms": None, "times_ms": ()}
    gelu = [
        dataclasses.replace(point, value=point.value / 2, median_ms=2 * point.median_ms, **halved)
        for point in mine
        if point.kernel == "gelu"
    ]

    def slow(points):
        return [line.kernel for line in overview(compare([dataclasses.replace(recorded, samples=tuple(points))])) if (line.gap or 0) > 0.3]

    assert len({point.kernel for point in small}) > 3
    assert (slow(mine), slow(small), slow(gelu)) == ([], [], ["gelu"])


def test_small_products_are_launch_bound_too():
    """A multiplication that the library's speed would end within a few launches says nothing about the kernel."""
    product = dataclasses.replace(CEILING, dtype="fp32", flops=50 * 10**9)  # 50 TFLOP/s
    tiny = sample(1, 1.0, unit="TFLOP/s", median_ms=0.01, bytes_moved=None)
    large = sample(2, 20.0, unit="TFLOP/s", median_ms=1.0, bytes_moved=None)
    (row, other) = compare([run(samples=(tiny, large), ceilings=(CEILING, product))]).rows

    assert (row.cells[0].launch_bound, other.cells[0].launch_bound) == (True, False)
