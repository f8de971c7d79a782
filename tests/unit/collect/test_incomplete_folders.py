"""Raw folders of runs that ended early, or of two runs. All data is synthetic."""

import json

import pytest
from synthetic import edit, record, run, sample, write_raw

from warpwave.collect import collect
from warpwave.records import Stage, StageReport, Verdict, to_json


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


def test_a_last_line_that_was_cut_off_is_incomplete_not_invalid(raw):
    """A process that crashed while writing loses only that line."""
    path = raw / "bench/samples.jsonl"
    path.write_bytes(path.read_bytes()[:-200])

    found = collect(raw)

    assert run().samples[:2] == found.samples
    assert Verdict.INCOMPLETE is stage(found, Stage.BENCH).verdict
    assert "cut off" in found.problems[0]


def test_a_cut_off_line_does_not_hide_that_the_stage_timed_out(tmp_path):
    """The stage's own, better explanation stays."""
    reports = (StageReport(Stage.BENCH, Verdict.TIMEOUT, reason="the stage ran longer than 60 s"),)
    raw = write_raw(tmp_path / "alpha", run(stages=reports, record=record(verdict=Verdict.TIMEOUT)))
    path = raw / "bench/samples.jsonl"
    path.write_bytes(path.read_bytes()[:-9])

    assert Verdict.TIMEOUT is stage(collect(raw), Stage.BENCH).verdict


def test_a_folder_without_run_json_is_an_incomplete_target(raw):
    """The host was stopped early: the inside's results are kept, under the folder's name."""
    (raw / "run.json").unlink()

    found = collect(raw)

    assert (found.record.target, found.record.verdict) == ("alpha", Verdict.INCOMPLETE)
    assert run().cases == found.cases


def test_an_empty_folder_is_an_incomplete_target_with_one_problem(tmp_path):
    """A target that crashed before its first line has a row, with a single problem."""
    (tmp_path / "gamma").mkdir()

    found = collect(tmp_path / "gamma")

    assert (found.record.target, found.record.verdict) == ("gamma", Verdict.INCOMPLETE)
    assert found.problems == ("run.json: incomplete: it is missing",)


def test_an_infrastructure_failure_is_not_reported_as_missing_files(tmp_path):
    """If the image could not be built, there is only run.json, and it explains everything."""
    raw = write_raw(tmp_path / "alpha", run(record=record(verdict=Verdict.INFRA, reason="the image could not be built")))
    for path in [*raw.rglob("*.xml"), *raw.rglob("*.jsonl"), raw / "job.json", raw / "stages.json", raw / "facts.json"]:
        path.unlink()

    found = collect(raw)

    assert (found.record.verdict, found.problems) == (Verdict.INFRA, ())


@pytest.mark.parametrize("name", ["stages.json", "job.json"])
@pytest.mark.parametrize("changes", [{"run_id": "run-0"}, {"target": "beta"}])
def test_files_of_two_runs_in_one_folder_are_stale(raw, name, changes):
    """Run id and target decide, not dates."""
    edit(raw / name, **changes)

    found = collect(raw)

    assert Verdict.STALE is found.record.verdict
    assert f"{name} is about" in found.record.reason


def test_a_run_that_did_not_finish_is_incomplete(tmp_path):
    """stages.json exists from the start, so its presence proves nothing."""
    assert Verdict.INCOMPLETE is collect(write_raw(tmp_path / "alpha", run(), finished=False)).record.verdict


def test_a_run_that_ended_in_the_middle_says_how_far_its_benchmarks_came(tmp_path):
    """The journal holds the plan, whatever else it contains. The host's own reason is not a fault of a file."""
    killed = record(verdict=Verdict.INCOMPLETE, reason="the run has not ended")
    folder = write_raw(tmp_path / "alpha", run(record=killed, samples=(sample(), sample(2048))), finished=False)
    plan = {f"softmax/N={n} [triton]": {"case": f"softmax/N={n}", "device": 0} for n in (1024, 2048, 4096)}
    lines = [{"event": "kernel", "row": {}}, {"event": "collected", "at": 1.0, "points": plan}, {"event": "turn", "id": "a"}]
    (folder / "bench" / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"event": "tu')
    found = collect(folder)

    assert (found.record.verdict, found.record.reason) == (Verdict.INCOMPLETE, "the run has not ended; 2 of 3 points were measured")
    assert found.problems == ()


NO_PLAN = ("", "[]\n", '{"event": "collected", "points": 3}\n', '{"event": "collected", "points": {}}\n', "\xff\n")


@pytest.mark.parametrize("journal", NO_PLAN)
def test_a_journal_without_a_plan_tells_nothing(tmp_path, journal):
    """The journal is for resuming and not part of the results, so a broken one is no fault."""
    killed = record(verdict=Verdict.INCOMPLETE, reason="the run has not ended")
    folder = write_raw(tmp_path / "alpha", run(record=killed), finished=False)
    (folder / "bench" / "journal.jsonl").write_text(journal, encoding="latin-1")
    found = collect(folder)

    assert (found.record.reason, found.problems) == ("the run has not ended", ())


def test_a_stage_that_was_asked_for_and_has_no_report_is_not_run(raw):
    """The missing stage has a row, and the target is incomplete."""
    stages = [to_json(report) for report in run().stages if report.stage is not Stage.BENCH]
    (raw / "stages.json").write_text(f'{{"run_id": "run-1", "target": "alpha", "finished": true, "reports": [{", ".join(stages)}]}}')

    found = collect(raw)

    assert (stage(found, Stage.BENCH).verdict, found.record.verdict) == (Verdict.NOT_RUN, Verdict.INCOMPLETE)


@pytest.mark.parametrize("name", ["test/junit.xml", "bench/samples.jsonl", "compile/kernels.jsonl", "facts.json"])
def test_a_stage_that_passed_and_left_no_file_is_incomplete(raw, name):
    """Exit code 0 proves nothing."""
    (raw / name).unlink()

    found = collect(raw)

    assert (f"{name}: incomplete: it is missing",) == found.problems
    assert [report.verdict for report in found.stages if report.verdict is not Verdict.PASSED] == [Verdict.INCOMPLETE]


def test_a_missing_ceiling_is_no_fault(raw):
    """Without a ceiling there are no shares, but all numbers stay valid."""
    (raw / "bench/ceilings.jsonl").unlink()

    assert (run().samples, ()) == (collect(raw).samples, collect(raw).problems)
