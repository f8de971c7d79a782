"""A sweep → SVG: lines with a 20 to 80% band over a swept size, or a row of dots per case. Pure; colours are classes (see `palette`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from warpwave.render.charts.sweeps import Curve, CurvePoint, Sweep
from warpwave.render.text import number
from warpwave.safe_text import visible

# Axes: the position of a value, and which round values get a tick. Pure.

_LOG_FROM = 8.0  # a sweep over fewer than three doublings reads better on a linear scale


@dataclass(frozen=True)
class Scale:
    """Map values to a range of pixels, including both ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high != low else 0.5)


def sizes_scale(sizes: Sequence[float], start: float, end: float) -> Scale:
    """Return the scale of a swept size: logarithmic if the sweep spans at least three doublings."""
    low, high = min(sizes), max(sizes)
    return Scale(low, high, start, end, log=low > 0 and high / low >= _LOG_FROM)


def values_scale(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a scale from 0 to a little above the largest value, and round ticks on it."""
    top = (max(values, default=1.0) or 1.0) * 1.04
    step = _step(top / 5.2)
    return Scale(0.0, top, start, end), [position * step for position in range(math.floor(top / step) + 1)]


def size_ticks(scale: Scale) -> list[float]:
    """Return about six ticks: powers of two on a logarithmic scale, else round numbers."""
    if not scale.log:
        step = _step((scale.high - scale.low) / 5)
        first = math.ceil(scale.low / step)
        return [position * step for position in range(first, math.floor(scale.high / step) + 1)]
    first, last = math.ceil(math.log2(scale.low) - 1e-9), math.floor(math.log2(scale.high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / 7))
    return [2.0**power for power in range(first, last + 1, stride)]


def short(value: float) -> str:
    """Return a tick's label: 512, 4 Ki, 128 Mi for powers of two; 4 k, 1.5 M for others."""
    for unit, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= factor and value % factor == 0 and math.log2(value).is_integer():
            return f"{value / factor:.0f} {unit}"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size or (value >= size and value % size == 0 and unit != "k"):
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _step(rough: float) -> float:
    """Return the next number up that is 1, 2, 2.5 or 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


STYLES = 8  # distinct colours, reused after that
_MANY = 28  # above this many points, a line needs no dots
_WIDTH, _HEIGHT = 560, 290
_LIST_WIDTH, _ROW = 1140, 22
_LETTER = 6.7  # pixels per character in the labels of a list
_LONGEST = 60
_LEVEL = 0.001  # of the large copy: a ceiling that moves by more is drawn as a curve
_SMALL_LETTER, _SMALL_ROW = 7.4, 14  # pixels, of the labels of ceilings
_LONGEST_TARGET = 40


@dataclass(frozen=True)
class Drawing:
    """The content of an `<svg>`, its size, and the position of each case along x, or along y for a list."""

    body: str
    width: int
    height: int
    positions: tuple[float, ...]
    vertical: bool


def draw(sweep: Sweep) -> Drawing:
    """Draw the marks, grid and labels of a sweep, without legend and title."""
    return _list(sweep) if sweep.sizes is None else _curves(sweep, sweep.sizes)


def _curves(sweep: Sweep, sizes: tuple[float, ...]) -> Drawing:
    left, right, bottom = 52, _WIDTH - 22, _HEIGHT - 38
    labels = _ceiling_labels(sweep, "copy, measured")
    ends = _from_the_right(labels, left, right)
    top = 24 + _SMALL_ROW * max((row for _, row in ends), default=0)
    x = sizes_scale(sizes, left + 6, right)
    y, ticks = values_scale(_values(sweep), bottom, top)
    parts = [tag("text", sweep.unit, x=left - 8, y=top - 12, _class="unit", text_anchor="end")]
    for tick in ticks:
        parts.append(tag("line", x1=left, x2=right, y1=y(tick), y2=y(tick), _class="grid" if tick else "axis"))
        parts.append(tag("text", _plain(tick), x=left - 8, y=y(tick) + 4, _class="tick", text_anchor="end"))
    for size in size_ticks(x):
        parts.append(tag("line", x1=x(size), x2=x(size), y1=bottom, y2=bottom + 4, _class="axis"))
        parts.append(tag("text", short(size), x=x(size), y=bottom + 17, _class="tick", text_anchor="middle"))
    parts.append(tag("text", sweep.x_name, x=(left + right) / 2, y=_HEIGHT - 5, _class="unit", text_anchor="middle"))
    for ceiling, label, (end, row) in zip(sweep.ceilings, labels, ends, strict=True):
        css = f"ceiling t{ceiling.target_style % 4}"
        known = sorted((size, copy) for size, copy in zip(sizes, ceiling.copies, strict=False) if copy is not None)
        if any(abs(copy - ceiling.gbps) > _LEVEL * ceiling.gbps for _, copy in known):
            parts.append(tag("path", d="M" + "L".join(f"{_short(x(size))} {_short(y(copy))}" for size, copy in known), _class=css))
        else:
            parts.append(tag("line", x1=left, x2=right, y1=y(ceiling.gbps), y2=y(ceiling.gbps), _class=css))
        # Put the label above the drawing. On the line, it would hide kernels that reach the ceiling.
        parts.append(tag("text", label, x=end, y=12 + _SMALL_ROW * row, _class="ceiling-label", text_anchor="end"))
    # Draw the kernel's own provider last, on top of the others.
    for index, entry in reversed(list(enumerate(sweep.series))):
        style = f"s{entry.style % STYLES} t{entry.target_style % 4}"
        placed = [(x(size), point) for size, point in zip(sizes, entry.points, strict=True)]
        marks = [_area(run, y) for run in _runs(placed, banded=True)]
        inner = "".join(tag("path", d=path, _class=f"band {style}") for path in marks)
        lines = ["M" + "L".join(f"{_short(at)} {_short(_clipped(y, point.value))}" for at, point in run) for run in _runs(placed)]
        inner += tag("path", d="".join(lines), _class=f"line {style}")
        few = len(placed) <= _MANY
        inner += _dots([(at, _clipped(y, point.value), point) for at, point in placed if point and (few or point.state)], entry, 2.6)
        parts.append(f'<g data-series="{index}">{inner}</g>')
    parts.append(tag("line", x1=left, x2=left, y1=top, y2=bottom, _class="guide"))
    return Drawing("".join(parts), _WIDTH, _HEIGHT, tuple(x(size) for size in sizes), vertical=False)


def _list(sweep: Sweep) -> Drawing:
    labels = [_cut(visible(label)) for label in sweep.labels]
    left, right, top = 20 + max(120, math.ceil(max(map(len, labels)) * _LETTER)), _LIST_WIDTH - 24, 30
    bottom = top + _ROW * len(labels)
    x, ticks = values_scale(_values(sweep), left, right)
    parts = [tag("text", sweep.unit, x=left - 10, y=top - 9, _class="unit", text_anchor="end")]
    positions = tuple(top + _ROW * (row + 0.5) for row in range(len(labels)))
    parts.append(tag("path", d="".join(f"M{left} {_short(at)}H{right}" for at in positions), _class="grid"))
    for at, label in zip(positions, labels, strict=True):
        parts.append(tag("text", label, x=left - 10, y=at + 4, _class="label", text_anchor="end"))
    for tick in ticks:
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=top - 4, y2=bottom, _class="grid" if tick else "axis"))
        parts.append(tag("text", _plain(tick), x=x(tick), y=top - 9, _class="tick", text_anchor="middle"))
    named = _ceiling_labels(sweep, "copy")
    rows = _below([(x(ceiling.gbps), label) for ceiling, label in zip(sweep.ceilings, named, strict=True)])
    for ceiling, label, (middle, row) in zip(sweep.ceilings, named, rows, strict=True):
        at = x(ceiling.gbps)
        parts.append(tag("line", x1=at, x2=at, y1=top - 4, y2=bottom, _class=f"ceiling t{ceiling.target_style % 4}"))
        place = bottom + 13 + _SMALL_ROW * row
        parts.append(tag("text", label, x=middle, y=place, _class="ceiling-label", text_anchor="middle"))
    parts.append(tag("line", x1=left, x2=right, y1=top, y2=top, _class="guide"))
    for index, entry in reversed(list(enumerate(sweep.series))):
        placed = [(at, point) for at, point in zip(positions, entry.points, strict=True) if point]
        bands = [(at, x(min(point.low, x.high)), x(min(point.high, x.high))) for at, point in placed if point.low and point.high]
        whiskers = "".join(f"M{_short(low)} {_short(at)}H{_short(high)}" for at, low, high in bands)
        inner = tag("path", d=whiskers, _class=f"whisker s{entry.style % STYLES}") if whiskers else ""
        inner += _dots([(_clipped(x, point.value), at, point) for at, point in placed], entry, 4.5)
        parts.append(f'<g data-series="{index}">{inner}</g>')
    height = bottom + 20 + _SMALL_ROW * max((row for _, row in rows), default=0)
    return Drawing("".join(parts), _LIST_WIDTH, height, positions, vertical=True)


def _ceiling_labels(sweep: Sweep, what: str) -> list[str]:
    """Return the labels of the ceilings, each with its target if there are several."""
    several = len(sweep.ceilings) > 1
    return [f"{_cut(visible(one.target), _LONGEST_TARGET) + ' ' if several else ''}{what} {number(one.gbps)}" for one in sweep.ceilings]


def _from_the_right(labels: Iterable[str], left: float, right: float) -> list[tuple[float, int]]:
    """Return where each label ends, and on which row it is: beside each other from the right, as many on a row as fit."""
    found, end, row = [], right, 0
    for label in labels:
        width = _SMALL_LETTER * len(label)
        if end < right and end - width < left:
            end, row = right, row + 1
        found.append((end, row))
        end -= width + 2 * _SMALL_LETTER
    return found


def _below(labels: Sequence[tuple[float, str]]) -> list[tuple[float, int]]:
    """Return the middle of each label, near where it belongs and inside of the drawing, and its row: the first where it overlaps none."""
    spans: list[tuple[float, float, int]] = []
    found = []
    for at, label in labels:
        half = _SMALL_LETTER * len(label) / 2
        middle = min(at, _LIST_WIDTH - half)
        taken = {row for begin, end, row in spans if begin < middle + half and middle - half < end}
        row = next(row for row in itertools.count() if row not in taken)
        spans.append((middle - half, middle + half, row))
        found.append((middle, row))
    return found


def _values(sweep: Sweep) -> list[float]:
    points = [point for entry in sweep.series for point in entry.points if point]
    # A suspect point may be absurdly high. Ignore it for the axis, unless there is nothing else.
    sound = [point for point in points if point.state != "suspect"] or points
    return [max(point.value, point.high or 0.0) for point in sound] + [
        speed for ceiling in sweep.ceilings for speed in (ceiling.gbps, *ceiling.copies) if speed is not None
    ]


def _runs(placed: Iterable[tuple[float, CurvePoint | None]], banded: bool = False) -> list[list[tuple[float, CurvePoint]]]:
    """Split the points into runs without gaps: a line must not cross a case without a number."""
    found: list[list[tuple[float, CurvePoint]]] = [[]]
    for at, point in placed:
        if point is not None and (not banded or point.low is not None):
            found[-1].append((at, point))
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _area(run: list[tuple[float, CurvePoint]], y: Scale) -> str:
    up = [f"{_short(at)} {_short(_clipped(y, point.high or point.value))}" for at, point in run]
    down = [f"{_short(at)} {_short(_clipped(y, point.low or point.value))}" for at, point in reversed(run)]
    return "M" + "L".join(up + down) + "Z"


def _clipped(scale: Scale, value: float) -> float:
    return scale(min(value, scale.high))


def _dots(placed: Iterable[tuple[float, float, CurvePoint]], entry: Curve, radius: float) -> str:
    """Draw all marks of a series in two paths: an element for each would be most of a page. Marks that are not sound are hollow."""
    outline, style = _outline(entry.target_style, radius), f"dot s{entry.style % STYLES}"
    paths = {style: "", f"{style} unsound": ""}
    for at, height, point in placed:
        paths[f"{style} unsound" if point.state else style] += f"M{_short(at)} {_short(height)}{outline}"
    return "".join(tag("path", d=path, _class=css) for css, path in paths.items() if path)


def mark(at: float, height: float, colour: int, shape: int, r: float, *, sound: bool, title: str = "") -> str:
    """Draw one mark: its colour and shape are numbers. Hollow if the point is not sound. A browser shows the title."""
    css = f"dot s{colour % STYLES}" + ("" if sound else " unsound")
    path = tag("path", d=f"M{_short(at)} {_short(height)}{_outline(shape, r)}", _class=css)
    return f"{path[:-2]}>{tag('title', title)}</path>" if title else path


def _outline(shape: int, r: float) -> str:
    """Return the path of a mark around a point: a circle for the first target, then a diamond, a square and a triangle."""
    if shape % 4 == 0:
        return f"m0 {_short(-r)}a{_short(r)} {_short(r)} 0 1 0 .1 0z"  # an arc may not end where it starts
    corners = {1: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)), 2: ((-1, -1), (1, -1), (1, 1), (-1, 1)), 3: ((0, -1.2), (1.2, 1), (-1.2, 1))}
    points = corners[shape % 4]
    steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points)]
    begin, rest = points[0], "".join(f"l{_short(x * r)} {_short(y * r)}" for x, y in steps)
    return f"m{_short(begin[0] * r)} {_short(begin[1] * r)}{rest}z"


def tag(_name: str, _text: str = "", **attributes: object) -> str:
    """Return an element with escaped text and attributes; `_class` and `text_anchor` avoid names that Python forbids."""
    listed = "".join(f" {key.strip('_').replace('_', '-')}={quoteattr(_attribute(value))}" for key, value in attributes.items())
    return f"<{_name}{listed}>{escape(visible(_text))}</{_name}>" if _text else f"<{_name}{listed}/>"


def _attribute(value: object) -> str:
    return _short(value) if isinstance(value, float) else str(value)


def _short(pixels: float) -> str:
    """Return a tenth of a pixel: finer is not seen."""
    return f"{pixels:.1f}".removesuffix(".0")


def _plain(tick: float) -> str:
    return f"{tick:,.10g}"


def _cut(label: str, longest: int = _LONGEST) -> str:
    return label if len(label) <= longest else f"{label[: longest // 2]}…{label[-longest // 2 :]}"


# The colours of all drawings. Pure.
#
# They are legible on light and dark grounds and distinct for colour-blind readers. In print, dashes and shapes distinguish the lines.


def _hues(colours: str) -> dict[str, str]:
    """Return a hue per provider: blue for the kernel's own, then vermilion, green, violet, ochre, cyan, rose, grey."""
    return {f"s{style}": colour for style, colour in enumerate(colours.split())}


LIGHT = {
    **{"ground": "#ffffff", "ink": "#16202b", "soft": "#5a6672", "grid": "#e6eaee", "axis": "#9aa5b0", "ceiling": "#626d78"},
    **_hues("#1558b0 #c2410c #0f7b5f #7a3fa8 #8a6a00 #0b7f96 #b8326f #59636e"),
}
DARK = {
    **{"ground": "#12171d", "ink": "#e8edf2", "soft": "#98a4b0", "grid": "#232c35", "axis": "#56626e", "ceiling": "#8a96a2"},
    **_hues("#6fb1ff #ff9a66 #4fd0a5 #c79bf2 #e2bd4e #5cd0e6 #ff8fbd #a8b3be"),
}
SANS = 'ui-sans-serif,system-ui,"Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif'
_DASHES = ("none", "7 4", "2 3", "9 3 2 3")


def variables(colours: Mapping[str, str]) -> str:
    """Return the colours as CSS variables: `--s0:#1558b0;…`."""
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def rules(colours: Mapping[str, str] | None = None) -> str:
    """Return the CSS rules of a drawing's marks. They use CSS variables, or literal colours for SVG readers without variables."""

    def of(name: str) -> str:
        return colours[name] if colours else f"var(--{name})"

    found = [
        f".tick,.unit,.label,.ceiling-label,.key{{font:11px {SANS};fill:{of('soft')};font-variant-numeric:tabular-nums}}",
        f".label,.key{{fill:{of('ink')}}}",
        f".ceiling-label{{font-size:10.5px;fill:{of('ceiling')}}}",
        f".over{{fill:{of('soft')};stroke:{of('ground')};stroke-width:3px;paint-order:stroke}}",
        f".grid{{stroke:{of('grid')};stroke-width:1}}.axis{{stroke:{of('axis')};stroke-width:1}}",
        f".ceiling{{stroke:{of('ceiling')};stroke-width:1.4;fill:none}}",
        ".line{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}.band{stroke:none;fill-opacity:.17}",
        f".guide{{stroke:{of('axis')};stroke-width:1;visibility:hidden}}",
        ".whisker{stroke-width:1.5;stroke-opacity:.6}",
        f".dot{{stroke:{of('ground')};stroke-width:.8}}",
    ]
    for style in (f"s{index}" for index in range(8)):
        colour = of(style)
        found.append(f".line.{style},.whisker.{style}{{stroke:{colour}}}.band.{style},.dot.{style}{{fill:{colour}}}")
        found.append(f".dot.{style}.unsound{{fill:{of('ground')};stroke:{colour};stroke-width:1.4}}")
    found += [f".line.t{number},.ceiling.t{number}{{stroke-dasharray:{dash}}}" for number, dash in enumerate(_DASHES) if number]
    return "\n".join(found)
