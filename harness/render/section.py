"""What a report page is made of, before it is drawn: sections of tables and lines, the same for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.records import Verdict


@dataclass(frozen=True)
class Bit:
    """A piece of text. `name` marks what came from outside and is shown literally; `verdict` gives it a colour."""

    text: str
    verdict: Verdict | None = None
    name: bool = False


Line = tuple[Bit, ...]


@dataclass(frozen=True)
class Section:
    """A title, a table where there are `heads`, lines below it, and a legend. `folded` ones are for who wants to know more.

    Columns in `right` hold numbers; those from `narrow` on rather break their cells than take room from the ones before.
    """

    title: str
    heads: tuple[Line, ...] = ()
    rows: tuple[tuple[Line, ...], ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    narrow: int | None = None
    folded: bool = False


def say(*parts: str | Bit) -> Line:
    """A line of the report's own words and of bits."""
    return tuple(part if isinstance(part, Bit) else Bit(part) for part in parts if part)


def name(text: str) -> Bit:
    """A text from outside."""
    return Bit(text, name=True)


def names(texts: Iterable[str]) -> tuple[Line, ...]:
    """A cell for each text from outside."""
    return tuple((name(text),) if text else () for text in texts)


def shorten(lines: Sequence[Line], few: int | None) -> tuple[Line, ...]:
    """The first `few` lines and a word on the rest; all where `few` is None."""
    if few is None or len(lines) <= few:
        return tuple(lines)
    return (*lines[:few], say(f"… and {len(lines) - few} more lines, all of them in comparison.json"))
