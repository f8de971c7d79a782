"""Condense rows to one page: a line per sweep, geometric means, and what was not compared. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.compare.model import Cell, Exclusion, Geomean, Portability, Ratio, Refusal, Row, Speed
from harness.compare.speeds.ratios import first_names, is_bandwidth, lower_is_better
from harness.stats import geometric_mean, harmonic_mean, median

# Each kernel has an efficiency on each target. Nobody reads more than these, and most of them would be 0.
_MOST_TARGETS, _MOST_EFFICIENCIES = 100, 100_000


def condense(rows: Iterable[Row]) -> tuple[Speed, ...]:
    """Return a line per kernel, provider, unit, target and GPU model. GPUs of one model that shared a sweep are one line."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[Row, Cell]]] = {}
    for row in rows:
        for cell in row.cells:
            groups.setdefault((row.kernel, row.provider, cell.unit, cell.target, cell.gpu), []).append((row, cell))
    return tuple(_speed(kernel, provider, unit, group) for (kernel, provider, unit, _, _), group in groups.items())


def geomeans(rows: Iterable[Row]) -> tuple[Geomean, ...]:
    """Return the mean ratio per kernel, provider and unit over the cases that are sound on both, with the other cases listed."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[str, Ratio]]] = {}
    for row in rows:
        for ratio in row.ratios:
            groups.setdefault((row.kernel, row.provider, row.unit, ratio.target, ratio.baseline), []).append((row.case, ratio))
    means = []
    for (kernel, provider, unit, target, baseline), group in groups.items():
        values = [ratio.value for _, ratio in group if ratio.value is not None]
        excluded = tuple(Exclusion(case, ratio.reason) for case, ratio in group if ratio.value is None)
        mean = geometric_mean(values) if values else None
        means.append(Geomean(kernel, provider, unit, target, baseline, len(values), mean, excluded))
    return tuple(means)


def portabilities(rows: Iterable[Row], targets: Sequence[str]) -> tuple[Portability, ...]:
    """Return a portability per kernel and provider, over the targets that were asked to measure; empty for one target or more than 100.

    A case that is not sound on every target is left out and listed. Otherwise two targets would be judged by different shapes. A target
    without a single sound case of the kernel cannot run it, and then the portability is 0.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if 1 < len(targets) <= _MOST_TARGETS and is_bandwidth(row.unit):
            groups.setdefault((row.kernel, row.provider), []).append(row)
    if len(groups) * len(targets) > _MOST_EFFICIENCIES:
        return ()
    return tuple(_portability(kernel, provider, group, targets) for (kernel, provider), group in groups.items())


def _portability(kernel: str, provider: str, rows: Sequence[Row], targets: Sequence[str]) -> Portability:
    sound = [
        {cell.target: cell.share for cell in sorted(row.cells, key=lambda cell: -cell.device) if cell.sound and cell.share} for row in rows
    ]
    able = [target for target in targets if any(target in found for found in sound)]
    shares: dict[str, list[float]] = {target: [] for target in targets}
    exclusions = []
    for row, found in zip(rows, sound, strict=True):
        if missing := [target for target in able or targets if target not in found]:
            exclusions.append(Exclusion(row.case, f"no sound share of a ceiling on {first_names(missing)}"))
            continue
        for target in able:
            shares[target].append(found[target])
    means = {target: geometric_mean(found) if found else 0.0 for target, found in shares.items()}
    return Portability(kernel, provider, means, len(rows) - len(exclusions), harmonic_mean(list(means.values())), tuple(exclusions))


def refusals(rows: Iterable[Row]) -> tuple[Refusal, ...]:
    """Group what was not compared by its reason."""
    groups: dict[tuple[str, str, str, str, str], list[str]] = {}
    for row in rows:
        for ratio in row.ratios:
            if ratio.value is None:
                groups.setdefault((row.kernel, row.provider, ratio.target, ratio.baseline, ratio.reason), []).append(row.case)
    return tuple(Refusal(*key, cases=tuple(cases)) for key, cases in groups.items())


def _speed(kernel: str, provider: str, unit: str, group: list[tuple[Row, Cell]]) -> Speed:
    first = group[0][1]
    good = [(cell.value, row, cell) for row, cell in group if cell.value is not None and not cell.suspect]
    reason = next((cell.reason for _, cell in group if not cell.verified), "")
    empty = Speed(kernel, provider, unit, first.target, first.gpu, len(good), len(group) - len(good), first.verified, reason)
    if not good:
        return empty
    pick = min if lower_is_better(unit) else max
    _, best_row, best = pick(good, key=lambda entry: entry[0])
    _, last_row, last = max(reversed(good), key=lambda entry: _size(entry[1]))
    shares = [cell.share for _, _, cell in good if cell.share is not None]
    return Speed(
        **vars(empty)
        | {
            "best": best.value,
            "best_share": best.share,
            "share_of": _share_of(cell for _, _, cell in good),
            "best_case": best_row.case,
            "median": median([value for value, _, _ in good]),
            "median_share": median(shares) if shares else None,
            "largest": last.value,
            "largest_share": last.share,
            "largest_case": last_row.case,
        }
    )


def _share_of(cells: Iterable[Cell]) -> str:
    """Return the words for the ceiling of the shares; for products of several dtypes, those for all of them."""
    found = {cell.share_of for cell in cells if cell.share is not None}
    return found.pop() if len(found) == 1 else "the product of each dtype" if found else ""


def _size(row: Row) -> float:
    """Return the product of the numeric parameters: what a sweep increases."""
    numbers = [
        float(value) for value in row.params.values() if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    ]
    return math.prod(numbers) if numbers else 0.0
