"""The journal of a worker: what it reports is in the file before the next case starts, whatever becomes of the process."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from warpwave.inside.environment import NO_ROOM
from warpwave.inside.process.outcomes import few
from warpwave.inside.process.workers import JOURNAL_VARIABLE
from warpwave.records import UNWRITABLE, Verdict

# Check a worker's journal against what it announced. The package's code runs in the worker, so the journal is not trusted.
#
# This does not stop a package that forges its results carefully: it shares a process with the reporter. It detects what a careless
# package does by accident, and what a forger forgets. Events that break the rules are left out, counted, and reported in words; all others
# are kept.

Event = dict[str, Any]

_FROM_WORKERS = {"collected", "start", "turn", "ready", "waiting", "finish", "poisoned", "lost", "kernel", "candidates", "finding"}
_FROM_WORKERS |= {"profile", "note", "end", "postponed", "card", "expected", "loading", "compiling"}
_KINDS = _FROM_WORKERS | {"worker", "death", "wrong"}
_OF_A_CASE = {"loading", "start", "turn", "ready", "finish", "poisoned", "postponed", "death", "lost", "finding", "profile"}
_OUTCOMES = {"passed", "failed", "error", "skipped", "xfailed", "invalid", "timeout"}
_VERDICTS = {verdict.value for verdict in Verdict}
_CUT, _LONG, _MOST = 200, 1000, 1000  # characters of an id in a reason, of a reason; and cases counted per reason


class Tail:
    """A journal as it grows: returns each complete line once, and checks that earlier lines stay unchanged."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.unreadable = path, 0, 0
        self._read = hashlib.sha256()

    def read(self) -> list[Event]:
        """Return the events of the new complete lines."""
        data = self._beyond()
        whole = data[: data.rfind(b"\n") + 1]
        self._take(whole)
        found, unreadable = parse(whole)
        self.unreadable += unreadable
        return found

    def skip(self) -> None:
        """Skip what the supervisor has read or written itself."""
        self._take(self._beyond())

    def is_intact(self) -> bool:
        """Return whether the file still begins with what was read from it."""
        digest, left = hashlib.sha256(), self.offset
        if self.path.exists():
            with open(self.path, "rb") as file:
                while left and (chunk := file.read(min(left, 1 << 20))):
                    digest.update(chunk)
                    left -= len(chunk)
        return digest.digest() == self._read.digest()

    def _beyond(self) -> bytes:
        if not self.path.exists():
            return b""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read()

    def _take(self, data: bytes) -> None:
        self.offset += len(data)
        self._read.update(data)


class Audit:
    """The rules of a journal: a case is announced, started and finished, each once, and nothing follows the end.

    `check` returns the events that follow the rules; `findings` says which did not. A replaced worker starts over, but announcements
    remain.
    """

    def __init__(self) -> None:
        self._announced: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._broken: dict[str, list[str]] = {}
        self._earlier: list[str] = []
        self._unsettled = ""
        self._open: set[str] = set()
        self._live = self._begun = self._collected = self._ended = False

    def begin(self) -> None:
        """Start auditing a live worker. Before this, the events of earlier workers were read again."""
        self._live = True
        self._begin()

    def check(self, event: Event) -> Event | None:
        """Return the event if it can be believed, None if it is left out."""
        kind: str = event["event"]
        if not _is_whole(event):
            return self._leave_out("its journal holds lines that mean nothing", kind)
        if kind == "wrong":  # found in an earlier attempt at this run
            self._earlier.append(event["reason"][:_LONG])
            return None
        if kind == "worker":
            if self._live and self._begun:
                return self._leave_out("its journal holds lines that only the supervisor writes", kind)
            self._begin()
            self._begun = True
        elif self._ended and not (kind == "death" and not self._live):  # a case that hit its limit may end while it is being stopped
            return self._leave_out("results came after the last test had ended", str(event.get("id", kind)))
        elif kind == "collected":
            self._collected = True
            self._announced |= Counter(list(event.get("ids") or event.get("points") or ()))
        elif kind in ("start", "turn"):
            self._open.add(event["id"])
        elif kind in ("ready", "postponed"):
            self._open.discard(event["id"])
        elif kind == "poisoned":
            self._open.discard(event["id"])
            self._unsettled = event["id"]
        elif kind == "lost":
            self._unsettled = ""
        elif kind == "finish":
            return self._finish(event)
        elif kind == "end":
            self._ended = True
            for name in event.get("replaced") or ():
                self._break("the package replaced what runs or reports its tests", str(name))
        return event

    def misread(self, event: Event, error: Exception) -> None:
        """Record an event that is complete but that the stage cannot use."""
        self._break("its journal holds lines that mean nothing", f"{event.get('id', event['event'])} ({type(error).__name__})")

    def findings(self, tail: Tail) -> list[str]:
        """Return what was wrong, one sentence each."""
        found = [f"{rule}: {few(list(dict.fromkeys(cases)))}" for rule, cases in self._broken.items()]
        if tail.unreadable:
            found.append(f"its journal holds lines that are not JSON: {tail.unreadable}")
        if not tail.is_intact():
            found.append("its journal was changed after it was read")
        return list(dict.fromkeys([*self._earlier, *found]))

    def _begin(self) -> None:
        self._open.clear()
        self._begun = self._collected = self._ended = False

    def _finish(self, event: Event) -> Event | None:
        case = event["id"]
        settled = case == self._unsettled and case not in self._open
        if settled:
            self._unsettled = ""
        # A module that does not import is reported during collection. A case that spoiled its device is reported by the next worker.
        unstarted = not self._collected and (settled or event.get("outcome") in ("error", "skipped"))
        if case in self._open:
            self._open.discard(case)
        elif self._live and not unstarted:
            self._break("reported without having been started", case)
            if not self._reported[case]:
                return None  # its real result may still follow
        self._reported[case] += 1
        if self._collected and case not in self._announced and "ceiling" not in event:
            self._break("reported, but never collected", case)
        elif "outcome" in event and self._reported[case] > max(1, self._announced[case]):  # two marks may have points of the same name
            self._break("reported more often than collected", case)
        return event

    def _leave_out(self, rule: str, case: str) -> Event | None:
        self._break(rule, case)
        return None

    def _break(self, rule: str, case: str) -> None:
        several = self._broken.setdefault(rule, [])
        if len(several) < _MOST:
            several.append(case[:_CUT])


def parse(data: bytes) -> tuple[list[Event], int]:
    """Return the events of complete lines, and the number of lines that are not events."""
    events, unreadable = [], 0
    for line in data.splitlines():
        try:
            event = json.loads(line)
            if b"\\ud" in line.lower():  # lone surrogates, which UTF-8 files cannot hold
                event = json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
        else:
            unreadable += 1
    return events, unreadable


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# The fields that readers need of an event, by its kind.
_TEXT: Callable[[object], bool] = lambda value: isinstance(value, str)  # noqa: E731
_TABLE: Callable[[object], bool] = lambda value: isinstance(value, dict)  # noqa: E731
_NEEDS: dict[str, dict[str, Callable[[object], bool]]] = {
    **{kind: {"row": _TABLE} for kind in ("kernel", "finding", "profile")},
    **{kind: {"reason": _TEXT} for kind in ("lost", "wrong", "postponed")},
    "candidates": {"rows": _texts, "clean": lambda value: type(value) is int, "of": lambda value: type(value) is int},
    "expected": {"row": _TEXT},
    "compiling": {"kernel": _TEXT},
    "note": {"text": _TEXT},
}


def _is_whole(event: Event) -> bool:
    kind = event["event"]
    if kind not in _KINDS or (kind in _OF_A_CASE and not isinstance(event.get("id"), str)):
        return False
    if kind == "collected":
        return _texts(event.get("ids", [])) and isinstance(event.get("points", {}), dict)
    if kind not in ("finish", "poisoned", "death"):
        return all(fits(event.get(name)) for name, fits in _NEEDS.get(kind, {}).items())
    if "outcome" not in event:
        return event.get("verdict", Verdict.ERROR.value) in _VERDICTS and isinstance(event.get("reason", ""), str)
    words, seconds = [event.get("message"), event.get("detail")], event.get("seconds")
    is_told = event["outcome"] in _OUTCOMES and _texts(words) and isinstance(event.get("properties", {}), dict)
    return is_told and isinstance(seconds, (int, float)) and math.isfinite(seconds)


# Events that must survive a power cut. Writing one to disk also writes the rows before it. Results follow each other fast, and writing each
# would take longer than a short test: those of the last moment run again after a power cut.
_DURABLE = ("collected", "finish", "death", "end")
_MOMENT_S = 0.2


# Bind these before a package is imported: if it replaces json.dumps or os.fsync, results stay unchanged.
_dumps, _time, _open, _write, _fsync, _close, _now = json.dumps, time.time, os.open, os.write, os.fsync, os.close, time.monotonic


class Journal:
    """An append-only file of events, one JSON object per line, each written at once: a kill can only damage the last line."""

    __slots__ = ("a_workers", "durable", "path", "synced")

    def __init__(self, path: Path, a_workers: bool = False, durable: Collection[str] = _DURABLE) -> None:
        self.path, self.a_workers, self.durable = path, a_workers, durable
        self.synced = 0.0  # when the file was written to disk last

    @classmethod
    def from_environment(cls, durable: Collection[str] = _DURABLE) -> Journal:
        """Return the journal that the supervisor named for this worker. If it can no longer be written, the worker ends at once."""
        return cls(Path(os.environ[JOURNAL_VARIABLE]), a_workers=True, durable=durable)

    def write(self, event: str, **fields: object) -> None:
        """Append one event."""
        line = _dumps({"event": event, "at": _time(), **fields}, ensure_ascii=False, default=str) + "\n"
        try:
            self._append(line.encode("utf-8", "replace"), event in self.durable and (event != "finish" or _now() > self.synced + _MOMENT_S))
        except OSError as error:
            if self.a_workers and error.errno in NO_ROOM:
                os._exit(UNWRITABLE)  # an exception might be caught and become the verdict of a test
            raise

    def _append(self, data: bytes, durable: bool) -> None:
        handle = _open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while data:  # on a nearly full disk, a write is short first and then fails
                data = data[_write(handle, data) :]
            if durable:
                _fsync(handle)
                self.synced = _now()
        finally:
            _close(handle)

    def repair(self) -> None:
        """Cut off a partial last line left by a kill or a full disk: the next event would be appended to it and lost."""
        if self.path.exists():
            data = self.path.read_bytes()
            if not data.endswith(b"\n"):
                os.truncate(self.path, data.rfind(b"\n") + 1)

    def read(self) -> list[Event]:
        """Return all events so far, without a partial last line."""
        return parse(self.path.read_bytes())[0] if self.path.exists() else []

    def unsettled(self) -> Event | None:
        """Return the outcome of the case after which the device stopped answering, if no later worker has settled it."""
        found: Event | None = None
        for event in self.read():
            if event["event"] == "poisoned" or (event["event"] == "postponed" and event.get("poisoned")):
                found = event
            elif found and event["event"] in ("lost", "finish", "ready") and event.get("id") == found["id"]:
                found = None
        return found

    def done(self) -> set[str]:
        """Return the ids that need not run again."""
        return {event["id"] for event in self.read() if event["event"] in ("finish", "death") and event.get("id")}


def settle(journal: Journal, ask: Callable[[], str]) -> bool:
    """Settle the last worker's unsettled case, before a new worker's first case. `ask` returns what is wrong with the device, or "".

    Return whether the worker may continue. Without a working device, every further case would fail for the wrong reason.
    """
    case = journal.unsettled()
    if case is None:
        return True
    if trouble := ask():
        reason = f"the device was lost during {case['id']}, and does not answer in a fresh process either: {trouble}"
        journal.write("lost", id=case["id"], reason=reason)
        return False
    if case["event"] == "postponed":  # it runs again, and gets its outcome then
        journal.write("ready", id=case["id"])
        return True
    journal.write("finish", **{key: value for key, value in case.items() if key not in ("event", "at")})
    return True


# Progress from a stage to the host: one JSON object per line, on a pipe that user code does not know.
#
# What kernels and tests print goes to `<stage>/log.txt`, and the harness ignores it.

PIPE_VARIABLE = "WARPWAVE_EVENTS"


def emit(event: str, **fields: object) -> None:
    """Send an event to the host; do nothing if there is no pipe."""
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is None:
        return
    line = json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n"
    try:
        os.write(int(pipe), line.encode("utf-8", "replace"))
    except OSError:
        os.environ.pop(PIPE_VARIABLE, None)  # the listener is gone, but results matter more than progress
