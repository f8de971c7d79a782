"""What a report page is made of, before it is drawn: sections of tables and lines, the same for the terminal and for Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.compare.comparison import Comparison
from harness.records import Verdict


@dataclass(frozen=True)
class Bit:
    """A piece of text. `name` marks what came from outside and is shown literally; `verdict` gives it a colour."""

    text: str
    verdict: Verdict | None = None
    name: bool = False


Line = tuple[Bit, ...]
MOST_LINES = 2000  # of a section, also where all are asked for
_LONGEST = 2000  # characters of a name


@dataclass(frozen=True)
class Section:
    """A title, a table where there are `heads`, lines below it, and a legend. `folded` ones are for who wants to know more.

    Columns in `right` hold numbers; those from `narrow` on rather break their cells than take room from the ones before. `quiet` are the
    positions of rows that need no look; of the first `merged` columns an empty cell repeats the one above.
    """

    title: str
    heads: tuple[Line, ...] = ()
    rows: tuple[tuple[Line, ...], ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    narrow: int | None = None
    folded: bool = False
    quiet: frozenset[int] = frozenset()
    merged: int = 0


def split(section: Section) -> list[Section]:
    """What needs a look, and folded behind it the rows that need none; one of the two where there is nothing of the other."""
    if not section.quiet or section.folded:
        return [section]
    filled: list[tuple[Line, ...]] = []
    for row in section.rows:
        lead = tuple(cell or filled[-1][column] if filled else cell for column, cell in enumerate(row[: section.merged]))
        filled.append(lead + row[section.merged :])
    loud = tuple(row for position, row in enumerate(filled) if position not in section.quiet)
    quiet = tuple(row for position, row in enumerate(filled) if position in section.quiet)
    if not loud:
        return [replace(section, rows=quiet, folded=True, lines=(), quiet=frozenset()), *_only_lines(section)]
    rest = replace(section, title=f"{section.title}, the rest", rows=quiet, lines=(), legend=(), folded=True, quiet=frozenset())
    return [replace(section, rows=loud, quiet=frozenset()), rest]


def _only_lines(section: Section) -> list[Section]:
    return [Section(section.title, lines=section.lines)] if section.lines else []


def say(*parts: str | Bit) -> Line:
    """A line of the report's own words and of bits."""
    return tuple(part if isinstance(part, Bit) else Bit(part) for part in parts if part)


def name(text: str) -> Bit:
    """A text from outside; a very long one is cut, for a line is wrapped letter by letter."""
    return Bit(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …", name=True)


def names(texts: Iterable[str]) -> tuple[Line, ...]:
    """A cell for each text from outside."""
    return tuple((name(text),) if text else () for text in texts)


def shorten(lines: Iterable[Line], few: int | None, total: int | None = None) -> tuple[Line, ...]:
    """The first `few` lines and a word on the rest; 2,000 where `few` is None. With `total`, which counts them, the rest is never made."""
    most = MOST_LINES if few is None else few
    if total is None:
        lines = list(lines)
        total = len(lines)
    if total <= most:
        return tuple(lines)
    return (*itertools.islice(lines, most), say(f"… and {total - most} more lines, all of them in comparison.json"))


def lacking(comparison: Comparison, there: set[str], what: str) -> tuple[Line, ...]:
    """A line for each target that a table has nothing of, with its verdict where that explains it."""
    left = [target for target in comparison.targets if target.target not in there]
    return tuple(say(name(target.target), f": {what}{'' if target.complete else f', {target.verdict.value}'}") for target in left)
