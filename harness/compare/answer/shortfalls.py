"""Comparison → the largest shortfalls, each with the case that loses most time and what differs there. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from harness.compare.answer.code_side_by_side import Figure, Hint, Side, figures, hints
from harness.compare.answer.overview import NEAR, KernelLine, Reached, Square
from harness.compare.model import Cell, Comparison, Row
from harness.compare.speeds.ratios import lower_is_better
from harness.records import CompiledKernel, Verdict

_AHEAD = 0.05  # how much larger the share on another target must be, to be worth a comparison of the code
_FASTER = 1.1  # times as fast, for a peer to show that more is possible
_COPY = "copy"  # a line that benchmarks draw for orientation: it does not do the same work
_SMALL = 3  # cases at either end of a sweep


@dataclass(frozen=True)
class Shortfall:
    """A kernel that stays behind on a target: it reaches `share` of what `of` names, as the median over `n` cases.

    `case` loses the most time, compared with that ceiling; `case_share` is its share and `case_ms` its median time. `figures` lay the code
    of this case on `architecture` beside that on `other` of the target `against`, where the kernel comes closer to the ceiling. Without
    such a target, or such code, they are those of one side, or empty; `unknown` says which code is missing.
    """

    kernel: str
    target: str
    provider: str
    unit: str
    share: float
    of: str
    n: int
    case: str
    case_share: float
    case_ms: Union[float, None]
    architecture: str = ""
    against: str = ""
    other: str = ""
    other_share: Union[float, None] = None
    figures: tuple[Figure, ...] = ()
    hints: tuple[Hint, ...] = ()
    unknown: str = ""


def shortfalls(comparison: Comparison, lines: Sequence[KernelLine], most: int = 50) -> tuple[Shortfall, ...]:
    """Return the kernels below 90% of their ceiling by target, the largest gap first."""
    short = [
        (one.share, line, square.target, one)
        for line in lines
        for square in line.squares
        for one in square.reached
        if one.share is not None and one.share < NEAR
    ]
    short.sort(key=lambda entry: entry[0])
    found = _Found(comparison)
    made = (found.shortfall(line, target, one) for _, line, target, one in short[:most])
    return tuple(entry for entry in made if entry)


class _Found:
    """A comparison, indexed by what a shortfall needs."""

    def __init__(self, comparison: Comparison) -> None:
        self.rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.code: dict[tuple[str, str], list[tuple[str, CompiledKernel]]] = defaultdict(list)
        self.cards = {target.target: target.devices[0].architecture for target in comparison.targets if target.devices}
        for row in comparison.rows:
            self.rows[row.kernel, row.unit].append(row)
        for entry in comparison.codegen:
            for cell in entry.cells:
                if cell.compiled.verdict is not Verdict.NOT_RUN and not cell.compiled.is_discarded:
                    self.code[cell.compiled.origin, cell.compiled.architecture].append((cell.target, cell.compiled))

    def shortfall(self, line: KernelLine, target: str, one: Reached) -> Union[Shortfall, None]:
        """Return what is known of a shortfall; None if no single case falls short."""
        assert one.share is not None
        rows = self.rows[line.kernel, one.unit]
        ceiling = one.of_ceiling is not None
        cases = _cases(rows, target, one.provider, ceiling=ceiling)
        behind = [entry for entry in cases if entry.share < NEAR]
        if not behind:
            return None
        best = _ahead(line, target, one)
        worst = max(behind, key=lambda entry: (len(self._code(entry.row.case, one.provider, target, best)), entry.lost))
        code = self._code(worst.row.case, one.provider, target, best)
        small = _only_small(cases)
        peer = _peer(rows, worst, one.provider)
        weak = _weak(cases)
        failing = next((_failing(square) for square in line.squares if square.target == target), None)
        found = tuple(hint for hint in (failing, weak, small, peer, *(hints(*code) if code else ())) if hint)
        return Shortfall(
            line.kernel,
            target,
            one.provider,
            one.unit,
            one.share,
            one.ceiling if ceiling else "the fastest peer",
            one.n,
            worst.row.case,
            worst.share,
            worst.cell.median_ms,
            self.cards.get(target, ""),
            best[0] if best else "",
            self.cards.get(best[0], "") if best else "",
            best[1] if best else None,
            figures(*code) if code else (),
            found,
            self._unknown(code, target, best),
        )

    def _code(self, case: str, provider: str, target: str, best: Union[tuple[str, float], None]) -> tuple[Side, ...]:
        """Return the code of the case on the card of `target`, and on that of the best target if there is one. Empty without the first."""
        sides: list[Side] = []
        for name in (target, best[0] if best else ""):
            if name == "" or (name != target and not sides):
                break
            architecture = self.cards.get(name, "")
            made = self.code.get((f"{case} [{provider}]", architecture), []) if architecture else []
            own = [row for whose, row in made if whose == name] or [row for _, row in made]
            sides += [Side(architecture, tuple(own))] if own else []
        return tuple(sides)

    def _unknown(self, code: Sequence[Side], target: str, best: Union[tuple[str, float], None]) -> str:
        missing = target if not code else best[0] if best and len(code) == 1 else ""
        return f"This report has no code of these cases for the card of {missing}: run the compile stage." if missing else ""


@dataclass(frozen=True)
class _Case:
    """A case on a target: its share of the ceiling, and the time lost to it in ms."""

    row: Row
    cell: Cell
    share: float
    size: float

    @property
    def lost(self) -> float:
        return (self.cell.median_ms or 0.0) * (1 - self.share)


def _cases(rows: Iterable[Row], target: str, provider: str, *, ceiling: bool) -> list[_Case]:
    """Return the provider's cases on the target that have a share."""
    rows = list(rows)
    best = {} if ceiling else _fastest(rows, target)
    found = []
    for row in rows:
        for cell in row.cells:
            if row.provider == provider and cell.target == target and cell.value and not cell.suspect:
                share = cell.share if ceiling else _of(cell, best.get(row.case))
                if share is not None:
                    found.append(_Case(row, cell, share, cell.bytes_moved or cell.median_ms or 0.0))
    return found


def _fastest(rows: Iterable[Row], target: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        pick = min if lower_is_better(row.unit) else max
        for cell in row.cells:
            if cell.target == target and cell.value and not cell.suspect:
                found[row.case] = pick(found.get(row.case, cell.value), cell.value)
    return found


def _of(cell: Cell, best: Union[float, None]) -> Union[float, None]:
    if not cell.value or not best:
        return None
    return best / cell.value if lower_is_better(cell.unit) else cell.value / best


def _ahead(line: KernelLine, target: str, one: Reached) -> Union[tuple[str, float], None]:
    """Return the target on which the kernel comes closest to its ceiling, if that is clearly closer than here."""
    shares = [
        (other.share, square.target)
        for square in line.squares
        for other in square.reached
        if square.target != target and other.unit == one.unit and other.share is not None
    ]
    share, name = max(shares, default=(0.0, ""))
    return (name, share) if one.share is not None and share > one.share + _AHEAD else None


def _only_small(cases: Sequence[_Case]) -> Union[Hint, None]:
    """The largest cases reach the ceiling and the smallest do not."""
    if len(cases) < 2 * _SMALL:
        return None
    order = sorted(cases, key=lambda entry: entry.size)
    first, last = order[:_SMALL], order[-_SMALL:]
    if max(entry.share for entry in first) >= NEAR or min(entry.share for entry in last) < NEAR:
        return None
    low = min(first, key=lambda entry: entry.share)
    high = last[-1]
    times = [f" in {entry.cell.median_ms * 1000:.3g} µs" if entry.cell.median_ms else "" for entry in (low, high)]
    return Hint(
        "Only small cases fall short, so a fixed cost, such as the launch, may weigh there; the large ones are near the ceiling.",
        f"{low.share:.0%}{times[0]} at {low.row.case}, {high.share:.0%}{times[1]} at {high.row.case}",
    )


def _peer(rows: Iterable[Row], case: _Case, own: str) -> Union[Hint, None]:
    """Another provider of the same case is faster on the same card: more is possible there."""
    better = [
        (cell.value, row.provider)
        for row in rows
        for cell in row.cells
        if row.case == case.row.case
        and row.provider not in (own, _COPY)
        and cell.target == case.cell.target
        and cell.value
        and not cell.suspect
    ]
    lower = lower_is_better(case.row.unit)
    value, provider = (min if lower else max)(better, default=(0.0, ""))
    if not value or not case.cell.value:
        return None
    times = case.cell.value / value if lower else value / case.cell.value
    if times < _FASTER:
        return None
    return Hint("More is possible on this card.", f"{provider} is {times:.2f} times as fast at {case.row.case}")


def _failing(square: Square) -> Union[Hint, None]:
    if not square.failed:
        return None
    tests = f"{square.failed} of its tests {'fails' if square.failed == 1 else 'fail'} on {square.target}"
    return Hint("Fix its tests first: the speed of a wrong result says little.", tests)


def _weak(cases: Sequence[_Case]) -> Union[Hint, None]:
    weak = [entry for entry in cases if entry.cell.weak]
    if not weak:
        return None
    return Hint("Measure again first: some of its points are weak.", f"{len(weak)} of {len(cases)} points: {weak[0].cell.weak}")
