"""Show progress on standard error while a target runs: a live line in a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from rich.console import Console
from rich.live import Live
from rich.status import Status
from rich.table import Table
from rich.text import Text

from warpwave.compare.known import KINDS_OF, LISTABLE, Known, is_listed, key_of_test
from warpwave.records import HARMLESS, reasons
from warpwave.render.text import left_out
from warpwave.run.legs import Leg
from warpwave.safe_text import visible

_STYLES = {"passed": "green", "xfailed": "green", "not-run": "yellow", "absent": "yellow", "known": "dim", "ended": "dim"}
# Without a terminal nobody watches a counter: a stage has one line, and a long one shows now and then that it is alive.
_PLAIN_PERIOD_S = 300.0
_ENOUGH = 5  # cases from which the time of the others is estimated
_MOST_FAILURES = 10  # shown of each leg
_MORE = "more failures follow; all of them are in the report"


class Excused:
    """What the list of known failures has about one target, as far as events tell it."""

    def __init__(self, known: Known | None, target: str) -> None:
        self._keys = known.on(target) if known else set()

    def has(self, event: dict[str, Any]) -> bool:
        """Return whether the result of a test is listed."""
        return is_listed(key_of_test(str(event.get("id")), str(event.get("verdict")), str(event.get("failed_by", ""))), self._keys)

    def may_explain(self, stage: str) -> bool:
        """Return whether the list has entries about rows of a stage that reports none of them by an event: the report judges them."""
        return stage != "test" and any(key[0] in KINDS_OF.get(stage, ()) for key in self._keys)


class Progress:
    """Follows one target's events. Use as a context manager. `place` says which of several targets it is: `1 of 2`."""

    def __init__(
        self, console: Console, target: str, quiet: bool = False, verbose: bool = False, place: str = "", known: Known | None = None
    ) -> None:
        self.console, self.target, self.quiet, self.verbose = console, target, quiet, verbose and not quiet
        self._known = Excused(known, target)
        self._label = f"{target} ({place})" if place else target
        self._status: Status | None = None
        self._bad = self._excused = 0
        self._said = self._began = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal and not self.quiet:
            self._status = self.console.status(Text(visible(f"{self._label}: preparing")))
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
            self._bad, self._excused, self._began = 0, 0, time.monotonic()
            self._show(f"{event.get('stage')} …")
        elif kind == "case":
            clock = _clock(self._began, time.monotonic()) + _estimate(event, time.monotonic() - self._began)
            self._show(_case(event, f"  {clock}"), counter=True)
        elif kind == "result" and self.verbose:
            self.say(_result(self.target, event))
        elif kind == "result" and self._known.has(event):
            self._excused += 1
        elif kind == "result" and event.get("verdict") not in HARMLESS:
            self._bad += 1
            if self._bad <= _MOST_FAILURES + 1:
                self.say(_result(self.target, event) if self._bad <= _MOST_FAILURES else f"{self.target}: {_MORE}")
        elif kind == "stage-end":
            seconds = event.get("seconds")
            stage, verdict = str(event.get("stage")), str(event.get("verdict"))
            note = _note(event)
            if verdict in LISTABLE and self._excused and not self._bad:
                verdict = "known"
            elif verdict in LISTABLE and self._known.may_explain(stage):
                verdict, note = "ended", "; ".join(filter(None, (note, "the report tells known failures from new ones")))
            self._end(stage, verdict, seconds if isinstance(seconds, float) else 0.0, note)

    def _show(self, text: str, counter: bool = False) -> None:
        if self._status is not None:
            self._status.update(Text(visible(f"{self._label}: {text}")[: self.console.width - 4]))
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


def _case(event: dict[str, Any], more: str) -> str:
    total = f"/{event['total']}" if event.get("total") else ""
    return f"{event.get('stage')} {event.get('done', 0)}{total}{more}  {event.get('id', '')}"


def _result(name: str, event: dict[str, Any]) -> str:
    message = f": {event['message']}" if event.get("message") else ""
    return f"{name}: {event.get('verdict')}: {event.get('id')}{message}"[:300]


def _estimate(event: dict[str, Any], seconds: float) -> str:
    """`, about 2:10 left`, if the cases up to now took `seconds`; empty if too few are done. A stage without a total tells its `share`."""
    done, total, share = event.get("done"), event.get("total"), event.get("share")
    if isinstance(done, int) and isinstance(total, int) and total > 0:
        share = done / total
    if not isinstance(done, int) or done < _ENOUGH or not isinstance(share, float) or not 0.0 < share < 1.0:
        return ""
    return f", about {_clock(0.0, seconds * (1.0 - share) / share)} left"


def _note(event: dict[str, Any]) -> str:
    """Return what a stage did not run, in words: by its reason, and what was left out for want of time."""
    why, number = event.get("not_run"), event.get("left_out")
    parts = reasons(0, {key: count for key, count in why.items() if isinstance(count, int)}) if isinstance(why, dict) else []
    if isinstance(number, int) and number > 0:
        noun = "point" if event.get("stage") == "bench" else "test"
        seconds, by = event.get("left_out_s"), str(event.get("left_out_by") or "--quick")
        known = seconds if isinstance(seconds, float) else None
        parts.append(left_out(number, 0, known, by, noun, f"the stage {event.get('stage')}"))
    return "; ".join(parts)


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
    """Follows legs that run side by side: a table in a terminal, plain lines otherwise. Use as a context manager."""

    def __init__(
        self, console: Console, legs: Sequence[Leg], quiet: bool = False, verbose: bool = False, known: Known | None = None
    ) -> None:
        self.console, self.quiet = console, quiet
        self._rows = {leg.name: _Row(leg) for leg in legs}
        self._plain = {leg.name: Progress(console, leg.name, quiet, verbose, known=known) for leg in legs}
        self._known = {leg.name: Excused(known, leg.target.name) for leg in legs}
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
            row.state = _case(event, f", {row.bad} failed" if row.bad else "")
        elif kind == "result" and event.get("verdict") not in HARMLESS and not self._known[leg.name].has(event):
            row.bad += 1
            if row.bad <= _MOST_FAILURES + 1:
                self._plain[leg.name].say(_result(leg.name, event) if row.bad <= _MOST_FAILURES else f"{leg.name}: {_MORE}")

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
