"""Words and number formats shared by all renderers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from warpwave.records import Verdict, plural, reasons

if TYPE_CHECKING:
    from warpwave.compare.model import Cell, Since, TargetSummary


NOTHING = "-"
UNTESTED = "Unverified: no target was asked for tests, and untested speeds are not used in ratios."
UNVERIFIED_MARK, SUSPECT_MARK = "?", "!"


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line that is not blank, cut to `limit` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[:limit]} …"


def left_out(number: int, ran: int, seconds: float | None = None, by: str = "--quick", noun: str = "test", stage: str = "") -> str:
    """`--quick left out 640 of 765 tests; all stages would take about 4 min for them`; without the total if none `ran`. `seconds` are those
    of one `stage`, or of all if it is empty."""
    rest = f"; {stage or 'all stages'} would take about {about(seconds)} for them" if seconds else ""
    return f"{by} left out {f'{number} of {plural(number + ran, noun)}' if ran else plural(number, noun)}{rest}"


def left_out_of(target: TargetSummary) -> str:
    """Return the same of a target."""
    return left_out(target.left_out, sum(target.tests.values()), target.left_out_s, target.left_out_for)


def about(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 100 * 60 else f"{round(seconds / 3600)} h"


def asked_for(deselected: int, ran: int, by: Iterable[str]) -> str:
    """`only 12 of 901 tests were asked for (-k softmax)`: those in the files that pytest looked into."""
    how = f" ({', '.join(by)})"
    if not deselected:
        return f"only some of the package's tests were asked for{how}"
    return f"only {ran} of {ran + deselected} tests were asked for{how}" if ran else f"{plural(deselected, 'test')} were not asked for{how}"


def number(value: float | None) -> str:
    """Format about three figures: 0.0123, 1.23, 98.1, 4321."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def marked(cell: Cell, *, untested: bool = False) -> str:
    """`4321 95%?`: a number with its share of the ceiling and marks, or the verdict without one. `untested`: nothing was verified."""
    if cell.value is None:
        return cell.verdict.value
    share = "" if cell.share is None else f" {cell.share:.0%}"
    marks = (SUSPECT_MARK if cell.suspect else "") + ("" if cell.verified or untested else UNVERIFIED_MARK)
    return number(cell.value) + share + marks


def trend(since: Since) -> str:
    """`▼ 0.92`: the speed over that of the base run, with an arrow for each direction in which a case changed for sure; `=` for none."""
    if since.speedup is None:
        return NOTHING
    arrows = "".join(arrow for arrow, change in (("▲", "faster"), ("▼", "slower")) if since.changes.get(change))
    return f"{arrows or '='} {since.speedup:.2f}"


def counts(found: dict[str, int], not_run: dict[str, int] | None = None, most: int | None = None) -> str:
    """`40 passed, 1 skipped, 3 not pretended, 2 failed`, mildest first; a dash if there is nothing to count.

    Of more than `most` reasons why something did not run, only the sum is given: `40 passed, 9 did not run`.
    """
    parts = []
    for verdict in Verdict:
        if verdict is Verdict.NOT_RUN:
            number = found.get(verdict.value, 0)
            why = reasons(number, not_run or {})
            parts += why if most is None or len(why) <= most else [f"{number} did not run"]
        elif found.get(verdict.value):
            parts.append(f"{found[verdict.value]} {verdict.value}")
    return ", ".join(parts) or NOTHING


def gravest(found: dict[str, int]) -> Verdict:
    """Return the gravest verdict in a count; `not-run` if it is empty."""
    return next((verdict for verdict in reversed(Verdict) if found.get(verdict.value)), Verdict.NOT_RUN)


def stacked(hardware: str) -> list[str]:
    """Return the short lines of a narrow column's head: `gfx`, `1201`, `RX`, `9070`, `XT` for `gfx1201 (RX 9070 XT)`."""
    family, rest = re.fullmatch(r"(\D*)(.*)", hardware, re.DOTALL).groups()  # type: ignore[union-attr]  # anything matches
    return [family, *re.split(r"[ ()]+", rest.rstrip(")"))]


def distinct(stems: Iterable[str], taken: Collection[str] = ()) -> Iterator[str]:
    """Yield each stem; if it is taken, with the next number. A number of a stem is tried once, so many equal stems cost no more."""
    used, tried = set(taken), Counter[str]()
    for stem in stems:
        name = stem
        while name in used:
            tried[stem] += 1
            name = f"{stem}-{tried[stem] + 1}"
        used.add(name)
        yield name
