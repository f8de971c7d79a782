"""Rows of a comparison → drawings: a curve over the swept size, or a list of cases if no single size was swept. Pure.

A sweep is what the benchmark's author plotted: the cases whose names differ only in their sizes. Sweeps without a single size for the axis,
or with fewer than three cases, are joined into one list per kernel and unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from warpwave.compare.model import Cell, Comparison, Row
from warpwave.compare.speeds import is_bandwidth, lower_is_better
from warpwave.records import grouped
from warpwave.stats import measurable

_Styles = Mapping[tuple[str, str], int]
_FEWEST = 3  # cases needed for a curve
_MOST_NAMES = 5  # of parameters with the same values, in an axis label
MOST_LISTED = 1000  # cases in one drawing without an axis
MOST_DRAWN = 2000  # drawings


@dataclass(frozen=True)
class CurvePoint:
    """One number of a series, with its 20 to 80% band if one was measured. `state` is empty if the number is sound."""

    value: float
    low: float | None
    high: float | None
    share: float | None
    state: str


@dataclass(frozen=True)
class Curve:
    """One provider on one GPU model of a target: a point or None per case. `style` numbers providers, `target_style` targets."""

    provider: str
    target: str
    gpu: str
    style: int
    target_style: int
    points: tuple[CurvePoint | None, ...]


@dataclass(frozen=True)
class Ceiling:
    """The bandwidth of a large copy measured on a GPU of a target, in GB/s, and that of a copy of each case's size, if it is known."""

    target: str
    gpu: str
    gbps: float
    target_style: int
    copies: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """One drawing. `sizes` is None for a list of cases."""

    kernel: str
    title: str
    unit: str
    x_name: str
    labels: tuple[str, ...]
    cases: tuple[str, ...]
    sizes: tuple[float, ...] | None
    series: tuple[Curve, ...]
    ceilings: tuple[Ceiling, ...]

    @property
    def lower_is_better(self) -> bool:
        """Whether small values are better."""
        return lower_is_better(self.unit)


def sweeps(comparison: Comparison) -> tuple[Sweep, ...]:
    """Return every measured row once, in the authors' order; a kernel's list of cases follows its curves."""
    styles = _styles(comparison.rows)
    measured = {cell.target for row in comparison.rows for cell in row.cells}
    drawn = [target.target for target in comparison.targets if target.target in measured]
    targets = {target: position for position, target in enumerate(drawn)}
    ceilings = _ceilings(comparison, targets)
    curves: dict[tuple[str, str], list[Sweep]] = {}
    lists: dict[tuple[str, str], list[Row]] = {}

    def add(kernel: str, unit: str, title: str, x_name: str, cases: list[str], sizes: Mapping[str, float] | None, rows: list[Row]) -> None:
        series = _series(rows, cases, styles, targets)
        labels = tuple(case.removeprefix(f"{kernel}/") if sizes is None else case.rpartition("/")[2] for case in cases)
        xs = None if sizes is None else tuple(sizes[case] for case in cases)
        sweep = Sweep(kernel, title, unit, x_name, labels, tuple(cases), xs, series, _of_those(ceilings, series, unit))
        curves[kernel, unit].append(sweep)

    for (kernel, unit, plot), rows in _plots(comparison.rows).items():
        curves.setdefault((kernel, unit), [])
        if axis := _axis(rows):
            x_name, sizes = axis
            add(kernel, unit, plot.partition("/")[2] or kernel, x_name, sorted(sizes, key=lambda case: sizes[case]), sizes, rows)
        else:
            lists.setdefault((kernel, unit), []).extend(rows)
    for (kernel, unit), rows in lists.items():
        cases = list(dict.fromkeys(row.case for row in rows))
        title = "further cases" if curves[kernel, unit] else kernel
        if len(cases) > MOST_LISTED:
            title, cases = f"{title}, the first {MOST_LISTED} of {len(cases)} cases", cases[:MOST_LISTED]
        add(kernel, unit, title, "", cases, None, rows)
    return tuple(sweep for found in curves.values() for sweep in found)


def swept(rows: Iterable[Row]) -> dict[tuple[str, str, str], float]:
    """Return the size on the axis by kernel, unit and case: the one swept, or else the only number of the case. Others have none."""
    found = {}
    for (kernel, unit, _), group in _plots(rows).items():
        axis = _axis(group)
        for row in group:
            only = list(_numbers({name: value for name, value in row.params.items() if isinstance(value, (int, float))}).values())
            if axis or len(only) == 1:
                found[kernel, unit, row.case] = axis[1][row.case] if axis else only[0]
    return found


def _plots(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    return grouped(((row.kernel, row.unit, row.case.rpartition("/")[0]), row) for row in rows)


def band(cell: Cell) -> tuple[float | None, float | None]:
    """Return the author's own band, or the values at the 80th and 20th percentile of the time."""
    if cell.low is not None and cell.high is not None:
        return min(cell.low, cell.high), max(cell.low, cell.high)
    if cell.value is None or not cell.median_ms or not cell.p20_ms or not cell.p80_ms:
        return None, None
    slow, fast = cell.median_ms / cell.p80_ms, cell.median_ms / cell.p20_ms
    if lower_is_better(cell.unit):
        slow, fast = 1 / fast, 1 / slow
    return cell.value * slow, cell.value * fast


def _axis(rows: Sequence[Row]) -> tuple[str, dict[str, float]] | None:
    """Return the name of the swept size and its value in each case, or None if no parameter distinguishes all cases.

    The last such parameter wins, as authors order them. All other varying parameters must rise or fall with it, as the number of rows does
    if the number of elements is fixed. Otherwise the line would suggest a trend that no parameter follows.
    """
    params: dict[str, Mapping[str, object]] = {row.case: row.params for row in rows}
    if len(params) < _FEWEST:
        return None
    # Every case must have the same parameters, or none of them can be the axis.
    keys_of = [{key for key, value in found.items() if value is not None} for found in params.values()]
    if any(keys != keys_of[0] for keys in keys_of):
        return None
    names = dict.fromkeys(key for found in params.values() for key in found if key in keys_of[0])
    varying = {name: {case: found.get(name) for case, found in params.items()} for name in names}
    varying = {name: values for name, values in varying.items() if len(set(map(repr, values.values()))) > 1}
    sizes = {name: _numbers(values) for name, values in varying.items()}
    along = next((found for found in reversed(sizes.values()) if found and len(set(found.values())) == len(params)), None)
    if along is None:
        return None
    # Checking one size is enough: any other that distinguishes all cases, and rises or falls with this one, gives the same order.
    order = sorted(along, key=lambda case: along[case])
    if not all(found and _steady([found[case] for case in order]) for found in sizes.values()):
        return None
    equal = [other for other in sizes if sizes[other] == along]
    return " = ".join(equal[:_MOST_NAMES]), along


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    """Return the values as sizes, or nothing if one of them is not a size."""
    numbers = {case: value for case, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    whole = len(numbers) == len(values) and all(map(measurable, numbers.values()))
    return {case: float(value) for case, value in numbers.items()} if whole else {}


def _steady(values: Sequence[float]) -> bool:
    steps = list(pairwise(values))
    return all(a <= b for a, b in steps) or all(a >= b for a, b in steps)


def _styles(rows: Iterable[Row]) -> dict[tuple[str, str], int]:
    """Number the providers of each kernel from 0. The kernel's own is first in the author's list."""
    styles: dict[tuple[str, str], int] = {}
    counted: dict[str, int] = {}
    for row in rows:
        if (row.kernel, row.provider) not in styles:
            styles[row.kernel, row.provider] = counted.get(row.kernel, 0)
            counted[row.kernel] = styles[row.kernel, row.provider] + 1
    return styles


def _series(rows: Iterable[Row], cases: Sequence[str], styles: _Styles, targets: Mapping[str, int]) -> tuple[Curve, ...]:
    found: dict[tuple[str, str, str], dict[str, Cell]] = {}
    kernel = ""
    for row in rows:
        kernel = row.kernel
        for cell in row.cells:
            found.setdefault((row.provider, cell.target, cell.gpu), {})[row.case] = cell
    return tuple(
        Curve(*key, styles[kernel, key[0]], targets.get(key[1], 0), tuple(_point(cells.get(case)) for case in cases))
        for key, cells in found.items()
    )


def _point(cell: Cell | None) -> CurvePoint | None:
    if cell is None or cell.value is None:
        return None
    low, high = band(cell)
    state = "suspect" if cell.suspect else "" if cell.verified else "unverified"
    return CurvePoint(cell.value, low, high, cell.share, state)


def _ceilings(comparison: Comparison, targets: Mapping[str, int]) -> dict[tuple[str, str], Ceiling]:
    """Return the largest ceiling per target and GPU model: GPUs of one model share it."""
    largest: dict[tuple[str, str], Ceiling] = {}
    for target in comparison.targets:
        for device in target.devices if target.target in targets else ():
            key, found = (target.target, device.name), device.ceiling_gbps
            if found and (key not in largest or largest[key].gbps < found):
                largest[key] = Ceiling(target.target, device.name, found, targets[target.target])
    return largest


def _of_those(ceilings: Mapping[tuple[str, str], Ceiling], series: Sequence[Curve], unit: str) -> tuple[Ceiling, ...]:
    """Return the ceilings of the drawn GPUs in target order, each with its speed at every case. Only bandwidths have ceilings."""
    if not is_bandwidth(unit):
        return ()
    found = []
    for key in dict.fromkeys((entry.target, entry.gpu) for entry in series):
        if key in ceilings:
            on = [entry.points for entry in series if (entry.target, entry.gpu) == key]
            known = (
                next((point.value / point.share for point in points if point and point.share), None) for points in zip(*on, strict=True)
            )
            found.append(replace(ceilings[key], copies=tuple(known)))
    return tuple(sorted(found, key=lambda ceiling: ceiling.target_style))
