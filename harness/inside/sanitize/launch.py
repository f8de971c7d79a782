"""One launch in the interpreter: which of its accesses are out of bounds, read what nobody wrote, or race."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from harness.inside.sanitize.findings import Findings, Found
from harness.inside.sanitize.memory import Anywhere, Block, Given, Lanes, Memory, Tensors
from harness.inside.sanitize.order import Order
from harness.inside.sanitize.races import Access, Conflict, Log
from harness.inside.sanitize.unwritten import AnyUse, Blame, Entry
from harness.inside.sanitize.written import Shadows
from harness.records import Defect

_FEW_KEYS = 16  # an atomic on more addresses than this counts as one lock, not as one for each address
Mask = Union[NDArray[np.bool_], None]


class Launch:
    """The tensors of a launch, and what its programs do to them."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, shadows: Shadows, findings: Findings) -> None:
        self.tensors = Tensors(function, args, kwargs, shadows)
        self.order: Order | None = None  # a single program races with nobody
        self.program = 0
        self._function = function.__name__
        self._index = (0, 0, 0)
        self._logs: defaultdict[Memory, Log] = defaultdict(Log)
        self._shadows, self._findings = shadows, findings

    def begin(self, index: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        """Begin a program."""
        self._index = index
        self.program = (index[0] * grid[1] + index[1]) * grid[2] + index[2]
        if (programs := grid[0] * grid[1] * grid[2]) > 1:
            self.order = self.order or Order(programs)
            self.order.begin()

    def close(self) -> None:
        """Report races, and let go of shadows that are complete."""
        for log in self._logs.values():
            self._races(log.close())
        for memory in self.tensors.memories.values():
            if memory.shadow is not None and memory.shadow.marks.all():
                self._shadows.complete(memory.shadow)

    def lanes(self, block: Block, addresses: NDArray[np.uint64], mask: Mask, later: list[Entry] | None = None) -> tuple[Lanes | None, Mask]:
        """Return the lanes that are on and inside, and which ones are on and out of bounds (None: no lane). The latter are reported.

        There are no lanes if there is nothing more to check: none is left, or they are in several storages.

        Args:
            later: If given, what is out of bounds goes there instead, to be reported when the block is used.
        """
        chosen = None if mask is None or mask.all() else np.flatnonzero(mask)
        found = addresses.ravel() if chosen is None else addresses.ravel()[chosen]
        if not found.size:
            return None, None
        memory = block.origin.memory if isinstance(block.origin, Given) else self.tensors.find(int(found[0]))
        if memory is not None:
            offsets = found - np.uint64(memory.start)  # below the start, they wrap around and are far too large
            if (high := int(offsets.max())) <= memory.nbytes - block.itemsize:
                return Lanes(block, memory, offsets, int(offsets.min()), high + block.itemsize - 1, chosen), None
        outside = self._outside(block, found)
        if not outside.any():
            self._in_several(found)
            return None, None
        positions = np.arange(addresses.size) if chosen is None else chosen
        report = functools.partial(self._report, Defect.OUT_OF_BOUNDS, block, address=int(found[outside][0]), index=self._index)
        if later is None:
            report(positions[outside])
        else:
            later.append((positions[outside], AnyUse(report)))
        marked = np.zeros(addresses.shape, bool)
        marked.ravel()[positions[outside]] = True
        on = np.ones(addresses.shape, bool) if mask is None else mask
        return self.lanes(block, addresses, on & ~marked, later)[0], marked

    def reads(self, lanes: Lanes, logged: bool = True) -> tuple[NDArray[np.int64], Blame] | None:
        """Log a read, unless it cannot race. Return the positions in the block that nobody wrote, and what reports some of them."""
        if logged:
            self._log(lanes, writes=False)
        memory, block = lanes.memory, lanes.block
        if memory.shadow is None:
            return None
        unwritten = memory.shadow.unwritten(lanes.offsets, lanes.low, lanes.high, block.itemsize)
        if unwritten is None:
            return None
        index, shadow, positions, offsets = self._index, memory.shadow, lanes.positions(unwritten), lanes.offsets[unwritten]

        def blame(which: NDArray[np.int64]) -> None:
            used = offsets[np.isin(positions, which)]
            self._report(Defect.UNINITIALISED, block, which, memory.start + int(used[0]), index)
            shadow.write(used, block.itemsize)  # each element is reported once

        return positions, blame

    def writes(self, lanes: Lanes, changes: Callable[[], NDArray[np.bool_]]) -> None:
        """Mark what is written. `changes` returns which lanes of the block are about to change memory."""
        if lanes.memory.shadow is not None:
            lanes.memory.shadow.write(lanes.offsets, lanes.block.itemsize)
        if self.order is not None:
            changed = changes().ravel()
            self._log(lanes, writes=True, changed=changed if lanes.chosen is None else changed[lanes.chosen])

    def updates(self, lanes: Lanes, reads: bool = True, atomic: bool = True) -> None:
        """Check an atomic that writes, and first reads. `atomic` says whether it is one to other programs, too."""
        if reads and (found := self.reads(lanes, logged=False)):
            positions, blame = found
            blame(positions)
        if lanes.memory.shadow is not None:
            lanes.memory.shadow.write(lanes.offsets, lanes.block.itemsize)
        self._log(lanes, writes=True, atomic=atomic)

    def keys(self, lanes: Lanes) -> list[Hashable]:
        """Return what programs synchronise on with this atomic."""
        addresses, start = np.unique(lanes.offsets), lanes.memory.start
        return [start + int(offset) for offset in addresses] if len(addresses) <= _FEW_KEYS else [("all of", start)]

    def _in_several(self, addresses: NDArray[np.uint64]) -> None:
        """Treat storages as written that one access has reached together: which of them it wrote is not looked at."""
        for memory in self.tensors.memories.values():
            if memory.shadow is not None and not self._beyond([memory], addresses, 1).all():
                self._shadows.complete(memory.shadow)
                memory.shadow = None

    def _outside(self, block: Block, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which addresses are outside of the origin's storage, or of all storages if the origin is not known."""
        if isinstance(block.origin, Given):
            return self._beyond([block.origin.memory], addresses, block.itemsize)
        outside = self._beyond([*self.tensors.memories.values()], addresses, block.itemsize)
        if outside.any() and isinstance(block.origin, Anywhere):
            self.tensors.take_all_alive()
            outside = self._beyond([*self.tensors.memories.values()], addresses, block.itemsize)
        return outside

    @staticmethod
    def _beyond(memories: list[Memory], addresses: NDArray[np.uint64], itemsize: int) -> NDArray[np.bool_]:
        outside = np.ones(addresses.shape, bool)
        for memory in memories:
            if memory.nbytes >= itemsize:
                outside &= (addresses - np.uint64(memory.start)) > np.uint64(memory.nbytes - itemsize)
        return outside

    def _log(self, lanes: Lanes, writes: bool, atomic: bool = False, changed: NDArray[np.bool_] | None = None) -> None:
        if self.order is not None:
            access = Access(self.program, self._index, self.order.segment, self.order.seen, lanes, writes, atomic, changed)
            self._races(self._logs[lanes.memory].add(access))

    def _races(self, conflicts: Any) -> None:
        for conflict in conflicts:
            self._race(conflict)

    def _race(self, conflict: Conflict) -> None:
        second = conflict.second
        positions = second.lanes.positions(conflict.lanes)
        address = second.lanes.memory.start + int(second.lanes.offsets[conflict.lanes[0]])
        self._report(Defect.RACE, second.lanes.block, positions, address, second.index, conflict.first)

    def _report(
        self,
        defect: Defect,
        block: Block,
        positions: NDArray[np.int64],
        address: int,
        index: tuple[int, int, int] | None = None,
        other: Access | None = None,
    ) -> None:
        owner = block.origin if isinstance(block.origin, Given) else self.tensors.nearest(address)
        lane = int(positions[0])
        self._findings.add(Found(defect, self._function, block, index or self._index, owner, address, lane, len(positions), other))
