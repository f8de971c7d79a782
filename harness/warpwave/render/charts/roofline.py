"""The roofline: each point by operations a byte and operations a second, below what the card was measured, or is published, to reach. Pure.

Williams, Waterman, Patterson: Roofline: an insightful visual performance model (CACM 52-4, 2009). The roofs are measured in the same run:
the slope is the copy, and a level is a matrix product of a dtype. The bytes are those of the tensors that a point's kernels were given, so
a point that moves more stands too far right, never too far left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warpwave.compare.answer import own_providers
from warpwave.compare.model import Comparison, TargetSummary
from warpwave.compare.profile import Largest
from warpwave.compare.speeds import copies_gbps, products_tflops
from warpwave.records.words import tflops_of
from warpwave.render.charts.svg import Scale, mark, tag
from warpwave.render.text import number

_WIDTH, _HEIGHT = 1140, 440
_MOST = 2000  # points
_LONGEST = 14  # characters of a target beside its levels


@dataclass(frozen=True)
class Placed:
    """A point: operations a byte, TFLOP/s, and what it is. `style` numbers kernels, `shape` targets."""

    intensity: float
    tflops: float
    words: str
    style: int
    shape: int
    sound: bool


@dataclass(frozen=True)
class Roof:
    """What a target's card reaches: GB/s of the `slope`, such as the copy, and products by dtype in TFLOP/s."""

    target: str
    gbps: float
    products: dict[str, float]
    slope: str = "copy"


@dataclass(frozen=True)
class Roofline:
    """The drawing, the kernels in the order of their colours, and the targets in that of their shapes. `words` describe it."""

    body: str
    width: int
    height: int
    kernels: tuple[str, ...]
    targets: tuple[str, ...]
    words: str


def roofline(comparison: Comparison) -> Roofline | None:
    """Return the drawing; None if no point's operations and bytes are known, or no roof was measured."""
    roofs = [roof for target in comparison.targets if (roof := _roof(target))]
    kernels: dict[str, int] = {}
    targets: dict[str, int] = {}
    found: list[Placed] = []
    own = own_providers(comparison)
    for row in comparison.rows:
        scale = tflops_of(row.unit)
        for cell in row.cells if scale and row.provider == own.get(row.kernel) else ():
            if cell.flops_per_byte and cell.value and scale:
                speed = cell.value * scale
                at = f"{row.case} on {cell.target}: {number(speed)} TFLOP/s, {number(cell.flops_per_byte)} FLOP a byte"
                style, shape = kernels.setdefault(row.kernel, len(kernels)), targets.setdefault(cell.target, len(targets))
                share = f", {cell.share:.0%} of {cell.share_of}" if cell.share else ""
                found.append(Placed(cell.flops_per_byte, speed, at + share, style, shape, cell.sound))
    roofs = [roof for roof in roofs if roof.target in targets]
    if not found or not roofs:
        return None
    return Roofline(_draw(found[:_MOST], roofs, targets), _WIDTH, _HEIGHT, tuple(kernels), tuple(targets), _words(found, roofs))


def counted(profiles: Sequence[Largest]) -> Roofline | None:
    """Return the drawing of emulated kernels, each as high as the largest of its least times allows; None without operations and bytes."""
    kernels: dict[str, int] = {}
    targets: dict[str, int] = {}
    found: list[Placed] = []
    memory: dict[str, float] = {}
    for one in profiles:
        profile = one.profile
        moved, flop = (sum(profile.counters.get(name, 0) for name in names) for names in (("read_bytes", "written_bytes"), ("flop",)))
        if moved and flop and profile.bounds.get("memory"):
            at, speed = flop / moved, flop / max(profile.bounds.values()) / 1e6
            words = f"{profile.function} on {one.target}: {number(at)} operations a byte, at most {number(speed)} TFLOP/s"
            style, shape = kernels.setdefault(profile.function, len(kernels)), targets.setdefault(one.target, len(targets))
            found.append(Placed(at, speed, words, style, shape, sound=True))
            memory[one.target] = max(memory.get(one.target, 0.0), moved / profile.bounds["memory"] / 1e3)
    if not found:
        return None
    roofs = [Roof(target, gbps, {}, "memory") for target, gbps in memory.items()]
    body = _draw(found[:_MOST], roofs, targets)
    return Roofline(body, _WIDTH, _HEIGHT, tuple(kernels), tuple(targets), "; ".join(point.words for point in found[:_MOST]))


def _roof(target: TargetSummary) -> Roof | None:
    copies, products = copies_gbps(target.ceilings), products_tflops(target.ceilings)
    best: dict[str, float] = {}
    for known in products.values():
        for dtype, speed in known.items():
            best[dtype] = max(speed, best.get(dtype, 0.0))
    return Roof(target.target, max(copies.values()), best) if copies and best else None


def _draw(points: Sequence[Placed], roofs: Sequence[Roof], targets: dict[str, int]) -> str:
    left, right, top, bottom = 56, _WIDTH - 150, 24, _HEIGHT - 40
    tops = [speed for roof in roofs for speed in roof.products.values()]
    ridges = [max(roof.products.values()) * 1e3 / roof.gbps for roof in roofs if roof.products]
    x = _decades([*(point.intensity for point in points), *ridges], left, right)
    y = _decades([*(point.tflops for point in points), *tops], bottom, top)
    parts = [tag("text", "TFLOP/s", x=left - 8, y=top - 10, _class="unit", text_anchor="end")]
    for tick in _ticks(y):
        parts.append(tag("line", x1=left, x2=right, y1=y(tick), y2=y(tick), _class="grid"))
        parts.append(tag("text", f"{tick:g}", x=left - 8, y=y(tick) + 4, _class="tick", text_anchor="end"))
    for tick in _ticks(x):
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=top, y2=bottom, _class="grid"))
        parts.append(tag("text", f"{tick:g}", x=x(tick), y=bottom + 17, _class="tick", text_anchor="middle"))
    parts.append(tag("text", "FLOP for each byte", x=(left + right) / 2, y=_HEIGHT - 5, _class="unit", text_anchor="middle"))
    drawn = [_lines(roof, x, y, f"ceiling t{targets[roof.target] % 4}", place, several=len(roofs) > 1) for place, roof in enumerate(roofs)]
    parts += [line for lines, _ in drawn for line in lines]
    parts += [
        mark(x(point.intensity), y(point.tflops), point.style, point.shape, 4.2, sound=point.sound, title=point.words) for point in points
    ]
    parts += [label for _, label in drawn] + _labels(roofs, y, x(x.high) + 6)  # last, so that no mark hides them
    return "".join(parts)


def _lines(roof: Roof, x: Scale, y: Scale, css: str, place: int, *, several: bool) -> tuple[list[str], str]:
    """Draw the slope up to the highest level, and each level from the slope on. Return them and the label of the slope."""
    highest = max(roof.products.values(), default=math.inf)
    slope = roof.gbps * 1e-3  # TFLOP/s for each FLOP a byte
    begin = max(x.low, y.low / slope)
    end = min(x.high, y.high / slope, highest / slope)
    whose = f"{roof.target} " if several else ""
    found, text = [], ""
    if begin < end:
        found.append(tag("line", x1=x(begin), y1=y(begin * slope), x2=x(end), y2=y(end * slope), _class=css))
        label = f"{whose}{roof.slope} {number(roof.gbps)} GB/s"
        at = begin**0.8 * end**0.2  # near its lower end, where the levels are not; of several, below each other
        text = tag("text", label, x=x(at) + 14, y=y(at * slope) + 14 + 16 * place, _class="ceiling-label over")
    for speed in roof.products.values():
        start = max(x.low, min(x.high, speed / slope))
        found.append(tag("line", x1=x(start), y1=y(speed), x2=x(x.high), y2=y(speed), _class=css))
    return found, text


def _labels(roofs: Sequence[Roof], y: Scale, left: float) -> list[str]:
    """Name the levels beside their ends, from the top down; labels that are too close move down."""
    named = [(y(speed) + 4, roof, dtype, speed) for roof in roofs for dtype, speed in roof.products.items()]
    found, below = [], 0.0
    for at, roof, dtype, speed in sorted(named, key=lambda entry: entry[0]):
        below = max(at, below + 11)
        target = roof.target if len(roof.target) <= _LONGEST else f"{roof.target[: _LONGEST - 1]}…"
        whose = f"{target} " if len(roofs) > 1 else ""
        found.append(tag("text", f"{whose}{dtype} {number(speed)}", x=left, y=below, _class="ceiling-label"))
    return found


def _decades(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale with some room at both ends, and at least a decade."""
    low, high = min(values) / 1.6, max(values) * 1.6
    more = max(1.0, math.sqrt(10 * low / high))
    return Scale(low / more, high * more, start, end, log=True)


def _ticks(scale: Scale) -> list[float]:
    """Return the powers of ten; if there are fewer than three, also twice and five times as much."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    steps = (1,) if math.log10(scale.high / scale.low) >= 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if scale.low <= tick <= scale.high]


def _words(points: Sequence[Placed], roofs: Sequence[Roof]) -> str:
    listed = []
    for one in roofs:
        levels = ", ".join(f"{dtype} {number(speed)} TFLOP/s" for dtype, speed in one.products.items())
        listed.append(f"{one.target}: copy {number(one.gbps)} GB/s, {levels}")
    return f"{len(points)} points by operations a byte. Measured roofs, {'; '.join(listed)}."
