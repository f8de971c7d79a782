"""Comparison → the drawings of the page, a figure per sweep, with descriptions for readers who cannot see them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.compare.model import Comparison, Speed
from harness.compare.speeds.ratios import is_bandwidth
from harness.render.charts.svg import STYLES, Drawing, draw
from harness.render.charts.sweeps import MOST_DRAWN, Curve, Sweep
from harness.render.text import number, plural


@dataclass(frozen=True)
class Figure:
    """A sweep with its drawing. `words` describes the drawing in a sentence."""

    ident: str
    sweep: Sweep
    drawing: Drawing
    body: Markup
    words: str


@dataclass(frozen=True)
class Key:
    """A switch of the legend: a provider with its colour, or a target with its line and mark. `shown`: it is on at first."""

    name: str
    css: str
    shown: bool = True


@dataclass(frozen=True)
class Kernel:
    """The figures of one kernel, below one legend. `without_ceiling` names the units that have no measured ceiling."""

    name: str
    providers: tuple[Key, ...]
    targets: tuple[Key, ...]
    curves: tuple[Figure, ...]
    lists: tuple[Figure, ...]
    speeds: tuple[Speed, ...]
    without_ceiling: tuple[str, ...]


def figures(sweeps: Sequence[Sweep]) -> tuple[Figure, ...]:
    """Draw the sweeps; of very many, the first."""
    drawn = [(sweep, draw(sweep)) for sweep in sweeps[:MOST_DRAWN]]
    return tuple(
        Figure(f"c{position}", sweep, drawing, Markup(drawing.body), _words(sweep))  # noqa: S704 - chart escapes all texts
        for position, (sweep, drawing) in enumerate(drawn)
    )


def by_kernel(comparison: Comparison, drawn: Iterable[Figure]) -> tuple[Kernel, ...]:
    """Return the figures by kernel, each kernel with its table of speeds."""
    groups: dict[str, list[Figure]] = {}
    for figure in drawn:
        groups.setdefault(figure.sweep.kernel, []).append(figure)
    speeds: dict[str, list[Speed]] = {}
    for speed in comparison.speeds:
        speeds.setdefault(speed.kernel, []).append(speed)
    return tuple(_kernel(speeds.get(name, []), name, group) for name, group in groups.items())


def _kernel(speeds: list[Speed], name: str, group: list[Figure]) -> Kernel:
    series = [entry for figure in group for entry in figure.sweep.series]
    providers = {entry.provider: f"s{entry.style % STYLES}" for entry in series}
    targets = {entry.target: f"t{entry.target_style % 4}" for entry in series}
    order = {provider: position for position, provider in enumerate(providers)}
    shared = {speed.unit for speed in speeds if speed.best_share is not None}
    units = dict.fromkeys(figure.sweep.unit for figure in group)
    return Kernel(
        name,
        tuple(Key(*entry) for entry in providers.items()),
        tuple(Key(*entry) for entry in targets.items()),
        tuple(figure for figure in group if not figure.drawing.vertical),
        tuple(figure for figure in group if figure.drawing.vertical),
        tuple(sorted(speeds, key=lambda speed: order.get(speed.provider, len(order)))),
        tuple(unit or "no unit" for unit in units if not is_bandwidth(unit) and unit not in shared),
    )


def _words(sweep: Sweep) -> str:
    """`GB/s over N, 98 cases. triton on a: best 4046 at N = 32768. …`"""
    over = f" over {sweep.x_name}" if sweep.x_name else ""
    words = [f"{sweep.unit or 'value'}{over}, {plural(len(sweep.labels), 'case')}."]
    return " ".join(words + [_best(sweep, entry) for entry in sweep.series])


def _best(sweep: Sweep, entry: Curve) -> str:
    good = [(point.value, label) for point, label in zip(entry.points, sweep.labels, strict=True) if point and point.state != "suspect"]
    if not good:
        return f"{entry.provider} on {entry.target}: no number."
    value, label = (min if sweep.lower_is_better else max)(good, key=lambda found: found[0])
    return f"{entry.provider} on {entry.target}: best {number(value)} at {label}."
