"""Comparison → sections: what emulated kernels ask of the card, by line of the source."""

from __future__ import annotations

from collections.abc import Sequence

from warpwave.compare.model import Comparison
from warpwave.compare.profile import NO_SPEED, POOR_ORDER, Largest, Moved, advice, costly, fed, largest
from warpwave.records import ProfiledLine, Verdict, plural
from warpwave.render.sections.model import Bit, Line, Section, name, say, shorten
from warpwave.render.text import NOTHING, number

TITLE = "What kernels ask of the card"
_WORST, _ADVISED = 10, 3


def profile_sections(comparison: Comparison, few: int | None = _WORST) -> list[Section]:
    """Return the lines that cost most over the least, and the least time of each kernel; empty if nothing was counted."""
    found = largest(comparison.profiles)
    if not found:
        return []
    several = len({one.target for one in found}) > 1
    rows = costly(found)
    heads = ("line", "source", "lines of 64 B", "fewest", "LDS cycles", "fewest", "spilled bytes", "instructions")
    cells = tuple(_row(one, line, several) for one, line in (rows if few is None else rows[:few]))
    lines = [line for one in found for line in (_kernel(one, several), *_candidates(one))]
    advised = [(line, text) for one, line in rows if (text := advice(line))][:_ADVISED]
    lines += [say(name(line.place), ": ", text) for line, text in advised]
    shown = shorten(lines, None if few is None else 2 * few)
    legend = (NO_SPEED, POOR_ORDER) if any(one.candidates for one in found) else (NO_SPEED,)
    return [Section(TITLE, tuple(map(say, heads)), cells, shown, legend, right=(2, 3, 4, 5, 6, 7))]


def _candidates(one: Largest) -> list[Line]:
    """Return the configurations of an autotuned kernel by their bounds, the least first."""
    return [say(f"{place}. ", name(each.configuration), f": {each.bound}") for place, each in enumerate(one.candidates, 1)]


def _row(one: Largest, line: ProfiledLine, several: bool) -> tuple[Line, ...]:
    has = line.counters.get
    where = f"{one.target} {line.place}" if several else line.place
    pairs = [_pair(has(some, 0), has(least, 0)) for some, least in (("lines64", "least64"), ("lds_cycles", "least_lds_cycles"))]
    scratch = say(Bit(f"{has('scratch_bytes', 0):,}", Verdict.FAILED)) if has("scratch_bytes", 0) else say(NOTHING)
    return (say(name(where)), say(name(line.text[:80])), *pairs[0], *pairs[1], scratch, say(f"{has('instructions', 0):,}"))


def _pair(some: int, least: int) -> tuple[Line, Line]:
    if not some:
        return say(NOTHING), say(NOTHING)
    return say(Bit(f"{some:,}", Verdict.FAILED if some >= 2 * least else None)), say(f"{least:,}")


def _kernel(one: Largest, several: bool) -> Line:
    """Return `softmax_kernel: at least 41 µs by memory (LDS 3, vector 2 µs); 50% of the warps fit (registers); …`."""
    profile = one.profile
    rest = ", ".join(f"{name_} {number(value)}" for name_, value in sorted(profile.bounds.items(), key=lambda item: -item[1])[1:])
    fits = "" if profile.occupancy is None else f"; {profile.occupancy:.0%} of the warps fit ({', '.join(profile.limited_by)})"
    fits += f"; {fed(profile)}" if fed(profile) else ""
    where = f" in {plural(one.tests, 'test')}, the largest of them {profile.case}" if one.tests > 1 else f" in {profile.case}"
    who = f"{one.target} {profile.function}" if several else profile.function
    moved = profile.counters.get("read_bytes", 0) + profile.counters.get("written_bytes", 0)
    asked = profile.counters.get("asked_bytes", 0)
    traffic = f"; {asked:,} bytes asked for, {moved:,} in distinct places" if asked else ""
    return say(name(who), ": ", profile.bound or "no figures of this card", f" ({rest} µs)" if rest else "", fits, traffic, name(where))


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else number(value)


def moved_sections(rows: Sequence[Moved], few: int | None) -> list[Section]:
    """Return the counters that differ between two runs."""
    heads = tuple(map(say, ("test", "kernel", "counter", "before", "now", "factor")))
    cells = tuple(
        (
            say(name(row.case)),
            say(name(row.function)),
            say(name(row.counter)),
            say(_amount(row.before)),
            say(_amount(row.after)),
            say(f"{row.after / row.before:.3g} times" if row.before else "new"),
        )
        for row in (rows if few is None else rows[:few])
    )
    if not cells:
        return [Section("Counters that moved", lines=(say("none: both runs have the same counts, or no kernel of a test in common"),))]
    left = (say(f"… and {len(rows) - len(cells)} more: --full"),) if len(rows) > len(cells) else ()
    return [Section("Counters that moved", heads, cells, left, (NO_SPEED,), right=(3, 4, 5))]
