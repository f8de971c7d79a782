"""Show progress on standard error while a target runs: a live line in a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from harness.records import HARMLESS, reasons
from harness.render.text import left_out, visible

_STYLES = {"passed": "green", "xfailed": "green", "not-run": "yellow"}
# Without a terminal nobody watches a counter. One line a minute shows that the run is alive.
_PLAIN_PERIOD_S = 60.0


class Progress:
    """Follows one target's events. Use as a context manager."""

    def __init__(self, console: Console, target: str, quiet: bool = False, verbose: bool = False) -> None:
        self.console, self.target, self.quiet, self.verbose = console, target, quiet, verbose and not quiet
        self._status: Status | None = None
        self._bad = 0
        self._said = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal and not self.quiet:
            self._status = self.console.status(Text(visible(f"{self.target}: preparing")))
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        """Print one line from an engine: building, pulling, falling back."""
        if not self.quiet:
            self.console.print(Text(visible(line)), soft_wrap=True)

    def on_event(self, event: dict[str, Any]) -> None:
        """Handle one event from the inside. The code under test can print events too, so the fields may hold anything."""
        kind = event.get("event")
        if kind == "stage":
            self._bad = 0
            self._show(f"{event.get('stage')} …")
        elif kind == "case":
            total = f"/{event['total']}" if event.get("total") else ""
            self._show(f"{event.get('stage')} {event.get('done', 0)}{total}  {event.get('id', '')}", counter=True)
        elif kind == "result" and self.verbose:
            message = f": {event['message']}" if event.get("message") else ""
            self.say(f"{self.target}: {event.get('verdict')}: {event.get('id')}{message}"[:300])
        elif kind == "result" and event.get("verdict") not in HARMLESS:
            self._bad += 1
            if self._bad <= 10:
                self.say(f"{self.target}: {event.get('verdict')}: {event.get('id')}: {event.get('message', '')}"[:300])
            elif self._bad == 11:
                self.say(f"{self.target}: more failures follow; all of them are in the report")
        elif kind == "stage-end":
            seconds = event.get("seconds")
            self._end(str(event.get("stage")), str(event.get("verdict")), seconds if isinstance(seconds, float) else 0.0, _note(event))

    def _show(self, text: str, counter: bool = False) -> None:
        if self._status is not None:
            self._status.update(Text(visible(f"{self.target}: {text}")[: self.console.width - 4]))
        elif not self.quiet and counter and time.monotonic() - self._said > _PLAIN_PERIOD_S:
            self._said = time.monotonic()
            self.say(f"{self.target}: {text}")

    def _end(self, stage: str, verdict: str, seconds: float, note: str) -> None:
        if self.quiet:
            return
        line = Text(visible(f"{self.target}: {stage:<8}"))
        line.append(visible(f"{verdict:<10}"), _STYLES.get(verdict, "red"))
        line.append(f"{seconds:7.1f} s")
        line.append(visible(f"  {note}" if note else ""))
        self.console.print(line, soft_wrap=True)  # a log's lines are not cut at 80 characters


def _note(event: dict[str, Any]) -> str:
    """Return what a stage did not run, in words: by its reason, and what --quick left out."""
    why, counts, number = (event.get(name) for name in ("not_run", "counts", "left_out"))
    parts = reasons(0, {key: count for key, count in why.items() if isinstance(count, int)}) if isinstance(why, dict) else []
    if isinstance(number, int) and number > 0:
        tested = counts if event.get("stage") == "test" and isinstance(counts, dict) else {}
        parts.append(left_out(number, sum(count for count in tested.values() if isinstance(count, int))))
    return "; ".join(parts)
