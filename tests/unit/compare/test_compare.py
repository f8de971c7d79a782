"""A comparison's rows of tests and of generated code. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json
import os

import command
import pytest
from synthetic import GPU_B, case, compiled, facts, pair, record, run, two_targets

from warpwave.compare import compare, exit_code
from warpwave.compare.model import Parity
from warpwave.compare.runs import join, outcome
from warpwave.errors import ExitCode, Outcome, UsageError
from warpwave.records import MOST_SECONDS, Exit, Narrowed, Stage, StageReport, Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.run.shards import parse_shard

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


def test_what_was_deselected_and_what_is_doubted_is_shown():
    """Deselected tests are counted. A stage with doubts is not complete, whatever its points are."""
    reports = tuple(dataclasses.replace(report, deselected=2 * (report.stage is Stage.TEST)) for report in run("alpha").stages)
    comparison = compare([run("alpha", stages=reports)])
    doubted = tuple(dataclasses.replace(report, verdict=Verdict.INVALID, doubts=("forged",), reason="forged") for report in reports)

    assert "2 tests deselected, by an option of the run or by the package" in render_markdown(comparison)
    assert "2 tests, by an option of the run or by the package" in render_html(comparison)
    assert exit_code(compare([run("alpha", stages=doubted)])) is ExitCode.INCOMPLETE


@pytest.mark.parametrize(("problems", "reason"), [(("a note", "The disk is full"), "The disk is full"), ((), "2 targets passed")])
def test_a_report_that_could_not_be_written_has_its_reason(problems, reason):
    """The targets' verdicts do not explain its exit code: the last problem does, or else the verdict in words, without its full stop."""
    comparison = dataclasses.replace(
        compare(two_targets(), B), exit_code=ExitCode.INFRASTRUCTURE, problems=problems, sentence="2 targets passed."
    )

    assert outcome(comparison) == Outcome(ExitCode.INFRASTRUCTURE, reason)


# What is complete, what is missing and which exit code follows. All data is synthetic.

A_COMPLETENESS, B_COMPLETENESS = ["alpha"], ["alpha", "beta"]


def test_the_sentence_says_first_how_many_are_complete():
    """A target without a raw folder is listed with the reason."""
    comparison = compare([run(samples=(), compiled=())], B_COMPLETENESS)

    assert comparison.sentence == "1 of 2 targets is complete: alpha passed 3 tests; beta is absent (no raw folder was given)."
    assert exit_code(comparison) is ExitCode.INCOMPLETE


def test_a_target_without_tests_says_what_it_did_instead():
    """Compiling is a result too."""
    stages = (StageReport(Stage.COMPILE, Verdict.PASSED),)
    comparison = compare([run(stages=stages, cases=(), samples=())], A_COMPLETENESS)

    assert comparison.sentence == "1 of 1 target is complete: alpha compiled 1 binary."
    assert exit_code(comparison) is ExitCode.GOOD


FAILED_CASE = case(verdict=Verdict.FAILED)


EXITS = {
    "all good": (pair(), B_COMPLETENESS, ExitCode.GOOD),
    "a failed test": (pair({"cases": (case(), FAILED_CASE)}), B_COMPLETENESS, ExitCode.FAILED),
    "a crashed test": (pair({"cases": (case(verdict=Verdict.CRASHED),)}), B_COMPLETENESS, ExitCode.FAILED),
    "a kernel that does not compile": (pair({"compiled": (compiled(verdict=Verdict.FAILED),)}), B_COMPLETENESS, ExitCode.FAILED),
    "a failed stage": ([run(stages=(StageReport(Stage.BENCH, Verdict.ERROR),), cases=())], A_COMPLETENESS, ExitCode.FAILED),
    "infrastructure": (pair({"record": record(verdict=Verdict.INFRA, reason="no driver")}), B_COMPLETENESS, ExitCode.INFRASTRUCTURE),
    "a failed test before infrastructure": (
        pair({"record": record(verdict=Verdict.INFRA)}, {"cases": (FAILED_CASE,)}),
        B_COMPLETENESS,
        ExitCode.FAILED,
    ),
    "infrastructure before an absent target": ([run(record=record(verdict=Verdict.INFRA))], B_COMPLETENESS, ExitCode.INFRASTRUCTURE),
    "an absent target": ([run()], B_COMPLETENESS, ExitCode.INCOMPLETE),
    "all targets absent": ([], B_COMPLETENESS, ExitCode.INCOMPLETE),
    "an invalid stage": (
        [run(stages=(StageReport(Stage.TEST, Verdict.INVALID),), problems=("test/junit.xml: invalid: x",))],
        A_COMPLETENESS,
        ExitCode.INCOMPLETE,
    ),
    "a stale folder": ([run(record=record(verdict=Verdict.STALE))], A_COMPLETENESS, ExitCode.INCOMPLETE),
    "a stage that crashed": (
        [run(stages=(StageReport(Stage.BENCH, Verdict.CRASHED, exit_code=-11),))],
        A_COMPLETENESS,
        ExitCode.INCOMPLETE,
    ),
    "every test skipped": ([run(cases=(case(verdict=Verdict.NOT_RUN),))], A_COMPLETENESS, ExitCode.NOTHING_RAN),
    "no test found": ([run(cases=(), samples=(), compiled=())], A_COMPLETENESS, ExitCode.NOTHING_RAN),
    "one of two ran nothing": (pair({"cases": (case(verdict=Verdict.NOT_RUN),)}), B_COMPLETENESS, ExitCode.INCOMPLETE),
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

    assert compare([orderly], A_COMPLETENESS).sentence == "1 of 1 target is complete, with 1 failed test: alpha failed 1 of 2 tests."
    assert compare([dead], A_COMPLETENESS).sentence == "0 of 1 target is complete, with 1 failed test: alpha crashed (test: killed)."


@pytest.mark.parametrize(
    "ended", [Exit(137, 9.0, timed_out=True), Exit(None, 9.0, error="gone"), Exit(-11, 9.0), Exit(0, 9.0, interrupted=True)]
)
def test_a_run_that_was_ended_from_outside_is_not_complete(ended):
    """A test's timeout does not explain that the run was stopped."""
    timed_out = record(verdict=Verdict.TIMEOUT, reason="stopped after its limit of 9 s", exit=ended)
    comparison = compare([run(record=timed_out, cases=(case(verdict=Verdict.TIMEOUT),))], A_COMPLETENESS)

    assert comparison.sentence == (
        "0 of 1 target is complete, with 1 failed test: alpha ran into its time limit (stopped after its limit of 9 s)."
    )


def test_a_package_without_benchmarks_is_fine_and_one_without_tests_is_not():
    """Green never means that no test ran. The sentence says what did run."""
    no_bench = (StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.BENCH, Verdict.NOT_RUN, reason="no benchmark was found"))
    no_tests = (StageReport(Stage.TEST, Verdict.NOT_RUN, reason="no test was found"), StageReport(Stage.BENCH, Verdict.PASSED))

    assert exit_code(compare([run(stages=no_bench, samples=())], A_COMPLETENESS)) is ExitCode.GOOD
    comparison = compare([run(stages=no_tests, cases=(), compiled=())], A_COMPLETENESS)
    assert comparison.sentence == "0 of 1 target is complete: alpha ran no test (test: no test was found) and measured 3 points."
    assert exit_code(comparison) is ExitCode.NOTHING_RAN


def test_results_of_a_stale_folder_are_not_shown():
    """They belong to two runs, and nobody can tell which is which."""
    comparison = compare(pair({"record": record(verdict=Verdict.STALE, reason="two runs")}), B_COMPLETENESS)

    assert {cell.target for row in comparison.rows for cell in row.cells} == {"beta"}
    assert {cell.target for row in comparison.tests for cell in row.cells} == {"beta"}


def test_expected_targets_come_first_and_two_runs_of_one_target_stay_two():
    """The user decides the order. A second run of the same target is shown beside the first, never merged with it."""
    comparison = compare([run("gamma"), run("beta"), run("alpha"), run("beta", GPU_B)], B_COMPLETENESS)

    assert [target.target for target in comparison.targets] == ["alpha", "beta", "beta (2)", "gamma"]
    assert len(comparison.rows[0].cells) == 4


# Shards of a package: the joined shards are the whole. All data is synthetic.


@pytest.fixture
def package(tmp_path):
    """Four kernels: two folders, a pair of files in the root, and a folder with tests only."""
    folder = tmp_path / "ops"
    for name in ("a/a.py", "a/test_a.py", "a/bench_a.py", "b[1]/test_b.py", "b[1]/bench_b.py", "test_c.py", "bench_c.py", "d/test_d.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("def test_one():\n    pass\n" if "test_" in name else "")
    return folder


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/65", "-1/2", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text):
    """Shards are counted from 1."""
    with pytest.raises(UsageError):
        parse_shard(text)


def shards_of(run, of=2):
    """Split a run into shards: cases and samples are dealt out, and each shard has its own GPU with index 0."""
    return [
        dataclasses.replace(
            run,
            record=dataclasses.replace(run.record, run_id=f"run-{number}", shard=f"{number}/{of}"),
            cases=run.cases[number - 1 :: of],
            samples=run.samples[number - 1 :: of],
            stages=tuple(dataclasses.replace(stage, counts={}) for stage in run.stages),
        )
        for number in range(1, of + 1)
    ]


def test_shards_join_to_what_they_are_parts_of():
    """Every case and sample appears once, and each sample's device has the ceiling of its own shard."""
    run = two_targets()[0]
    (whole,) = join(shards_of(run))

    assert {case.id for case in whole.cases} == {case.id for case in run.cases}
    assert len(whole.samples) == len(run.samples)
    assert {sample.device for sample in whole.samples} == {ceiling.device for ceiling in whole.ceilings} == {0, 1}
    assert [device.index for device in whole.facts.devices] == [0, 1]
    assert (whole.record.verdict, whole.record.shard, whole.problems) == (run.record.verdict, "", run.problems * 2)


def test_the_reason_is_that_of_the_gravest_shard_with_its_number():
    """One without a reason gives none."""
    first, second = shards_of(two_targets()[0])
    for reason, told in (("the disk is full", "shard 2/2: the disk is full"), ("", "")):
        failed = dataclasses.replace(second, record=dataclasses.replace(second.record, verdict=Verdict.INFRA, reason=reason))
        (whole,) = join([first, failed])
        assert (whole.record.verdict, whole.record.reason) == (Verdict.INFRA, told)


def test_shards_run_at_the_same_time_and_their_stages_add_up():
    """The run took as long as its longest shard; a stage as long as all of its parts, and it counts what they counted."""
    parts = shards_of(two_targets()[0])
    for number, (seconds, doubts) in enumerate([(40.0, ("busy", "hot")), (60.0, ("hot",))]):
        report = StageReport(Stage.TEST, Verdict.PASSED, seconds / 4, counts={"passed": number + 1}, deselected=2, doubts=doubts)
        record = dataclasses.replace(parts[number].record, seconds=seconds)
        parts[number] = dataclasses.replace(parts[number], record=record, stages=(report,))
    (whole,) = join(parts)

    assert whole.record.seconds == 60.0
    assert whole.stages == (StageReport(Stage.TEST, Verdict.PASSED, 25.0, counts={"passed": 3}, deselected=4, doubts=("busy", "hot")),)


def test_what_only_some_shards_tell_is_kept():
    """A count that one of them has, peers and notes once, and no names of files: each shard has its own."""
    counts, peers = [{"passed": 2, "failed": 1}, {"passed": 3}, {"oom": 4}], [("torch",), ("cub", "torch"), ()]
    parts = []
    for part, counted, others in zip(shards_of(two_targets()[0], of=3), counts, peers, strict=True):
        report = StageReport(Stage.TEST, Verdict.PASSED, 1.0, counts=counted, left_out=3, notes=(*others, "a note"), files={"a": "1" * 64})
        parts.append(dataclasses.replace(part, stages=(report,), peers=others))
    (whole,) = join(parts)
    (stage,) = whole.stages

    assert (whole.peers, stage.counts, stage.left_out) == (("torch", "cub"), {"passed": 5, "failed": 1, "oom": 4}, 9)
    assert (stage.notes, stage.files, whole.missing) == (("torch", "a note", "cub"), {}, "")


def test_several_shards_that_are_missing_are_one_sentence():
    parts = shards_of(dataclasses.replace(two_targets()[0], problems=("a line is cut",)), of=4)
    lost = dataclasses.replace(parts[0], record=dataclasses.replace(parts[0].record, verdict=Verdict.ABSENT, reason="it did not answer"))

    assert join(parts[:2])[0].missing == "shards 3 and 4 of 4 are missing"
    assert join([*parts, *parts[1:3]])[0].problems == (*["a line is cut"] * 6, "shards 2 and 3 of 4 are given more than once")
    (whole,) = join([lost, *parts[1:3]])
    assert (whole.missing, whole.record.verdict) == ("shards 1 and 4 of 4 are missing", Verdict.INCOMPLETE)
    assert whole.record.reason == "shards 1 and 4 of 4 are missing: it did not answer"
    assert join([lost])[0].record.verdict is Verdict.ABSENT


def test_each_stage_is_joined_with_its_own_kind():
    """In the order of the first shard, with the gravest verdict of that stage; one with nothing to do takes nothing away."""
    first, second = shards_of(two_targets()[0])
    told = ((Stage.TEST, Verdict.PASSED), (Stage.BENCH, Verdict.NOT_RUN)), ((Stage.BENCH, Verdict.PASSED), (Stage.TEST, Verdict.FAILED))
    parts = [
        dataclasses.replace(part, stages=tuple(StageReport(*each) for each in each_side))
        for part, each_side in zip((first, second), told, strict=True)
    ]

    assert [(report.stage, report.verdict) for report in join(parts)[0].stages] == [
        (Stage.TEST, Verdict.FAILED),
        (Stage.BENCH, Verdict.PASSED),
    ]


def test_seconds_that_are_summed_stay_within_what_a_record_may_hold():
    """Each of two shards claims the most that a stage may have taken."""
    longest = StageReport(Stage.TEST, Verdict.PASSED, MOST_SECONDS)
    (whole,) = join([dataclasses.replace(part, stages=(longest,)) for part in shards_of(two_targets()[0])])

    assert whole.stages[0].seconds == MOST_SECONDS


def test_devices_are_numbered_past_all_that_the_shards_before_name():
    """Those that were only measured on, those that are only facts, and none at all."""
    whole = two_targets()[0]
    card = whole.facts.devices[0]
    bare = {"samples": (), "again": (), "ceilings": (), "shares": ()}
    first, second, third, last = shards_of(whole, of=4)
    first = dataclasses.replace(first, facts=None, **bare)
    second = dataclasses.replace(second, samples=(dataclasses.replace(whole.samples[0], device=2),))
    third = dataclasses.replace(third, **bare, facts=dataclasses.replace(whole.facts, devices=(card, dataclasses.replace(card, index=4))))
    (joined,) = join([first, second, third, dataclasses.replace(last, samples=whole.samples[:1])])

    assert [sample.device for sample in joined.samples] == [2, 8]
    assert [device.index for device in joined.facts.devices] == [0, 3, 7, 8]


def test_runs_that_are_no_shards_stay_as_they_are():
    """Two runs of one target stay two columns; shards of another commit are another run."""
    first, second = two_targets()
    other = [dataclasses.replace(part, record=dataclasses.replace(part.record, commit="other")) for part in shards_of(first)]

    assert join([first, first, second]) == [first, first, second]
    assert len(join([*shards_of(first), *other])) == 2


FAULTS = {
    "one is missing": (lambda parts: parts[1:], Verdict.INCOMPLETE, "shard 1 of 3 is missing"),
    "one came twice": (lambda parts: [*parts, parts[1]], Verdict.INCOMPLETE, "shard 2 of 3 is given more than once"),
    "one had no card": (
        lambda parts: [
            dataclasses.replace(parts[0], record=dataclasses.replace(parts[0].record, verdict=Verdict.INFRA, reason="no card")),
            *parts[1:],
        ],
        Verdict.INFRA,
        "shard 1/3: no card",
    ),
    "another Triton": (
        lambda parts: [dataclasses.replace(parts[0], facts=dataclasses.replace(parts[0].facts, triton="0")), *parts[1:]],
        Verdict.INCOMPLETE,
        "the shards' triton differ",
    ),
    "other times": (
        lambda parts: [dataclasses.replace(parts[0], division="a"), *(dataclasses.replace(part, division="b") for part in parts[1:])],
        Verdict.INCOMPLETE,
        "the shards were divided differently: by other times (--shard-times), or of another package",
    ),
    "other tests": (
        lambda parts: [
            dataclasses.replace(part, division="a", narrowed=Narrowed(("--quick",) if part is parts[1] else ())) for part in parts
        ],
        Verdict.INCOMPLETE,
        "the shards were asked for different tests",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_shards_that_are_no_whole_are_reported(name):
    """A part must not be mistaken for the package."""
    change, verdict, reason = FAULTS[name]
    (whole,) = join(change(shards_of(two_targets()[0], of=3)))

    assert (whole.record.verdict, whole.record.reason) == (verdict, reason)


@pytest.mark.slow
def test_two_shards_of_a_real_package_make_one_report(package, tmp_path):
    """Each shard really runs into its own folder, as in two jobs. The comparison has every test once."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton")

    def warpwave(*arguments):
        return command.warpwave(*arguments, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, light=True)

    for number in ("1", "2"):
        done = warpwave(
            "run", "cpu", "--stage", "test", "--kernels", "ops", "--shard", f"{number}/2", "--out", f"part{number}", "--no-report"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    whole = warpwave("report", "part1", "part2", "--out", "whole")
    part = warpwave("report", "part1", "--out", "part")
    comparison = json.loads((tmp_path / "whole" / "comparison.json").read_text())

    assert (whole.returncode, part.returncode) == (0, 4), whole.stdout + part.stdout
    assert [target["target"] for target in comparison["targets"]] == ["cpu"]
    assert len(comparison["tests"]) == len({row["id"] for row in comparison["tests"]}) == 7
    assert "shard 2 of 2 is missing" in part.stdout
