"""Comparison → sections: speeds, condensed and case by case."""

from __future__ import annotations

from harness.compare.model import Cell, Change, Comparison, Geomean, Speed
from harness.compare.speeds.noise import explain
from harness.records import Verdict
from harness.render.sections.model import Bit, Line, Section, lacking, name, names, say
from harness.render.text import NOTHING, UNTESTED, UNVERIFIED_MARK, first_line, marked, plural, with_share


def speeds(comparison: Comparison) -> list[Section]:
    """Return a table per unit, with a line per kernel, provider and target."""
    return [_speeds(comparison, unit) for unit in dict.fromkeys(speed.unit for speed in comparison.speeds)]


def cases(comparison: Comparison) -> list[Section]:
    """Return a table of every case per unit: its value, spread and ratio."""
    return [_cases(comparison, unit) for unit in dict.fromkeys(row.unit for row in comparison.rows)]


def _cases(comparison: Comparison, unit: str) -> Section:
    """Return a row per case and provider, with a column per target: value, share of the ceiling, and ratio."""
    targets = list(dict.fromkeys(cell.target for row in comparison.rows for cell in row.cells))
    rows: list[tuple[Line, ...]] = []
    before = ""
    for row in comparison.rows:
        if row.unit != unit:
            continue
        cells = {cell.target: cell for cell in row.cells}
        ratios = [f"{ratio.value:.2f} {ratio.change.value}" if ratio.value else ratio.change.value for ratio in row.ratios]
        lead = names(("" if row.case == before else row.case, row.provider))
        reached = [_reached(cells[target], comparison.untested) if target in cells else say(NOTHING) for target in targets]
        rows.append((*lead, *reached, *([say(", ".join(ratios))] if len(targets) > 1 else [])))
        before = row.case
    heads = (say("case"), say("provider"), *names(targets), *([say("ratio")] if len(targets) > 1 else []))
    shown = [cell for row in comparison.rows if row.unit == unit for cell in row.cells]
    share = ", share of the ceiling," if any(cell.share is not None for cell in shown) else ""
    legend = [f"Value{share} and ±: half the spread from the 20th to the 80th percentile, over the median."]
    if any(cell.suspect for cell in shown):
        legend.append("! suspect: more than 1.1 times the copy bandwidth measured on that GPU; not used in ratios.")
    right = tuple(range(2, len(heads)))
    return Section(f"Every case, {unit or 'no unit'}", heads, tuple(rows), legend=tuple(legend), right=right, folded=True)


def _reached(cell: Cell, untested: bool) -> Line:
    spread = ""
    if cell.value is not None and cell.median_ms and cell.p20_ms is not None and cell.p80_ms is not None:
        spread = f" ±{(cell.p80_ms - cell.p20_ms) / 2 / cell.median_ms:.1%}"
    return say(Bit(marked(cell, untested=untested) + spread + (" weak" if cell.weak else ""), cell.verdict))


def _speeds(comparison: Comparison, unit: str) -> Section:
    means = {(mean.kernel, mean.provider, mean.target): mean for mean in comparison.geomeans if mean.unit == unit}
    shown = [speed for speed in comparison.speeds if speed.unit == unit]
    order = {key: position for position, key in enumerate(dict.fromkeys((speed.kernel, speed.provider) for speed in shown))}
    shown.sort(key=lambda speed: order[speed.kernel, speed.provider])
    labels = list(dict.fromkeys(f"{mean.target}/{mean.baseline}" for mean in means.values()))
    look = {(speed.kernel, speed.provider) for speed in shown if not speed.verified or speed.left_out}
    for row in comparison.rows:
        if row.unit == unit and any(ratio.change in (Change.FASTER, Change.SLOWER) for ratio in row.ratios):
            look.add((row.kernel, row.provider))
    quiet = frozenset(position for position, speed in enumerate(shown) if (speed.kernel, speed.provider) not in look)
    single = all(speed.n + speed.left_out <= 1 for speed in shown)
    rows: list[tuple[Line, ...]] = []
    before = ("", "")
    for speed in shown:
        key = (speed.kernel, speed.provider)
        lead = names(("" if speed.kernel == before[0] else speed.kernel, "" if key == before else speed.provider))
        mean = [_mean(means.get((*key, speed.target)))] if means else []
        reached = _reaches(speed, comparison.untested)
        rows.append((*lead, say(name(speed.target)), *(reached[:1] if single else [say(str(speed.n)), *reached]), *mean))
        before = key
    heads = tuple(say(head) for head in ("kernel", "provider", "target", *(["value"] if single else ["n", "best", "median", "largest"])))
    return Section(
        f"Speed, {unit or 'no unit'}",
        heads + ((say(name(" ".join(labels))),) if means else ()),
        tuple(rows),
        lacking(comparison, {speed.target for speed in comparison.speeds}, "no speeds") + _unreliable(comparison, unit),
        _legend(shown, bool(means), single=single, untested=comparison.untested)
        + ((explain(comparison.noise),) if comparison.noise else ()),
        right=(3, 4, 5, 6, 7),
        quiet=quiet,
        merged=2,
    )


def _unreliable(comparison: Comparison, unit: str) -> tuple[Line, ...]:
    """Return a line per target with points that were disturbed, or noisier than the bench stage asks for."""
    lines = []
    on: dict[str, list[Cell]] = {}
    for row in comparison.rows:
        for cell in row.cells if row.unit == unit else ():
            on.setdefault(cell.target, []).append(cell)
    for target in comparison.targets:
        cells = on.get(target.target, [])
        weak, noisy = [cell for cell in cells if cell.weak], sum(cell.quiet is False for cell in cells)
        if weak:
            lines.append(say(name(target.target), f": {plural(len(weak), 'weak point')}: ", name(first_line(weak[0].weak))))
        if noisy:
            many = f"{noisy} of {plural(len(cells), 'point')} noisy"
            lines.append(say(name(target.target), f": {many}: the benchmark's `rep` time ran out before the median was precise enough"))
    return tuple(lines)


def _legend(shown: list[Speed], compared: bool, *, single: bool, untested: bool) -> tuple[str, ...]:
    left = sum(speed.left_out for speed in shown)
    legend = [] if single else ["n cases; best and median over them; largest: at the largest size."]
    if any(speed.best_share is not None for speed in shown):
        of = {speed.share_of for speed in shown if speed.share_of}
        legend.append(f"%: of {' or '.join(sorted(of)) or 'the copy'}, measured on that GPU in the same run.")
    if untested:
        legend.append(UNTESTED)
    elif any(not speed.verified for speed in shown):
        legend.append("? unverified: the kernel's tests did not pass, or do not exist, on that target; not used in ratios.")
    if compared:
        legend.append("Ratio: geometric mean over the cases that are sound on both, and their number.")
    return (*legend, f"{plural(left, 'point')} left out: invalid or suspect.") if left else tuple(legend)


def _reaches(speed: Speed, untested: bool) -> list[Line]:
    """Return its best, its median, and its value at the largest size."""
    mark = "" if speed.verified or untested else UNVERIFIED_MARK
    pairs = ((speed.best, speed.best_share), (speed.median, speed.median_share), (speed.largest, speed.largest_share))
    return [say(with_share(value, share) + (mark if value is not None else "")) for value, share in pairs]


def _mean(mean: Geomean | None) -> Line:
    if mean is None:
        return ()
    return say(f"{mean.ratio:.2f} ({mean.n})") if mean.ratio is not None else say(Bit("none", Verdict.NOT_RUN))
