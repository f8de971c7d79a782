"""One target from prepare to record, with engines that misbehave: whatever happens, `run.json` says so and nothing else is touched."""

from __future__ import annotations

import contextlib
import io
import json
import os
from dataclasses import replace

import pytest
from rich.console import Console

from warpwave.cli.progress import Progress
from warpwave.config.targets import load_targets
from warpwave.engines.protocol import Layout
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import RunOptions
from warpwave.records import Environment, Exit, Job, Stage, StageReport, Stages, Verdict, dump
from warpwave.records.registry import Entry
from warpwave.run import attempt as attempt_module
from warpwave.run import cards as lease_module
from warpwave.run import run_target
from warpwave.run.target import check_target


class FakeEngine:
    """Does in `execute` what a test tells it to."""

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

    def run(act, stages=None):
        monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: FakeEngine(act))
        settings = RunOptions("run-1", tmp_path / "out", tmp_path, stages=stages)
        record = run_target(load_targets()["cpu"], settings, lambda line: None, lambda event: None)
        return record, json.loads((tmp_path / "out" / "raw" / "cpu" / "run.json").read_text())

    return run


def finish(raw, verdict=Verdict.PASSED):
    reports = (StageReport(Stage.FACTS, Verdict.PASSED, exit_code=0), StageReport(Stage.TEST, verdict, exit_code=0))
    dump(Stages("run-1", "cpu", True, reports), raw / "stages.json")


def test_a_good_run_is_on_record(outcome):
    """The verdict is that of the stages, and the file says what the function returns."""
    record, written = outcome(lambda raw, on_line: finish(raw))

    assert (record.verdict, written["verdict"], written["environment"]["engine"]) == (Verdict.PASSED, "passed", "fake")


def test_a_stage_that_the_target_lacks_is_on_record(outcome):
    """Asked for beside others, it is left out. A reader must not take it for done."""
    asked, _ = outcome(lambda raw, on_line: finish(raw), (Stage.TEST, Stage.BENCH))

    assert asked.environment.notes == ("it has no stage bench, so that was left out",)


def test_an_engine_that_cannot_is_on_record(outcome):
    """Its three beats become reason and hint."""

    def act(raw, on_line):
        raise InfrastructureError("The engine is gone.", "It was stopped.", "Start it.")

    record, _ = outcome(act)

    assert (record.verdict, record.reason, record.hint) == (Verdict.INFRA, "The engine is gone. It was stopped.", "Start it.")


def test_a_fault_of_ours_is_on_record_with_its_traceback(outcome, tmp_path):
    """It costs this target its verdict, and no other target anything."""

    def act(raw, on_line):
        raise KeyError("surprise")

    record, _ = outcome(act)

    assert record.verdict is Verdict.INFRA
    assert "warpwave itself failed: KeyError" in record.reason
    assert "surprise" in (tmp_path / "out" / "raw" / "cpu" / "engine.log").read_text()


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
    """A machine that breaks again is broken."""
    done = []

    def act(raw, on_line):
        done.append(raw)
        return Exit(None, 1.0, error="the connection broke")

    record, _ = outcome(act)

    assert (record.verdict, len(done), len(record.attempts)) == (Verdict.INFRA, 2, 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": 1}', '{"finished": true}', "[" * 100_000])
def test_stages_that_cannot_be_read_are_incomplete(outcome, content):
    """Exit code 0 alone is never a pass."""
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


@pytest.mark.parametrize("verbose", [False, True])
def test_each_test_has_a_line_if_that_is_asked_for(verbose):
    """Also one that passed."""
    text = io.StringIO()
    with Progress(Console(file=text, force_terminal=False), "cpu", verbose=verbose) as progress:
        progress.on_event({"event": "result", "stage": "test", "id": "test_a.py::test_a[1]", "verdict": "passed", "message": ""})

    assert text.getvalue() == ("cpu: passed: test_a.py::test_a[1]\n" if verbose else "")


def test_a_stage_says_what_a_quick_run_left_out():
    """In its own line, as it ends."""
    text = io.StringIO()
    with Progress(Console(file=text, force_terminal=False), "cpu") as progress:
        progress.on_event({"event": "stage-end", "stage": "test", "verdict": "passed", "counts": {"passed": 125}, "left_out": 640})

    assert "--quick left out 640 of 765 tests" in text.getvalue()


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
    options = RunOptions("run-1", tmp_path / "out", tmp_path)
    run_target(load_targets()["cuda"], options, lambda line: None, lambda event: None)

    assert locked == (["cuda"] if local_gpus else [])


@pytest.mark.parametrize("name", ["cuda", "rocm"])
def test_accesses_to_memory_are_checked_only_where_no_card_runs_kernels(name, tmp_path):
    """Asking for it elsewhere is refused; that it is on by default asks for nothing."""
    options = {choice: RunOptions("run-1", tmp_path / "out", tmp_path, sanitize=choice) for choice in (None, False, True)}
    targets = load_targets()

    check_target(targets["cpu"], options[True])
    check_target(targets["gfx942-emulated"], options[True])
    check_target(targets[name], options[None])
    check_target(targets[name], options[False])
    with pytest.raises(UsageError, match=f"--sanitize was given, and the target '{name}' neither interprets nor emulates its kernels"):
        check_target(targets[name], options[True])


@pytest.mark.parametrize("choice", [None, False, True])
def test_memory_is_checked_where_there_is_no_card_unless_the_user_says_otherwise(choice):
    job = Job("r", "t", (), "/kernels", "/out", sanitize=choice)
    emulated = replace(job, emulate=load_targets()["gfx942-emulated"].emulate)

    assert [each.sanitizes for each in (replace(job, interpret=True), emulated, job)] == [choice is not False] * 2 + [False]
