"""What emulated kernels ask of the card: which lines cost most over the least, what a counter proves, and what changed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warpwave.compare.model import TestProfile
from warpwave.records import Profile, ProfiledLine, grouped

# Measured on an H100 with the same counters of its profiler: docs/profile-figures.md.
POOR_ORDER = (
    "The order of configurations leaves out slow ones, and does not find the fastest: on an H100, that was in the first quarter "
    "for 2 of 14 cases, and the first quarter's fastest was at most 5% slower."
)
NO_SPEED = (
    "Computed from counts; no card has run this. Caches, latency and lower clocks are not modelled: a bound is no speed. "
    "Sources, and what is assumed: docs/profile-figures.md."
)


@dataclass(frozen=True)
class Largest:
    """The largest profile of a kernel function on a target, of the `tests` that launched it.

    `candidates` are those of the configurations of an autotuned kernel in the same test, this one first: by the largest of their bounds,
    then the next ones. Empty if there is one.
    """

    target: str
    profile: Profile
    tests: int
    candidates: tuple[Profile, ...] = ()


def largest(profiles: Iterable[TestProfile]) -> list[Largest]:
    """Return for each kernel function the test in which it executed most, those with the highest bound first."""
    found = grouped(((one.target, one.profile.kernel, one.profile.function), one) for one in profiles)
    picked = [_largest(rows) for rows in found.values()]
    return sorted(picked, key=lambda one: (-max(one.profile.bounds.values(), default=0.0), one.target, one.profile.function))


def _largest(rows: list[TestProfile]) -> Largest:
    case = max((row.profile for row in rows), key=lambda profile: profile.counters.get("instructions", 0)).case
    ranked = sorted((row.profile for row in rows if row.profile.case == case), key=_rank)
    candidates = tuple({one.configuration: one for one in reversed(ranked)}.values())[::-1]
    return Largest(rows[0].target, ranked[0], len({row.profile.case for row in rows}), candidates if len(candidates) > 1 else ())


def _rank(profile: Profile) -> list[int]:
    """Return the bounds of a configuration, the largest first, in steps of one percent: less decides nothing."""
    return sorted((round(100 * math.log(bound)) for bound in profile.bounds.values() if bound > 0), reverse=True)


def fed(profile: Profile) -> str:
    """Return for which share of the time matrix units can be busy at most; empty without matrix instructions."""
    matrix = profile.bounds.get("matrix", 0)
    return f"matrix units are busy for at most {matrix / max(profile.bounds.values()):.0%} of the time" if matrix else ""


def costly(found: Sequence[Largest]) -> list[tuple[Largest, ProfiledLine]]:
    """Return the lines of these profiles, those first whose accesses cost most over the least for their bytes, then by instructions."""
    rows = [(one, line) for one in found for line in one.profile.lines]
    return sorted(rows, key=lambda row: (-row[1].waste, -row[1].counters.get("instructions", 0)))


def advice(line: ProfiledLine) -> str:
    """Return what a line's counters prove to be too much, and what to do; empty if they prove nothing."""
    has = line.counters.get
    lines, least, cycles, fewest = (has(name, 0) for name in ("lines64", "least64", "lds_cycles", "least_lds_cycles"))
    costs = {
        "memory": 64 * (lines - least) if lines >= 2 * least else 0,
        "lds": 128 * (cycles - fewest) if 2 * cycles >= 3 * fewest else 0,
        "spills": has("scratch_bytes", 0),
    }
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] and worst == "memory":
        accesses = max(1, has("memory", 0))
        why = f"an access of a wave touches {lines / accesses:.3g} lines of 64 bytes, and {least / accesses:.3g} would hold its bytes"
        return f"{why}: let neighbouring lanes have neighbouring elements, or transpose through LDS"
    if costs[worst] and worst == "lds":
        why = f"its accesses to LDS take {cycles / max(1, fewest):.3g} times the fewest cycles of the banks"
        return f"{why}: pad the rows, or swizzle the layout"
    if costs[worst]:
        return f"{costs[worst]:,} bytes went to scratch memory and back for want of registers: take a smaller tile, or more warps"
    lanes = has("vector_lanes", 0)
    if lanes and 2 * has("lanes_off", 0) >= lanes:
        off = has("lanes_off", 0) / lanes
        return f"{off:.0%} of its lanes are switched off: let the block fit the size, or give a program fewer warps"
    return ""


@dataclass(frozen=True)
class Moved:
    """A counter, or a bound in microseconds, that differs between two runs. `function` names the architectures, too."""

    case: str
    function: str
    counter: str
    before: float
    after: float


def moved(base: Iterable[Profile], head: Iterable[Profile]) -> list[Moved]:
    """Return what differs for kernels of the same test in both runs, the largest change first. The architectures may differ."""
    before = {key: one for one in base for key in _keys(one)}
    found = []
    for one in head:
        known = next((before[key] for key in _keys(one) if key in before), None)
        if known is None:
            continue
        change = one.architecture if known.architecture == one.architecture else f"{known.architecture} → {one.architecture}"
        function = ", ".join(filter(None, (f"{one.function} on {change}", one.configuration)))
        sides = [{**{f"bound by {name} (µs)": value for name, value in side.bounds.items()}, **side.counters} for side in (known, one)]
        for name in dict.fromkeys([*sides[0], *sides[1]]):
            old, new = (float(side.get(name, 0)) for side in sides)
            if old != new:
                found.append(Moved(one.case, function, name, old, new))
    return sorted(found, key=lambda row: (-_change(row), row.case, row.function, row.counter))


def _keys(one: Profile) -> list[tuple[str, ...]]:
    """Return what a kernel of a test is found by in another run, the closest first."""
    case, card, chosen = (one.case, one.function), ("architecture", one.architecture), ("configuration", one.configuration)
    return [(*case, *card, *chosen), (*case, *card), (*case, *chosen), case]


def _change(row: Moved) -> float:
    """Return by which factor a counter grew or shrank; what was 0 comes first."""
    low, high = sorted((row.before, row.after))
    return high / low if low else float("inf")
