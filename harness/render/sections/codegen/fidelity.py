"""Comparison → sections: how much of a GPU's JIT code the compile stage reproduces without a GPU."""

from __future__ import annotations

from harness.compare.model import Comparison, Deviation, Fidelity, Likeness
from harness.render.sections.model import Line, Section, name, say, shorten
from harness.render.text import first_line, plural

TITLE = "Generated code against the card's own JIT"


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return a line per target and compile stage.

    Launches are listed by name with `few` None, or if a binary differs for no known reason.
    """
    if not comparison.fidelity:
        return []
    lines: list[Line] = []
    for entry in comparison.fidelity:
        listed = [deviation for deviation in entry.deviations if few is None or deviation.likeness is Likeness.ANOTHER_BINARY]
        lines += [line(entry), *map(_deviation, listed)]
    return [Section(TITLE, lines=shorten(lines, few))]


def line(entry: Fidelity) -> Line:
    """`cuda against cpu: of 47 launches of the card's own JIT, 46 equal byte for byte, 1 specialized otherwise.`"""
    lead = say(name(entry.target), *((" against ", name(entry.against)) if entry.against else ()), ": ")
    if not entry.against:
        return lead + say(f"{plural(entry.launched, 'launch', 'launches')} of the card's own JIT, not compared: ", name(entry.reason))
    counts = [f"{entry.equal} equal byte for byte"]
    counts += [f"{entry.count(kind)} {kind.value}" for kind in Likeness if kind is not Likeness.EQUAL and entry.count(kind)]
    return lead + say(f"of {plural(entry.launched, 'launch', 'launches')} of the card's own JIT, {', '.join(counts)}")


def _deviation(entry: Deviation) -> Line:
    where = (" in ", name(entry.origin)) if entry.origin else ()
    return say("  ", name(f"{entry.kernel} {entry.function}"), *where, ": ", name(first_line(entry.reason)))
