"""Compare the generated code of two runs: what changed, figure by figure, worst first. Pure.

A figure is compared only if both binaries have it. Otherwise two readers would be compared, not two binaries.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import Enum
from functools import cache

from warpwave.compare.codegen import Room, differing, identity, moved, pair, telling, variant
from warpwave.compare.model import FAILING
from warpwave.errors import UsageError
from warpwave.records import CompiledKernel, NotRun, Stage, StageReport, TargetRun, Verdict

Launch = tuple[str, str, str, str]  # kernel, function, architecture and the case that launches it


class Concern(str, Enum):
    """What a change is about, gravest first. Changes are listed in this order, and `--fail-on` takes these words."""

    VERDICT = "verdict"
    ORDER = "order"
    MATRIX = "matrix"
    SPILLS = "spills"
    OCCUPANCY = "occupancy"
    ACCESS = "access"
    REGISTERS = "registers"
    SHARED = "shared"
    SIZE = "size"
    COMPILE = "compile"

    @property
    def rank(self) -> int:
        """Position in the order above; a smaller rank is graver."""
        return list(Concern).index(self)


USUAL = (Concern.VERDICT, Concern.ORDER, Concern.MATRIX, Concern.SPILLS, Concern.OCCUPANCY)  # what must not get worse by default


class Trend(str, Enum):
    """Whether a figure got worse, got better, or says neither by itself."""

    WORSE = "worse"
    BETTER = "better"
    NEITHER = "neither"


@dataclass(frozen=True)
class Delta:
    """One figure before and after, as text. `weight` (never negative) is how far it moved, and orders the changes of one concern."""

    concern: Concern
    trend: Trend
    what: str
    before: str
    after: str
    weight: float = 0.0


# Binaries hold line numbers for debuggers, so even a new comment changes their size a little.
_SIZE_NOISE = 0.05
_REGISTER_BYTES = 4
# Generations of matrix instructions, by the first word of their names. Falling back to an earlier generation loses speed.
_GENERATIONS = ("mma", "wgmma", "tcgen05")
# The tile shape in the name of a matrix instruction. A retuned tile uses another shape, which is no loss.
_SHAPE = re.compile(r"m\d+n\d+k\d+|\d+x\d+x\d+")


def deltas(before: CompiledKernel, after: CompiledKernel) -> tuple[Delta, ...]:
    """Return every figure that differs, gravest concern first. A kernel that only breaks its gates has figures to compare."""
    cost = tuple(_cost(before, after))
    verdict = (*_verdict(before, after), *(delta for delta in cost if delta.concern is Concern.VERDICT))
    rest = tuple(delta for delta in cost if delta.concern is Concern.COMPILE)
    if before.registers is None or after.registers is None:  # no binary, or no tool that reads it
        return (*verdict, *rest)
    private = before.private_bytes or after.private_bytes
    return (
        *verdict,
        *_lost_order(before, after),
        *_matrix(before, after),
        *_more(Concern.SPILLS, "spilled registers", before.spills, after.spills, scale=_REGISTER_BYTES),
        # Private memory that only holds the spilled registers is reported already.
        *(_more(Concern.SPILLS, "private memory", before.stack_bytes, after.stack_bytes, size=True) if private else ()),
        *_occupancy(before, after),
        *_access(before, after),
        *_copies(before, after),
        *_more(Concern.REGISTERS, "registers", before.registers, after.registers),
        *_kinds(before, after),
        *_more(Concern.SHARED, "shared memory", before.shared_bytes, after.shared_bytes, size=True),
        *_binary(before, after),
        *rest,
    )


def _verdict(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    old, new = _ending(before), _ending(after)
    if old is not new:
        worse = new.severity > old.severity
        was, now = (NotRun.DISCARDED.value if row.is_discarded else row.verdict.value for row in (before, after))
        yield Delta(Concern.VERDICT, _trend(worse), "verdict", was, now, float(max(old.severity, new.severity)))


_COSTS = {"compile_time": "seconds", "compile_memory": "peak_bytes"}
# A smaller step is the scatter of a busy machine, or what the first compilation of a process costs beside (docs/codegen.md has both).
_FEW_TIMES = 3.0
_FEW_SECONDS, _FEW_BYTES = 1.0, 256 << 20


def _cost(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare what compiling took. Beyond a limit that the package sets for it, the kernel breaks a gate."""
    for gate, what, floor, unit, form in (
        ("compile_time", "compile time", _FEW_SECONDS, 1, "{:.2f} s"),
        ("compile_memory", "memory of the compiler", _FEW_BYTES, 1 << 20, "{:.0f} MiB"),
    ):
        old, new = getattr(before, _COSTS[gate]), getattr(after, _COSTS[gate])
        if not old or not new or abs(new - old) < floor:
            continue
        times, most = new / old, after.against_base.get(gate)
        is_broken = most is not None and times > most
        if is_broken:
            yield Delta(Concern.VERDICT, Trend.WORSE, gate, "kept", f"broken: {times:.1f} times as much, {most:g} allowed", times)
        if is_broken or max(times, 1 / times) >= _FEW_TIMES:
            yield Delta(Concern.COMPILE, _trend(new > old), what, form.format(old / unit), form.format(new / unit), max(times, 1 / times))


# What uses memory, in `CompiledKernel.order`; all else orders that.
_USES = {"store", "load", "atomic", "copy-in", "copy-out", "product", "tensor-memory", "mbarrier", "global-atomic"}
_BESIDE = {"global-store", "global-load"}  # to global memory, in a kernel that uses shared memory, too


class _Order:
    """A kernel's accesses and what orders them: `gaps[n]` stands before access `n`, the last one at the end.

    In a kernel with shared memory, accesses to global memory are among them only `with_global`; else `passed` counts those of each gap.
    """

    def __init__(self, text: str, with_global: bool) -> None:
        self.accesses: list[str] = []
        self.lines: list[str] = []
        self.gaps: list[Counter[str]] = [Counter()]
        self.passed: list[Counter[str]] = [Counter()]
        for word, _, line in (each.partition("@") for each in text.split()):
            if word in _USES or (with_global and word in _BESIDE):
                if self.accesses[-1:] == [word] and self.passed[-1] and not self.gaps[-1]:
                    continue  # with nothing but accesses to global memory between them, two alike are one
                self.accesses.append(word)
                self.lines.append(line)
                self.gaps.append(Counter())
                self.passed.append(Counter())
            else:
                (self.passed if word in _BESIDE else self.gaps)[-1][word] += 1

    def only_copies_before(self, gap: int) -> bool:
        """Whether all accesses before a gap are copies in that nothing has waited for. A barrier does not order those."""
        others = {word for words in self.gaps[: gap + 1] for word in words} - {"bar.sync", "cp.async.commit_group"}
        return set(self.accesses[:gap]) == {"copy-in"} and not others

    def number(self, word: str) -> int:
        """How often it stands in the whole kernel."""
        return sum(words[word] for words in self.gaps)

    def around(self, gap: int) -> list[tuple[str, str]]:
        """Return the accesses on both sides of a gap, with their lines."""
        return list(zip(self.accesses, self.lines, strict=True))[max(gap - 1, 0) : gap + 1]

    def orders(self, pair: Sequence[tuple[str, str]], word: str) -> bool:
        """Whether the word stands between all two accesses like these, which differ: a scheduler has moved others between them."""
        if len(set(pair)) < 2:
            return False
        first, found = None, []
        for at, access in enumerate(zip(self.accesses, self.lines, strict=True)):
            if access == pair[1] and first is not None:
                found.append(any(word in gap for gap in self.gaps[first + 1 : at + 1]))
            first = at if access == pair[0] else first
        return bool(found) and all(found)

    def beside(self, gap: int) -> tuple[str, str]:
        """Return the accesses on both sides of a gap, in words."""
        sides = [
            f"the {self.accesses[at].replace('-', ' ')} of line {self.lines[at]}" if 0 <= at < len(self.lines) else ""
            for at in (gap - 1, gap)
        ]
        return sides[0] or "the start", sides[1] or "the end"


def _lost_order(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Yield what orders accesses no more, where the accesses around it are what they were.

    With other warps or stages the code is another one. A scheduler moves accesses to global memory past those to shared memory, so a
    kernel that uses both is compared without the former, too. The one that has lost more is told.
    """
    if not (before.order and after.order) or (before.num_warps, before.num_stages) != (after.num_warps, after.num_stages):
        return
    shared, both = (_gone(_Order(before.order, kind), _Order(after.order, kind)) for kind in (False, True))
    for word in dict.fromkeys(name for name, *_ in (*shared, *both)):
        lost = [{place: count for place, count in gone.items() if place[0] == word} for gone in (shared, both)]
        is_global = all(side.startswith("the global") for _, *sides in lost[1] for side in sides)  # the other has what is around them
        fewest = sum(lost[0].values()) + (not is_global)
        for (_, left, right), count in lost[sum(lost[1].values()) >= max(fewest, 1)].items():
            yield Delta(Concern.ORDER, Trend.WORSE, f"{word} between {left} and {right}", str(count), "0", float(count))


def _gone(old: _Order, new: _Order) -> Counter[tuple[str, str, str]]:
    """Count what is gone, with the accesses on both sides."""
    pairs: list[tuple[range, range]] = []  # of gaps with the same accesses around them
    for what, start, end, other, last in SequenceMatcher(None, old.accesses, new.accesses, autojunk=False).get_opcodes():
        if what == "equal":
            inner = range(0 if start == other == 0 else 1, end - start)
            pairs += ((range(start + at, start + at + 1), range(other + at, other + at + 1)) for at in inner)
            if (end, last) == (len(old.accesses), len(new.accesses)):
                pairs.append((range(end, end + 1), range(last, last + 1)))
        # Two accesses alike are written as one once nothing is between them.
        elif _runs(old.accesses[max(start - 1, 0) : end + 1]) == _runs(new.accesses[max(other - 1, 0) : last + 1]):
            pairs.append((range(start, end + 1), range(other, last + 1)))
    gone: Counter[tuple[str, str, str]] = Counter()
    fewer = sum(old.passed, Counter[str]()) - sum(new.passed, Counter[str]())
    for mine, theirs in pairs:
        was, now = (sum((side.gaps[at] for at in gaps), Counter[str]()) for side, gaps in ((old, mine), (new, theirs)))
        passed, passes = (sum((side.passed[at] for at in gaps), Counter[str]()) for side, gaps in ((old, mine), (new, theirs)))
        if fewer & (passed - passes):  # accesses to global memory are gone, and it may have been for them
            continue
        for word, count in (was - now).items():
            if not any(_orders_no_less(one, word) for one in now - was):
                at = next(at for at in mine if word in old.gaps[at])
                moved = new.number(word) >= old.number(word) and new.orders(old.around(at), word)
                if not moved and not (word.startswith("bar") and old.only_copies_before(at)):
                    gone[(word, *old.beside(at))] += count
    return gone


def _runs(words: Iterable[str]) -> list[str]:
    return [word for word, _ in itertools.groupby(words)]


# By who sees it, from a program to the whole system.
_SCOPES = {"cta": 0, "workgroup": 0, "cluster": 1, "gpu": 2, "agent": 2, "sys": 3, "system": 3}


def _orders_no_less(new: str, old: str) -> bool:
    """Return whether a wait for all but a number of groups has become one for all but as many, or fewer; or a scope is as wide, or wider.

    Runs of earlier versions have no scopes.
    """
    (name, _, left), (same, _, most) = new.partition(":"), old.partition(":")
    if name == same:
        return "wait" in name and left.isdigit() and most.isdigit() and int(left) <= int(most)
    (name, _, wide), (same, _, least) = new.rpartition("."), old.rpartition(".")
    if old == name:
        return wide in _SCOPES
    return name == same and wide in _SCOPES and least in _SCOPES and _SCOPES[wide] >= _SCOPES[least]


def _ending(row: CompiledKernel) -> Verdict:
    """Return its verdict. A configuration that an autotuner discards, and a known failure, fail nobody: their figures are compared."""
    return Verdict.PASSED if row.is_discarded or row.verdict is Verdict.KNOWN else row.verdict


def _trend(worse: bool) -> Trend:
    return Trend.WORSE if worse else Trend.BETTER


def _bytes(count: int) -> str:
    """Return an exact size, so that two different sizes never look the same."""
    return f"{count} B" if count % 1024 or not count else f"{count // 1024} KiB"


def _more(concern: Concern, what: str, before: int | None, after: int | None, size: bool = False, scale: int = 1) -> Iterator[Delta]:
    if before is None or after is None or before == after:
        return
    shown = (_bytes(before), _bytes(after)) if size else (str(before), str(after))
    yield Delta(concern, _trend(after > before), what, *shown, float(abs(after - before) * scale))


def _names(row: CompiledKernel, matrix: bool) -> dict[str, int | None]:
    """Return the counts of matrix instructions, or of asynchronous copies, by name. A count is None if only names were kept."""
    if row.instructions is None:
        return dict.fromkeys(row.matrix) if matrix else {}
    return {name: count for name, count in row.instructions.items() if (name in row.matrix) == matrix}


def _counts(concern: Concern, trend: Trend, before: dict[str, int | None], after: dict[str, int | None]) -> Iterator[Delta]:
    """Yield a delta per name. Only a lost name is worse and only a new one is better: counts depend on the tile and on unrolling."""
    for name in sorted({**before, **after}):
        old, new = before.get(name, 0), after.get(name, 0)
        if old == new or (old is None and new) or (new is None and old):  # both have it, only one has a count
            continue
        moved = trend if (trend is Trend.WORSE and new == 0) or (trend is Trend.BETTER and old == 0) else Trend.NEITHER
        shown = ["some" if count is None else str(count) for count in (old, new)]
        yield Delta(concern, moved, name, shown[0], shown[1], float(abs((old or 0) - (new or 0))))


def _matrix(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare matrix instructions: worse if a kind is gone without replacement, or an earlier generation replaces it."""
    old, new = _names(before, matrix=True), _names(after, matrix=True)
    kinds = [{_SHAPE.sub("", name) for name in names} for names in (old, new)]
    generations = [max(map(_generation, names), default=-1) for names in (old, new)]
    if generations[0] != generations[1] and old and new:
        trend = _trend(generations[1] < generations[0])
    else:
        trend = Trend.WORSE if kinds[1] < kinds[0] else Trend.BETTER if kinds[0] < kinds[1] else Trend.NEITHER
    yield from _counts(Concern.MATRIX, trend, old, new)


def _generation(name: str) -> int:
    family = re.match(r"\w*", name)
    return _GENERATIONS.index(family.group()) if family and family.group() in _GENERATIONS else 0


def _copies(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare asynchronous copies: worse if none is left, better if there were none before."""
    if before.instructions is None or after.instructions is None:
        return
    old, new = _names(before, matrix=False), _names(after, matrix=False)
    yield from _counts(Concern.ACCESS, Trend.NEITHER if old and new else _trend(not new), old, new)


def _occupancy(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    if before.occupancy is None or after.occupancy is None:
        return
    if before.occupancy == after.occupancy and before.programs == after.programs:
        return
    fell = before.occupancy - after.occupancy
    trend = _trend(fell > 0) if fell else Trend.NEITHER
    yield Delta(Concern.OCCUPANCY, trend, "occupancy", _resident(before), _resident(after), abs(fell))


def _resident(row: CompiledKernel) -> str:
    """`75% (6x8w, registers)`: share of the warp slots, programs x warps of each, and the resource that limits them."""
    why = "" if row.occupancy == 1 else "".join(f", {resource}" for resource in row.limited_by or ())
    return f"{row.occupancy:.0%} ({row.programs}x{row.num_warps}w{why})"


def _access(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare the widest global load and store, in bits."""
    loads = [max(row.load_widths or (), default=row.load_bits) for row in (before, after)]
    stores = [max(row.store_widths or (), default=None) for row in (before, after)]
    for what, (old, new) in (("widest load", loads), ("widest store", stores)):
        if old is not None and new is not None and old != new:
            yield Delta(Concern.ACCESS, _trend(new < old), what, str(old), f"{new} bits", float(abs(old - new)))


def _kinds(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare the kinds of registers, if known separately. They explain a change of `registers`; alone they are neither good nor bad."""
    kinds = [("SGPR", before.sgprs, after.sgprs), ("AGPR", before.agprs, after.agprs)]
    if before.agprs or after.agprs:  # otherwise VGPRs are the registers, reported already
        kinds.insert(0, ("VGPR", before.vgprs, after.vgprs))
    for what, old, new in kinds:
        if old is not None and new is not None and old != new:
            yield Delta(Concern.REGISTERS, Trend.NEITHER, what, str(old), str(new), float(abs(old - new)))


def _binary(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    old, new = before.binary_bytes, after.binary_bytes
    if old and new and abs(new - old) > _SIZE_NOISE * min(old, new):
        yield Delta(Concern.SIZE, _trend(new > old), "binary", _bytes(old), _bytes(new), abs(new - old) / min(old, new))


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

    @property
    def hardware(self) -> str:
        """The architecture as reports show it: `gfx942 (MI300X)`."""
        row = self.after or self.before
        return row.hardware if row else self.architecture

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
    changed = [_change(old, new, *sides) for old, new in pairs]
    changes = [change for change in changed if change]
    kept = [(old, new) for (old, new), change in zip(pairs, changed, strict=True) if old and new and not change]
    same = Counter(old.binary_hash == new.binary_hash for old, new in kept)
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


def _launch(row: CompiledKernel) -> Launch:
    return row.kernel, row.function, row.architecture, row.origin


class _Side:
    """The kernels of one run, indexed for look-ups. A launch has several configurations if it is autotuned."""

    def __init__(self, rows: Iterable[CompiledKernel]) -> None:
        self.functions: dict[tuple[str, str, str], list[CompiledKernel]] = defaultdict(list)
        self.launches: dict[Launch, list[CompiledKernel]] = defaultdict(list)
        self.ran: set[tuple[str, str, str]] = set()
        for row in rows:
            self.functions[row.kernel, row.function, row.architecture].append(row)
            self.launches[_launch(row)].append(row)
            if row.verdict is Verdict.PASSED:
                self.ran.add((row.kernel, row.architecture, row.origin))
        self.telling = cache(lambda launch: telling(self.launches[launch]))


def _change(old: CompiledKernel | None, new: CompiledKernel | None, before: _Side, after: _Side) -> Change | None:
    if old and new:
        found, retuned, launch = deltas(old, new), moved(old, new), _launch(new)
        if not found and not retuned:
            return None
        text = variant(new, after.telling(launch).difference(differing(old, new)))
        return Change(new.kernel, new.function, new.architecture, _kind(found), new.origin, text, retuned, found, old, new)
    row, side = (new, after) if new else (old, before)
    assert row is not None
    found = (*_new_failure(row, before), *_cost_of_more(row, before, after)) if new else ()
    kind = Kind.WORSE if any(delta.trend is Trend.WORSE for delta in found) else Kind.ADDED if new else Kind.REMOVED
    text = variant(row, side.telling(_launch(row)))
    return Change(row.kernel, row.function, row.architecture, kind, row.origin, text, (), found, old, new)


def _cost_of_more(row: CompiledKernel, before: _Side, after: _Side) -> tuple[Delta, ...]:
    """Compare what compiling a launch took that has more configurations now, if the new one took the longest: a tuner compiles them all."""
    sides = [side.launches.get(_launch(row), []) for side in (before, after)]
    known = all(each.seconds for each in sides[0])
    if not sides[0] or not known or row.seconds < max(each.seconds for each in sides[1]):
        return ()
    old, new = (
        replace(row, seconds=sum(each.seconds for each in rows), peak_bytes=max(each.peak_bytes or 0 for each in rows)) for rows in sides
    )
    return tuple(replace(delta, what=f"{delta.what} of all configurations") for delta in _cost(old, new))


def _new_failure(row: CompiledKernel, before: _Side) -> tuple[Delta, ...]:
    """A new configuration that fails is worse than none. Host code that cannot run counts only if the same case ran before."""
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


@dataclass(frozen=True)
class Bundle:
    """One side of a diff. `faults` are sentences on why kernels may be missing; empty if the bundle is complete.

    `narrowed` says by which options the runs had some of the package's tests only.
    """

    folder: str
    targets: tuple[str, ...]
    commits: tuple[str, ...]
    triton: tuple[str, ...]
    kernels: tuple[CompiledKernel, ...]
    faults: tuple[str, ...]
    narrowed: tuple[str, ...] = ()

    @property
    def architectures(self) -> frozenset[str]:
        """The architectures that the run compiled for."""
        return frozenset(row.architecture for row in self.kernels)


def bundle(folder: str, runs: Sequence[TargetRun]) -> Bundle:
    """Join the targets of one run that generated code.

    Raises:
        UsageError: no target has generated code.
    """
    # A stale folder mixes files of two runs, so its results belong to neither.
    sound = [run for run in runs if run.record.verdict is not Verdict.STALE]
    compiled = [run for run in sound if run.compiled]
    if not compiled:
        stages = [f"{run.record.target}: {_why(run)}" for run in runs]
        raise UsageError(
            f"There is no generated code in {folder}.",
            f"It comes from the compile stage, which needs no GPU; here it left no kernel ({'; '.join(stages)}).",
            "Run `warpwave run cpu --stage compile --out FOLDER`, and give that FOLDER.",
        )
    return Bundle(
        folder=folder,
        targets=tuple(run.record.target for run in compiled),
        commits=tuple(dict.fromkeys(run.record.commit or "unknown" for run in compiled)),
        triton=tuple(dict.fromkeys(run.facts.triton if run.facts else "unknown" for run in compiled)),
        kernels=tuple(merge([run.compiled for run in compiled])),
        faults=tuple(fault for run in runs for fault in _faults(run)),
        narrowed=tuple(dict.fromkeys(" ".join(run.narrowed.by) for run in compiled if run.narrowed.by)),
    )


def check_comparable(base: Bundle, head: Bundle) -> None:
    """Raise UsageError if the two bundles have no architecture in common."""
    if not base.architectures & head.architectures:
        sides = [", ".join(sorted(side.architectures)) for side in (base, head)]
        raise UsageError(
            f"The two runs have no architecture in common: {base.folder} compiled for {sides[0]}, {head.folder} for {sides[1]}.",
            "Binaries for different GPUs cannot be compared; the two runs were made with different targets.",
            "Compile both with the same targets.",
        )


def notes(base: Bundle, head: Bundle) -> tuple[str, ...]:
    """Return what a reader must know before the first figure."""
    found = []
    if base.triton != head.triton:
        old, new = (", ".join(side.triton) for side in (base, head))
        found.append(f"Triton differs ({old} in BASE, {new} in HEAD): every binary may differ for that reason alone.")
    for side, mine, theirs in (("BASE", base, head), ("HEAD", head, base)):
        if only := mine.architectures - theirs.architectures:
            found.append(f"Only {side} compiled for {', '.join(sorted(only))}: not compared.")
        if mine.narrowed != theirs.narrowed and mine.narrowed:
            found.append(f"{side} had some of the package's tests only ({'; '.join(mine.narrowed)}): kernels may be missing from it.")
        found += [f"{side} is incomplete, kernels may be missing from it: {fault}." for fault in mine.faults]
        for gate, figure in _COSTS.items():
            judged = [row for row in mine.kernels if row.was_compiled and any(gate in other.against_base for other in head.kernels)]
            if unknown := sum(not getattr(row, figure) for row in judged):
                found.append(
                    f"{side} does not have what compiling {unknown} of its configurations took: the gate {gate} is not judged there."
                )
    return tuple(found)


def _why(run: TargetRun) -> str:
    if run.record.verdict is Verdict.STALE:
        return "its files are of two runs"
    return next((_ending_of(report) for report in run.stages if report.stage is Stage.COMPILE), "no compile stage")


def _ending_of(report: StageReport) -> str:
    return f"{report.verdict.value}, {report.reason}" if report.reason else report.verdict.value


def _faults(run: TargetRun) -> list[str]:
    """Return why kernels may be missing: a stage ended early, or files are unreadable. A kernel that crashed has a row."""
    if run.record.verdict is Verdict.STALE:
        return [f"{run.record.target}: its files are of two runs"]
    shards = [f"{run.record.target}: {run.missing}"] if run.missing else []
    reports = (report for report in run.stages if report.stage is Stage.COMPILE and report.verdict is not Verdict.NOT_RUN)
    return shards + [f"{run.record.target}: {_ending_of(report)}" for report in reports if not report.explained]
