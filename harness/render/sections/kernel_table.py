"""Comparison → sections: the table of every kernel on every target, and where the gap is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.answer.overview import KernelLine, Reached, Square, distance
from harness.compare.answer.shortfalls import Shortfall
from harness.compare.model import Comparison
from harness.records import Verdict
from harness.render.measure_again import bench_patterns, look_closer
from harness.render.sections.model import Bit, Line, Section, name, names, say
from harness.render.text import NOTHING, UNVERIFIED_MARK, counts, gravest, number, plural, trend

_CELLS = 4  # of a bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_PEER = "*"
_PRODUCT = "^"  # of a matrix product
_MOST_WIDE = 3  # targets beside each other
_MOST_HINTS = 2  # of a gap
KERNELS, GAPS = "Kernels", "Where is the gap, what next"


def kernels(comparison: Comparison, lines: Sequence[KernelLine]) -> list[Section]:
    """Return a line a kernel with a column per target; of more than three targets, a line per kernel and target."""
    if not lines:
        return []
    ported = any(line.portability is not None for line in lines)
    wide = len(comparison.targets) <= _MOST_WIDE
    pairs = list(dict.fromkeys((ratio.target, ratio.baseline) for line in lines for ratio in line.ratios))
    ratio = [say("ratio")] if pairs else []
    targets = names(target.target for target in comparison.targets) if wide else (say("target"), say("tests, share"))
    heads = (say("kernel"), *targets, *ratio, *([say("portable")] if ported else []))
    rows = []
    based = [say("since base")] if comparison.since else []
    heads = (*heads, *based)
    for line in lines:
        for position, (target, cells) in enumerate(_cells(line, comparison, wide=wide)):
            own = [_ratio(line, [pair for pair in pairs if target in (None, pair[0])])] if ratio else []
            tail = [_percent(line.portability)] if ported else []
            tail += [say(", ".join(trend(square.since) for square in line.squares if square.since) or NOTHING)] if based else []
            lead = say(name(line.kernel)) if not position else ()
            rows.append((lead, *cells, *own, *(tail if not position else [()] * len(tail))))
    right = tuple(range(len(heads) - len(ratio) - ported - len(based), len(heads)))
    return [Section(KERNELS, heads, tuple(rows), legend=_legend(comparison, lines, pairs, ported=ported), right=right)]


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


def _cells(line: KernelLine, comparison: Comparison, *, wide: bool) -> list[tuple[str | None, list[Line]]]:
    """Return the cells of each row of a kernel, and the target that the row is about; None if it is about all of them."""
    squares = [_square(square, untested=comparison.untested) for square in line.squares]
    if wide:
        return [(None, squares)]
    return [
        (square.target, [say(name(square.target)), cell])
        for square, cell in zip(line.squares, squares, strict=True)
        if square.counts or square.reached
    ] or [(None, [say(NOTHING), say(NOTHING)])]


def _square(square: Square, *, untested: bool) -> Line:
    """`██▎· 56% 4 failed`. Tests that all pass are not mentioned beside a share: an unverified one has a mark."""
    shares = [one for one in square.reached if one.share is not None]
    bits = [bit for one in shares or square.reached for bit in _reached(one, untested=untested)]
    if square.failed:
        bits.append(Bit(f"{square.failed} failed", gravest(square.counts)))
    elif square.counts and not shares:
        passed = square.counts.get(Verdict.PASSED.value, 0)
        bits.append(Bit(f"{passed} passed" if passed else counts(square.counts, square.not_run)))
    made = square.compiled
    if made.failed:
        bits.append(Bit(f"{' ' if bits and bits[-1].text != ' ' else ''}{made.failed} uncompiled", Verdict.FAILED))
    elif made.n and not bits:
        bits.append(Bit(f"{made.n} compiled"))
    if bits and bits[-1].text == " ":
        bits.pop()
    return say(*bits) or say(NOTHING)


def draw_bar(share: float) -> str:
    """Return a bar of four characters, filled by eighths of one: `██▎·` is 56%."""
    eighths = min(8 * _CELLS, max(0, round(share * 8 * _CELLS)))
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(_CELLS, "·")


def _reached(one: Reached, *, untested: bool) -> list[Bit]:
    mark = "" if one.verified or untested else UNVERIFIED_MARK
    if one.share is None:
        return [Bit(f"{number(one.best)} "), name(one.unit), Bit(f"{mark} ")] if one.best is not None else []
    of = {"peer": _PEER, "product": _PRODUCT}.get(one.ground, "")
    return [Bit(f"{draw_bar(one.share)} {one.share:.0%}{of}{mark}", far=distance(one.share)), Bit(" ")]


def _ratio(line: KernelLine, pairs: Sequence[tuple[str, str]]) -> Line:
    """Return the ratios of these targets, in their order; a kernel with several units has several of each."""
    found = [[one.ratio for one in line.ratios if (one.target, one.baseline) == pair and one.ratio is not None] for pair in pairs]
    if not any(found):
        return say(NOTHING) if pairs else ()
    return say(" ".join(", ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in ratios)) or NOTHING for ratios in found))


def _percent(value: float | None) -> Line:
    return say(NOTHING if value is None else f"{value:.0%}")


def _legend(comparison: Comparison, lines: Sequence[KernelLine], pairs: Sequence[tuple[str, str]], *, ported: bool) -> tuple[str, ...]:
    reached = [one for line in lines for square in line.squares for one in square.reached]
    words = []
    if any(one.ground == "copy" for one in reached):
        words.append("%: of the copy measured on that GPU in the same run, median over the cases.")
    if any(one.of_ceiling is None and one.share is not None for one in reached):
        words.append(f"{_PEER}: without a ceiling, of the fastest provider.")
    if any(one.ground == "product" for one in reached):
        words.append(f"{_PRODUCT}: of a matrix product of its dtype by the card's library, in the same run.")
    if pairs:
        words.append(f"Ratio: {', '.join(f'{target}/{baseline}' for target, baseline in pairs[:_MOST_WIDE])}.")
    if comparison.since:
        words.append("Since base: its speed over that of the base run; ▲ ▼: some cases are faster, slower for sure.")
    if ported:
        words.append("Portable: Pennycook's performance portability.")
    if not comparison.untested and any(not one.verified for one in reached):
        words.append("?: unverified, not all of its tests passed there.")
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
