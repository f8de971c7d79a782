"""Run cases in a worker process that may crash, hang or break its device, without losing any other case.

The worker appends to a journal: `collected` (the ids it will run), `start` and `finish` around each case, and `end`. `loading` begins the
import of a file of tests, which is a case if the worker dies in it. `ready` ends a step that is no case, `turn` continues one of several
open cases, `postponed` ends a case without a result, because it runs again when no other worker is on the card, and `waiting` is written
now and then while others finish. If the worker dies between a start and its finish, that case is the culprit: it is recorded, and a new
worker continues with the rest. Plain pytest leaves no result at all after a crash or hang. This leaves a named one, without another
dependency in the container.

If the device stops answering, the worker writes `poisoned` instead of `finish`, with the same fields, and exits. The next worker checks
whether the device answers a new process. If so, that case is the culprit. If not, the device is `lost`, and no case is to blame.

The result of a case is in the journal before the next one starts. A run that was killed as a whole continues from its journal: its events
are reported again, and only missing cases run. Violations of the journal's rules are reported as `wrong` after the last worker: see
`audit`.

A case's limit does not count the time in which its worker was ready to run and other processes had the cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warpwave.inside.environment import memory_kills, past_memory_limit
from warpwave.inside.process.journal import Audit, Event, Journal, Tail
from warpwave.inside.process.workers import Start, end, waited_s
from warpwave.records import UNWRITABLE, Job, NotRun, Verdict

_POLL_S = 0.05
_GRACE_S = 5.0
# Before the first case, a worker imports torch, collects or compiles. Slow machines need minutes for that.
_IDLE_LIMIT_S = 900.0
_LOG_TAIL = 1 << 20  # bytes of a dead worker's log that are searched for the runtime's last words
# A compiler ends the whole process where it has no other way out; then it prints where it was, some with the kernel's line.
_LAST_WORDS = re.compile(
    r"(?:[^\s/:]+\.py:\d+:\d+: )?(?:LLVM ERROR|(?<!Python )\b(?:fatal )?error): .+"
    r"|\S+:\d+: (?:.*: )?Assertion .+ failed\.|terminate called .+|.+(?=\nUNREACHABLE executed at)"
)
_LAST_LINES = 200
# What torch prints as it aborts a process in which a tensor of its compiler says that it is on a card: one that is only pretended.
WITHOUT_CARD = {r"what\(\):.* not linked with support for \w+ devices": Verdict.NOT_RUN}
LOST_DEVICE = (
    "Run `warpwave doctor`. A card that comes back only after a reset, or not at all, is a reason to take this machine out of service."
)

OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Death:
    """A worker that did not reach its end. `case` is the culprit, or None if it died outside of any case.

    `by_others`: other processes on the same machine or device may have caused it. `compiling`: the kernel whose compiler did not end, or
    ended the process.
    """

    case: str | None
    verdict: Verdict
    reason: str
    by_others: bool = False
    compiling: str = ""


def supervise(
    start: Start,
    journal: Journal,
    case_limit_s: float,
    log: Path,
    on_event: OnEvent,
    stop: threading.Event | None = None,
    faults: dict[str, Verdict] | None = None,
    runs_again: Callable[[Death], bool] | None = None,
) -> list[Death]:
    """Run workers, another after each death, until every case has an outcome. Return the deaths, in order.

    Ends early only if a worker dies outside of any case, or twice during the same case: then there is no culprit to leave out. `faults`
    maps patterns of what a runtime prints before it aborts the process because of its device to verdicts. `runs_again` says of a death
    whether its case runs again later, so that this death does not count.

    Raises:
        OSError: the journal cannot be written any more.
        KeyboardInterrupt: the user's, or from `stop`, for supervisors in threads that receive no signals. The worker is gone.
    """
    deaths: list[Death] = []
    finished = False
    audit = Audit()
    on_event = _careful(on_event, audit)
    for event in filter(audit.check, journal.read()):
        # Open cases are reported again when they run again.
        if event["event"] not in ("loading", "start", "turn", "ready", "lost", "postponed"):
            on_event(event)
    tail = Tail(journal.path)
    while not finished:
        printed = log.stat().st_size if log.exists() else 0
        finished, death = _run_worker(start, journal, audit, tail, case_limit_s, log, on_event, stop or threading.Event())
        if death is not None:
            death = _explain(death, log, printed, faults or {})
            if runs_again is not None and runs_again(death):
                journal.write("postponed", id=death.case, reason=death.reason)
                on_event({"event": "postponed", "id": death.case, "reason": death.reason})
                continue
            # Its worker did not leave out a case that kills twice. Continuing would never end.
            finished = death.case is None or death.case in {earlier.case for earlier in deaths}
            deaths.append(death)
            if death.case is not None:
                fields = {"id": death.case, "verdict": death.verdict.value, "reason": death.reason}
                if death.verdict is Verdict.NOT_RUN:
                    fields["not_run"] = NotRun.NOT_PRETENDED.value
                elif death.compiling:
                    fields["compiling"] = death.compiling
                journal.write("death", **fields)
                on_event({"event": "death", **fields})
    found = audit.findings(tail)
    journal.repair()
    for reason in found:
        journal.write("wrong", reason=reason)  # for a later attempt at this run, which finds the results in the journal too
        on_event({"event": "wrong", "reason": reason})
    return deaths


class _Clock:
    """A clock that starts when it is created, and stops while the worker waits for a core."""

    def __init__(self, pid: int) -> None:
        self._pid, self._begun, self._waited = pid, time.monotonic(), waited_s(pid)

    def is_past(self, limit_s: float) -> bool:
        """Return whether the limit has passed."""
        wall = time.monotonic() - self._begun
        return wall > limit_s and wall - (waited_s(self._pid) - self._waited) > limit_s


def _careful(on_event: OnEvent, audit: Audit) -> OnEvent:
    """Wrap `on_event`: an event that it cannot process becomes a finding instead of ending the stage."""

    def take(event: Event) -> None:
        try:
            on_event(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            traceback.print_exc()
            audit.misread(event, error)

    return take


def _run_worker(
    start: Start, journal: Journal, audit: Audit, tail: Tail, case_limit_s: float, log: Path, on_event: OnEvent, stop: threading.Event
) -> tuple[bool, Death | None]:
    """Run one worker from start to end. Return whether all cases are done, and how it died if it did."""
    journal.repair()
    tail.skip()
    audit.begin()
    # A new worker compiles and loads again what an earlier one had. This line tells readers of the journal.
    journal.write("worker")
    running, last, lost, compiling, place, timed_out, begun = None, "", "", "", "", False, 0.0
    kills = memory_kills()
    worker = start(journal.path, log)
    since = _Clock(worker.pid)
    try:
        while True:
            exited = worker.poll() is not None
            with _uninterrupted():
                fresh, moved = tail.read(), False
                for event in filter(audit.check, fresh):
                    last = kind = event["event"]
                    if kind in ("loading", "start", "turn"):
                        running, moved = event["id"], True
                    elif kind in ("finish", "ready", "poisoned", "waiting", "postponed"):
                        running, moved = None, True
                    elif kind == "lost":
                        lost = event["reason"]
                    elif kind == "compiling":
                        compiling, place, begun = event.get("function", ""), event["kernel"], time.monotonic()
                    on_event(event)
                since = _Clock(worker.pid) if moved else since
            if exited:
                break
            if not fresh:
                on_event({"event": "idle"})
            if stop.is_set():
                raise KeyboardInterrupt
            if since.is_past(case_limit_s if running else _IDLE_LIMIT_S):
                timed_out = True
                break
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        end(worker, _GRACE_S)
        with _uninterrupted():  # what it has written since the last look
            for event in filter(audit.check, tail.read()):
                on_event(event)
        raise
    finally:
        end(worker, _GRACE_S)
    during = f" while {place} was compiled" if place else ""
    if timed_out:
        reason = f"it ran longer than {case_limit_s:g} s{during}" if running else f"no case was started for {_IDLE_LIMIT_S:g} s"
        # A test that compiles much reaches its limit during any of it. The compiler of one kernel is to blame if it took most of the time.
        return False, Death(running, Verdict.TIMEOUT, reason, compiling=compiling if time.monotonic() - begun > case_limit_s / 2 else "")
    if lost:
        return False, Death(None, Verdict.INFRA, lost)
    if running is None and last in ("end", "poisoned", "postponed"):
        # After a sticky device error, a new worker takes over: the case has its outcome, and the others need a working device.
        return last == "end", None
    if worker.returncode == UNWRITABLE:
        # Whichever test was running could not report its result.
        raise OSError(errno.ENOSPC, "no space left for the results")
    how = describe_exit(worker.returncode or 0) + during
    if worker.returncode == -signal.SIGKILL and memory_kills() > kills:
        return False, Death(running, Verdict.OOM, f"its process {how}: {past_memory_limit()}", by_others=True)
    killed = worker.returncode == -signal.SIGKILL
    return False, Death(running, Verdict.CRASHED, f"its process {how}", by_others=killed, compiling="" if killed else compiling)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait: an event that was read and not handled would be lost. In a thread, none arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def faults_of(job: Job) -> dict[str, Verdict]:
    """Return the patterns of what ends a process of the test stage, and the verdict that each stands for."""
    return job.device_faults | (WITHOUT_CARD if job.interpret or job.emulate else {})


def describe_exit(code: int) -> str:
    """Describe an exit status: `was killed by SIGSEGV`, `exited with 3 before its end`."""
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"exited with {code} before its end"


def _explain(death: Death, log: Path, printed: int, faults: dict[str, Verdict]) -> Death:
    """Add what was printed to a death: by the device's runtime, if it matches one of the `faults`, or by what ended its own process."""
    if death.verdict not in (Verdict.CRASHED, Verdict.TIMEOUT):
        return death
    with open(log, "rb") as file:
        file.seek(max(printed, log.stat().st_size - _LOG_TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    for pattern, verdict in faults.items():
        if line := next((line for line in lines if re.search(pattern, line)), None):
            return Death(death.case, verdict, f"{death.reason}: {line.strip()[:300]}", by_others=verdict is not Verdict.NOT_RUN)
    said = [found[0] for found in _LAST_WORDS.finditer("\n".join(lines[-_LAST_LINES:]))]
    if death.verdict is Verdict.CRASHED and not death.by_others and said:
        return dataclasses.replace(death, reason=f"{death.reason}: {said[-1].strip()[:200]}")
    return death
