"""Comparison → sections: speeds, condensed and case by case."""

from __future__ import annotations

from collections.abc import Sequence

from warpwave.compare.answer import KernelLine, Shortfall, Square, causes, distance
from warpwave.compare.model import Cell, Comparison
from warpwave.compare.speeds import explain
from warpwave.records import Verdict, grouped, plural
from warpwave.render.commands import bench_patterns, look_closer
from warpwave.render.sections.model import BREAK, Bit, Line, Section, name, names, say
from warpwave.render.text import NOTHING, UNTESTED, UNVERIFIED_MARK, counts, first_line, gravest, marked, number, trend


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
    legend += [explain(comparison.noise)] if comparison.noise else []
    right = tuple(range(2, len(heads)))
    title, lines = f"Every case, {unit or 'no unit'}", _unreliable(comparison, unit)
    return Section(title, heads, tuple(rows), lines, tuple(legend), right=right, folded=True)


def _reached(cell: Cell, untested: bool) -> Line:
    spread, small = "", " launch-bound" if cell.launch_bound else ""
    if cell.value is not None and cell.median_ms and cell.p20_ms is not None and cell.p80_ms is not None:
        spread = f" ±{(cell.p80_ms - cell.p20_ms) / 2 / cell.median_ms:.1%}"
    return say(Bit(marked(cell, untested=untested) + spread + (" weak" if cell.weak else "") + small, cell.verdict))


def _unreliable(comparison: Comparison, unit: str) -> tuple[Line, ...]:
    """Return a line per target with points that were disturbed, or noisier than the bench stage asks for."""
    lines = []
    on = grouped((cell.target, cell) for row in comparison.rows if row.unit == unit for cell in row.cells)
    for target in comparison.targets:
        cells = on.get(target.target, [])
        weak, noisy = [cell for cell in cells if cell.weak], sum(cell.quiet is False for cell in cells)
        if weak:
            lines.append(say(name(target.target), f": {plural(len(weak), 'weak point')}: ", name(first_line(weak[0].weak))))
        if noisy:
            many = f"{noisy} of {plural(len(cells), 'point')} noisy"
            lines.append(say(name(target.target), f": {many}: the benchmark's `rep` time ran out before the median was precise enough"))
    return tuple(lines)


# Comparison → sections: the table of every kernel on every target, and where the gap is. Pure.

_PEER = "*"
_PRODUCT = "^"  # of a matrix product
_GROUNDS = {"peer": _PEER, "product": _PRODUCT}
_MOST_WIDE = 3  # targets beside each other
_MOST_HINTS = 2  # of a gap
KERNELS, GAPS, CAUSE = "Kernels", "Where is the gap, what next", "largest gap"


def kernels(comparison: Comparison, lines: Sequence[KernelLine], found: Sequence[Shortfall]) -> list[Section]:
    """Return a line a kernel with a column per target; of more than three targets, a line per kernel and target.

    Beside each other stand only targets that ran on a card, if there are several; the last column then has the causes of gaps, `found`.
    """
    if not lines:
        return []
    ported = any(line.portability is not None for line in lines)
    beside = comparison.beside if len(comparison.beside) <= _MOST_WIDE else ()
    shown = [target.target for target in beside or comparison.targets]
    wide = len(shown) <= _MOST_WIDE
    pairs = list(dict.fromkeys((ratio.target, ratio.baseline) for line in lines for ratio in line.ratios))
    ratio = [say("ratio")] if pairs else []
    targets = names(shown) if wide else (say("target"), say("tests, share"))
    based = [say("since base")] if comparison.since else []
    heads = (say("kernel"), *targets, *ratio, *([say("portable")] if ported else []), *based, *([say(CAUSE)] if beside else []))
    why = causes(found) if beside else {}
    rows = []
    for line in lines:
        for position, (target, cells) in enumerate(_cells(line, comparison, wide=wide, shown=shown)):
            own = [_ratio(line, [pair for pair in pairs if target in (None, pair[0])])] if ratio else []
            tail = [say(NOTHING if line.portability is None else f"{line.portability:.0%}")] if ported else []
            tail += [say(", ".join(trend(square.since) for square in line.squares if square.since) or NOTHING)] if based else []
            tail += [_cause(why.get(line.kernel))] if beside else []
            lead = say(name(line.kernel)) if not position else ()
            rows.append((lead, *cells, *own, *(tail if not position else [()] * len(tail))))
    end = len(heads) - bool(beside)
    right = tuple(range(end - len(ratio) - ported - len(based), end))
    legend = _kernel_legend(comparison, lines, pairs, ported=ported)
    return [Section(KERNELS, heads, tuple(rows), legend=legend, right=right, under=end if beside else None)]


def _cause(gap: Shortfall | None) -> Line:
    return say(Bit(gap.cause, far=distance(gap.share))) if gap else ()


def gaps(comparison: Comparison, found: Sequence[Shortfall], most: int, *, figures: bool = False) -> list[Section]:
    """Return the `most` largest shortfalls with their hints, and with `figures` all figures of their code."""
    lines: list[Line] = []
    targets = {target.target: target for target in comparison.targets}
    benches = bench_patterns(comparison) if found else {}
    for short in found[:most]:
        lines += _gap(short, look_closer(targets[short.target], benches.get(short.kernel, "")), figures=figures)
    if len(found) > most:
        lines.append(say(f"… and {plural(len(found) - most, 'smaller gap')}"))
    return [Section(GAPS, lines=tuple(lines))] if lines else []


def _cells(line: KernelLine, comparison: Comparison, *, wide: bool, shown: Sequence[str]) -> list[tuple[str | None, list[Line]]]:
    """Return the cells of each row of a kernel, and the target that the row is about; None if it is about all of them."""
    below = bool(comparison.beside) and wide
    squares = [_square(square, untested=comparison.untested, below=below) for square in line.squares if square.target in shown]
    if wide:
        return [(None, squares)]
    return [
        (square.target, [say(name(square.target)), cell])
        for square, cell in zip(line.squares, squares, strict=True)
        if square.counts or square.reached
    ] or [(None, [say(NOTHING), say(NOTHING)])]


def _square(square: Square, *, untested: bool, below: bool) -> Line:
    """`56% 2190 GB/s? 4 fail`: the share, the value that belongs to it, and the tests, which stand `below` if there is room."""
    one, bits = square.furthest, []
    if one is not None and one.share is not None:
        bits.append(Bit(f"{one.share:.0%}{_GROUNDS.get(one.ground, '')} ", far=distance(one.share)))
    if one is not None and one.typical is not None:
        mark = "" if one.verified or untested else UNVERIFIED_MARK
        bits += [Bit(f"{number(one.typical)} "), name(one.unit), Bit(mark)]
        bits += [Bit(" launch-bound", Verdict.NOT_RUN)] if one.is_small else []
        bits.append(BREAK if below else Bit(" "))
    passed, known = (square.counts.get(verdict.value, 0) for verdict in (Verdict.PASSED, Verdict.KNOWN))
    if square.failed:
        bits.append(Bit(f"{square.failed} fail{'s' if square.failed == 1 else ''}", gravest(square.counts)))
    elif square.counts:
        bits.append(Bit(f"✓ {passed}", Verdict.PASSED) if passed else Bit(counts(square.counts, square.not_run), Verdict.NOT_RUN))
        bits += [Bit(f" {known} known", Verdict.KNOWN)] if passed and known else []
    made = square.compiled
    bits += [Bit(f"{' ' if bits else ''}{made.failed} uncompiled", Verdict.FAILED)] if made.failed else []
    return say(*(bits or [Bit(f"{made.n} compiled")] if made.n else bits)) or say(NOTHING)


def _ratio(line: KernelLine, pairs: Sequence[tuple[str, str]]) -> Line:
    """Return the ratios of these targets, in their order; a kernel with several units has several of each."""
    found = [[one.ratio for one in line.ratios if (one.target, one.baseline) == pair and one.ratio is not None] for pair in pairs]
    if not any(found):
        return say(NOTHING) if pairs else ()
    return say(" ".join(", ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in ratios)) or NOTHING for ratios in found))


def _kernel_legend(
    comparison: Comparison, lines: Sequence[KernelLine], pairs: Sequence[tuple[str, str]], *, ported: bool
) -> tuple[str, ...]:
    reached = [one for line in lines for square in line.squares for one in square.reached]
    words = []
    if any(one.ground == "copy" for one in reached):
        words.append("%: of the copy measured on that GPU in the same run, median over the cases.")
    if any(one.of_ceiling is None and one.share is not None for one in reached):
        words.append(f"{_PEER}: without a ceiling, of the fastest provider.")
    if any(one.ground == "product" for one in reached):
        words.append(f"{_PRODUCT}: of a matrix product of its dtype by the card's library, in the same run.")
    if small := sum(one.launch_bound for one in reached):
        case = plural(small, "launch-bound case")
        words.append(f"{case} not counted: too small to come near the ceiling, whatever the kernel does.")
    if pairs:
        words.append(f"Ratio: {', '.join(f'{target}/{baseline}' for target, baseline in pairs[:_MOST_WIDE])}.")
    if comparison.since:
        words.append("Since base: its speed over that of the base run; ▲ ▼: some cases are faster, slower for sure.")
    if ported:
        words.append("Portable: Pennycook's performance portability.")
    if any(not one.verified for one in reached):
        words.append(UNTESTED if comparison.untested else "?: unverified, a test of it failed there, or none ran.")
    return (" ".join(words),) if words else ()


def _gap(short: Shortfall, command: str, *, figures: bool) -> list[Line]:
    elsewhere = say(", ", f"{short.other_share:.0%} on ", name(short.against)) if short.other_share is not None else ()
    share = Bit(f"{short.share:.0%}", far=distance(short.share))
    lines = [say(name(short.kernel), " on ", name(short.target), ": ", share, f" of {short.of}") + elsewhere]
    lines.append(say("  look at ", name(short.case), f": {short.case_share:.0%}"))
    lines += [say("  $ ", name(command))] if command else []  # before its reasons, so that a page that is cut still has it
    lines += [say(f"  {hint.text} ", name(f"({hint.evidence})")) for hint in short.hints[: None if figures else _MOST_HINTS]]
    if not short.hints and not short.unknown:
        lines.append(say("  nothing in this report says why"))
    if short.unknown:
        lines.append(say("  ", name(short.unknown)))
    if figures:
        there = f" | {short.other}" if short.other else ""
        lines += [
            say("  ", name(f"{short.architecture}{there}: {one.name} {one.here}{f' | {one.there}' if short.other else ''}"))
            for one in short.figures
        ]
    return lines
