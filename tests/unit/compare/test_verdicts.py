"""What became of targets, cards and tests: verdicts, exit codes, the sentence, rows of tests. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import CEILING, GPU_B, case, compiled, emulated, facts, no_gpu, pair, record, run, sample, two_targets

from warpwave.compare import compare
from warpwave.compare.answer import headline
from warpwave.compare.model import CardUse, DeviceSummary, KernelTests, Parity, TargetSummary
from warpwave.compare.verdict import devices, disagreements, outcome, sentence, summarise
from warpwave.errors import ExitCode, Outcome
from warpwave.records import (
    OPEN,
    Attempt,
    CardShare,
    CaseResult,
    DeviceFacts,
    Environment,
    Exit,
    Gates,
    NotRun,
    Stage,
    StageReport,
    Verdict,
    Waiver,
    Which,
)
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown

PASSED, FAILED, NOT_RUN = Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN

A, B = ["alpha"], ["alpha", "beta"]

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


def test_nothing_that_is_given_is_changed_and_the_same_comes_out_again():
    """Comparing is a pure function: the same runs give the same comparison."""
    runs = two_targets()
    first = compare(runs, B)

    assert compare(two_targets(), B) == first
    assert runs == two_targets()


def test_what_was_deselected_and_what_is_doubted_is_shown():
    """Deselected tests are counted. A stage with doubts is not complete, whatever its points are."""
    reports = tuple(dataclasses.replace(report, deselected=2 * (report.stage is Stage.TEST)) for report in run("alpha").stages)
    comparison = compare([run("alpha", stages=reports)])
    doubted = tuple(dataclasses.replace(report, verdict=Verdict.INVALID, doubts=("forged",), reason="forged") for report in reports)

    assert "2 tests deselected, by an option of the run or by the package" in render_markdown(comparison)
    assert "2 tests, by an option of the run or by the package" in render_html(comparison)
    assert compare([run("alpha", stages=doubted)]).exit_code == ExitCode.INCOMPLETE


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
    "a stage that crashed": (
        [run(stages=(StageReport(Stage.BENCH, Verdict.CRASHED, exit_code=-11),))],
        A,
        ExitCode.INCOMPLETE,
    ),
    "every test skipped": ([run(cases=(case(verdict=Verdict.NOT_RUN),))], A, ExitCode.NOTHING_RAN),
    "no test found": ([run(cases=(), samples=(), compiled=())], A, ExitCode.NOTHING_RAN),
    "one of two ran nothing": (pair({"cases": (case(verdict=Verdict.NOT_RUN),)}), B, ExitCode.INCOMPLETE),
    "nothing asked, nothing given": ([], [], ExitCode.NOTHING_RAN),
    "compiled alone": ([run(stages=(StageReport(Stage.COMPILE, Verdict.PASSED),), cases=(), samples=())], A, ExitCode.GOOD),
    "no benchmark": (
        [run(stages=(StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.BENCH, Verdict.NOT_RUN)), samples=())],
        A,
        ExitCode.GOOD,
    ),
    "no test, but a benchmark": (
        [run(stages=(StageReport(Stage.TEST, Verdict.NOT_RUN), StageReport(Stage.BENCH, Verdict.PASSED)), cases=(), compiled=())],
        A,
        ExitCode.NOTHING_RAN,
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_codes(name):
    """Each kind of failure has its own exit code, and the gravest wins."""
    runs, expected, code = EXITS[name]

    assert compare(runs, expected).exit_code == code


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


# What a target's summary and its cards hold.


def test_a_target_field_by_field():
    """All that its run told, and its tests, points and kernels by verdict."""
    gates = Gates(OPEN, waivers=(Waiver("spills", "why", Which()),))
    environment = Environment(engine="local", python="python3")
    attempts = (Attempt("2026-01-01", 3.0, Verdict.TIMEOUT, "slow"),)
    stages = (StageReport(Stage.TEST, PASSED), StageReport(Stage.COMPILE, PASSED))
    made = run(
        record=record(label="A label", seconds=7.0, hint="a hint", attempts=attempts, environment=environment),
        stages=stages,
        cases=(case(), case("b", Verdict.NOT_RUN)),
        samples=(sample(1), sample(2), sample(3, None)),
        compiled=(compiled(), compiled(verdict=FAILED, broken={"spills": "1"}), compiled(verdict=FAILED)),
        gates=gates,
        peers=("torch",),
    )
    found = summarise("alpha (2)", made)

    assert found == TargetSummary(
        target="alpha (2)",
        label="A label",
        verdict=FAILED,
        complete=True,
        reason="failed 2 of 3 binaries",
        hint="a hint",
        run_id="run-1",
        started="2026-01-02T03:04:05+00:00",
        seconds=7.0,
        commit="0123abc",
        command=("warpwave", "run", "alpha"),
        devices=devices(made),
        facts=made.facts,
        environment=environment,
        stages=stages,
        ceilings=made.ceilings,
        tests={"passed": 1, "not-run": 1},
        points={"passed": 2, "invalid": 1},
        compiled={"passed": 1, "failed": 2},
        only_gates=1,
        gates=gates,
        peers=("torch",),
        attempts=attempts,
        disagreements=(),
    )
    assert summarise("alpha", dataclasses.replace(made, stages=stages[:1])).peers == ()


def test_for_how_long_a_target_had_its_cards():
    """Seconds of several cards are added up; what was compiled meanwhile is that of the stages that held one."""
    stages = (
        StageReport(Stage.TEST, PASSED, used_s=1.25, compiled_ahead=3, compiled_here=2),
        StageReport(Stage.BENCH, PASSED, used_s=None, compiled_ahead=4, compiled_here=8),
        StageReport(Stage.COMPILE, PASSED, used_s=0.50049, compiled_here=16),
    )
    held = run(record=record(held={"test": 2.5, "bench": 4.00049}), stages=stages)

    assert summarise("a", held).card_use == CardUse(6.5, 1.75, compiled_ahead=7, compiled_meanwhile=10)
    assert summarise("a", run(stages=stages)).card_use is None


def test_a_target_has_the_hint_of_what_decided():
    """The host's first; a stage's where it has the verdict; none for one that passed."""
    stages = (StageReport(Stage.TEST, FAILED, hint="mild"), StageReport(Stage.BENCH, Verdict.CRASHED, reason="it died", hint="grave"))
    crashed = run(stages=stages, record=record(verdict=Verdict.CRASHED))
    told = run(stages=stages, record=record(verdict=Verdict.CRASHED, hint="the host's", reason="the host's reason"))
    passed = run(record=record(hint="of no use"))

    assert (summarise("a", crashed).hint, summarise("a", crashed).reason) == ("grave", "bench: it died")
    assert (summarise("a", told).hint, summarise("a", told).reason) == ("the host's", "the host's reason")
    assert (summarise("a", passed).hint, summarise("a", passed).reason) == ("", "")


@pytest.mark.parametrize(
    ("stopped", "command", "reason"),
    [
        (True, ("warpwave", "run", "alpha", "beta"), "not started, because the run was stopped"),
        (True, ("warpwave", "run", "alpha"), "no raw folder was given"),
        (False, ("warpwave", "run", "alpha", "beta"), "no raw folder was given"),
    ],
)
def test_a_target_that_a_stopped_run_did_not_come_to(stopped, command, reason):
    """It is not missing: the run says of itself that it was stopped, and which targets it had."""
    first = run(record=record(verdict=Verdict.INCOMPLETE, command=command, exit=Exit(0, 1.0, interrupted=stopped)))

    assert compare([first], ("alpha", "beta")).targets[1].reason == reason


ENDED = {
    "well": (Exit(0, 1.0), (), True),
    "before there were exit codes": (None, (), True),
    "with an exit code": (Exit(1, 1.0), (), False),
    "at its limit": (Exit(0, 1.0, timed_out=True), (), False),
    "by the user": (Exit(0, 1.0, interrupted=True), (), False),
    "by the engine": (Exit(0, 1.0, error="x"), (), False),
    "for its results": (Exit(0, 1.0, exceeded="x"), (), False),
    "with a file that cannot be read": (Exit(0, 1.0), ("x: invalid: y",), False),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_crashed_test_leaves_a_target_complete_only_where_its_run_ended_well(name):
    """Else nobody knows what else it would have found."""
    ended, problems, complete = ENDED[name]
    made = run(record=record(exit=ended), cases=(case(verdict=Verdict.CRASHED),), problems=problems)

    assert summarise("alpha", made).complete is complete


def test_a_stage_that_failed_by_itself_is_not_complete():
    """An exit code, or a doubt, of any stage."""
    for report in (StageReport(Stage.TEST, PASSED, exit_code=1), StageReport(Stage.TEST, PASSED, doubts=("forged",))):
        assert not summarise("alpha", run(stages=(report,), cases=(case(verdict=Verdict.CRASHED),))).complete


def test_a_test_that_is_invalid_leaves_no_target_complete():
    """It was not run as it was reported; a point that is invalid is only a point."""
    assert not summarise("alpha", run(cases=(case(verdict=Verdict.INVALID),))).complete
    assert summarise("alpha", run(record=record(verdict=Verdict.INVALID), samples=(sample(value=None),))).complete


def test_targets_of_one_name_are_numbered_past_a_name_that_is_taken():
    """A target may itself be called `alpha (2)`."""
    runs = [run(record=record(name)) for name in ("alpha (2)", "alpha", "alpha", "alpha")]

    assert [target.target for target in compare(runs, ["alpha (2)"]).targets] == ["alpha (2)", "alpha", "alpha (3)", "alpha (4)"]


def test_every_fact_that_differs_is_named():
    """Two of them forbid to compare speeds; an unknown value is one, too."""
    other = facts(
        GPU_B,
        **{"torch": "2.14", "triton": "3.10", "runtime": "r", "driver": None, "python": "3.13", "platform": "p"},
        **{"fp_fusion": "0", "kernels_hash": "0"},
    )
    first, second = run(), run("beta", record=record("beta", commit=""), facts=other)
    found = compare([first, second], B).differences

    assert {entry.name: tuple(entry.values.values()) for entry in found} == {
        "torch": ("2.13.0+synthetic", "2.14"),
        "triton": ("3.9.0", "3.10"),
        "runtime": ("synthetic 1.0", "r"),
        "driver": ("1.0", "unknown"),
        "python": ("3.12.0", "3.13"),
        "platform": ("Linux-synthetic", "p"),
        "FP fusion": ("1", "0"),
        "kernel sources": ("5e1f" * 16, "0"),
        "commit": ("0123abc", "unknown"),
    }
    assert {entry.name for entry in found if entry.refuses} == {"FP fusion", "kernel sources"}


def card(index, **more):
    base = DeviceFacts(index, "Card", "sy_90", 80 << 30, 100, uuid=f"GPU-{index}", derived_gbps=4400.0, clock_mhz=1980.0)
    return dataclasses.replace(base, **more)


def copy(device, gbps, spread=0.001):
    ms = 4e9 / gbps * 1e-6
    return dataclasses.replace(CEILING, device=device, median_ms=ms, p20_ms=ms * (1 - spread), p80_ms=ms * (1 + spread))


def test_a_card_field_by_field():
    """Its best copy, what it did of the work, and why it was given up."""
    made = run(
        facts=facts(devices=(card(0), card(1))),
        cases=(case("a", properties={"gpu": "1"}), case("b", properties={"gpu": "1"}), case("c", properties={"gpu": "0"}), case("d")),
        samples=(sample(1, device=1), sample(2, device=0), sample(3, device=0)),
        ceilings=(copy(0, 3000.0), copy(0, 4000.0), copy(0, 3500.0)),
        shares=(CardShare(Stage.TEST, 1, 2, 1.0), CardShare(Stage.BENCH, 1, 1, 1.0, "it fell off the bus")),
    )

    assert devices(made) == (
        DeviceSummary(0, "Card", "sy_90", 80 << 30, pytest.approx(4000.0), 4400.0, "GPU-0", 1, 2, ""),
        DeviceSummary(1, "Card", "sy_90", 80 << 30, None, 4400.0, "GPU-1", 2, 1, "it fell off the bus"),
    )
    assert devices(run(facts=None)) == ()


def both_used(second, ceilings=()):
    return run(facts=facts(devices=(card(0), second)), samples=(sample(1), sample(2, device=1)), ceilings=ceilings)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (card(1), ()),
        (card(1, name="Other"), ("name: Card on GPU 0, Other on GPU 1",)),
        (card(1, architecture="sy_80"), ("architecture: sy_90 on GPU 0, sy_80 on GPU 1",)),
        (card(1, memory_bytes=40 << 30), ("memory: 80.0 GiB on GPU 0, 40.0 GiB on GPU 1",)),
        (card(1, multiprocessors=99), ("multiprocessors: 100 on GPU 0, 99 on GPU 1",)),
        (card(1, derived_gbps=None), ("bandwidth by its driver's figures: 4400 GB/s on GPU 0, unknown on GPU 1",)),
        (card(1, clock_mhz=None), ("clock: 1980 MHz on GPU 0, unknown on GPU 1",)),
        (card(1, told={"power limit": "500 W"}), ("power limit: unknown on GPU 0, 500 W on GPU 1",)),
        (card(1, name="x" * 500), (f"name: Card on GPU 0, {'x' * 500}"[:400],)),
    ],
)
def test_cards_that_shared_the_work_are_held_against_each_other(second, expected):
    """Fact by fact; what one of them does not tell is unknown there."""
    assert disagreements(both_used(second)) == summarise("alpha", both_used(second)).disagreements == expected


def test_only_cards_that_did_something_are_held_against_each_other():
    """A share of the tests counts as a point does."""
    made = both_used(card(1, name="Other"))

    assert disagreements(dataclasses.replace(made, samples=made.samples[:1])) == ()
    assert len(disagreements(dataclasses.replace(made, samples=made.samples[:1], shares=(CardShare(Stage.TEST, 1, 2, 1.0),)))) == 1


@pytest.mark.parametrize(
    ("copies", "told"),
    [
        ([copy(0, 4000.0), copy(1, 3600.0)], "10.0%"),
        ([copy(1, 4000.0), copy(0, 3600.0)], "10.0%"),
        ([copy(0, 4000.0), copy(1, 3000.0), copy(1, 3600.0), copy(1, 3200.0)], "10.0%"),
        ([copy(0, 4000.0), copy(1, 3965.0)], ""),
        ([copy(0, 4000.0, 0.2), copy(1, 3600.0, 0.2)], ""),
        ([copy(0, 4000.0)], ""),
        ([copy(0, 4000.0), copy(5, 100.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), p20_ms=0.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), p80_ms=0.0)], ""),
        ([copy(0, 4000.0), dataclasses.replace(copy(1, 100.0), median_ms=0.0)], ""),
    ],
)
def test_a_card_that_copies_more_slowly_is_reported(copies, told):
    """Its best copy, where it is slower by a percent or more and the two do not overlap; a card that did nothing is none."""
    found = disagreements(both_used(card(1), tuple(copies)))

    assert bool(found) == bool(told)
    assert told in "".join(found)


def test_the_tests_of_a_kernel_are_counted_field_by_field():
    """Seconds that cannot be are none."""
    times = (0.25, 0.5, -1.0, 0.0, 1e12, float("nan"))
    cases = tuple(dataclasses.replace(case(str(n)), seconds=time) for n, time in enumerate(times))
    other = (case("x", FAILED, kernel="other"),)
    found = compare([run(cases=(*cases, *other)), run("beta", record=record("beta"), cases=other)], B).kernels

    assert found == (
        KernelTests("softmax", "alpha", {"passed": 6}, 0.75),
        KernelTests("other", "alpha", {"failed": 1}, 0.25),
        KernelTests("other", "beta", {"failed": 1}, 0.25),
    )


# The sentence, and the reason of an exit code.


def target(name="alpha", verdict=PASSED, complete=True, **more):
    return TargetSummary(name, name, verdict, complete, **more)


DONE = {
    "one test": (target(tests={"passed": 1}), "alpha passed 1 test"),
    "failed tests of several kinds": (target(tests={"failed": 1, "error": 2, "not-run": 1}), "alpha failed 3 of 4 tests (1 skipped)"),
    "a point that failed": (target(points={"passed": 2, "error": 1}), "alpha could not measure 1 of 3 points"),
    "loads of benchmarks": (
        target(tests={"passed": 3}, loads=1),
        "alpha passed 3 tests and loaded 1 file of benchmarks",
    ),
    "a narrowed run": (
        target(tests={"passed": 3}, narrowed=("-k x", "--quick", "-m y"), suspected=1),
        "alpha passed 3 tests of those that -k x and --quick chose (1 of them suspected)",
    ),
    "a kernel that failed": (target(compiled={"passed": 1, "failed": 1}), "alpha could not compile or launch 1 of 2 binaries"),
    "a gate": (target(compiled={"passed": 1, "failed": 1}, only_gates=1), "alpha compiled 2 binaries and broke a gate with 1 of them"),
    "a gate, and a kernel that failed": (
        target(compiled={"passed": 1, "failed": 2}, only_gates=1),
        "alpha could not compile or launch 1 of 3 binaries and broke a gate with 1 of them",
    ),
    "a case that raised": (
        target(compiled={"passed": 4}, host_code={"not-run": 2}, host_code_not_run={"raised": 2}),
        "alpha compiled 4 binaries and did not run 2 cases to the end (2 raised)",
    ),
    "all of it": (
        target(tests={"passed": 1}, points={"passed": 2}, compiled={"passed": 3}),
        "alpha passed 1 test, measured 2 points and compiled 3 binaries",
    ),
    "nothing at all": (target(verdict=NOT_RUN, complete=False, reason="a\n b."), "alpha ran nothing (a b)"),
    "absence": (target(verdict=Verdict.ABSENT, complete=False), "alpha is absent"),
    "a timeout": (
        target(verdict=Verdict.TIMEOUT, complete=False, reason="slow", tests={"passed": 1}),
        "alpha ran into its time limit (slow)",
    ),
    "a reason as long as may be": (target(verdict=Verdict.INFRA, complete=False, reason="x" * 160), f"alpha could not run ({'x' * 160})"),
    "a longer reason": (target(verdict=Verdict.INFRA, complete=False, reason="x" * 161), f"alpha could not run ({'x' * 160} …)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DONE)
def test_what_became_of_a_target(name):
    """Its tests, points and kernels if it is complete; else what went wrong, and why."""
    made, expected = DONE[name]

    assert sentence([made]).partition(": ")[2] == expected + "."


HEADS = [
    ([target()], "1 of 1 target is complete"),
    ([target(), target("beta", Verdict.ABSENT, False)], "1 of 2 targets is complete"),
    ([target("alpha", Verdict.ABSENT, False), target("beta", Verdict.ABSENT, False)], "0 of 2 targets are complete"),
    (
        [target(tests={"failed": 1, "error": 1}), target("b", compiled={"failed": 1}, tests={"crashed": 1})],
        "2 of 2 targets are complete, with 3 failed tests and 1 failed binary",
    ),
]


@pytest.mark.parametrize(("targets", "head"), HEADS, ids=[head for _, head in HEADS])
def test_the_sentence_begins_with_how_many(targets, head):
    """In the right number, and with what failed on all of them."""
    assert sentence(targets).partition(":")[0] == head


def test_of_very_many_targets_those_that_need_a_look_are_named():
    """In their order, and how many more there are."""
    targets = [target(f"t{n}", Verdict.CRASHED if n in (3, 70) else PASSED, n not in (3, 70)) for n in range(80)]
    said = sentence(targets).partition(": ")[2].rstrip(".").split("; ")

    assert len(said) == 51
    assert [text for text in said if "crashed" in text] == ["t3 crashed", "t70 crashed"]
    assert said.index("t3 crashed") == 3
    assert said[-2:] == ["t70 crashed", "and 30 more"]
    assert len(sentence(targets[:50]).split("; ")) == 50
    assert sentence([]).startswith("Nothing ran: ")


TESTED = StageReport(Stage.TEST, PASSED)


OUTCOMES = {
    "all passed": ([target()], Outcome()),
    "a failed test": ([target("a", FAILED, tests={"failed": 1}), target("b")], Outcome(ExitCode.FAILED, "a failed 1 of 1 test")),
    "failed on two": (
        [target("a", FAILED, tests={"failed": 1}), target("b", FAILED, points={"error": 1})],
        Outcome(ExitCode.FAILED, "a failed 1 of 1 test; b could not measure 1 of 1 point"),
    ),
    "a failed test of a target that crashed": (
        [target("a", Verdict.CRASHED, False, tests={"failed": 1, "passed": 1}, compiled={"failed": 1})],
        Outcome(ExitCode.FAILED, "a failed 1 of 2 tests and could not compile or launch 1 of 1 binary"),
    ),
    "a stage as a whole": ([target("a", Verdict.ERROR, reason="it\n broke.")], Outcome(ExitCode.FAILED, "a ended in an error (it broke)")),
    "a stage without a reason": ([target("a", Verdict.ERROR)], Outcome(ExitCode.FAILED, "a ended in an error")),
    "infrastructure": (
        [target("a", Verdict.INFRA, False, reason="no card"), target("b", Verdict.ABSENT, False)],
        Outcome(ExitCode.INFRASTRUCTURE, "a could not run (no card)"),
    ),
    "nothing ran": (
        [target("a", NOT_RUN, False), target("b", NOT_RUN, False)],
        Outcome(ExitCode.NOTHING_RAN, "a and b ran nothing"),
    ),
    "no target": ([], Outcome(ExitCode.NOTHING_RAN, "nothing ran")),
    "an absent target": ([target("a"), target("b", Verdict.ABSENT, False)], Outcome(ExitCode.INCOMPLETE, "b is absent")),
    "only benchmarks, loaded on one": (
        [target("a", stages=(TESTED,), loads=1, compiled={"passed": 1}), target("b", NOT_RUN, False, stages=(TESTED,), loads=1)],
        Outcome(),
    ),
    "tests on one, only benchmarks on the other": (
        [target("a", stages=(TESTED,), tests={"passed": 1}), target("b", NOT_RUN, False, stages=(TESTED,), loads=1)],
        Outcome(ExitCode.INCOMPLETE, "b ran nothing"),
    ),
    "one ran nothing": ([target("a"), target("b", NOT_RUN, False)], Outcome(ExitCode.INCOMPLETE, "b ran nothing")),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_exit_code_has_a_reason(name):
    """The targets that decide, and no others."""
    targets, expected = OUTCOMES[name]

    assert outcome(targets) == expected


SUMMARIES = {
    "a reason of the host": ({"record": record(verdict=Verdict.TIMEOUT, reason="slow")}, Verdict.TIMEOUT, "slow"),
    "a stage": ({"stages": (StageReport(Stage.BENCH, Verdict.ERROR, reason="broke"),)}, Verdict.ERROR, "bench: broke"),
    "a stage without a reason": ({"stages": (StageReport(Stage.BENCH, Verdict.ERROR),)}, Verdict.ERROR, ""),
    "no bench": ({"stages": (StageReport(Stage.TEST, PASSED), StageReport(Stage.BENCH, NOT_RUN, reason="none"))}, PASSED, ""),
    "no test stage": ({"stages": (StageReport(Stage.TEST, NOT_RUN, reason="none"),)}, NOT_RUN, "test: none"),
    "no test": ({"cases": (), "compiled": ()}, NOT_RUN, "no test was found"),
    "no test, and kernels that compile": ({"cases": ()}, PASSED, ""),
    "no test, and none asked for": ({"cases": (), "stages": (StageReport(Stage.BENCH, PASSED),)}, PASSED, ""),
    "nothing": (
        {"cases": (), "stages": (), "samples": (), "compiled": ()},
        NOT_RUN,
        "no test, no benchmark and no kernel was found",
    ),
    "every test skipped": ({"cases": (case(verdict=NOT_RUN),)}, NOT_RUN, "every test was skipped"),
    "a budget that is up behind a skipped test": (
        {"cases": (case(verdict=NOT_RUN, not_run=NotRun.SKIPPED),), "stages": (StageReport(Stage.TEST, NOT_RUN, out_of_time=True),)},
        PASSED,
        "",
    ),
    "a budget that has no turn for the tests behind a skipped one": (
        {"cases": (case(verdict=NOT_RUN, not_run=NotRun.SKIPPED),), "stages": (StageReport(Stage.TEST, NOT_RUN, left_out=9),)},
        PASSED,
        "",
    ),
    "one test skipped": ({"cases": (case(verdict=NOT_RUN), case("b"))}, PASSED, ""),
    "a failed test": ({"cases": (case(verdict=FAILED), case("b"))}, FAILED, "failed 1 of 2 tests"),
    "a kernel that was not compiled": ({"compiled": (compiled(verdict=NOT_RUN), compiled())}, PASSED, ""),
    "a kernel that failed": ({"compiled": (compiled(verdict=Verdict.CRASHED),)}, Verdict.CRASHED, "failed 1 of 1 binary"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_gravest_word_on_a_target_is_its_verdict(name):
    """With the reason of whoever said it first."""
    changes, verdict, reason = SUMMARIES[name]
    found = summarise("alpha", run(**changes))

    assert (found.verdict, found.reason) == (verdict, reason)


def test_a_benchmark_that_loads_is_no_test():
    """A kernel that nobody tested has no row that says so, and nothing claims that its tests pass."""
    load = CaseResult("bench_copy.py::module", "copy", Verdict.PASSED)
    only, alone = (emulated(load, **more) for more in ({"compiled": no_gpu().compiled[:1]}, {}))
    found, nothing = compare([only]), compare([alone])

    assert (found.exit_code, found.targets[0].tests, found.kernels, nothing.exit_code) == (0, {}, (), 5)
    assert headline(found, ()).text == "`_softmax_fwd` can launch on sy_80; no test was found on syn942-emulated; 1 binary was compiled."
    assert "found no test, loaded 1 file of benchmarks and compiled 1 binary" in found.sentence
