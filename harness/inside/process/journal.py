"""What a worker reports, on disk before the next case starts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from harness.inside.process.audit import Event as Event
from harness.inside.process.audit import parse
from harness.inside.process.container_limits import NO_ROOM
from harness.inside.process.workers import JOURNAL_VARIABLE
from harness.records import UNWRITABLE

# What must outlive a power cut; the rows between two of them are on disk when the second one is.
_DURABLE = ("collected", "finish", "death", "end")


# Bound here, before a package is imported: one that replaces them for its own ends (json.dumps, os.fsync) changes no result.
_dumps, _time, _open, _write, _fsync, _close = json.dumps, time.time, os.open, os.write, os.fsync, os.close


class Journal:
    """An append-only file of events, one JSON object a line, each written at once: a kill can tear the last line only."""

    __slots__ = ("a_workers", "durable", "path")

    def __init__(self, path: Path, a_workers: bool = False, durable: Collection[str] = _DURABLE) -> None:
        self.path, self.a_workers, self.durable = path, a_workers, durable

    @classmethod
    def from_environment(cls, durable: Collection[str] = _DURABLE) -> Journal:
        """The journal that the supervisor named for this worker; the worker ends at once where it cannot be written any more."""
        return cls(Path(os.environ[JOURNAL_VARIABLE]), a_workers=True, durable=durable)

    def write(self, event: str, **fields: object) -> None:
        """Append one event."""
        line = _dumps({"event": event, "at": _time(), **fields}, ensure_ascii=False, default=str) + "\n"
        try:
            self._append(line.encode("utf-8", "replace"), event in self.durable)
        except OSError as error:
            if self.a_workers and error.errno in NO_ROOM:
                os._exit(UNWRITABLE)  # whatever caught an exception here would make a verdict on a test of it
            raise

    def _append(self, data: bytes, durable: bool) -> None:
        handle = _open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while data:  # on a disk that is nearly full a write is short first, and fails then
                data = data[_write(handle, data) :]
            if durable:
                _fsync(handle)
        finally:
            _close(handle)

    def mend(self) -> None:
        """Cut off what a kill or a full disk left of a last line: the next event would be glued to it, and lost with it."""
        if self.path.exists():
            data = self.path.read_bytes()
            if not data.endswith(b"\n"):
                os.truncate(self.path, data.rfind(b"\n") + 1)

    def read(self) -> list[Event]:
        """All events so far; a torn last line is left out."""
        return parse(self.path.read_bytes())[0] if self.path.exists() else []

    def unsettled(self) -> Event | None:
        """What the last worker said of the case after which its device no longer answered, if nobody has judged it yet."""
        found: Event | None = None
        for event in self.read():
            if event["event"] == "poisoned":
                found = event
            elif found and event["event"] in ("lost", "finish"):
                found = None
        return found

    def done(self) -> set[str]:
        """Ids that need not run again."""
        return {event["id"] for event in self.read() if event["event"] in ("finish", "death") and event.get("id")}


def settle(journal: Journal, ask: Callable[[], str]) -> bool:
    """Called by a fresh worker before its first case; `ask` says what is wrong with the device, nothing where it answers.

    Whether the worker may go on: without a device that answers, every case to come would be one more false failure.
    """
    told = journal.unsettled()
    if told is None:
        return True
    if trouble := ask():
        reason = f"the device was lost during {told['id']}, and does not answer in a fresh process either: {trouble}"
        journal.write("lost", id=told["id"], reason=reason)
        return False
    journal.write("finish", **{key: value for key, value in told.items() if key not in ("event", "at")})
    return True
