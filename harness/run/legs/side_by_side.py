"""Run legs side by side: a child process for each, one watcher for all. A signal stops all of them, gracefully."""

from __future__ import annotations

import importlib
import selectors
import signal
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from harness.engines import signals
from harness.engines.snapshot import take_once
from harness.errors import UsageError, WarpwaveError
from harness.records import RunRecord
from harness.records.registry.engines import ENGINES
from harness.run.legs.plan import Leg
from harness.run.legs.process import EVENT, FAILED, RECORD, REFUSED, SAY, LegProcess

_TICK_S = 0.25


class Watcher(Protocol):
    """Shows what the legs do."""

    def started(self, leg: Leg) -> None:
        """Show that a leg has started."""
        ...

    def say(self, leg: Leg, line: str) -> None:
        """Show one line of progress."""
        ...

    def on_event(self, leg: Leg, event: dict[str, Any]) -> None:
        """Show an event of the inside."""
        ...

    def ended(self, leg: Leg, verdict: str, reason: str) -> None:
        """Show how a leg ended."""
        ...

    def tick(self) -> None:
        """Show that time passes; called about four times a second."""
        ...


def run_side_by_side(lanes: Sequence[Sequence[Leg]], watcher: Watcher) -> tuple[list[RunRecord], list[WarpwaveError]]:
    """Run the legs of each lane one after the other, and the lanes side by side. Return the records, and why legs were refused.

    If the user stops the run, every running leg stops, and no other starts. A leg whose process was killed has no record here: its
    `run.json` says that it has not ended.

    Raises:
        UsageError: the package cannot be sent to another machine. Nothing was started.
    """
    _prepare(lanes)
    waiting = [deque(lane) for lane in lanes]
    watch = _Watch(watcher)
    with signals.held(), selectors.DefaultSelector() as selector:
        running: dict[int, tuple[LegProcess, deque[Leg]]] = {}

        def start_next(lane: deque[Leg]) -> None:
            if lane and not signals.asked():
                child = LegProcess(lane.popleft(), list(running))
                running[child.pipe] = (child, lane)
                selector.register(child.pipe, selectors.EVENT_READ)
                watcher.started(child.leg)

        for lane in waiting:
            start_next(lane)
        passed_on = False
        while running:
            for key, _ in selector.select(_TICK_S):
                child, lane = running[key.fd]
                for kind, value in child.read():
                    watch.take(child.leg, kind, value)
                if child.status is not None:
                    selector.unregister(key.fd)
                    del running[key.fd]
                    watch.close(child.leg, child.status)
                    start_next(lane)
            if signals.asked() and not passed_on:
                passed_on = True
                for child, _ in running.values():
                    child.stop(signal.SIGTERM if signals.terminated() else signal.SIGINT)
            watcher.tick()
    return watch.records, watch.refused


class _Watch:
    """Takes what the children tell."""

    def __init__(self, watcher: Watcher) -> None:
        self.records: list[RunRecord] = []
        self.refused: list[WarpwaveError] = []
        self._watcher = watcher
        self._ended: set[str] = set()
        self._reader = TypeAdapter(RunRecord)

    def take(self, leg: Leg, kind: str, value: Any) -> None:
        """Take one thing that a leg's process told."""
        if kind == SAY:
            self._watcher.say(leg, value)
        elif kind == EVENT:
            self._watcher.on_event(leg, value)
        elif kind == REFUSED:
            self.refused.append(UsageError(*value))
            self._end(leg, "refused", value[0])
        elif kind == FAILED:
            self._end(leg, "infra", f"warpwave itself failed: {value}; see {leg.log}")
        elif kind == RECORD:
            try:
                record = self._reader.validate_python(value)
            except ValidationError as error:  # the folder has the same record
                self._end(leg, "infra", f"its record cannot be read: {error.errors()[0]['msg']}")
                return
            self.records.append(record)
            self._end(leg, record.verdict.value, record.reason)

    def close(self, leg: Leg, status: int) -> None:
        """Note that a leg's process has ended, perhaps without telling how."""
        if leg.name not in self._ended:
            self._end(leg, "incomplete", f"its process ended before it could tell how (status {status}); --resume continues the leg")

    def _end(self, leg: Leg, verdict: str, reason: str) -> None:
        self._ended.add(leg.name)
        self._watcher.ended(leg, verdict, reason)


def _prepare(lanes: Sequence[Sequence[Leg]]) -> None:
    """Import the engines, and pack what goes to other machines, before the children are forked: they share both."""
    legs = [leg for lane in lanes for leg in lane]
    for name in {leg.engine for leg in legs}:
        importlib.import_module(ENGINES[name].module)
    for leg in legs:
        if ENGINES[leg.engine].needs_host:
            take_once(leg.options)
