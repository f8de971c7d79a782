"""The model of a report page before it is drawn: sections of tables and lines, shared by the terminal and Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from warpwave.compare.answer import Distance
from warpwave.records import Verdict


@dataclass(frozen=True)
class Bit:
    """A piece of text. `name` marks text from outside, which is shown literally; `verdict` gives it a colour, and so does `far`."""

    text: str
    verdict: Verdict | None = None
    name: bool = False
    far: Distance | None = None


Line = tuple[Bit, ...]
BREAK = Bit("\n")  # a cell goes on below, where cells have several lines; elsewhere it is a space
MOST_LINES = 2000  # per section, even if all were requested
_LONGEST = 2000  # characters of a name


@dataclass(frozen=True)
class Section:
    """A title, a table if there are `heads`, lines below it, a legend, and text to `paste` somewhere. `folded` sections hold details.

    Columns in `right` are right-aligned numbers. Columns from `narrow` on break their cells before they take room from earlier ones.
    `groups` are columns that belong together, with their common head; a page that is too narrow draws some of them below the others.
    Where room is scarce, the column `under` stands below the first one.
    """

    title: str
    heads: tuple[Line, ...] = ()
    rows: tuple[tuple[Line, ...], ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    narrow: int | None = None
    folded: bool = False
    paste: str = ""
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    under: int | None = None


@dataclass(frozen=True)
class Block:
    """A line and the lines indented below it, without their indentation."""

    head: Line
    below: tuple[Line, ...]


def blocks(lines: Iterable[Line]) -> list[Block]:
    """Group lines into blocks: a line that starts with two spaces belongs to the line above."""
    found: list[Block] = []
    for line in filter(None, lines):
        first, rest = line[0], line[1:]
        if found and first.text.startswith("  ") and not first.name:
            own = first.text.strip()
            kept = ((type(first)(f"{own} ", first.verdict),) if own else ()) + rest
            found[-1] = Block(found[-1].head, (*found[-1].below, kept))
        else:
            found.append(Block(line, ()))
    return found


def say(*parts: str | Bit) -> Line:
    """Return a line of the report's own words and of bits."""
    return tuple(part if isinstance(part, Bit) else Bit(part) for part in parts if part)


def name(text: str) -> Bit:
    """Return text from outside as a bit, cut if it is very long: wrapping works letter by letter."""
    return Bit(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …", name=True)


def names(texts: Iterable[str]) -> tuple[Line, ...]:
    """Return a cell for each text from outside."""
    return tuple((name(text),) if text else () for text in texts)


def shorten(lines: Iterable[Line], few: int | None, total: int | None = None) -> tuple[Line, ...]:
    """Return the first `few` lines (2,000 if None) and a note on the rest. `total` gives their number, so that the rest is never made."""
    most = MOST_LINES if few is None else few
    if total is None:
        lines = list(lines)
        total = len(lines)
    if total <= most:
        return tuple(lines)
    return (*itertools.islice(lines, most), say(f"… and {total - most} more lines in comparison.json"))
