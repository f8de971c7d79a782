"""Comparison → what emulated kernels ask of the card, as the page draws it: the source beside bars, the least times, and a roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from warpwave.compare.model import Comparison
from warpwave.compare.profile import Largest, advice, fed, largest
from warpwave.records import Profile, ProfiledLine, grouped
from warpwave.render.charts.svg import Scale, mark, tag
from warpwave.render.text import number

_KERNELS, _LINES = 20, 60
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 300, 60, 40
_WASTEFUL = 2  # times the fewest


def costs(comparison: Comparison) -> dict[str, Any] | None:
    """Return what the page shows of profiles; None without any."""
    found = largest(comparison.profiles)
    if not found:
        return None
    body, words = _roofline([one.profile for one in found[:_KERNELS]])
    return {
        "kernels": list(map(_kernel, found[:_KERNELS])),
        "left_out": max(0, len(found) - _KERNELS),
        "roofline": Markup(body),  # noqa: S704 - `tag` escapes
        "roofline_words": words,
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


def _roofline(profiles: Sequence[Profile]) -> tuple[str, str]:
    """Return the drawing of kernels by operations a byte of memory, and by the most operations a second that their bounds allow."""
    points = []
    for one in profiles:
        moved, flop = one.counters.get("read_bytes", 0) + one.counters.get("written_bytes", 0), one.counters.get("flop", 0)
        if moved and flop and one.bounds.get("memory"):
            points.append((flop / moved, flop / max(one.bounds.values()) / 1e6, moved / one.bounds["memory"] / 1e6, one))
    if not points:
        return "", ""
    slope = max(tbps for *_, tbps, _ in points)  # TB/s; one card in most runs
    low, high = min(x for x, *_ in points) / 4, max(x for x, *_ in points) * 4
    x = Scale(low, high, _LEFT, _WIDTH - 20, log=True)
    y = Scale(min(rate for _, rate, *_ in points) / 4, high * slope, _HEIGHT - _BOTTOM, 30, log=True)
    parts = [tag("line", x1=x(low), y1=_y(y, low * slope), x2=x(high), y2=_y(y, high * slope), _class="ceiling")]
    parts.append(tag("text", f"memory, {number(slope)} TB/s", x=_WIDTH - 150, y=34, _class="ceiling-label", text_anchor="end"))
    parts.append(tag("line", x1=_LEFT, x2=_WIDTH - 20, y1=_HEIGHT - _BOTTOM, y2=_HEIGHT - _BOTTOM, _class="axis"))
    parts.append(tag("text", "operations a byte of memory", x=_WIDTH / 2, y=_HEIGHT - 8, _class="unit", text_anchor="middle"))
    parts.append(tag("text", "TFLOP/s at most", x=_LEFT - 50, y=12, _class="unit"))
    for share in (0.0, 0.5, 1.0):
        at, rate = low * (high / low) ** share, y.low * (y.high / y.low) ** share
        parts.append(tag("text", number(at), x=x(at), y=_HEIGHT - _BOTTOM + 16, _class="tick", text_anchor="middle"))
        parts.append(tag("text", number(rate), x=_LEFT - 8, y=y(rate) + 4, _class="tick", text_anchor="end"))
    for style, (intensity, rate, _, one) in enumerate(points):
        anchor, beside = ("end", -8) if x(intensity) > _WIDTH - 200 else ("start", 8)
        parts.append(mark(x(intensity), y(rate), style % 8, 0, 4.5, sound=True))
        parts.append(tag("text", one.function, x=x(intensity) + beside, y=y(rate) - 7, _class="label", text_anchor=anchor))
    words = "; ".join(f"{one.function}: {number(at)} operations a byte, at most {number(rate)} TFLOP/s" for at, rate, _, one in points)
    return "".join(parts), words


def _y(scale: Scale, value: float) -> float:
    return scale(min(max(value, scale.low), scale.high))
