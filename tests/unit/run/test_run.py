"""One target from prepare to record, with engines that misbehave: whatever happens, `run.json` says so and nothing else is touched."""

import contextlib
import io
import itertools
import json
import os
import signal
import time
from dataclasses import replace

import pytest
from engine_requests import having, make_job, make_options
from rich.console import Console

from warpwave.cli import progress as progress_module
from warpwave.cli.progress import LegsView, Progress
from warpwave.cli.run import _cut_short
from warpwave.compare.known import Entry as KnownEntry
from warpwave.compare.known import Known
from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.engines import waiting
from warpwave.engines.choose import choose_engine
from warpwave.engines.protocol import Layout
from warpwave.errors import ExitCode, InfrastructureError, UnreachableError, UsageError
from warpwave.records import (
    Chosen,
    Environment,
    Exit,
    GateLimits,
    Gates,
    Job,
    PytestSettings,
    Rule,
    Shard,
    Stage,
    StageReport,
    Stages,
    Verdict,
    Waiver,
    Which,
    dump,
    from_json,
    to_json,
)
from warpwave.records.registry import Entry
from warpwave.report import make_report
from warpwave.run import attempt as attempt_module
from warpwave.run import cards as lease_module
from warpwave.run import legs as leg_process
from warpwave.run import legs as side_by_side
from warpwave.run import run_target
from warpwave.run.attempt import Ending, diagnose
from warpwave.run.choice import missing
from warpwave.run.legs import Leg, lanes, run_side_by_side
from warpwave.run.shards import NOTHING, divide, files_of, part_of


class FakeEngine:
    name = "docker"

    def __init__(self, act):
        self.act = act

    def prepare(self, request, say):
        return Environment(engine="fake", python="python3")

    def layout(self, request):
        return Layout("/harness", "/kernels", "/results")

    def execute(self, request, environment, on_line):
        return environment, self.act(request.raw, on_line) or Exit(0, 1.0)


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    """Run the cpu target on a fake engine; returns the record and what is on disk."""

    def run(act, stages=()):
        monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: FakeEngine(act))
        settings = make_options("run-1", tmp_path / "out", tmp_path, stages=stages)
        record = run_target(load_targets()["cpu"], settings, lambda line: None, lambda event: None)
        return record, json.loads((tmp_path / "out" / "raw" / "cpu" / "run.json").read_text())

    return run


def finish(raw, verdict=Verdict.PASSED):
    reports = (StageReport(Stage.FACTS, Verdict.PASSED, exit_code=0), StageReport(Stage.TEST, verdict, exit_code=0))
    dump(Stages("run-1", "cpu", True, reports), raw / "stages.json")


def test_a_stage_that_the_target_lacks_is_on_record(outcome):
    """Asked for beside others, it is left out. A reader must not take it for done."""
    asked, _ = outcome(lambda raw, on_line: finish(raw), (Stage.TEST, Stage.BENCH))

    assert asked.environment.notes == ("it has no stage bench, so that was left out",)


@pytest.mark.parametrize(
    ("error", "reason", "log"),
    [
        (InfrastructureError("The engine is gone.", "It was stopped.", "Start it."), "The engine is gone. It was stopped.", None),
        (KeyError("surprise"), "warpwave itself failed: KeyError", "surprise"),
    ],
)
def test_an_engine_that_cannot_or_a_fault_of_ours_is_on_record(outcome, tmp_path, error, reason, log):
    def act(raw, on_line):
        raise error

    record, _ = outcome(act)

    assert (record.verdict, record.reason[: len(reason)]) == (Verdict.INFRA, reason)
    assert record.hint == "Start it." or log in (tmp_path / "out" / "raw" / "cpu" / "engine.log").read_text()


def test_a_planted_link_is_not_followed(outcome, tmp_path):
    """Code under test owns the folder while it runs: links there must not let it write elsewhere through us."""
    victim = tmp_path / "victim"
    victim.write_text("mine")

    def act(raw, on_line):
        for name in ("engine.log", "run.json"):
            (raw / name).unlink(missing_ok=True)
            (raw / name).symlink_to(victim)
        on_line("ssh-rsa attacker's key")
        finish(raw)

    record, _ = outcome(act)

    assert victim.read_text() == "mine"
    assert record.verdict is Verdict.PASSED
    assert "attacker" in (tmp_path / "out" / "raw" / "cpu" / "engine.log").read_text()


@pytest.mark.parametrize("kind", ["folder", "pipe", "other"])
def test_what_the_host_wrote_is_there_again_at_the_end(outcome, tmp_path, kind):
    """Code under test may replace it by anything; the record is the one that the host has."""
    made = {}

    def act(raw, on_line):
        for name in ("run.json", "job.json", "inputs.json", "engine.log"):
            if name != "engine.log":
                made[name] = (raw / name).read_text()
                (raw / name).unlink()
            if kind == "folder":
                (raw / name / "deep").mkdir(parents=True)
                (raw / name / "deep" / "run.json").write_text("{}")
            elif kind == "pipe":
                os.mkfifo(raw / name)
            else:
                (raw / name).write_text("{}")
        on_line("noise")
        finish(raw)

    record, written = outcome(act)
    raw = tmp_path / "out" / "raw" / "cpu"

    assert (record.verdict, written["verdict"]) == (Verdict.PASSED, "passed")
    assert {name: (raw / name).read_text() for name in ("job.json", "inputs.json")} == {
        name: made[name] for name in ("job.json", "inputs.json")
    }
    assert (raw / "engine.log").read_text() == "noise\n"
    assert sorted(path.name for path in raw.iterdir()) == ["engine.log", "inputs.json", "job.json", "run.json", "stages.json"]


def test_a_second_attempt_knows_the_first_from_memory(outcome):
    """A package that forges run.json cannot forge what the host remembers of its own attempt."""
    acts = [lambda raw: (raw / "run.json").write_text("{}") and Exit(None, 1.0, error="the connection broke"), finish]

    record, written = outcome(lambda raw, on_line: acts.pop(0)(raw))

    assert record.verdict is Verdict.PASSED
    assert [attempt["verdict"] for attempt in written["attempts"]] == ["infra"]


def unusable(raw):
    reports = (StageReport(Stage.FACTS, Verdict.INFRA, reason="no card", exit_code=0), StageReport(Stage.TEST, Verdict.NOT_RUN))
    dump(Stages("run-1", "cpu", True, reports), raw / "stages.json")


@pytest.mark.parametrize(
    ("first", "attempts"),
    [
        (lambda raw: Exit(None, 1.0, error="the connection broke"), 2),
        (lambda raw: Exit(None, 1.0), 2),
        (lambda raw: finish(raw, Verdict.INFRA), 2),  # a card that was lost in the middle
        (lambda raw: Exit(None, 1.0, timed_out=True, error="survives SIGKILL"), 1),
        (lambda raw: Exit(None, 1.0, interrupted=True, error="the connection broke"), 1),
        (lambda raw: Exit(127, 1.0), 1),
        (lambda raw: Exit(74, 1.0), 1),
        (unusable, 1),
        (lambda raw: finish(raw, Verdict.FAILED), 1),
        (lambda raw: finish(raw, Verdict.CRASHED), 1),
        (lambda raw: Exit(139, 1.0), 1),
    ],
)
def test_only_what_broke_in_the_middle_is_tried_again_and_once(outcome, first, attempts):
    """In a fresh container, with both attempts on record; a failed test, a limit, the user's will and a bad machine have one."""
    acts = [lambda raw: first(raw), lambda raw: finish(raw)]
    done = []

    def act(raw, on_line):
        done.append(raw)
        return acts[len(done) - 1](raw)

    record, written = outcome(act)

    assert len(done) == attempts
    assert len(written["attempts"]) == attempts - 1
    assert (record.verdict is Verdict.PASSED) == (attempts == 2)
    assert all(attempt.verdict is Verdict.INFRA for attempt in record.attempts)


def test_twice_is_enough(outcome):
    record, _ = outcome(lambda raw, on_line: Exit(None, 1.0, error="the connection broke"))

    assert (record.verdict, len(record.attempts)) == (Verdict.INFRA, 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": 1}', '{"finished": true}', "[" * 100_000])
def test_stages_that_cannot_be_read_are_incomplete(outcome, content):
    record, _ = outcome(lambda raw, on_line: (raw / "stages.json").write_text(content) and None)

    assert record.verdict is Verdict.INCOMPLETE


EVENTS = [
    {"event": "stage-end", "stage": 5, "verdict": None, "seconds": "long"},
    {"event": "stage-end", "stage": "test", "left_out": 3, "counts": {"\x1b": "many"}, "not_run": {"\x1b": [], "skipped": "2"}},
    {"event": "case", "id": "\x1b[2Jgone", "done": {}, "total": []},
    {"event": "result", "verdict": [1], "id": None},
    {"event": 7},
]


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_events_may_hold_anything(event):
    """Progress neither fails on a forged event nor passes its escape sequences on."""
    text = io.StringIO()
    with Progress(Console(file=text, force_terminal=False), "cpu") as progress:
        progress.on_event(event)

    assert "\x1b" not in text.getvalue()


def shown_by(known, *events):
    text = io.StringIO()
    with Progress(Console(file=text, force_terminal=False), "cpu", known=known) as progress:
        for event in events:
            progress.on_event(event)
    return text.getvalue()


ENDED = {"event": "stage-end", "seconds": 1.0, "verdict": "failed"}


@pytest.mark.parametrize(
    ("failing", "word"),
    [
        (["test_x.py::test_listed"], "known"),
        (["test_x.py::test_listed", "test_x.py::test_new"], "failed"),
    ],
)
def test_a_known_failure_is_not_called_failed_while_it_runs(failing, word):
    """Neither the test nor its stage; a new failure beside it is."""
    known = Known((KnownEntry(("test", "failed", "test_x.py::test_listed"), "cpu"),))
    results = [{"event": "result", "stage": "test", "id": test, "verdict": "failed"} for test in failing]
    text = shown_by(known, {"event": "stage", "stage": "test"}, *results, {**ENDED, "stage": "test"})

    assert text.splitlines()[-1].split()[2] == word
    assert ("failed" in text) == (word == "failed")
    assert "test_listed" not in text


def test_a_stage_whose_kernels_may_be_known_failures_is_not_called_failed():
    """Which of its rows fail is known at the end; without an entry about it, it failed. Tests end by events of their own."""
    known = Known((KnownEntry(("kernel", "a", "gfx942", "k", "f"), "cpu"), KnownEntry(("test", "failed", "test_x.py::test_y"), "cpu")))

    assert ": compile ended" in " ".join(shown_by(known, {**ENDED, "stage": "compile"}).split())
    for entries, stage in ((known, "bench"), (None, "compile"), (known, "test")):
        assert "failed" in shown_by(entries, {"event": "stage", "stage": stage}, {**ENDED, "stage": stage})


@pytest.mark.parametrize(
    ("event", "left"),
    [
        ({"done": 10, "total": 40}, 30.0),
        ({"done": 10, "share": 0.25}, 30.0),  # the compile stage does not know how many binaries there will be
        ({"done": 2, "share": 0.25}, None),
        ({"done": 10, "share": float("nan")}, None),
        ({"done": 10}, None),
    ],
    ids=str,
)
def test_the_time_that_is_left_is_estimated_from_what_is_done(event, left):
    """After 10 s, with a total or with a share."""
    assert progress_module._estimate(event, 10.0) == (f", about 0:{left:02.0f} left" if left else "")


@pytest.mark.parametrize("local_gpus", [True, False])
def test_only_an_engine_with_local_gpus_locks_them(local_gpus, tmp_path, monkeypatch):
    """An engine that runs the job elsewhere takes no card of this machine away from other runs."""
    locked = []

    def gpus(target, *_):
        locked.append(target)
        return contextlib.nullcontext()

    monkeypatch.setattr(lease_module, "gpus", gpus)
    monkeypatch.setattr(lease_module, "ENGINES", {"docker": Entry("", local_gpus=local_gpus, container=True)})
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: FakeEngine(lambda raw, on_line: finish(raw)))
    options = make_options("run-1", tmp_path / "out", tmp_path)
    run_target(load_targets()["cuda"], options, lambda line: None, lambda event: None)

    assert locked == (["cuda"] if local_gpus else [])


@pytest.mark.parametrize("choice", [None, False, True])
def test_memory_is_checked_without_a_card_by_default_and_with_one_if_asked(choice):
    job = make_job("r", "t", (), "/kernels", "/out", sanitize=choice)
    emulated = having(job, emulate=load_targets()["gfx942-emulated"].emulate)

    assert [each.sanitizes for each in (having(job, interpret=True), emulated, job)] == [choice is not False] * 2 + [choice is True]


# `--shard I/N`: every job puts each file into the same one shard, and no shard gets much more than another.


WHOLE_JOB = make_job(
    *("r", "t", (Stage.TEST, Stage.COMPILE), "/kernels", "/out"),
    chosen=Chosen(("test_x.py::test_y",), how=("--test",)),
    gates=Gates(rules=(Rule(Which(("softmax",)), GateLimits(spills=4)),), waivers=(Waiver("spills", "why", Which()),)),
    architectures=load_targets()["cpu"].architectures,
    device_faults={"hang": Verdict.GPU_HANG},
    pytest=PytestSettings(file="pyproject.toml", testpaths=("tests",)),
    test_s=5,
)


def test_a_job_comes_back_as_it_was():
    """The inside reads without pydantic what the host wrote: every group, every record in it."""
    assert from_json(Job, to_json(WHOLE_JOB)) == WHOLE_JOB

    raw = json.loads(to_json(WHOLE_JOB))
    del raw["target"]
    with pytest.raises(ValueError, match="'target'"):
        from_json(Job, json.dumps(raw))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"run_id": 1}, "Job.run_id: 1 is not str"),
        ({"what": {"quick": "yes"}}, "Job.what.quick: 'yes' is not bool"),
        ({"what": {"quick": 1}}, "Job.what.quick: 1 is not bool"),
        ({"gpus": True}, "Job.gpus: True is not int"),
        ({"what": {"stages": ["test", "dance"]}}, r"Job.what.stages\[1\]: 'dance' is not Stage"),
        ({"what": {"chosen": {"tests": [1]}}}, r"Job.what.chosen.tests\[0\]: 1 is not str"),
        ({"limits": {"test_s": None}}, "Job.limits.test_s: None is not float"),
        ({"declared": {"pytest": []}}, r"Job.declared.pytest: \[\] is not PytestSettings"),
        ({"quick": True}, "Job.quick: there is no such key"),
        ({"what": {"gates": {"limits": {}, "extra": 1}}}, "Job.what.gates.extra: there is no such key"),
    ],
)
def test_a_job_of_another_form_is_refused(change, where):
    with pytest.raises(ValueError, match=where):
        from_json(Job, json.dumps({**json.loads(to_json(WHOLE_JOB)), **change}))


@pytest.fixture
def package(tmp_path):
    """Eight test files in tests/, one of them large, a bench beside them, and a helper."""
    for number in range(8):
        path = tmp_path / "p" / "tests" / f"test_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#" * (900 if number == 5 else 100))
    (tmp_path / "p" / "bench_[x].py").write_text("#" * 100)
    (tmp_path / "p" / "tests" / "helper.py").write_text("#")
    return make_options("run", tmp_path / "out", tmp_path / "p")


def _parts(options, of):
    return [part_of(options, Shard(number, of)) for number in range(1, of + 1)]


@pytest.mark.parametrize("of", [1, 2, 3, 8, 20])
def test_each_file_is_in_one_shard(package, of):
    """Also if there are more shards than files; a bench is a pattern in its own shard only."""
    parts = _parts(package, of)
    found = [path for part in parts for path in part.files]

    assert sorted(found) == files_of(package)
    assert len(found) == 9
    assert sum(bool(part.files) for part in parts) == min(of, 9)
    assert [part.benches for part in parts].count((NOTHING,)) == of - 1
    assert ("bench_[[]x].py",) in [part.benches for part in parts]
    assert len({part.division for part in parts}) == 1


def test_shards_are_balanced_by_size_and_by_time(package):
    large, small = sorted(_parts(package, 2), key=lambda part: len(part.files))

    assert large.files == ("tests/test_5.py",)
    assert len(small.files) == 8

    # What an earlier run measured counts; a file that it did not have is estimated by its size.
    timed = {f"tests/test_{number}.py": 1.0 for number in range(7)} | {"tests/test_0.py": 60.0, "[x]": 30.0}
    parts = _parts(having(package, shard_times=timed), 3)

    assert sorted(part.files for part in parts)[:2] == [("bench_[x].py",), ("tests/test_0.py",)]
    assert {part.division for part in parts} != {part.division for part in _parts(package, 3)}

    # Otherwise one shard would have all of the twelve tests that were asked for.
    chosen = Chosen(tests=("tests/test_1.py::test_a", "tests/test_2.py", "tests/test_3.py::test_b[x/y]"), how=("--test",))
    parts = _parts(having(package, chosen=chosen, benches=()), 3)

    assert sorted(part.files for part in parts) == [("tests/test_1.py",), ("tests/test_2.py",), ("tests/test_3.py",)]


@pytest.mark.parametrize(("stage", "ran"), [(Stage.BENCH, "bench_"), (Stage.TEST, "tests/")])
def test_what_no_chosen_stage_runs_takes_no_share(package, stage, ran):
    """Large test files took a whole shard of a run that measures only, and the benches shared the other one."""
    for number in range(3):
        (package.package.kernels / f"bench_{number}.py").write_text("#" * 50)
    parts = _parts(having(package, stages=(stage,)), 4)
    counts = [sum(path.startswith(ran) for path in part.files) for part in parts]

    assert sum(counts) == {"bench_": 4, "tests/": 8}[ran]
    assert max(counts) - min(counts) <= (0 if stage is Stage.BENCH else 2)


def test_the_division_is_the_same_in_any_order():
    weights = {f"test_{number}.py": float(number % 4) for number in range(40)}
    backwards = dict(reversed(weights.items()))
    loads = [sum(weights[path] for path in share) for share in divide(weights, 6)]

    assert divide(weights, 6) == divide(backwards, 6)
    assert max(loads) - min(loads) <= 3
    assert sorted(len(share) for share in divide(dict.fromkeys(weights, 0.0), 6)) == [6, 6, 7, 7, 7, 7]


# A test that its file does not have is refused before anything starts; one that it may have is not.

FILE = """
import torch
from base import Shared, test_imported
def test_add(): ...
class TestAll:
    def test_one(self): ...
class TestMore(Shared): ...
"""


@pytest.mark.parametrize(
    "name",
    ["test_add", "test_add[1::2-nowhere]", "TestAll::test_one", "TestMore::test_inherited", "test_imported", "module", "test_ops", "a.b"],
)
def test_what_may_be_there_is_let_through(tmp_path, name):
    (tmp_path / "test_ops.py").write_text(FILE)
    assert missing(f"test_ops.py::{name}", tmp_path) is None


@pytest.mark.parametrize(
    ("name", "where", "close"),
    [
        ("test_ad", "<Module test_ops.py>", "; did you mean test_add?"),
        ("test_ad[(1, 2)]", "<Module test_ops.py>", "; did you mean test_add?"),
        ("TestAll::test_nothing_like_it", "<Class TestAll>", ""),
        ("zzz", "<Module test_ops.py>", ""),
    ],
)
def test_what_cannot_be_there_is_told_in_pytests_words(tmp_path, name, where, close):
    (tmp_path / "test_ops.py").write_text(FILE)

    assert missing(f"test_ops.py::{name}", tmp_path) == f"not found: test_ops.py::{name} (no match in any of [{where}]){close}"


# How a run ended → its verdict: the table, row by row, and the promise that every ending has a row.

FACTS = StageReport(Stage.FACTS, Verdict.PASSED, 1.0, exit_code=0)
PASSED = StageReport(Stage.TEST, Verdict.PASSED, 9.0, exit_code=0)
FAILED = StageReport(Stage.TEST, Verdict.FAILED, 9.0, "2 of 9 tests failed", "see junit.xml", 0)
KILLED = StageReport(Stage.TEST, Verdict.CRASHED, 9.0, "its process was killed by SIGKILL", "", -9)
WAITING = StageReport(Stage.BENCH, Verdict.NOT_RUN, reason="the run ended before this stage")
NOTHING_COLLECTED = StageReport(Stage.TEST, Verdict.NOT_RUN, 1.5, "no test was found", "", 0)
BENCHED = StageReport(Stage.BENCH, Verdict.PASSED, 9.0, exit_code=0)
NO_DEVICE = StageReport(Stage.FACTS, Verdict.INFRA, 2.0, "torch sees no device", "look at the driver", 0)


def stages(*reports: StageReport, finished: bool = True) -> Stages:
    return Stages("r1", "t", finished, reports)


GOOD = stages(FACTS, PASSED)
CUT = stages(FACTS, WAITING, finished=False)
TABLE = [
    ("a finished run with good stages", Exit(0, 9), GOOD, Verdict.PASSED, ""),
    ("exit 0 without any stages file", Exit(0, 9), None, Verdict.INCOMPLETE, "no readable stages.json"),
    ("exit 0 in the middle of a stage", Exit(0, 9), CUT, Verdict.INCOMPLETE, "in stage bench"),
    ("failed tests", Exit(0, 9), stages(FACTS, FAILED), Verdict.FAILED, "test: 2 of 9 tests failed"),
    ("the worst stage speaks", Exit(0, 9), stages(FACTS, FAILED, KILLED), Verdict.CRASHED, "killed by SIGKILL"),
    ("nothing collected", Exit(0, 9), stages(FACTS, NOTHING_COLLECTED), Verdict.NOT_RUN, "no test was found"),
    ("no test found beside a good bench", Exit(0, 9), stages(FACTS, NOTHING_COLLECTED, BENCHED), Verdict.NOT_RUN, "test: no test was"),
    ("no bench found beside good tests", Exit(0, 9), stages(FACTS, PASSED, WAITING), Verdict.PASSED, ""),
    ("facts alone", Exit(0, 9), stages(FACTS), Verdict.NOT_RUN, "no stage"),
    ("an unusable environment", Exit(0, 9), stages(NO_DEVICE, WAITING), Verdict.INFRA, "facts: torch sees no device"),
    ("no stage at all", Exit(0, 9), stages(), Verdict.NOT_RUN, "no stage"),
    ("137 with the engine's out-of-memory flag", Exit(137, 9, oom_killed=True), CUT, Verdict.OOM, "past 18.8 GiB, in stage bench"),
    ("137 alone", Exit(137, 9), CUT, Verdict.INCOMPLETE, "SIGKILL (exit code 137), a kill from outside"),
    ("a full disk", Exit(74, 9), CUT, Verdict.INFRA, "could not be written"),
    ("-9 from the local engine", Exit(-9, 9), None, Verdict.INCOMPLETE, "SIGKILL (exit code -9)"),
    ("the flag, and a stage that was killed", Exit(0, 9, oom_killed=True), stages(FACTS, KILLED), Verdict.OOM, "out-of-memory"),
    ("the flag alone, which a container keeps for good", Exit(0, 9, oom_killed=True), GOOD, Verdict.PASSED, ""),
    ("the flag beside another signal", Exit(139, 9, oom_killed=True), CUT, Verdict.CRASHED, "SIGSEGV"),
    ("a segmentation fault", Exit(139, 9), CUT, Verdict.CRASHED, "SIGSEGV (exit code 139), a segmentation fault"),
    ("an abort", Exit(134, 9), CUT, Verdict.CRASHED, "SIGABRT (exit code 134)"),
    ("a signal without words", Exit(128 + 10, 9), None, Verdict.CRASHED, "SIGUSR1"),
    ("the limit", Exit(130, 9, timed_out=True), CUT, Verdict.TIMEOUT, "limit of 60 s, in stage bench"),
    ("the limit, and a clean exit on request", Exit(0, 9, timed_out=True), GOOD, Verdict.TIMEOUT, "limit of 60 s"),
    ("the limit, a stage before it had nothing to do", Exit(137, 9, timed_out=True), stages(NOTHING_COLLECTED, WAITING, finished=False),
     Verdict.TIMEOUT, "in stage bench"),
    ("Ctrl-C", Exit(130, 9, interrupted=True), CUT, Verdict.INCOMPLETE, "stopped by the user"),
    ("Ctrl-C after everything was done", Exit(0, 9, interrupted=True), GOOD, Verdict.INCOMPLETE, "stopped by the user"),
    ("the connection broke", Exit(None, 9, error="the connection broke"), GOOD, Verdict.INFRA, "the connection broke"),
    ("cannot be killed at its limit", Exit(None, 9, timed_out=True, error="survives SIGKILL"), CUT, Verdict.INFRA, "survives SIGKILL"),
    ("an engine that does not know", Exit(None, 9), GOOD, Verdict.INFRA, "does not know"),
    ("a program that is not there", Exit(127, 9), None, Verdict.INFRA, "not found"),
    ("a program that is none", Exit(126, 9), None, Verdict.INFRA, "not executable"),
    ("the harness inside failed", Exit(1, 9), CUT, Verdict.CRASHED, "exit code 1"),
    ("-11 from the local engine", Exit(-11, 9), None, Verdict.CRASHED, "SIGSEGV (exit code -11), a segmentation fault"),
    ("a signal that has no sentence", Exit(-10, 9), None, Verdict.CRASHED, "SIGUSR1 (exit code -10), a signal"),
    ("a bus error", Exit(135, 9), None, Verdict.CRASHED, "SIGBUS (exit code 135), a bus error"),
    ("a request to stop", Exit(143, 9), None, Verdict.CRASHED, "SIGTERM (exit code 143), a request to stop"),
    ("the flag, and no killed stage is known", Exit(0, 9, oom_killed=True), None, Verdict.INCOMPLETE, "no readable stages.json"),
    ("the flag, and a stage that ended by itself", Exit(0, 9, oom_killed=True), stages(FACTS, FAILED), Verdict.FAILED, "test: 2 of 9"),
    ("too many results", Exit(0, 9, exceeded="it wrote more than 1 MiB"), CUT, Verdict.CRASHED, "ended because it wrote more than 1 MiB"),
    ("too many results, and nobody knows the end", Exit(None, 9, error="gone", exceeded="x"), None, Verdict.INFRA, "gone"),
    ("too many results, and Ctrl-C", Exit(130, 9, interrupted=True, exceeded="x"), None, Verdict.INCOMPLETE, "stopped by the user"),
    ("a stage that gives no reason", Exit(0, 9), stages(FACTS, replace(FAILED, reason="")), Verdict.FAILED, "test: failed"),
    ("the first of two stages that wait", Exit(1, 9), stages(FACTS, replace(WAITING, stage=Stage.TEST), WAITING, finished=False),
     Verdict.CRASHED, "exit code 1, in stage test"),
    ("255, as some engines make up", Exit(255, 9), GOOD, Verdict.CRASHED, "exit code 255"),
]  # fmt: skip


@pytest.mark.parametrize(("ended", "reports", "verdict", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(ended: Exit, reports: Stages | None, verdict: Verdict, reason: str):
    found = diagnose(ended, reports, 60.0, "18.8 GiB")
    assert found.verdict is verdict
    assert reason in found.reason
    assert bool(found.reason) is (verdict is not Verdict.PASSED)
    assert found.hint == found.hint.strip()
    assert found.hint.endswith(".") or (ended.code == 0 and (verdict is Verdict.PASSED or (reports is not None and reports.finished)))


@pytest.mark.parametrize(
    "ended",
    [
        *(Exit(1, 9), Exit(139, 9), Exit(137, 9), Exit(74, 9), Exit(137, 9, oom_killed=True)),
        *(Exit(0, 9, timed_out=True), Exit(0, 9, interrupted=True), Exit(0, 9, exceeded="x")),
    ],
    ids=str,
)
def test_the_stage_that_was_running_is_named(ended: Exit):
    """Behind the reason, if the stages say which; a run that finished was in none, nor was one whose stages were all reached."""
    known = diagnose(ended, CUT, 60.0, "").reason

    assert known.endswith(", in stage bench")
    for reports in (None, GOOD, stages(FACTS, PASSED, finished=False)):
        assert diagnose(ended, reports, 60.0, "").reason == known.removesuffix(", in stage bench")


def test_only_one_ending_passes():
    codes = (None, 0, 1, 2, 126, 127, 128, 134, 137, 139, 255, -9, -11, 1000)
    for code, oom, late, stopped, error, reports in itertools.product(
        codes, (False, True), (False, True), (False, True), ("", "x"), (None, CUT, GOOD, stages(FACTS, FAILED), stages(KILLED))
    ):
        found = diagnose(Exit(code, 1.0, oom, late, stopped, error), reports, 60.0, "")
        undisturbed = code == 0 and not late and not stopped and not error
        assert (found == Ending(Verdict.PASSED)) == (undisturbed and reports is GOOD)
        assert found.reason or found.verdict is Verdict.PASSED


# Legs side by side: a process and a log for each, one signal for all, and a leg that fails to start costs the others nothing.

# Stands for the Python of the kernels: has everything, and runs until somebody ends it, or as long as LASTS says.
INSIDE = """#!/bin/sh
[ "$1" = -c ] && { [ $# = 2 ] && echo "{}"; exit 0; }
echo '{"event": "stage", "stage": "test"}'
echo '{"event": "case", "stage": "test", "done": 3, "total": 9, "id": "test_op.py::test_x"}'
exec sleep LASTS
"""


class Watcher(LegsView):
    """Notes what the view gets, and draws nothing."""

    def __init__(self, legs, act=None, terminal=False):
        self.out, self.act, self.told = io.StringIO(), act or (lambda leg, what: None), []
        super().__init__(Console(file=self.out, force_terminal=terminal, width=100, height=20), legs)

    def started(self, leg):
        super().started(leg)
        self.told.append((leg.name, "started"))

    def on_event(self, leg, event):
        super().on_event(leg, event)
        self.act(leg, event["event"])

    def ended(self, leg, verdict, reason):
        super().ended(leg, verdict, reason)
        self.told.append((leg.name, verdict))


@pytest.fixture
def legs(tmp_path):
    """Legs of the target cpu by name, whose insides last for the given seconds."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text("def test_x(): pass\n")

    def make(*names, lasts=0, **more):
        python = tmp_path / f"inside-{lasts}"
        python.write_text(INSIDE.replace("LASTS", str(lasts)))
        python.chmod(0o755)
        options = make_options("run-1", tmp_path / "out", package, engine="local", python=str(python), stages=(Stage.TEST,), **more)
        options = having(options, commit="abc", snapshot="0123")
        cpu = load_targets()["cpu"]
        return [
            Leg(replace(cpu, name=name, entry="cpu"), having(options, host=Host(name=name, target="cpu", ssh=f"{name}.example")))
            for name in names
        ]

    return make


def run(legs, watcher=None):
    watcher = watcher or Watcher(legs)
    with watcher:
        records, refused = run_side_by_side([[leg] for leg in legs], watcher)
    return {record.target: record for record in records}, refused, watcher


@pytest.fixture(autouse=True)
def local(monkeypatch):
    """The legs' hosts are other machines by name only; `gone` does not answer."""

    def choose(asked, target, say, host=None):
        if target.name == "gone":
            raise UnreachableError("gone.example does not answer.", "It is switched off.", "Switch it on.")
        if target.name == "wrong":
            raise UsageError("No.", "It cannot be.", "Do not.")
        if target.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        say("pending: Priority, estimated 14:05")
        return choose_engine("local", target, say)

    monkeypatch.setattr(attempt_module, "choose_engine", choose)
    monkeypatch.setattr(side_by_side, "take_once", lambda options: None)
    yield
    waiting._state.signals.clear()  # of this process, which lives on


def test_a_leg_that_cannot_start_costs_the_others_nothing(legs):
    """Unreachable is absent with its reason; refused, killed and run are each what they are, in one report with exit code 3."""
    made = legs("fine", "gone", "wrong", "killed")
    records, refused, watcher = run(made)
    report = make_report([made[0].options.where.out], made[0].options.where.out, [leg.name for leg in made], list(records.values()))
    verdicts = {target.target: target.verdict for target in report.comparison.targets}

    assert set(records) == {"fine", "gone"}
    assert (records["gone"].verdict, records["gone"].reason[:28]) == (Verdict.ABSENT, "gone.example does not answer")
    assert [error.happened for error in refused] == ["No."]
    assert verdicts["gone"] is Verdict.ABSENT
    assert verdicts["killed"] is Verdict.INCOMPLETE
    assert "gone is absent (gone.example does not answer" in report.comparison.sentence
    assert report.comparison.exit_code == ExitCode.INFRASTRUCTURE
    assert {"fine": "started", "killed": "incomplete"}.items() <= dict(watcher.told[:4]).items() | dict(watcher.told[4:]).items()


def test_every_leg_has_one_commit_one_snapshot_and_its_host(legs):
    made = legs("left", "right")
    records, _, _ = run(made)
    report = make_report([made[0].options.where.out], made[0].options.where.out, ["left", "right"], list(records.values()))

    assert {(record.commit, record.snapshot) for record in records.values()} == {("abc", "0123")}
    assert [(target.host, target.snapshot) for target in report.comparison.targets] == [("left.example", "0123"), ("right.example", "0123")]
    assert "0123" in (made[0].options.where.out / "comparison.html").read_text()


def test_one_signal_stops_every_leg_and_starts_no_other(legs):
    """Each stops as a run of its own would, its record says so, and nothing is left running."""
    first, second, third = legs("left", "right", "later", lasts=60)
    seen = set()

    def stop(leg, event):
        seen.add(leg.name)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic()
    with Watcher([first, second, third], stop) as watcher:
        records, _ = run_side_by_side([[first, third], [second]], watcher)

    assert time.monotonic() - began < 30  # the insides would last for a minute
    assert sorted(record.target for record in records) == ["left", "right"]
    assert all(record.verdict is Verdict.INCOMPLETE and record.exit.interrupted for record in records)
    assert ("later", "started") not in watcher.told
    assert waiting.terminated()
    sentence = make_report([first.options.where.out], first.options.where.out, ["left", "right", "later"], records).comparison.sentence
    assert _cut_short(records, []).lead(sentence) == sentence  # which says why it stopped, once


def test_a_leg_ends_with_its_client(legs, tmp_path):
    """If the client is killed, each leg's process gets a signal, stops its kernels and records it."""
    (leg,) = legs("left", lasts=60)
    told = tmp_path / "told"
    client = os.fork()
    if client == 0:
        child = leg_process.LegProcess(leg)
        while not any(kind == leg_process.EVENT for kind, _ in child.read()):
            pass
        told.write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(client, 0)
    until = time.monotonic() + 30
    while (record := json.loads((leg.raw / "run.json").read_text()))["exit"] is None or "had ended" in record["reason"]:
        assert time.monotonic() < until
        time.sleep(0.05)

    assert (record["verdict"], record["exit"]["interrupted"]) == ("incomplete", True)


PLACES = {
    "this machine's share its cores and cards": ([None, Host(name="b", target="b", engine="podman")], [[0, 1]]),
    "two machines": ([Host(name="a", target="a", ssh="x"), Host(name="b", target="b", ssh="y"), None], [[0], [1], [2]]),
    "one machine over ssh": ([Host(name="a", target="a", ssh="x"), Host(name="b", target="b", ssh="x")], [[0, 1]]),
    "jobs of one cluster": ([Host(name=name, target=name, ssh="x", slurm=Slurm()) for name in "ab"], [[0], [1]]),
}


@pytest.mark.parametrize("what", PLACES)
def test_what_would_disturb_each_other_runs_in_turn(what, tmp_path):
    """Legs of one machine share a lane; Slurm gives each job cards and cores of its own."""
    hosts, expected = PLACES[what]
    cpu, options = load_targets()["cpu"], make_options("run-1", tmp_path, tmp_path)
    legs = [Leg(replace(cpu, name="abc"[position]), having(options, host=host)) for position, host in enumerate(hosts)]

    assert [[legs.index(leg) for leg in lane] for lane in lanes(legs)] == expected


def test_shards_of_one_leg_run_at_once(tmp_path):
    cpu, host = load_targets()["cpu"], Host(name="a", target="a", ssh="x")
    options = make_options("run-1", tmp_path / "shards" / "1of2", tmp_path, host=host, whole=tmp_path)
    legs = [Leg(replace(cpu, name="a"), having(options, shard=Shard(number, 2))) for number in (1, 2)]

    assert [len(lane) for lane in lanes(legs)] == [1, 1]
    assert [leg.log.name for leg in legs] == ["a-1of2.log", "a-2of2.log"]
