"""A raw folder with every file there can be: what each of them is for, and what it costs when it is broken. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json

import pytest
from synthetic import compiled, edit, record, run, sample, write_raw
from whole_run import WHOLE, lines

from warpwave.collect import collect, collect_all, find_raw, raw_folder
from warpwave.collect.untrusted import Room
from warpwave.errors import InvalidInputError
from warpwave.records import RunRecord, Stage, Verdict

INVALID, INCOMPLETE = Verdict.INVALID, Verdict.INCOMPLETE


def test_every_file_comes_back(folder):
    """In the field that it is for."""
    assert collect(folder) == WHOLE


# The stage that a file is of, None where it is about all of them, and the fields that come from it alone.
FILES = {
    "run.json": (None, set()),
    "job.json": (None, {"gates", "peers"}),
    "stages.json": (None, {"stages"}),
    "facts.json": (Stage.FACTS, {"facts"}),
    "test/junit.xml": (Stage.TEST, {"cases"}),
    "test/findings.jsonl": (Stage.TEST, {"findings"}),
    "test/cards.jsonl": (Stage.TEST, {"shares"}),
    "bench/samples.jsonl": (Stage.BENCH, {"samples"}),
    "bench/again.jsonl": (Stage.BENCH, {"again"}),
    "bench/ceilings.jsonl": (Stage.BENCH, {"ceilings"}),
    "bench/kernels.jsonl": (Stage.BENCH, {"launched"}),
    "bench/cards.jsonl": (Stage.BENCH, {"shares"}),
    "compile/kernels.jsonl": (Stage.COMPILE, {"compiled"}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_costs_its_stage_or_the_run(folder, name):
    """Each of them by its name, and none of the other stages; all that was in the other files is there."""
    (folder / name).write_text("nonsense\n")
    found = collect(folder)
    stage, lost = FILES[name]
    differ = {field.name for field in dataclasses.fields(found) if getattr(found, field.name) != getattr(WHOLE, field.name)}

    assert [problem.partition(":")[0] for problem in found.problems] == [name]
    assert [report.stage for report in found.stages if report.verdict is INVALID] == ([stage] if stage else [])
    assert all(f"{name}: invalid: " in report.reason for report in found.stages if report.verdict is INVALID)
    assert (found.record.verdict is INVALID) == (stage is None)
    assert differ == {*lost, "problems", "stages" if stage else "record"}


@pytest.mark.parametrize("name", FILES)
def test_all_files_of_a_report_share_its_room(folder, name):
    """Nothing is read beyond it, whichever file comes last."""
    for other in FILES:
        if other != name and (folder / other).exists():
            (folder / other).unlink()
    room = Room()
    room.disk = 10

    assert any(problem.startswith(f"{name}: invalid: ") for problem in collect(folder, room).problems)
    assert not any(problem.startswith(f"{name}: ") for problem in collect(folder, Room()).problems)


@pytest.mark.parametrize("name", ["bench/again.jsonl", "bench/kernels.jsonl", "test/cards.jsonl", "bench/cards.jsonl"])
def test_what_is_there_on_request_only_is_missed_by_nobody(folder, name):
    """A bundle from before that format is whole, too."""
    (folder / name).unlink()

    assert collect(folder).problems == ()


def test_a_record_that_this_process_has_made_counts(folder):
    """The file may be older, or broken: the disk was full."""
    (folder / "run.json").write_text("{")
    made = dataclasses.replace(WHOLE.record, reason="made here")

    assert collect(folder, None, made) == dataclasses.replace(WHOLE, record=made)
    assert collect_all([folder], {folder: made})[0].record == made


def test_small_folders_are_read_first_and_come_back_in_their_order(tmp_path, monkeypatch):
    """A huge one does not take the room that all share."""
    huge, small = (write_raw(tmp_path / name, run(samples=points)) for name, points in (("a", [sample(1)] * 50), ("b", [sample(1)])))
    order = []
    read = raw_folder.collect

    def note(folder, *more):
        order.append(folder)
        return read(folder, *more)

    monkeypatch.setattr(raw_folder, "collect", note)
    found = collect_all([huge, small])

    assert order == [small, huge]
    assert [len(each.samples) for each in found] == [50, 1]


def test_a_folder_without_a_page_of_the_host_is_reported_by_its_job_or_stages(folder):
    """The run's id from either; the package from the job; never a pass."""
    (folder / "run.json").unlink()
    by_job = collect(folder).record
    (folder / "job.json").unlink()
    by_stages = collect(folder).record

    assert by_job == RunRecord(
        *("run-1", "alpha", "alpha", INCOMPLETE, "run.json: incomplete: it is missing"),
        hint=by_job.hint,
        started="",
        seconds=0.0,
        commit="",
        kernels="/kernels",
        command=(),
    )
    assert by_job.hint
    assert (by_stages.run_id, by_stages.kernels) == ("run-1", "")


def test_a_name_of_a_folder_is_no_text_until_it_is_made_one(tmp_path):
    """Bytes that are no UTF-8, and far too many of them."""
    (tmp_path / "raw" / ("x" * 150)).mkdir(parents=True)
    (found,) = collect_all(find_raw([tmp_path]))

    assert found.record.target == found.record.label == f"{'x' * 100} … 50 characters cut"


@pytest.mark.parametrize("key", ["run_id", "target"])
@pytest.mark.parametrize("name", ["job.json", "stages.json"])
def test_a_file_of_another_run_names_both(folder, name, key):
    """Its own first, then that of run.json; long names are cut."""
    edit(folder / name, **{key: "y" * 50})
    found = collect(folder)
    told = {"run_id": f"alpha of run {'y' * 40} … 10 characters cut", "target": f"{'y' * 40} … 10 characters cut of run run-1"}[key]

    assert found.record.verdict is Verdict.STALE
    assert [problem.startswith("stale: " + name) for problem in found.problems] == [True]
    assert f"{told}, run.json about alpha of run run-1" in found.record.reason


@pytest.mark.parametrize(
    ("verdict", "finished", "expected"),
    [
        (Verdict.PASSED, False, INCOMPLETE),
        (Verdict.FAILED, False, INCOMPLETE),
        (Verdict.TIMEOUT, False, Verdict.TIMEOUT),
        (Verdict.PASSED, True, Verdict.PASSED),
    ],
)
def test_a_run_that_its_host_says_has_ended_badly_may_be_unfinished(tmp_path, verdict, finished, expected):
    """Only a good end and an unfinished inside disagree."""
    found = collect(write_raw(tmp_path / "a", run(record=record(verdict=verdict, reason="")), finished=finished))

    assert found.record.verdict is expected
    assert len(found.problems) == (expected is INCOMPLETE)


def test_a_run_without_results_says_how_far_it_came_beside_its_reason(tmp_path):
    """Of the largest plan in the journal; nothing where all of them were measured, or the run finished."""
    made = write_raw(tmp_path / "a", run(record=record(verdict=Verdict.TIMEOUT, reason="slow")), finished=False)
    plans = [{"event": "collected", "points": dict.fromkeys(map(str, range(n)), 1)} for n in (5, 8)]
    (made / "bench/journal.jsonl").write_text("".join(json.dumps(plan) + "\n" for plan in [*plans, {"event": "other", "points": {}}]))
    reasons = [collect(made).record.reason]
    (made / "bench/journal.jsonl").write_text(json.dumps({"event": "collected", "points": dict.fromkeys("abc", 1)}) + "\n")
    reasons.append(collect(made).record.reason)

    (made / "bench/journal.jsonl").write_text(json.dumps({"event": "other"}) + "\n")
    (made / "bench/samples.jsonl").write_text("")
    assert collect(made).record.reason == "slow"
    assert reasons == ["slow; 3 of 8 points were measured", "slow"]


def test_waivers_have_a_bound(folder, monkeypatch):
    """In number, and in patterns beside those that fit everything; beyond it their use is not told."""
    found = []
    for most, patterns in ((1, 1), (0, 1), (1, 0)):
        monkeypatch.setattr(raw_folder, "_MAX_WAIVERS", most)
        monkeypatch.setattr(raw_folder, "_MAX_PATTERNS", patterns)
        found.append(collect(folder))

    assert [bool(each.gates) for each in found] == [True, False, False]
    assert [len(each.problems) for each in found] == [0, 1, 1]
    assert found[1].problems[0].startswith("job.json: ")


def test_architectures_have_a_bound(folder, monkeypatch):
    """The first ones are kept; a fault that the file has already stays."""
    monkeypatch.setattr(raw_folder, "_MAX_ARCHITECTURES", 2)
    rows = [compiled(name) for name in ("a", "b", "a", "c")]
    (folder / "compile/kernels.jsonl").write_text(lines(*rows[:3]))
    within = collect(folder)
    (folder / "compile/kernels.jsonl").write_text(lines(*rows))
    beyond = collect(folder)
    (folder / "compile/kernels.jsonl").write_text("nonsense\n" + lines(*rows))
    broken = collect(folder)

    assert (len(within.compiled), within.problems) == (3, ())
    assert [row.architecture for row in beyond.compiled] == ["a", "b", "a"]
    assert beyond.problems == ("compile/kernels.jsonl: invalid: more than 2 architectures; the first 2 are kept",)
    assert "line 1" in broken.problems[0]


def test_the_search_has_bounds(tmp_path, monkeypatch):
    """Three folders below what is given, and no more of them than are looked into."""
    for name, deep in (("a/b/c/x", True), ("a/b/c/d/y", False)):
        write_raw(tmp_path / str(deep) / name, run())

    assert find_raw([tmp_path / "True" / "a"]) == [tmp_path / "True" / "a/b/c/x"]
    with pytest.raises(InvalidInputError):
        find_raw([tmp_path / "False" / "a"])
    assert find_raw([tmp_path / "False" / "a", tmp_path / "True" / "a"]) == [tmp_path / "True" / "a/b/c/x"]
    monkeypatch.setattr(raw_folder, "MAX_FOLDERS", 3)
    assert find_raw([tmp_path / "True" / "a"])
    monkeypatch.setattr(raw_folder, "MAX_FOLDERS", 2)
    with pytest.raises(InvalidInputError, match="2 folders"):
        find_raw([tmp_path / "True" / "a"])
