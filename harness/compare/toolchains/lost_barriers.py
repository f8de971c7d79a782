"""Which kernels get, or lose, a barrier at which accesses to shared memory (LDS) are in flight. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.codegen.pairing import Room, pair
from harness.records import CompiledKernel


@dataclass(frozen=True)
class ChangedWaits:
    """A kernel function on one architecture: in how many of its `configurations` such barriers are there before, and after.

    `example` is the sentence of the side that has more, `origin` the case that launches it.
    """

    kernel: str
    function: str
    architecture: str
    configurations: int
    before: int
    after: int
    example: str
    origin: str

    @property
    def worse(self) -> bool:
        """Whether there are more of them now."""
        return self.after > self.before


def changed_waits(before: Sequence[CompiledKernel], after: Sequence[CompiledKernel]) -> tuple[ChangedWaits, ...]:
    """Return the functions for which the number of such configurations changed, new ones first."""
    sides: tuple[dict[tuple[str, str, str], list[CompiledKernel]], ...] = ({}, {})
    for rows, side in zip((before, after), sides, strict=True):
        for row in rows:
            side.setdefault((row.kernel, row.function, row.architecture), []).append(row)
    found, room = [], Room()
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        if not any(row.in_flight for side in sides for row in side.get(key, ())):
            continue
        both = [(old, new) for old, new in pair(sides[0].get(key, []), sides[1].get(key, []), room) if old and new]
        counts = sum(bool(old.in_flight) for old, _ in both), sum(bool(new.in_flight) for _, new in both)
        if counts[0] != counts[1]:
            shown = next(row for old, new in both for row in ((new,) if counts[1] > counts[0] else (old,)) if row.in_flight)
            found.append(ChangedWaits(*key, len(both), *counts, shown.in_flight[0], shown.origin))
    return tuple(sorted(found, key=lambda one: (not one.worse, -abs(one.after - one.before), one.kernel, one.function)))
