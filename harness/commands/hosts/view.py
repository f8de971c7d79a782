"""Show legs that run side by side, on standard error: a table with a line for each in a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.commands.progress import Progress
from harness.records import HARMLESS
from harness.render.text import visible
from harness.run.legs.plan import Leg

_STYLES = {"passed": "green", "xfailed": "green", "not-run": "yellow", "absent": "yellow"}
_MOST_FAILURES = 5  # shown above the table, of each leg
_FRAME_S = 0.25
_AROUND = 4  # lines of the terminal beside the table's rows


@dataclass
class _Row:
    """What is known of one leg. `started`, `began` and `ended` are times in s: of its process, of its first stage, of its end."""

    leg: Leg
    state: str = "waits for its turn"
    verdict: str = ""
    bad: int = 0
    started: Union[float, None] = None
    began: Union[float, None] = None
    ended: Union[float, None] = None

    @property
    def rank(self) -> int:
        """Where the row is shown if there is no room for all: what went wrong, what runs, what waits, what passed."""
        return 3 if self.verdict == "passed" else 0 if self.verdict else 1 if self.started is not None else 2


class LegsView:
    """Follows legs that run side by side. Use as a context manager."""

    def __init__(self, console: Console, legs: Sequence[Leg], quiet: bool = False, verbose: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self._rows = {leg.name: _Row(leg) for leg in legs}
        self._plain = {leg.name: Progress(console, leg.name, quiet, verbose) for leg in legs}
        self._live: Union[Live, None] = None
        self._drawn = 0.0

    def __enter__(self) -> LegsView:
        if self.console.is_terminal and not self.quiet:
            # Without a thread of its own: legs are forked from this process.
            self._live = Live(console=self.console, auto_refresh=False, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.refresh()
            self._live.stop()

    def started(self, leg: Leg) -> None:
        """Show that a leg has started."""
        row = self._rows[leg.name]
        row.started, row.state = time.monotonic(), "starting"
        self._line(leg, f"starting on {leg.where}")

    def say(self, leg: Leg, line: str) -> None:
        """Show a line of an engine: building, pending in a queue."""
        text = line.removeprefix(f"{leg.name}: ").removeprefix(f"{leg.target.name}: ")
        self._rows[leg.name].state = text
        self._line(leg, text)

    def on_event(self, leg: Leg, event: dict[str, Any]) -> None:
        """Show an event of the inside. The code under test can print events too, so the fields may hold anything."""
        row, kind = self._rows[leg.name], event.get("event")
        if row.began is None:
            row.began = time.monotonic()
        if self._live is None:
            self._plain[leg.name].on_event(event)
        elif kind == "stage":
            row.state = f"{event.get('stage')} …"
        elif kind == "case":
            total = f"/{event['total']}" if event.get("total") else ""
            row.state = f"{event.get('stage')} {event.get('done', 0)}{total}{self._failed(row)}  {event.get('id', '')}"
        elif kind == "result" and event.get("verdict") not in HARMLESS:
            row.bad += 1
            text = f"{leg.name}: {event.get('verdict')}: {event.get('id')}: {event.get('message', '')}"
            more = f"{leg.name}: more failures follow; all of them are in the report"
            if row.bad <= _MOST_FAILURES + 1:
                self.console.print(Text(visible(text if row.bad <= _MOST_FAILURES else more)[:300]), soft_wrap=True)

    def ended(self, leg: Leg, verdict: str, reason: str) -> None:
        """Show how a leg ended."""
        row = self._rows[leg.name]
        row.ended, row.verdict, row.state = time.monotonic(), verdict, f"{verdict}{': ' + reason if reason else ''}"
        self._line(leg, row.state)

    def tick(self) -> None:
        """Draw the table again, a few times a second."""
        if self._live is not None and time.monotonic() - self._drawn >= _FRAME_S:
            self._drawn = time.monotonic()
            self._live.refresh()

    def _line(self, leg: Leg, text: str) -> None:
        if self._live is None:
            self._plain[leg.name].say(f"{leg.name}: {text}")

    def _failed(self, row: _Row) -> str:
        return f", {row.bad} failed" if row.bad else ""

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("leg", no_wrap=True, max_width=max(12, self.console.width // 6))
        table.add_column("host", no_wrap=True, max_width=max(14, self.console.width // 5))
        table.add_column("state", no_wrap=True, ratio=1)
        table.add_column("waited", justify="right", no_wrap=True)
        table.add_column("ran", justify="right", no_wrap=True)
        rows = list(self._rows.values())
        room = max(3, self.console.height - _AROUND)
        shown = rows if len(rows) <= room else sorted(sorted(rows, key=lambda row: row.rank)[: room - 1], key=rows.index)
        now = time.monotonic()
        for row in shown:
            style = _STYLES.get(row.verdict, "red") if row.verdict else "" if row.started is not None else "dim"
            table.add_row(
                Text(visible(row.leg.name)),
                Text(visible(row.leg.where)),
                Text(visible(row.state), style),
                _clock(row.started, row.began or row.ended or now),
                _clock(row.began, row.ended or now),
            )
        if len(shown) < len(rows):
            hidden = Counter(row.verdict or ("running" if row.started is not None else "waiting") for row in rows if row not in shown)
            words = ", ".join(f"{count} {word}" for word, count in sorted(hidden.items()))
            table.add_row(Text(f"and {len(rows) - len(shown)} more", "dim"), "", Text(words, "dim"), "", "")
        return table


def _clock(since: float | None, until: float) -> str:
    """Return a time as `3:12` or `1:03:12`; empty if it has not begun."""
    if since is None:
        return ""
    minutes, seconds = divmod(int(until - since), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
