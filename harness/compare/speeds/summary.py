"""Rows → what fits on one page: a line per sweep, geometric means, and what was not compared. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.compare.comparison import Cell, Exclusion, Geomean, Portability, Ratio, Refusal, Row, Speed
from harness.compare.speeds.rows import is_bandwidth, lower_is_better, some_of
from harness.stats import geometric_mean, harmonic_mean, median

# Each kernel has an efficiency on each target: of more than these nobody reads one, and most of them are 0.
_MOST_TARGETS, _MOST_EFFICIENCIES = 100, 100_000


def condense(rows: Iterable[Row]) -> tuple[Speed, ...]:
    """A line per kernel, provider, unit, target and kind of GPU: a sweep that cards of a kind have shared is one."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[Row, Cell]]] = {}
    for row in rows:
        for cell in row.cells:
            groups.setdefault((row.kernel, row.provider, cell.unit, cell.target, cell.gpu), []).append((row, cell))
    return tuple(_speed(kernel, provider, unit, group) for (kernel, provider, unit, _, _), group in groups.items())


def geomeans(rows: Iterable[Row]) -> tuple[Geomean, ...]:
    """The mean ratio per kernel, provider and unit over the cases that are sound on both, the others listed by name."""
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
    """Per kernel and provider, over the targets that were to measure speeds; empty where that is one, or more than 100.

    A case that is not sound on every target is left out and named: else two targets would be held to different shapes. A target without
    one sound case of the kernel cannot run it, and then nothing is portable.
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
            exclusions.append(Exclusion(row.case, f"no sound share of a ceiling on {some_of(missing)}"))
            continue
        for target in able:
            shares[target].append(found[target])
    means = {target: geometric_mean(found) if found else 0.0 for target, found in shares.items()}
    return Portability(kernel, provider, means, len(rows) - len(exclusions), harmonic_mean(list(means.values())), tuple(exclusions))


def refusals(rows: Iterable[Row]) -> tuple[Refusal, ...]:
    """What was not compared, grouped by its reason."""
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
            "best_case": best_row.case,
            "median": median([value for value, _, _ in good]),
            "median_share": median(shares) if shares else None,
            "largest": last.value,
            "largest_share": last.share,
            "largest_case": last_row.case,
        }
    )


def _size(row: Row) -> float:
    """The product of the numeric parameters: what a sweep makes larger."""
    numbers = [
        float(value) for value in row.params.values() if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    ]
    return math.prod(numbers) if numbers else 0.0
