"""The rules of a comparison: what counts, what is compared, and what is refused. All data is synthetic."""

import dataclasses

import pytest
from synthetic import CEILING, GPU_B, case, compiled, facts, pair, record, run, sample, two_targets

from harness.compare import compare, exit_code
from harness.compare.comparison import Change, Comparison, Parity
from harness.compare.speeds.rows import cells, lower_is_better
from harness.compare.speeds.speedup import decide
from harness.errors import ExitCode
from harness.records import Exit, Stage, StageReport, Verdict
from harness.render.html import render_html
from harness.render.markdown import render_markdown
from harness.stats import Interval

A, B = ["alpha"], ["alpha", "beta"]


def only(comparison: Comparison):
    """The only ratio of a comparison with one point per side."""
    (row,) = comparison.rows
    (ratio,) = row.ratios
    return ratio


def points(left, right, **more):
    return compare(pair({"samples": (left,)}, {"samples": (right,), **more}), B)


# --- the sentence and the exit code -----------------------------------------------------------------------------------------------------


def test_the_sentence_says_first_how_many_are_complete():
    """A target without a raw folder is listed with the reason."""
    comparison = compare([run(samples=(), compiled=())], B)

    assert comparison.sentence == "1 of 2 targets is complete: alpha passed 3 tests; beta is absent (no raw folder was given)."
    assert exit_code(comparison) is ExitCode.INCOMPLETE


def test_a_target_without_tests_says_what_it_did_instead():
    """Compiling is a result too."""
    stages = (StageReport(Stage.COMPILE, Verdict.PASSED),)
    comparison = compare([run(stages=stages, cases=(), samples=())], A)

    assert comparison.sentence == "1 of 1 target is complete: alpha compiled 1 binary."
    assert exit_code(comparison) is ExitCode.GOOD


FAILED_CASE = case(verdict=Verdict.FAILED)
EXITS = {
    "all good": (pair(), B, ExitCode.GOOD),
    "a failed test": (pair({"cases": (case(), FAILED_CASE)}), B, ExitCode.FAILED),
    "a crashed test": (pair({"cases": (case(verdict=Verdict.CRASHED),)}), B, ExitCode.FAILED),
    "a kernel that does not compile": (pair({"compiled": (compiled(verdict=Verdict.FAILED),)}), B, ExitCode.FAILED),
    "a failed stage": ([run(stages=(StageReport(Stage.BENCH, Verdict.ERROR),), cases=())], A, ExitCode.FAILED),
    "infrastructure": (pair({"record": record(verdict=Verdict.INFRA, reason="no driver")}), B, ExitCode.INFRASTRUCTURE),
    "a failed test before infrastructure": (
        pair({"record": record(verdict=Verdict.INFRA)}, {"cases": (FAILED_CASE,)}),
        B,
        ExitCode.FAILED,
    ),
    "infrastructure before an absent target": ([run(record=record(verdict=Verdict.INFRA))], B, ExitCode.INFRASTRUCTURE),
    "an absent target": ([run()], B, ExitCode.INCOMPLETE),
    "all targets absent": ([], B, ExitCode.INCOMPLETE),
    "an invalid stage": (
        [run(stages=(StageReport(Stage.TEST, Verdict.INVALID),), problems=("test/junit.xml: invalid: x",))],
        A,
        ExitCode.INCOMPLETE,
    ),
    "a stale folder": ([run(record=record(verdict=Verdict.STALE))], A, ExitCode.INCOMPLETE),
    "a stage that crashed": ([run(stages=(StageReport(Stage.BENCH, Verdict.CRASHED, exit_code=-11),))], A, ExitCode.INCOMPLETE),
    "every test skipped": ([run(cases=(case(verdict=Verdict.NOT_RUN),))], A, ExitCode.NOTHING_RAN),
    "no test found": ([run(cases=(), samples=(), compiled=())], A, ExitCode.NOTHING_RAN),
    "one of two ran nothing": (pair({"cases": (case(verdict=Verdict.NOT_RUN),)}), B, ExitCode.INCOMPLETE),
    "nothing asked, nothing given": ([], [], ExitCode.NOTHING_RAN),
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_codes(name):
    """Each kind of failure has its own exit code, and the gravest wins."""
    runs, expected, code = EXITS[name]

    assert exit_code(compare(runs, expected)) is code


def test_a_crashed_test_leaves_the_target_complete_and_a_crashed_stage_does_not():
    """A crashed test is a result; a crashed stage leaves results missing."""
    tests = (case(), case("softmax/t.py::segfault", Verdict.CRASHED))
    orderly = run(cases=tests, stages=(StageReport(Stage.TEST, Verdict.CRASHED, exit_code=0),), samples=(), compiled=())
    dead = run(cases=tests, stages=(StageReport(Stage.TEST, Verdict.CRASHED, exit_code=-11, reason="killed"),))

    assert compare([orderly], A).sentence == "1 of 1 target is complete, with 1 failed test: alpha failed 1 of 2 tests."
    assert compare([dead], A).sentence == "0 of 1 target is complete, with 1 failed test: alpha crashed (test: killed)."


@pytest.mark.parametrize(
    "ended", [Exit(137, 9.0, timed_out=True), Exit(None, 9.0, error="gone"), Exit(-11, 9.0), Exit(0, 9.0, interrupted=True)]
)
def test_a_run_that_was_ended_from_outside_is_not_complete(ended):
    """A test's timeout does not explain that the run was stopped."""
    timed_out = record(verdict=Verdict.TIMEOUT, reason="stopped after its limit of 9 s", exit=ended)
    comparison = compare([run(record=timed_out, cases=(case(verdict=Verdict.TIMEOUT),))], A)

    assert comparison.sentence == (
        "0 of 1 target is complete, with 1 failed test: alpha ran into its time limit (stopped after its limit of 9 s)."
    )


def test_a_package_without_benchmarks_is_fine_and_one_without_tests_is_not():
    """Green never means that no test ran. The sentence says what did run."""
    no_bench = (StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.BENCH, Verdict.NOT_RUN, reason="no benchmark was found"))
    no_tests = (StageReport(Stage.TEST, Verdict.NOT_RUN, reason="no test was found"), StageReport(Stage.BENCH, Verdict.PASSED))

    assert exit_code(compare([run(stages=no_bench, samples=())], A)) is ExitCode.GOOD
    comparison = compare([run(stages=no_tests, cases=(), compiled=())], A)
    assert comparison.sentence == "0 of 1 target is complete: alpha ran no test (test: no test was found) and measured 3 points."
    assert exit_code(comparison) is ExitCode.NOTHING_RAN


def test_results_of_a_stale_folder_are_not_shown():
    """They belong to two runs, and nobody can tell which is which."""
    comparison = compare(pair({"record": record(verdict=Verdict.STALE, reason="two runs")}), B)

    assert {cell.target for row in comparison.rows for cell in row.cells} == {"beta"}
    assert {cell.target for row in comparison.tests for cell in row.cells} == {"beta"}


def test_expected_targets_come_first_and_two_runs_of_one_target_stay_two():
    """The user decides the order. A second run of the same target is shown beside the first, never merged with it."""
    comparison = compare([run("gamma"), run("beta"), run("alpha"), run("beta", GPU_B)], B)

    assert [target.target for target in comparison.targets] == ["alpha", "beta", "beta (2)", "gamma"]
    assert len(comparison.rows[0].cells) == 4


# --- speeds -----------------------------------------------------------------------------------------------------------------------------


def test_a_ratio_is_the_second_target_over_the_first():
    """2600 over 2000 GB/s is 1.3: a ratio of values, not of times."""
    comparison = points(sample(value=2000.0), sample(value=2600.0))

    assert comparison.baseline == "alpha"
    assert (only(comparison).target, only(comparison).value, only(comparison).change) == ("beta", pytest.approx(1.3), Change.FASTER)


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
    """An interval that contains the threshold, here the assumed 3 %, is ambiguous."""
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


def test_a_weak_point_is_ambiguous_and_says_why():
    """Three times as fast is no result on a GPU that another process used."""
    ratio = only(points(sample(value=1000.0), sample(value=3000.0, weak="the clock fell to 60 %")))

    assert (ratio.change, ratio.reason) == (Change.AMBIGUOUS, "weak: the clock fell to 60 %")


# --- refusals ---------------------------------------------------------------------------------------------------------------------------

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
    """There is no ratio, and the reason is in the row, in the refusals and in the mean's exclusions."""
    changes, more, words = REFUSALS[name]

    comparison = points(sample(), sample(**changes), **more)

    assert (only(comparison).value, only(comparison).change) == (None, Change.REFUSED)
    assert words in only(comparison).reason
    assert [refusal.cases for refusal in comparison.refusals] == [("softmax/N=1024",)]
    assert [(mean.n, mean.ratio, mean.exclusions[0].reason) for mean in comparison.geomeans] == [(0, None, only(comparison).reason)]


def test_flushes_of_caches_of_two_sizes_are_the_same_where_their_margin_is():
    """Twice the cache on both, of 60 and of 256 MiB. If one flushed less, the comparison is refused."""
    left = sample(flush_bytes=120 << 20, cache_bytes=60 << 20)
    same, less = (sample(flush_bytes=flushed << 20, cache_bytes=256 << 20) for flushed in (512, 256))

    assert only(points(left, same)).change is Change.SAME
    assert only(points(left, less)).reason == "different flush sizes: alpha 2 x cache, beta 1 x cache"


def test_kernel_sources_that_differ_in_their_tail_differ():
    """Reports show only the start of a hash, but all of it is compared."""
    comparison = points(sample(), sample(), facts=facts(GPU_B, kernels_hash="5e1f" * 15 + "0000"))

    assert only(comparison).change is Change.REFUSED


def test_a_case_that_one_target_lacks_is_one_sided():
    """A missing number is a row with a reason; the row is not dropped."""
    comparison = compare(pair({"samples": (sample(1024), sample(2048))}, {"samples": (sample(1024),)}), B)

    assert [row.ratios[0].change for row in comparison.rows] == [Change.SAME, Change.ONE_SIDED]
    assert comparison.rows[1].ratios[0].reason == "beta has no result for this case"


def test_one_target_alone_has_no_ratio():
    """There is no baseline."""
    comparison = compare([run()], B)

    assert (comparison.baseline, comparison.geomeans, comparison.rows[0].ratios) == (None, (), ())


def test_a_third_target_has_its_own_ratio_to_the_first():
    """Targets are data: three work like two, and one without a GPU takes no part."""
    comparison = compare([run("cpu", None, samples=()), *pair(), run("gamma")], ["cpu", "alpha", "beta", "gamma"])

    assert comparison.baseline == "alpha"
    assert [ratio.target for ratio in comparison.rows[0].ratios] == ["beta", "gamma"]


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
        dataclasses.replace(CEILING, median_ms=0.5, when="after"),
        dataclasses.replace(CEILING, median_ms=0.0),
        dataclasses.replace(CEILING, median_ms=0.001, device=1),
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


def test_two_gpus_of_one_target_are_two_cells_and_the_first_makes_the_ratio():
    """Devices are never averaged."""
    both = (sample(value=2000.0, device=1), sample(value=1000.0, device=0))
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": both}), B)

    assert [cell.device for cell in comparison.rows[0].cells] == [0, 1, 0]
    assert only(comparison).value == pytest.approx(1.0)


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


# --- tests ------------------------------------------------------------------------------------------------------------------------------

NAMES = {"p": Verdict.PASSED, "f": Verdict.FAILED, "c": Verdict.CRASHED, "s": Verdict.NOT_RUN}


@pytest.mark.parametrize(
    ("left", "right", "parity", "on"),
    [
        ("p", "p", Parity.ALL_PASSED, ()),
        ("p", "f", Parity.FAILED_ON, ("beta",)),
        ("c", "p", Parity.FAILED_ON, ("alpha",)),
        ("p", "s", Parity.SKIPPED_ON, ("beta",)),
        ("p", "", Parity.MISSING_ON, ("beta",)),
        ("", "p", Parity.MISSING_ON, ("alpha",)),
        ("f", "f", Parity.PASSED_NOWHERE, ()),
        ("f", "s", Parity.PASSED_NOWHERE, ()),
        ("f", "", Parity.PASSED_NOWHERE, ()),
        ("s", "s", Parity.PASSED_NOWHERE, ()),
    ],
)
def test_a_gap_counts_only_where_the_other_side_passed(left, right, parity, on):
    """If a test fails on both, the targets do not differ; the same is true of skips."""
    other = case("softmax/t.py::other")
    sides = [(*(() if not letter else (case("softmax/t.py::t", NAMES[letter]),)), other) for letter in (left, right)]
    comparison = compare(pair({"cases": sides[0]}, {"cases": sides[1]}), B)

    (row,) = [row for row in comparison.tests if row.id == "softmax/t.py::t"]
    assert (row.parity, row.on) == (parity, on)


def test_a_target_without_any_test_misses_none():
    """If the test stage was lost, every test would count as missing."""
    comparison = compare(pair(None, {"cases": ()}), B)

    assert {row.parity for row in comparison.tests} == {Parity.ONE_TARGET}


def test_tests_with_one_id_are_shown_and_not_merged():
    """The second of two equal ids is compared with the second on the other target."""
    twice = (case(), case(verdict=Verdict.FAILED))
    comparison = compare(pair({"cases": twice}, {"cases": twice[:1]}), B)

    assert [(row.occurrence, row.parity) for row in comparison.tests] == [(1, Parity.ALL_PASSED), (2, Parity.PASSED_NOWHERE)]


# --- generated code, facts --------------------------------------------------------------------------------------------------------------


def test_code_is_one_row_per_configuration_over_all_targets():
    """The same launch on another architecture or target is another cell of the row."""
    left = (compiled("sy_90"), compiled("sy_90", num_warps=8))
    comparison = compare(pair({"compiled": left}, {"compiled": (compiled("sy_90"), compiled("syn942"))}), B)

    assert [row.config for row in comparison.codegen] == [
        "*fp32 i32, BLOCK=1024, 4 warps, 2 stages",
        "*fp32 i32, BLOCK=1024, 8 warps, 2 stages",
    ]
    found = [(cell.target, cell.compiled.architecture) for cell in comparison.codegen[0].cells]
    assert found == [("alpha", "sy_90"), ("beta", "sy_90"), ("beta", "syn942")]


def test_the_same_launch_compiled_twice_is_two_rows():
    """Equal rows are not dropped."""
    assert len(compare([run(compiled=(compiled(), compiled(registers=99)))], A).codegen) == 2


def test_only_facts_that_differ_are_differences():
    """A difference that alone forbids comparing speeds is marked."""
    comparison = compare(pair(None, {"facts": facts(GPU_B, triton="3.9.1", driver=None, fp_fusion="0")}), B)

    assert [(entry.name, entry.values, entry.refuses) for entry in comparison.differences] == [
        ("triton", {"alpha": "3.9.0", "beta": "3.9.1"}, False),
        ("driver", {"alpha": "1.0", "beta": "unknown"}, False),
        ("FP fusion", {"alpha": "1", "beta": "0"}, True),
    ]


def test_nothing_that_is_given_is_changed_and_the_same_comes_out_again():
    """Comparing is a pure function: the same runs give the same comparison."""
    runs = two_targets()
    first = compare(runs, B)

    assert compare(two_targets(), B) == first
    assert runs == two_targets()


@pytest.mark.parametrize(("unit", "less"), [("ms", True), ("GiB", True), ("MB", True), ("GB/s", False), ("TFLOP/s", False), ("", False)])
def test_less_is_better_of_time_and_of_memory(unit, less):
    """More is better for every other unit."""
    assert lower_is_better(unit) is less


TIMES = {
    "zero": ((0.5, 0.0, 0.5), 0.5, Verdict.INVALID, "its timings are from 0 to 0.5 ms"),
    "negative": ((0.5, -1.0, 0.5), 0.5, Verdict.INVALID, "its timings are from -1 to 0.5 ms"),
    "another median": ((0.5, 0.6, 0.7), 0.1, Verdict.INVALID, "its median is 0.1 ms, its timings are from 0.5 to 0.7 ms"),
    "too even": ((0.5,) * 20, 0.5, Verdict.PASSED, "all of its 20 timings are 0.5 ms"),
    "few and even": ((0.5,) * 19, 0.5, Verdict.PASSED, ""),
}


@pytest.mark.parametrize("name", TIMES)
def test_timings_that_no_clock_has_given(name):
    """An impossible timing is invalid; an unlikely one makes the point weak."""
    times, median, verdict, words = TIMES[name]
    point = dataclasses.replace(sample(), times_ms=times, rounds=(), median_ms=median)
    ((_, cell),) = cells("alpha", run(samples=(point,)))

    assert cell.verdict is verdict
    assert words in (cell.reason if verdict is Verdict.INVALID else cell.weak)
    assert bool(cell.weak) == (name == "too even")


def test_what_was_deselected_and_what_is_doubted_is_shown():
    """Deselected tests are counted. A stage with doubts is not complete, whatever its points are."""
    reports = tuple(dataclasses.replace(report, deselected=2 * (report.stage is Stage.TEST)) for report in run("alpha").stages)
    comparison = compare([run("alpha", stages=reports)])
    doubted = tuple(dataclasses.replace(report, verdict=Verdict.INVALID, doubts=("forged",), reason="forged") for report in reports)

    assert "2 tests deselected, by an option of the run or by the package" in render_markdown(comparison)
    assert "2 tests, by an option of the run or by the package" in render_html(comparison)
    assert exit_code(compare([run("alpha", stages=doubted)])) is ExitCode.INCOMPLETE
