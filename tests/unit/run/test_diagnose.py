"""How a run ended → its verdict: the table, row by row, and the promise that every ending has a row."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from warpwave.records import Exit, Stage, StageReport, Stages, Verdict
from warpwave.run.attempt import Diagnosis, diagnose

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
    ("a stage that gives no reason", Exit(0, 9), stages(FACTS, replace(FAILED, reason="")), Verdict.FAILED, "test: failed"),
    ("the first of two stages that wait", Exit(1, 9), stages(FACTS, replace(WAITING, stage=Stage.TEST), WAITING, finished=False),
     Verdict.CRASHED, "exit code 1, in stage test"),
    ("255, as some engines make up", Exit(255, 9), GOOD, Verdict.CRASHED, "exit code 255"),
]  # fmt: skip


@pytest.mark.parametrize(("ended", "reports", "verdict", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(ended: Exit, reports: Stages | None, verdict: Verdict, reason: str):
    """One ending, its verdict and the evidence in its reason."""
    found = diagnose(ended, reports, 60.0, "18.8 GiB")
    assert found.verdict is verdict
    assert reason in found.reason


@pytest.mark.parametrize(("ended", "reports"), [row[1:3] for row in TABLE if row[3] is not Verdict.PASSED], ids=str)
def test_every_bad_ending_has_a_next_step(ended: Exit, reports: Stages | None):
    """A sentence, whatever the ending; a stage that says nothing has none to give."""
    found = diagnose(ended, reports, 60.0, "")

    assert found.reason
    assert found.hint.endswith(".") or (ended.code == 0 and reports is not None and reports.finished)
    assert found.hint == found.hint.strip()


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


ANSWERS = {
    "stopped by hand": (Exit(0, 9, interrupted=True), "What was finished has been kept."),
    "the engine": (Exit(None, 9, error="x"), "This is not a verdict on the kernels: fix the machine (`warpwave doctor`), then run again."),
    "the engine, which knows better": (Exit(None, 9, error="x", hint="Start it."), "Start it."),
    "results": (Exit(0, 9, exceeded="x"), "--results-limit, --results-files"),
    "time": (Exit(0, 9, timed_out=True), "give a longer limit."),
    "disk": (Exit(74, 9), "--resume then continues the run."),
    "memory": (Exit(137, 9, oom_killed=True), "This is host memory, not the GPU's."),
    "no Python": (Exit(127, 9), "Set `python` in the targets file to a Python in the image."),
    "a kill": (Exit(137, 9), "Continue it with --resume, or run it again; what was finished has been kept."),
    "a crash": (Exit(139, 9), "See the last lines of log.txt in the stage's result folder."),
    "the harness": (Exit(1, 9), "See the last lines of log.txt in the stage's result folder."),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_each_ending_has_its_own_next_step(name):
    """What helps after one ending does not help after another."""
    ended, hint = ANSWERS[name]

    assert hint in diagnose(ended, None, 60.0, "").hint


def test_memory_without_a_limit_is_that_of_the_machine():
    """The sentence names what was used up."""
    reason = diagnose(Exit(137, 9, oom_killed=True), None, 60.0, "").reason

    assert reason == "ended by the out-of-memory killer: its memory grew past what this machine has"


def test_the_hint_of_the_stage_is_kept():
    """A stage that says what to do is not talked over."""
    assert diagnose(Exit(0, 9), stages(FACTS, FAILED), 60.0, "").hint == "see junit.xml"


def test_only_one_ending_passes():
    """Whatever is combined, a pass needs exit code 0, an undisturbed run and finished stages that all passed."""
    codes = (None, 0, 1, 2, 126, 127, 128, 134, 137, 139, 255, -9, -11, 1000)
    for code, oom, late, stopped, error, reports in itertools.product(
        codes, (False, True), (False, True), (False, True), ("", "x"), (None, CUT, GOOD, stages(FACTS, FAILED), stages(KILLED))
    ):
        found = diagnose(Exit(code, 1.0, oom, late, stopped, error), reports, 60.0, "")
        undisturbed = code == 0 and not late and not stopped and not error
        assert (found == Diagnosis(Verdict.PASSED)) == (undisturbed and reports is GOOD)
        assert found.reason or found.verdict is Verdict.PASSED
