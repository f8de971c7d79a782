"""Comparison → what emulated kernels ask of the card, as the page draws it: the source beside bars, the least times, and a roofline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warpwave.compare.model import Comparison
from warpwave.compare.profile import Largest, advice, fed, largest
from warpwave.records import Profile, ProfiledLine, grouped
from warpwave.render.charts.roofline import counted
from warpwave.render.text import number

_KERNELS, _LINES = 20, 60
_WASTEFUL = 2  # times the fewest


def costs(comparison: Comparison) -> dict[str, Any] | None:
    """Return what the page shows of profiles; None without any."""
    found = largest(comparison.profiles)
    if not found:
        return None
    return {
        "kernels": list(map(_kernel, found[:_KERNELS])),
        "left_out": max(0, len(found) - _KERNELS),
        "roof": counted(found[:_KERNELS]),
    }


def _kernel(one: Largest) -> dict[str, Any]:
    """Return one kernel: its bound, its times by resource with bars, and its lines, file by file."""
    profile = one.profile
    longest = max(profile.bounds.values(), default=0.0) or 1.0
    shown = sorted(profile.lines[:_LINES], key=lambda line: (line.file, line.line))
    most = {name: max((line.counters.get(name, 0) for line in shown), default=0) or 1 for name in ("lines64", "lds_cycles", "instructions")}
    files = grouped((line.file.rpartition("/")[2] or "no source line", _line(line, most)) for line in shown)
    return {
        "name": f"{profile.function} on {one.target}",
        "case": f"{profile.case}, the largest of {one.tests} tests" if one.tests > 1 else profile.case,
        "bound": profile.bound or "no published figures of this card",
        "facts": list(_facts(profile)),
        "times": [
            (name, _bar(f"{number(value)} µs", value / longest))
            for name, value in sorted(profile.bounds.items(), key=lambda item: -item[1])
        ],
        "files": list(files.items()),
        "candidates": [(each.configuration, each.bound) for each in one.candidates],  # an autotuned kernel's, by their bounds
    }


def _bar(words: str, share: float, least: float = 0, is_wasteful: bool = False) -> dict[str, Any]:
    """Return a bar of length `share` (0 to 1), of which `least` is the fewest; `words` say both."""
    return {"words": words, "share": share, "least": least, "is_wasteful": is_wasteful}


def _facts(profile: Profile) -> Iterable[str]:
    has = profile.counters.get
    if profile.occupancy is not None:
        yield f"{profile.occupancy:.0%} of the warps fit (limited by {', '.join(profile.limited_by)})"
    if asked := has("asked_bytes", 0):
        yield f"{asked:,} bytes asked for, {has('read_bytes', 0):,} read and {has('written_bytes', 0):,} written in distinct places"
    if profile.matrix:
        kinds = ", ".join(f"{count:,} {name}" for name, count in profile.matrix.items())
        yield f"{kinds}; {fed(profile)}" if fed(profile) else kinds
    if has("scratch_bytes", 0):
        yield f"{has('scratch_bytes', 0):,} bytes of spilled registers"


def _line(line: ProfiledLine, most: dict[str, int]) -> dict[str, Any]:
    """Return a line of the source with its bars: memory, LDS, and instructions; None where there is nothing."""
    has = line.counters.get
    bars = []
    for some, fewest, unit in (("lines64", "least64", "lines"), ("lds_cycles", "least_lds_cycles", "cycles")):
        value, least = has(some, 0), has(fewest, 0)
        words = f"{value:,} of {least:,} {unit}"
        bars.append(_bar(words, value / most[some], min(value, least) / most[some], value >= _WASTEFUL * least) if value else None)
    count = has("instructions", 0)
    bars.append(_bar(f"{count:,} instructions", count / most["instructions"]) if count else None)
    return {"number": line.line, "text": line.text, "bars": bars, "advice": advice(line)}
