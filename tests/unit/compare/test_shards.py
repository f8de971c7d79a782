"""Shards of a package: joined, they are the whole. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json
import os

import command
import pytest
from synthetic import two_targets

from warpwave.compare.runs import join
from warpwave.errors import UsageError
from warpwave.records import MOST_SECONDS, Narrowed, Stage, StageReport, Verdict
from warpwave.run.shards import parse_shard


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
