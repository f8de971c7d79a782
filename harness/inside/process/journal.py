"""The journal of a worker: what it reports is on disk before the next case starts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from harness.inside.environment.container_limits import NO_ROOM
from harness.inside.process.audit import Event as Event
from harness.inside.process.audit import parse
from harness.inside.process.workers import JOURNAL_VARIABLE
from harness.records import UNWRITABLE

# Events that must survive a power cut. Writing one to disk also writes the rows before it.
_DURABLE = ("collected", "finish", "death", "end")


# Bind these before a package is imported: if it replaces json.dumps or os.fsync, results stay unchanged.
_dumps, _time, _open, _write, _fsync, _close = json.dumps, time.time, os.open, os.write, os.fsync, os.close


class Journal:
    """An append-only file of events, one JSON object per line, each written at once: a kill can only damage the last line."""

    __slots__ = ("a_workers", "durable", "path")

    def __init__(self, path: Path, a_workers: bool = False, durable: Collection[str] = _DURABLE) -> None:
        self.path, self.a_workers, self.durable = path, a_workers, durable

    @classmethod
    def from_environment(cls, durable: Collection[str] = _DURABLE) -> Journal:
        """Return the journal that the supervisor named for this worker. If it can no longer be written, the worker ends at once."""
        return cls(Path(os.environ[JOURNAL_VARIABLE]), a_workers=True, durable=durable)

    def write(self, event: str, **fields: object) -> None:
        """Append one event."""
        line = _dumps({"event": event, "at": _time(), **fields}, ensure_ascii=False, default=str) + "\n"
        try:
            self._append(line.encode("utf-8", "replace"), event in self.durable)
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
