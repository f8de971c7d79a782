"""The entry of the inside: read the job, run each stage in its own process, and always leave `stages.json`.

`warpwave.inside OUTPUT/job.json`, started by `isolated`. If an earlier run of this job was cut short, its finished stages are kept, and
the others continue from their journals. Exit code 0 means that every stage completed, whatever the tests' results; the verdicts are in
the files. Standard output holds only events, one JSON object per line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from warpwave.inside.environment import NO_ROOM, compiled_kernels, devices_here, for_compiling, names_any
from warpwave.inside.precompile import remembered
from warpwave.inside.process import forks, sealing
from warpwave.inside.process.journal import PIPE_VARIABLE
from warpwave.inside.process.outcomes import doubted
from warpwave.inside.process.supervise import describe_exit
from warpwave.inside.process.workers import FOLDER_VARIABLE, GO_VARIABLE, UNTIL_VARIABLE, Worker, end
from warpwave.records import (
    AHEAD_FILE,
    BUDGET_UP,
    FORKS_VARIABLE,
    STAGES,
    UNWRITABLE,
    Job,
    Stage,
    StageReport,
    Stages,
    Verdict,
    to_text,
    write_text,
)

_GRACE_S = 20.0
_LONGER = "Raise --timeout (seconds), or continue with --resume: what is finished does not run again. --quick runs less."
_REAP_S = 1.0
_REPORT_S, _REPORT = 8.0, 0.03  # kept of a budget: so many seconds, and this share of it
# A stage leaves this share of the time to each stage after it. Without it, slow tests could use up the time in which kernels are compiled.
_LATER = 0.2
# Parts of names of what imports torch's compiler. It takes 1 s, in each worker unless what they are forked from has it.
_TRACED = ("dynamo", "compile", "optim", "custom_op", "checkpoint", "func", "profile", "make_fx")
_ON_CARD = (Stage.TEST, Stage.BENCH)
# After any other verdict, a stage may not have run everything. It is started again and continues from its journal.
_SHOWN = ("stage", "verdict", "seconds", "counts", "left_out", "left_out_s", "not_run")
_ORDERLY = (Verdict.PASSED, Verdict.NOT_RUN, Verdict.FAILED, Verdict.ERROR)


def run(job: Job, job_path: Path) -> None:
    """Run all stages in order. A stage that is not reached is reported as not run, with the reason."""
    # With a budget, compiling comes first: it is the cheapest, and finds what fails on any card.
    stages = sorted(job.what.stages, key=lambda stage: stage is not Stage.COMPILE) if job.limits.budget else job.what.stages
    reports = [StageReport(stage, Verdict.NOT_RUN, reason="the run ended before this stage") for stage in (Stage.FACTS, *stages)]
    finished = _finished(job)
    reports = [finished.get(report.stage, report) for report in reports]
    _save(job, reports, finished=False)
    (folder := Path(job.output, Stage.FACTS.value)).mkdir(exist_ok=True)
    kept = os.environ.pop(FORKS_VARIABLE, "")
    usable = int(kept) if kept and not job.declared.variables else None
    warm = forks.Warm({**os.environ, **job.declared.variables}, folder / "log.txt", usable)
    until = time.monotonic() + _total_s(job)
    # Compiling ahead is of no use within a budget, which may end before most of it is used, nor to a sanitizer, which compiles checks in.
    to_look = job.needs_card and not job.limits.budget and not job.what.sanitize
    ahead: _Ahead | None = None
    is_on_card = any(report.stage in _ON_CARD and report.stage not in finished for report in reports)
    if to_look and is_on_card and job.architectures and not remembered.is_known(job):
        ahead = _Ahead(job, job_path, _total_s(job) / 2)
    for position, planned in enumerate(reports):
        if planned.stage in finished:
            continue
        _say({"event": "stage", "stage": planned.stage.value})
        later = sum(other.stage not in finished for other in reports[position + 1 :])
        left = until - time.monotonic()
        if planned.stage in _ON_CARD and to_look:
            to_look = False
            ahead = _for_card_here(job, job_path, ahead, left / 2, warm)
        compiled, notes = 0, tuple[str, ...]()
        # Tests begin meanwhile, unless kernels that were compiled elsewhere come first. Nothing is measured beside it.
        if ahead and ahead.goes_on and (planned.stage is Stage.BENCH or (planned.stage is Stage.TEST and job.what.compiled)):
            compiled, notes = ahead.end(warm)
            left = until - time.monotonic()
        given = left / (1 + later) if job.limits.budget else left * max(_LATER, 1 - _LATER * later)
        # Facts are needed, and have a limit of their own.
        given = job.limits.stage_s if job.limits.budget and planned.stage is Stage.FACTS else given
        to_compile = any(report.stage is Stage.COMPILE and report.stage not in finished for report in reports[position + 1 :])
        if planned.stage is Stage.TEST and to_compile and not job.needs_card and not for_compiling():
            with open(folder / "log.txt", "ab") as output:  # nothing is measured: import what compiling needs beside the tests
                needed = (*(["torch._dynamo"] if names_any(job, *_TRACED) else []), "warpwave.inside.compile.preload")
                warm.also("warpwave.inside.compile.stage", needed, output.fileno())
        report = _run_stage(job, job_path, planned.stage, given, warm, ahead)
        if ahead and ahead.goes_on and not any(other.stage in _ON_CARD for other in reports[position + 1 :]):
            notes = ahead.end(warm, waits=False)[1]
        report = dataclasses.replace(report, compiled_ahead=report.compiled_ahead + compiled, notes=(*report.notes, *notes))
        reports[position] = report
        if job.lease:
            _say({"event": "lease", "stage": planned.stage.value, "wanted": False})
        if report.stage is Stage.FACTS and report.verdict is not Verdict.PASSED:
            why = f"the environment is not usable: {report.reason}"
            reports[1:] = [finished.get(later.stage, StageReport(later.stage, Verdict.NOT_RUN, reason=why)) for later in reports[1:]]
            if ahead:
                ahead.end(warm, waits=False)
            break
        _save(job, reports, finished=False)
        by = "--quick" if job.what.quick else "--budget"
        _say({"event": "stage-end", "left_out_by": by, **{name: getattr(report, name) for name in _SHOWN}})
    warm.end()
    if ahead and all(report.verdict in _ORDERLY[:1] + _ORDERLY[2:] for report in reports if report.stage in _ON_CARD):
        ahead.remember()
    _save(job, reports, finished=True)


def _for_card_here(job: Job, job_path: Path, ahead: _Ahead | None, limit_s: float, warm: forks.Warm) -> _Ahead | None:
    """Let `ahead`, or a new one, compile for the card that the facts stage found. Return None, and end it, if it cannot or need not.

    It cannot if the targets file does not know the card, and need not if all is compiled.
    """
    known = {card.name for card in job.architectures}
    pretends = any(device.get("architecture") in known for device in devices_here(job)[:1])
    compiled = pretends and remembered.is_compiled(job)
    if pretends and not compiled:
        ahead = ahead or _Ahead(job, job_path, limit_s)
        ahead.go()
        return ahead
    if ahead:
        ahead.end(warm, waits=False)
    if compiled:
        (marker := Path(job.output, AHEAD_FILE)).parent.mkdir(exist_ok=True)
        write_text(marker, json.dumps({"workers": 0, "reason": "an earlier run compiled the same sources"}) + "\n")
    return None


def _total_s(job: Job) -> float:
    """Return how long all stages may take, in s. Of a budget, some is kept for ending them and for the report."""
    budget = job.limits.budget
    return min(job.limits.stage_s, budget.seconds * (1 - _REPORT) - _REPORT_S) if budget else job.limits.stage_s


def _finished(job: Job) -> dict[Stage, StageReport]:
    """Return the stages that an earlier run of this job completed. Facts are always taken again: this may be another machine."""
    try:
        earlier = json.loads((Path(job.output) / "stages.json").read_text())
        reports = [_report(entry) for entry in earlier["reports"]] if earlier["run_id"] == job.run_id else []
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return {
        report.stage: report
        for report in reports
        if report.exit_code == 0 and report.verdict in _ORDERLY and report.stage in job.what.stages and not report.out_of_time
    }


def _run_stage(
    job: Job, job_path: Path, stage: Stage, left_s: float, warm: forks.Warm | None = None, ahead: _Ahead | None = None
) -> StageReport:
    """Run one stage in its own process group, within its time limit and what is left for it. What compiles ahead may go on.

    Return its report, or one that says how it died.
    """
    limit = min(STAGES[stage].limit_s or job.limits.stage_s, left_s)
    if limit <= 0 and job.limits.budget:
        return StageReport(stage, Verdict.NOT_RUN, 0.0, BUDGET_UP, "Give a longer --budget.", 0, out_of_time=True)
    if limit <= 0:
        return StageReport(stage, Verdict.TIMEOUT, 0.0, "never reached: the time was up", _LONGER)
    folder = Path(job.output) / stage.value
    folder.mkdir(exist_ok=True)
    (folder / "report.json").unlink(missing_ok=True)
    environment = {**os.environ, **({} if stage is Stage.FACTS else job.declared.variables)}
    if job.interpret and STAGES[stage].interprets:
        environment["TRITON_INTERPRET"] = "1"
    if stage is Stage.COMPILE:
        environment |= for_compiling()
    reading, writing = os.pipe()
    environment[UNTIL_VARIABLE] = str(time.monotonic() + limit)
    started = time.monotonic()
    process = _start(
        warm, f"warpwave.inside.{stage.value}.stage", job_path, environment, folder / "log.txt", {PIPE_VARIABLE: writing}, limit
    )
    os.close(writing)
    reports: list[StageReport] = []
    beside = [ahead.process.pid] if ahead and ahead.goes_on else []
    relay = threading.Thread(target=_relay, args=(reading, reports), daemon=True)
    timed_out = False
    try:
        relay.start()  # inside `try`, because a Ctrl-C can arrive while it starts
        _wait(process, started + limit, *beside)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _end(process, warm, *beside)
    relay.join(_GRACE_S)
    seconds = round(time.monotonic() - started, 3)
    # A stage that has reported in time may be interrupted while it ends.
    if reports and (process.returncode == 0 or (timed_out and job.limits.budget)):
        report = dataclasses.replace(reports[-1], seconds=seconds, exit_code=0)
        return doubted(report, (f"{name} was changed by another process" for name in sealing.changed(report, Path(job.output))))
    hint = f"The end of {stage.value}/log.txt has details."
    if process.returncode == UNWRITABLE:
        why, hint = "its results could not be written: the disk is full or broken", "Make room on that disk; then continue with --resume."
        return StageReport(stage, Verdict.INFRA, seconds, why, hint, UNWRITABLE)
    if timed_out and job.limits.budget and not reports and not any(folder.glob("journal*")):  # it was still importing what it needs
        return StageReport(stage, Verdict.NOT_RUN, seconds, BUDGET_UP, "Give a longer --budget.", 0, out_of_time=True)
    if timed_out:
        partial = reports[-1] if reports else StageReport(stage, Verdict.TIMEOUT)
        why, code = f"the stage ran longer than {limit:.4g} s", process.returncode or None
        return dataclasses.replace(partial, verdict=Verdict.TIMEOUT, seconds=seconds, reason=why, hint=_LONGER, exit_code=code)
    return StageReport(stage, Verdict.CRASHED, seconds, f"its process {describe_exit(process.returncode or 0)}", hint, process.returncode)


def _start(
    warm: forks.Warm | None, module: str, job_path: Path, variables: dict[str, str], log: Path, named: dict[str, int], limit_s: float
) -> Worker:
    """Start a stage's process: as a fork of the interpreter of this run or, where one cannot stand for it, as a new one."""
    variables[FOLDER_VARIABLE] = str(Path.cwd())
    with open(log, "ab") as output:
        # `-m` first looks for modules in the current folder. The package can write to ours, and may have left a json.py there.
        task = forks.Task(module, (str(job_path),), variables, os.sep)
        if warm and (process := warm.start(task, output.fileno(), named, limit_s)):
            return process
        return subprocess.Popen(
            [sys.executable, "-m", module, str(job_path)],
            stdout=output,
            stderr=output,
            env={**variables, **{name: str(number) for name, number in named.items()}},
            pass_fds=tuple(named.values()),
            start_new_session=True,
            cwd=os.sep,
        )


class _Ahead:
    """A process that compiles what tests and sweeps launch. What it has not reached, or what fails in it, is compiled at its launch.

    It begins before the card is known, since its imports take as long as the facts stage, and then waits for `go`. It is no fork of the
    warm interpreter: that one ends what a stage leaves behind when the last fork has ended, and this one goes on.
    """

    def __init__(self, job: Job, job_path: Path, limit_s: float) -> None:
        self._job, self._before, self._until = job, remembered.entries(), time.monotonic() + limit_s
        variables = {**os.environ, **job.declared.variables}
        log = Path(job.output) / "log-ahead.txt"
        waiting, self._go = os.pipe()
        self.process = _start(None, "warpwave.inside.precompile.process", job_path, variables, log, {GO_VARIABLE: waiting}, limit_s)
        os.close(waiting)
        self.goes_on = True

    def go(self) -> None:
        """Let it compile, for the card that the facts stage found."""
        with contextlib.suppress(BrokenPipeError):  # it has died
            os.write(self._go, b".")

    def end(self, warm: forks.Warm | None = None, waits: bool = True) -> tuple[int, tuple[str, ...]]:
        """End it: if `waits`, once it is done or its time is up.

        Return how many kernels were compiled meanwhile, and what became of those that were compiled elsewhere.
        """
        before, self.goes_on = compiled_kernels(), False
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                _wait(self.process, self._until if waits else 0.0)
        finally:
            os.close(self._go)
            _end(self.process, warm)
        done = self._told()
        note = f"{done['handed_over']} kernels were compiled elsewhere" if done.get("handed_over") else ""
        note = f"the kernels of --compiled were refused: {done['refused']}" if done.get("refused") else note
        return max(0, min(compiled_kernels() - before, int(done.get("compiled", 0)))), tuple(filter(None, [note]))

    def remember(self) -> None:
        """Note that the cache has all that this run launched, unless torch's compiler made some of it: that has a cache of its own."""
        if "generated" not in self._told():
            remembered.remember(self._job, remembered.entries() - self._before)

    def _told(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            told = json.loads((Path(self._job.output) / AHEAD_FILE).read_text(encoding="utf-8"))
            return told if isinstance(told, dict) else {}
        return {}


def _wait(process: Worker, until: float, *beside: int) -> None:
    """Wait for a stage, and reap orphans meanwhile, but for what goes on beside it.

    Raises:
        subprocess.TimeoutExpired: it is still running.
    """
    while True:
        try:
            process.wait(max(0.0, min(_REAP_S, until - time.monotonic())))
            return
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                raise
            sealing.reap(process.pid, *beside)


def _end(process: Worker, warm: forks.Warm | None, *beside: int) -> None:
    """End a stage's process, and what it left behind. What a fork of `warm` left, that ends."""
    end(process, _GRACE_S)
    sealing.end_orphans(process.pid, *beside, *([warm.process.pid] if warm and warm.process else []))


def _relay(pipe: int, reports: list[StageReport]) -> None:
    """Pass a stage's events on to the host, except its report, which the inside keeps."""
    with open(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith('{"event": "report"'):
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    reports.append(_report(json.loads(line)["report"]))
                continue
            sys.stdout.write(line)
            sys.stdout.flush()


def _say(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _report(raw: dict[str, Any]) -> StageReport:
    lists = {key: tuple(raw.get(key, ())) for key in ("doubts", "notes")}
    return StageReport(**{**raw, "stage": Stage(raw["stage"]), "verdict": Verdict(raw["verdict"]), **lists})


def _save(job: Job, reports: list[StageReport], *, finished: bool) -> None:
    """Write stages.json and send its hash to the host. After the last stage, no process is left that could forge it."""
    text = to_text(Stages(job.run_id, job.target, finished, tuple(reports)))
    write_text(Path(job.output) / "stages.json", text)
    _say({"event": "stages", "finished": finished, "sha256": hashlib.sha256(text.encode()).hexdigest()})


def main() -> int:
    """Run the inside. SIGTERM and the death of the parent are treated like SIGINT, so that all of them end a run cleanly."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell makes background jobs ignore SIGINT, and the stages would inherit that. They would then be killed without warning.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forks.die_with_parent(signal.SIGINT)
    forks.shut()
    sealing.adopt()
    path = Path(sys.argv[1])
    try:
        run(Job.load(path), path)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return UNWRITABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
