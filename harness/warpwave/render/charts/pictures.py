"""Comparison → one SVG picture per kernel, for a README or a chat: title, legend, drawings and hardware. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from warpwave.compare.model import Comparison
from warpwave.records import grouped
from warpwave.render.charts.svg import DARK, LIGHT, SANS, STYLES, Drawing, draw, rules
from warpwave.render.charts.sweeps import MOST_DRAWN, Sweep, sweeps
from warpwave.render.excerpt import shown
from warpwave.render.text import distinct
from warpwave.safe_text import visible

_PANEL, _GAP, _EDGE = 560, 20, 24
_HEAD, _CAPTION, _FOOT = 84, 20, 17
_LETTER = 7.0  # pixels per character of the legend


@dataclass(frozen=True)
class Picture:
    """A kernel's picture, with a safe file name."""

    kernel: str
    file: str
    svg: str


def pictures(comparison: Comparison, theme: str = "auto") -> tuple[Picture, ...]:
    """Return a picture for each measured kernel. `theme` is light, dark, or auto for the reader's own."""
    comparison = shown(comparison).comparison
    kernels = grouped((sweep.kernel, sweep) for sweep in sweeps(comparison)[:MOST_DRAWN])
    named = zip(distinct(map(_stem, kernels)), kernels.items(), strict=True)
    return tuple(Picture(kernel, file, _picture(comparison, kernel, group, theme)) for file, (kernel, group) in named)


def _picture(comparison: Comparison, kernel: str, group: Sequence[Sweep], theme: str) -> str:
    drawn = [(sweep, draw(sweep)) for sweep in group]
    curves = [entry for entry in drawn if not entry[1].vertical]
    lists = [entry for entry in drawn if entry[1].vertical]
    columns = 2 if len(curves) > 1 or lists else 1
    width = _PANEL * columns + _GAP * (columns - 1) + 2 * _EDGE
    parts, y = [], float(_HEAD)
    for position, (sweep, drawing) in enumerate(curves):
        x = _EDGE + (position % columns) * (_PANEL + _GAP)
        parts.append(_panel(sweep, drawing, x, y, _PANEL))
        if position % columns == columns - 1 or position == len(curves) - 1:
            y += drawing.height + _CAPTION + _GAP
    for sweep, drawing in lists:
        across = width - 2 * _EDGE
        parts.append(_panel(sweep, drawing, _EDGE, y, across))
        y += drawing.height * across / drawing.width + _CAPTION + _GAP
    foot = _foot(comparison, group)
    height = y + _FOOT * len(foot)
    head = _text(kernel, _EDGE, 34, "title") + _legend(group)
    footer = "".join(_text(line, _EDGE, y + 8 + _FOOT * number, "foot") for number, line in enumerate(foot))
    ground = f'<rect class="ground" width="{width}" height="{height:.0f}" rx="8"/>'
    words = f"<title>{escape(visible(f'{kernel}: speed over size, on {_gpus(group)}'))}</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}">'
        f"{words}<style>{_style(theme)}</style>{ground}{head}{''.join(parts)}{footer}</svg>\n"
    )


def _panel(sweep: Sweep, drawing: Drawing, x: float, y: float, width: float) -> str:
    height = drawing.height * width / drawing.width
    inner = (
        f'<svg x="{x:.0f}" y="{y + _CAPTION:.0f}" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {drawing.width} {drawing.height}">'
    )
    title = "" if sweep.title == sweep.kernel else sweep.title
    return _text(title, x, y + 8, "caption") + inner + drawing.body + "</svg>"


def _legend(group: Sequence[Sweep]) -> str:
    """Draw the legend: providers by colour, and targets by dash if there are several."""
    series = [entry for sweep in group for entry in sweep.series]
    keys = [(name, f"line s{style % STYLES} t0") for name, style in {entry.provider: entry.style for entry in series}.items()]
    targets = {entry.target: entry.target_style for entry in series}
    if len(targets) > 1:
        keys += [(name, f"ceiling t{style % 4}") for name, style in targets.items()]
    parts, x = [], float(_EDGE)
    for name, css in keys:
        parts.append(f'<path class={quoteattr(css)} d="M{x:.0f} 56h26"/>' + _text(name, x + 33, 60, "key"))
        x += 33 + 20 + len(visible(name)) * _LETTER
    return "".join(parts)


def _foot(comparison: Comparison, group: Sequence[Sweep]) -> list[str]:
    """Return the hardware, one line per target, and how to read the picture."""
    shown = {entry.target for sweep in group for entry in sweep.series}
    lines = []
    for target in comparison.targets:
        if target.target in shown:
            triton = f", Triton {target.facts.triton}" if target.facts else ""
            lines.append(
                f"{target.target}: {target.hardware or target.label}{triton}{', ' + target.started[:10] if target.started else ''}"
            )
    grey = ", grey: copy measured in the same run" if any(sweep.ceilings for sweep in group) else ""
    return [*lines, f"Line: median, band: 20th to 80th percentile{grey}"]


def _gpus(group: Sequence[Sweep]) -> str:
    return " and ".join(dict.fromkeys(entry.gpu for sweep in group for entry in sweep.series))


def _style(theme: str) -> str:
    if theme == "auto":
        return escape(f"{_rules(LIGHT)}\n@media (prefers-color-scheme:dark){{{_rules(DARK)}}}")
    return escape(_rules(DARK if theme == "dark" else LIGHT))


def _rules(colours: Mapping[str, str]) -> str:
    """Return rules with literal colours: not every SVG reader supports variables."""
    found = [
        rules(colours),
        f".title{{font:600 21px {SANS};fill:{colours['ink']}}}",
        f".caption{{font:600 12.5px {SANS};fill:{colours['ink']}}}",
        f".foot{{font:11px {SANS};fill:{colours['soft']}}}",
        f".ground{{fill:{colours['ground']};stroke:{colours['grid']}}}",
    ]
    return "\n".join(found)


def _text(text: str, x: float, y: float, css: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{css}">{escape(visible(text))}</text>'


def _stem(kernel: str) -> str:
    """Return the name's letters, digits, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", kernel).strip("-")[:80] or "kernel"
