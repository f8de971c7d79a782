"""What is complete, what is missing and which exit code follows. All data is synthetic."""

import pytest
from synthetic import GPU_B, case, compiled, pair, record, run

from warpwave.compare import compare, exit_code
from warpwave.errors import ExitCode
from warpwave.records import Exit, Stage, StageReport, Verdict

A, B = ["alpha"], ["alpha", "beta"]


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
