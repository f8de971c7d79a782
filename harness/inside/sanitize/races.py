"""Conflicting accesses of two programs of one launch to one address, of which at least one writes, not both atomic, in no order.

Accesses are kept in a log until the launch ends. Most storages are then decided by the ranges that each program touched: nobody wrote, or
the ranges are apart. Only where they overlap are the addresses themselves looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.inside.sanitize.memory import Lanes
from harness.inside.sanitize.order import Clock, is_before

_MOST_BYTES = 64 << 20  # of addresses in a log: more are decided at once, and forgotten


_MARKS = ("_writer", "_changer", "_atomic", "_reader", "_other")


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

    def add(self, access: Access) -> Iterator[Conflict]:
        """Keep one access; yield conflicts if the log is full."""
        self.accesses.append(access)
        self.writes = self.writes or access.writes
        self.nbytes += access.lanes.nbytes
        if self.nbytes > _MOST_BYTES:
            yield from self._look_closely(None)

    def close(self) -> Iterator[Conflict]:
        """Yield the conflicts of the launch, and forget it."""
        if self.writes and (self.marks or (contested := _contested(self.accesses))):
            yield from self._look_closely(None if self.marks else contested)
        self.accesses, self.marks = [], None

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
    """Who wrote and read each unit of a storage last, as a position in `kept` plus one; 0 is nobody. A unit has `unit` bytes.

    Two readers of different programs are kept: the writer may be one of them.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.kept: list[Access] = []
        self._writer, self._changer, self._atomic, self._reader, self._other = (np.zeros(0, np.int32) for _ in range(5))
        self._programs = np.zeros(1, np.int64)

    def refine(self, unit: int) -> None:
        """Make units as small as `unit`."""
        if unit < self.unit:
            for name in _MARKS:
                setattr(self, name, np.repeat(getattr(self, name), self.unit // unit))
            self.unit = unit

    def add(self, access: Access) -> Iterator[Conflict]:
        """Compare one access with those before, and mark it."""
        units, owners = self._units(access)
        self._grow(int(units.max()) + 1 if units.size else 0, access)
        changed = None if access.changed is None else access.changed[owners]
        # What a program reads of its own writing is the same in each order, even if others wrote the same value.
        foreign = None if access.writes else self._programs[self._writer[units]] != access.program
        for marks, relevant in self._rivals(access, foreign if changed is None else changed):
            yield from self._conflicts(access, marks[units], relevant, owners)
        number = len(self.kept)
        if access.atomic:
            if access.writes:
                self._atomic[units] = number
        elif access.writes:
            self._writer[units] = number
            self._changer[units if changed is None else units[changed]] = number
        else:
            last = self._reader[units]
            another = self._programs[last] != access.program
            self._other[units[another]] = last[another]
            self._reader[units] = number

    def _rivals(self, access: Access, matters: NDArray[np.bool_] | None) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_] | None]]:
        """Yield the marks that an access may conflict with, and the units of it for which that `matters` (None: all)."""
        if not access.writes:
            yield self._changer, matters
            if not access.atomic:
                yield self._atomic, None
            return
        # A write of the value that is there already harms nobody.
        yield self._writer, matters
        yield self._reader, matters
        yield self._other, matters
        if not access.atomic:
            yield self._atomic, matters

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
        if units > len(self._writer):
            more = max(units, 2 * len(self._writer)) - len(self._writer)
            for name in _MARKS:
                marks = getattr(self, name)
                setattr(self, name, np.concatenate([marks, np.zeros(more, np.int32)]))
        self.kept.append(replace(access, lanes=access.lanes.without_data(), changed=None))
        if len(self.kept) >= len(self._programs):
            self._programs = np.concatenate([self._programs, np.zeros(len(self._programs), np.int64)])
        self._programs[len(self.kept)] = access.program
