"""A run that was ended before its time is taken up again: what it has is kept, the rest is run, and nothing in its folder is obeyed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from light import light_python

from warpwave.collect import collect
from warpwave.errors import InvalidInputError, UsageError
from warpwave.inside.bench import stage
from warpwave.inside.compile.stage import _fresh_rows
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import spawned
from warpwave.records import Architecture, CaseResult, Chosen, CompiledKernel, Job, Sample, Stage, TargetRun, Verdict, dump, to_json
from warpwave.run.resume import check_same, recorded_run_id

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """
import os, time
from pathlib import Path

def test_before():
    pass

def test_fails():
    assert False

def test_under_way():
    mark = Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        time.sleep(600)

def test_after():
    pass
"""


@pytest.fixture
def warpwave(tmp_path):
    """The command in a folder with a package, without interpreter or container."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_op.py").write_text(TESTS)
    (tmp_path / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")
    fixed = [light_python(), "-m", "warpwave", "run", "cpu", "--engine", "local", "--kernels", "package", "--targets", "targets.yml"]

    def start(*more: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "MARK": str(tmp_path / "mark"), "COLUMNS": "200"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*fixed, *more], cwd=tmp_path, env=variables, **pipes)

    return start


@pytest.fixture
def killed(warpwave, tmp_path):
    """A run of which warpwave itself was killed in the middle of a test, once what went before it was on disk."""
    process = warpwave("--out", "out")
    until = time.monotonic() + 120
    junit = tmp_path / "out" / "raw" / "cpu" / "test" / "junit.xml"
    while not ((tmp_path / "mark").exists() and junit.exists() and "test_fails" in junit.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return tmp_path / "out"


def ran(run: TargetRun) -> list[CaseResult]:
    """The cases that had their turn."""
    return [case for case in run.cases if case.verdict is not Verdict.NOT_RUN]


def test_a_killed_harness_leaves_a_valid_bundle_that_is_completed(killed, warpwave):
    """The page from the start says incomplete, and how to go on; resumed, each test has run once, the failed one too."""
    before = collect(killed / "raw" / "cpu")
    output, _ = (process := warpwave("--resume", "out")).communicate(timeout=300)
    after = collect(killed / "raw" / "cpu")
    events = [json.loads(line) for line in (killed / "raw" / "cpu" / "test" / "journal.jsonl").read_text().splitlines()]
    ends = [event["id"] for event in events if event["event"] in ("finish", "death")]

    assert (before.record.verdict, before.record.command[1]) == (Verdict.INCOMPLETE, "run")
    assert "has not ended" in before.record.reason
    assert "--resume" in before.record.hint
    assert [case.id for case in ran(before)] == ["test_op.py::test_before", "test_op.py::test_fails"]
    assert process.returncode == 1, output
    assert [(case.id.rpartition("_")[2], case.verdict.value) for case in after.cases] == [
        ("before", "passed"),
        ("fails", "failed"),
        ("way", "passed"),
        ("after", "passed"),
    ]
    assert sorted(ends) == sorted(set(ends))
    assert (after.record.verdict, after.problems) == (Verdict.FAILED, ())
    assert [attempt.verdict for attempt in after.record.attempts] == [Verdict.INCOMPLETE]
    assert "attempt 1: incomplete" in output

    output, _ = (process := warpwave("--resume", "out")).communicate(timeout=300)
    assert "nothing left to do" in output
    assert (process.returncode, collect(killed / "raw" / "cpu")) == (1, after)


def test_other_kernels_are_not_mixed_in(killed, warpwave, tmp_path):
    """Sources that have changed since: refused, what was finished stays, and the way out is named."""
    with open(tmp_path / "package" / "test_op.py", "a") as file:
        file.write("# changed\n")
    output, _ = (process := warpwave("--resume", "out")).communicate(timeout=300)

    assert process.returncode == 2
    assert "the kernels have changed: 'test_op.py' has changed" in output
    assert "--out" in output
    run = collect(killed / "raw" / "cpu")
    assert (run.record.verdict, run.record.attempts) == (Verdict.INCOMPLETE, ())
    assert [case.verdict for case in ran(run)] == [Verdict.PASSED, Verdict.FAILED]


@pytest.mark.slow
def test_another_environment_is_not_mixed_in(killed, warpwave):
    """What only the inside can see, such as a driver: the run stays as it is, says so, and is incomplete."""
    path = killed / "raw" / "cpu" / "facts.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "driver": "1.0"}))
    (process := warpwave("--resume", "out")).communicate(timeout=300)
    run = collect(killed / "raw" / "cpu")

    assert process.returncode in (1, 4)  # incomplete; a test of it has failed
    assert run.record.verdict is Verdict.INCOMPLETE
    assert "driver has changed from 1.0 to None" in run.record.reason
    assert "--out" in run.record.hint
    assert [case.verdict for case in ran(run)] == [Verdict.PASSED, Verdict.FAILED]


JOB = Job("run-1", "cpu", (Stage.TEST,), "/kernels", "/results")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": (Stage.TEST, Stage.COMPILE)}, ["stages", "'test'", "'test compile'"]),
        ({"quick": True}, ["quick", "'False'", "'True'"]),
        (
            {"chosen": Chosen(("test_x.py::test_y",), ("z.py",), how=("--test", "--deselect-from FILE"))},
            ["its choice of tests was 'none', now it is '--test --deselect-from FILE (1 chosen: test_x.py::test_y; 1 left out: z.py)'"],
        ),
        ({"pytest_args": ("-m=slow",)}, ["its pytest args was '', now it is '-m=slow'"]),
        ({"files": ("test_x.py",)}, ["its part of the package (--shard) was 'None', now it is 'test_x.py'"]),
    ],
)
def test_another_job_is_refused(tmp_path, changes, words):
    """The key, what it was and what it is."""
    dump(JOB, tmp_path / "job.json")
    with pytest.raises(UsageError) as caught:
        check_same(tmp_path, dataclasses.replace(JOB, **changes))

    assert all(word in caught.value.happened for word in words)


def test_places_and_limits_may_be_others(tmp_path):
    """A longer limit is often why one tries again."""
    dump(JOB, tmp_path / "job.json")
    check_same(tmp_path, dataclasses.replace(JOB, kernels="/elsewhere", output="/there", test_limit_s=900.0))


@pytest.mark.parametrize("content", ["{", '{"run_id": "../../x"}', "[]"])
def test_a_folder_that_holds_no_run(tmp_path, content):
    """No folder, no target in it, or pages that cannot be read: three beats and the exit code of each."""
    with pytest.raises(UsageError, match="no run to resume"):
        recorded_run_id(tmp_path)
    (tmp_path / "raw" / "cpu").mkdir(parents=True)
    (tmp_path / "raw" / "cpu" / "run.json").write_text(content)
    with pytest.raises(InvalidInputError):
        recorded_run_id(tmp_path)


def test_a_torn_line_costs_only_itself(tmp_path):
    """What comes after a kill in the middle of a write is not glued to what was left of it."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("finish", id="a")
    with open(journal.path, "ab") as file:
        file.write(b'{"event": "finish", "id": "b", "mess')
    journal.repair()
    journal.write("finish", id="c")

    assert journal.done() == {"a", "c"}


def test_what_a_fresh_worker_compiles_again_is_no_new_row():
    """It starts with nothing loaded; kernels of the worker before it come again under another case's name."""
    card = Architecture("cuda", 90, 32, {}, name="sy_90")

    def kernel(function: str, origin: str) -> dict:
        return {"event": "kernel", "row": dataclasses.asdict(CompiledKernel("op", function, "sy_90", Verdict.PASSED, origin=origin))}

    rows = _fresh_rows()
    events = [{"event": "worker"}, kernel("f", "one"), kernel("g", "two"), {"event": "worker"}, kernel("g", "three"), kernel("h", "three")]
    found = [(row.function, row.origin) for event in events for row in rows(event, card)]

    assert found == [("f", "one"), ("g", "two"), ("h", "three")]


def test_the_sweep_is_written_anew_from_its_journal(tmp_path, monkeypatch):
    """What a kill has torn in the file does not matter; what the journal holds is there once, and is not measured again."""
    (package := tmp_path / "package").mkdir()
    (package / "bench_op.py").write_text("")
    (folder := tmp_path / "bench").mkdir()
    journal = Journal(folder / "journal.jsonl")
    for n in (1, 2):
        sample = Sample(f"op/N={n}", "op", "triton", {"N": n}, 0, Verdict.PASSED, value=8.0 * n)
        journal.write("finish", id=f"op/N={n} [triton]", verdict="passed", reason="", sample=to_json(sample))
    (folder / "samples.jsonl").write_text('{"case": "op/N=1", "ker')
    job = Job("run-1", "cuda", (Stage.BENCH,), str(package), str(tmp_path))
    program = "from warpwave.inside.process.journal import Journal; Journal.from_environment().write('end')"
    monkeypatch.setattr(stage, "spawned", lambda command: spawned([sys.executable, "-c", program]))
    monkeypatch.setattr(stage.ahead, "start", lambda job: None)
    monkeypatch.setattr(sys, "argv", ["measure", "job.json"])
    report = stage.measure(job)

    assert [json.loads(line)["value"] for line in (folder / "samples.jsonl").read_text().splitlines()] == [8.0, 16.0]
    assert (report.verdict, report.counts) == (Verdict.PASSED, {"passed": 2})
