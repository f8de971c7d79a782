"""Comparison → sections: how much of what a card's JIT compiled the compile stage makes without a GPU."""

from __future__ import annotations

from harness.compare.comparison import Comparison, Deviation, Fidelity, Likeness
from harness.render.sections.model import Line, Section, name, say, shorten
from harness.render.text import first_line, plural

TITLE = "Generated code against the card's own JIT"


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """A line a target and compile stage; with all of them, or where a binary differs for no reason that is known, the launches by name."""
    if not comparison.fidelity:
        return []
    lines: list[Line] = []
    for entry in comparison.fidelity:
        told = [one for one in entry.deviations if few is None or one.likeness is Likeness.ANOTHER_BINARY]
        lines += [line(entry), *map(_deviation, told)]
    return [Section(TITLE, lines=shorten(lines, few))]


def line(entry: Fidelity) -> Line:
    """`cuda against cpu: of 47 launches of the card's own JIT, 46 equal byte for byte, 1 specialized otherwise.`"""
    lead = say(name(entry.target), *((" against ", name(entry.against)) if entry.against else ()), ": ")
    if not entry.against:
        return lead + say(
            f"{plural(entry.launched, 'launch', 'launches')} of the card's own JIT, held against nothing: ", name(entry.reason)
        )
    told = [f"{entry.equal} equal byte for byte"]
    told += [f"{entry.count(kind)} {kind.value}" for kind in Likeness if kind is not Likeness.EQUAL and entry.count(kind)]
    return lead + say(f"of {plural(entry.launched, 'launch', 'launches')} of the card's own JIT, {', '.join(told)}")


def _deviation(entry: Deviation) -> Line:
    where = (" in ", name(entry.origin)) if entry.origin else ()
    return say("  ", name(f"{entry.kernel} {entry.function}"), *where, ": ", name(first_line(entry.reason)))
