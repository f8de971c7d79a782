"""Compare the generated code of two runs: what changed, worst first. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.codegen.deltas import Concern, Delta, Trend, deltas
from harness.compare.codegen.pairing import Room, differing, identity, moved, pair, telling, variant
from harness.compare.model import FAILING
from harness.records import CompiledKernel, Verdict


class Kind(str, Enum):
    """What happened to a configuration, in the order of the list."""

    WORSE = "worse"
    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"
    BETTER = "better"


@dataclass(frozen=True)
class Change:
    """One configuration of a kernel function on one architecture that changed.

    `origin` is the first case that launched it. `variant` distinguishes it from the launch's other configurations; empty if it is the only
    one. `moved` lists what was retuned (`4 → 8 warps`). `before` is None if the configuration was added, `after` if it was removed.
    `survivors` counts the launch's configurations that still compile, if this one stopped compiling.
    """

    kernel: str
    function: str
    architecture: str
    kind: Kind
    origin: str
    variant: str
    moved: tuple[str, ...]
    deltas: tuple[Delta, ...]
    before: CompiledKernel | None
    after: CompiledKernel | None
    survivors: int | None = None

    def worse_in(self, concerns: Iterable[Concern]) -> tuple[Concern, ...]:
        """Return which of the concerns have a figure that got worse, gravest first."""
        found = {delta.concern for delta in self.deltas if delta.trend is Trend.WORSE}
        return tuple(sorted(found.intersection(concerns), key=lambda concern: concern.rank))


@dataclass(frozen=True)
class Diff:
    """What changed, in reading order. Of `compared` configurations, `unchanged` have the same binary byte for byte.

    `same_figures` have another binary with the same figures. `only_before` and `only_after` are architectures that only one of the two runs
    compiled for. Their kernels are in none of the counts.
    """

    changes: tuple[Change, ...]
    compared: int
    unchanged: int
    same_figures: int
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()


def diff(before: Sequence[CompiledKernel], after: Sequence[CompiledKernel]) -> Diff:
    """Compare the kernels of two runs, per kernel function and architecture."""
    names = [{row.architecture for row in rows} for rows in (before, after)]
    sides = [_Side([row for row in rows if row.architecture in names[0] & names[1]]) for rows in (before, after)]
    functions = dict.fromkeys([*sides[0].functions, *sides[1].functions])
    room = Room()
    pairs = [found for key in functions for found in pair(sides[0].functions.get(key, []), sides[1].functions.get(key, []), room)]
    changes = []
    same = {True: 0, False: 0}
    for old, new in pairs:
        change = _change(old, new, *sides)
        if change:
            changes.append(change)
        elif old and new:
            same[old.binary_hash == new.binary_hash] += 1
    compared = sum(old is not None and new is not None for old, new in pairs)
    only = [tuple(sorted(mine - theirs)) for mine, theirs in (names, names[::-1])]
    return Diff(tuple(sorted(changes, key=_order)), compared, same[True], same[False], only[0], only[1])


def merge(runs: Iterable[Sequence[CompiledKernel]]) -> list[CompiledKernel]:
    """Join the kernels of several targets. If two targets compiled one for the same architecture, keep the worse result."""
    found: dict[tuple[object, ...], CompiledKernel] = {}
    for rows in runs:
        seen: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            key = (row.kernel, row.function, row.architecture, row.origin, identity(row))
            seen[key] += 1
            known = found.setdefault((*key, seen[key]), row)
            if row.verdict.severity > known.verdict.severity:
                found[(*key, seen[key])] = row
    return list(found.values())


def dead(row: CompiledKernel) -> bool:
    """Return whether no GPU can run it. A kernel that only breaks its gates can run."""
    return row.verdict in FAILING and not row.only_gates


class _Side:
    """The kernels of one run, indexed for look-ups."""

    def __init__(self, rows: Iterable[CompiledKernel]) -> None:
        self.functions: dict[tuple[str, str, str], list[CompiledKernel]] = defaultdict(list)
        self.launches: dict[tuple[str, str, str, str], list[CompiledKernel]] = defaultdict(list)
        self.ran: set[tuple[str, str, str]] = set()
        self._survivors: dict[tuple[str, str, str, str], int] = {}
        self._telling: dict[tuple[str, str, str, str], frozenset[str]] = {}
        for row in rows:
            self.functions[row.kernel, row.function, row.architecture].append(row)
            self.launch(row).append(row)
            if row.verdict is Verdict.PASSED:
                self.ran.add((row.kernel, row.architecture, row.origin))

    def launch(self, row: CompiledKernel) -> list[CompiledKernel]:
        """Return all configurations of the launch that `row` belongs to: several if the launch is autotuned."""
        return self.launches[row.kernel, row.function, row.architecture, row.origin]

    def survivors(self, row: CompiledKernel) -> int:
        """Return how many configurations of that launch can run."""
        launch = (row.kernel, row.function, row.architecture, row.origin)
        if launch not in self._survivors:
            self._survivors[launch] = sum(not dead(other) for other in self.launches[launch])
        return self._survivors[launch]

    def telling(self, row: CompiledKernel) -> frozenset[str]:
        """Return the names of the parts in which the configurations of that launch differ."""
        launch = (row.kernel, row.function, row.architecture, row.origin)
        if launch not in self._telling:
            self._telling[launch] = telling(self.launches[launch])
        return self._telling[launch]


def _change(old: CompiledKernel | None, new: CompiledKernel | None, before: _Side, after: _Side) -> Change | None:
    """Return what happened to a pair, or None if nothing did that the diff reports."""
    if old and new:
        found, retuned = deltas(old, new), moved(old, new)
        if not found and not retuned:
            return None
        text = variant(new, after.telling(new).difference(differing(old, new)))
        died = dead(new) and not dead(old) and len(after.launch(new)) > 1
        survivors = after.survivors(new) if died else None
        return Change(new.kernel, new.function, new.architecture, _kind(found), new.origin, text, retuned, found, old, new, survivors)
    row, side = (new, after) if new else (old, before)
    assert row is not None
    failure = _new_failure(row, before) if new else ()
    kind = Kind.WORSE if failure else Kind.ADDED if new else Kind.REMOVED
    text = variant(row, side.telling(row))
    return Change(row.kernel, row.function, row.architecture, kind, row.origin, text, (), failure, old, new)


def _new_failure(row: CompiledKernel, before: _Side) -> tuple[Delta, ...]:
    """Return the failure of a configuration that only HEAD has, if it has one.

    A new configuration that fails is worse than none. Host code that cannot run counts only if the same case ran before.
    """
    could = (row.kernel, row.architecture, row.origin) in before.ran
    if row.verdict in FAILING or (not row.was_compiled and could):
        was = Verdict.PASSED if could and row.verdict is Verdict.NOT_RUN else Verdict.ABSENT
        return (Delta(Concern.VERDICT, Trend.WORSE, "verdict", was.value, row.verdict.value, float(row.verdict.severity)),)
    return ()


def _kind(found: tuple[Delta, ...]) -> Kind:
    trends = {delta.trend for delta in found}
    return Kind.WORSE if Trend.WORSE in trends else Kind.BETTER if Trend.BETTER in trends else Kind.CHANGED


def _order(change: Change) -> tuple[object, ...]:
    """Sort by kind, then by the gravest concerns and how far they moved. Names come last, so that the order is stable."""
    trend = Trend.BETTER if change.kind is Kind.BETTER else Trend.WORSE
    moves = sorted((delta.concern.rank, -delta.weight) for delta in change.deltas if delta.trend is trend)
    names = (change.kernel, change.function, change.origin, change.architecture, change.variant)
    return (list(Kind).index(change.kind), (*moves, (len(Concern), 0.0)), *names)
