"""Conflicting accesses of two programs of one launch to one address, of which at least one writes, not both atomic, in no order.

Accesses are kept in a log until the launch ends. Most storages are then decided by the ranges that each program touched: none wrote, or
the ranges are apart. Only where they overlap are the addresses themselves looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from warpwave.inside.fake_gpu.emulated_findings import Collected
from warpwave.inside.fake_gpu.traces import Place
from warpwave.inside.process.outcomes import statement
from warpwave.inside.sanitize.memory import Lanes, Later
from warpwave.records import Finding

# What atomics order between the programs of one launch.
#
# The interpreter runs one program after the other, so everything seems ordered. On a card it is only if an atomic says so: a program that
# releases makes what it did before visible to a program that acquires *and looks at the result*, as a lock, a semaphore or "the last
# one adds up" does. A result that is never looked at orders nothing: the other program might as well have come first.

Clock = MappingProxyType[int, int]  # by program: the last segment of it that came before
NOTHING: Clock = MappingProxyType({})
_MOST_PROGRAMS = 2048  # of more, everything counts as ordered once they synchronise: a clock holds an entry for each


class Order:
    """The clock of the running program. A program's accesses between two of its atomics are one segment."""

    def __init__(self, programs: int) -> None:
        self.segment = 0
        self.seen = NOTHING
        self._many = programs > _MOST_PROGRAMS
        self._released: dict[Hashable, Clock] = {}
        self._heard: dict[Hashable, Clock] = {}  # by the running program, without acquiring it

    def begin(self) -> None:
        """Begin another program."""
        self.segment += 1
        self.seen = NOTHING
        self._heard.clear()

    def release(self, keys: Iterable[Hashable], program: int) -> None:
        """Publish at each of `keys` (addresses) what this program did so far."""
        for key in () if self._many else keys:
            self._released[key] = _joined(self._released.get(key, NOTHING), MappingProxyType({**self.seen, program: self.segment}))
        self.segment += 1

    def published(self, keys: Iterable[Hashable]) -> Clock:
        """Return what programs published at these addresses so far."""
        clock = NOTHING
        for key in keys:
            clock = _joined(clock, self._released.get(key, NOTHING))
        return clock

    def hear(self, keys: Iterable[Hashable], clock: Clock) -> None:
        """Keep what a relaxed atomic saw at these addresses: one that acquires there, behind it, sees it, too."""
        for key in keys:
            self._heard[key] = _joined(self._heard.get(key, NOTHING), clock)

    def acquire_heard(self, keys: Iterable[Hashable]) -> None:
        """Acquire what this program has heard at these addresses."""
        for clock in filter(None, map(self._heard.get, keys)):
            self.acquire(clock)

    def acquire(self, clock: Clock | None) -> None:
        """Order what was published before all that follows. None: order after everything, because the awaited value is unknown."""
        if clock is None or self._many:
            clock = MappingProxyType({**self.seen, _ALL: self.segment - 1})
        self.seen = _joined(self.seen, clock)


_ALL = -1


def is_before(clock: Clock, program: int, segment: int) -> bool:
    """Return whether a segment of a program came before whatever has this clock."""
    return clock.get(program, -1) >= segment or clock.get(_ALL, -1) >= segment


def _joined(one: Clock, other: Clock) -> Clock:
    news: dict[int, int] = {program: segment for program, segment in other.items() if one.get(program, -1) < segment}
    return MappingProxyType({**one, **news}) if news else one


_MOST_BYTES = 64 << 20  # of addresses in a log: more are decided at once, and forgotten


@dataclass(frozen=True, slots=True)
class Access:
    """What one program did to one storage with one instruction; `index` is the program's id. `segment` and `seen` are its time.

    `changed` says of each lane of a write whether it changed memory; None for a read, and for an atomic, which may change all.
    """

    program: int
    index: tuple[int, int, int]
    segment: int
    seen: Clock
    lanes: Lanes
    writes: bool
    atomic: bool
    changed: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses that conflict: `second` ran later here. `lanes` are the positions in its lanes that do."""

    first: Access
    second: Access
    lanes: NDArray[np.int64]


@dataclass
class Log:
    """The accesses to one storage during one launch."""

    accesses: list[Access] = field(default_factory=list)
    writes: bool = False
    nbytes: int = 0
    marks: Marks | None = None
    confirmed: set[Place] = field(default_factory=set)

    def add(self, access: Access) -> Iterator[Conflict]:
        """Keep one access; yield conflicts if the log is full."""
        self.accesses.append(access)
        self.writes = self.writes or access.writes
        self.nbytes += access.lanes.nbytes
        if self.nbytes > _MOST_BYTES:
            yield from self._look_closely(None)

    def confirm(self, program: int, offsets: NDArray[np.uint64]) -> None:
        """Forget what a program has just read at `offsets`: its compare-and-swap there would notice another value, and it tries again.

        What another program reads at the same line is forgotten as well: it may see that there is nothing to swap.
        """
        begin = len(self.accesses)
        while begin and self.accesses[begin - 1].program == program:
            begin -= 1
        own, self.accesses[begin:] = self.accesses[begin:], []
        for each in own:
            if not (each.writes or each.atomic) and np.isin(each.lanes.offsets, offsets).all():
                self.confirmed.add(each.lanes.block.place)
            else:
                self.accesses.append(each)

    def close(self) -> Iterator[Conflict]:
        """Yield the conflicts of the launch, and forget it."""
        if self.confirmed:
            self.accesses = [each for each in self.accesses if each.writes or each.atomic or each.lanes.block.place not in self.confirmed]
        if self.writes and (self.marks or (contested := _contested(self.accesses))):
            yield from self._look_closely(None if self.marks else contested)
        self.accesses, self.marks, self.confirmed = [], None, set()

    def _look_closely(self, contested: range | None) -> Iterator[Conflict]:
        accesses, self.accesses, self.nbytes = self.accesses, [], 0
        if contested:
            accesses = [access for access in accesses if access.lanes.high >= contested.start and access.lanes.low < contested.stop]
        unit = min((access.lanes.block.itemsize for access in accesses), default=1)
        self.marks = self.marks or Marks(unit)
        self.marks.refine(unit)
        for access in accesses:
            yield from self.marks.add(access)


def _contested(accesses: list[Access]) -> range | None:
    """Return the bytes in which a program may meet what another one wrote; None if all programs stayed apart."""
    spans: dict[int, tuple[int, int]] = {}
    last_written = -1
    for access in accesses:
        lanes = access.lanes
        low, high = spans.get(access.program, (lanes.low, lanes.high))
        spans[access.program] = min(low, lanes.low), max(high, lanes.high)
        if access.writes:
            last_written = max(last_written, lanes.high)
    first_met, reach = None, -1
    for low, high in sorted(spans.values()):
        if low <= reach and first_met is None:
            first_met = low
        reach = max(reach, high)
    return None if first_met is None or last_written < first_met else range(first_met, reach + 1)


class Marks:
    """Who wrote and read each unit of a storage last, as a position in `kept` plus one; 0 is none. A unit has `unit` bytes.

    Two readers of different programs are kept: the writer may be one of them.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.kept: list[Access] = []
        self._marks = np.zeros((5, 0), np.int32)  # of the writer, who changed a value, of the atomic, of one reader and of another
        self._programs = np.zeros(1, np.int64)

    def refine(self, unit: int) -> None:
        """Make units as small as `unit`."""
        if unit < self.unit:
            self._marks = np.repeat(self._marks, self.unit // unit, axis=1)
            self.unit = unit

    def add(self, access: Access) -> Iterator[Conflict]:
        """Compare one access with those before, and mark it."""
        units, owners = self._units(access)
        self._grow(int(units.max()) + 1 if units.size else 0, access)
        writer, changer, atomic, reader, other = self._marks
        changed = None if access.changed is None else access.changed[owners]
        # What a program reads of its own writing is the same in each order, even if others wrote the same value.
        foreign = None if access.writes else self._programs[writer[units]] != access.program
        for marks, relevant in self._rivals(access, foreign if changed is None else changed):
            yield from self._conflicts(access, marks[units], relevant, owners)
        number = len(self.kept)
        if access.atomic:
            if access.writes:
                atomic[units] = number
        elif access.writes:
            writer[units] = number
            changer[units if changed is None else units[changed]] = number
        else:
            last = reader[units]
            another = self._programs[last] != access.program
            other[units[another]] = last[another]
            reader[units] = number

    def _rivals(self, access: Access, matters: NDArray[np.bool_] | None) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_] | None]]:
        """Yield the marks that an access may conflict with, and the units of it for which that `matters` (None: all)."""
        writer, changer, atomic, reader, other = self._marks
        # A write of the value that is there already changes nothing.
        yield from ((marks, matters) for marks in ((writer, reader, other) if access.writes else (changer,)))
        if not access.atomic:
            yield atomic, matters if access.writes else None

    def _conflicts(
        self, access: Access, found: NDArray[np.int32], relevant: NDArray[np.bool_] | None, owners: NDArray[np.int64]
    ) -> Iterator[Conflict]:
        against = (found > 0) & (self._programs[found] != access.program)
        if relevant is not None:
            against &= relevant
        if not against.any():
            return
        for position in np.unique(found[against]):
            first = self.kept[position - 1]
            if not is_before(access.seen, first.program, first.segment):
                yield Conflict(first, access, np.unique(owners[against & (found == position)]))
                return

    def _units(self, access: Access) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the units of an access, and for each the position of its element."""
        units = (access.lanes.offsets // self.unit).astype(np.int64)
        owners = np.arange(units.size)
        parts = access.lanes.block.itemsize // self.unit
        if parts > 1:
            units = (units[:, None] + np.arange(parts)).ravel()
            owners = np.repeat(owners, parts)
        return units, owners

    def _grow(self, units: int, access: Access) -> None:
        known = self._marks.shape[1]
        if units > known:
            self._marks = np.pad(self._marks, ((0, 0), (0, max(units, 2 * known) - known)))
        self.kept.append(replace(access, lanes=access.lanes.without_data(), changed=None))
        if len(self.kept) >= len(self._programs):
            self._programs = np.concatenate([self._programs, np.zeros(len(self._programs), np.int64)])
        self._programs[len(self.kept)] = access.program


class Findings(Collected):
    """Collects what the interpreter's launches and torch's calls did wrong; safe to ask at any time."""

    def __init__(self) -> None:
        super().__init__()
        self._later: list[Later] = []

    def later(self, finding: Finding) -> Later:
        """Add one finding of torch's calls, unless something shows until the test ends that it is none."""
        self._later.append(Later(finding))
        return self._later[-1]

    def take(self) -> list[Finding]:
        """Return what was found, and forget it."""
        for each in self._later:
            if each.wanted:
                self.keep(each.finding)
        self._later.clear()
        return super().take()


_VERBS = {"load": "loads it", "store": "stores to it", "atomic": "has an atomic on it"}


def raced_with(other: Access) -> str:
    """Return `program (0, 0, 0) stores to it, and nothing orders the two; line 12: tl.store(out, x)`."""
    code, line = other.lanes.block.place
    verb = _VERBS[other.lanes.block.doing]
    return f"program {other.index} {verb}, and nothing orders the two; line {line}: {statement(code.co_filename, line)}"
