"""What was found since it was last taken: each defect of each line once, with its first example."""

from __future__ import annotations

import dataclasses
import linecache
from dataclasses import dataclass

from harness.inside.fake_gpu.interpreted.places import Place
from harness.inside.sanitize.memory import Block, Given
from harness.inside.sanitize.races import Access
from harness.records import Defect, Finding

_MOST = 50  # lines of kernels that one test can be told about


@dataclass(frozen=True, eq=False)
class Found:
    """One defect: `lane` is the first of `lanes` positions in the block that have it, `address` what it touched. `owner` is the tensor.

    `other` is the earlier access that a race is with.
    """

    defect: Defect
    function: str
    block: Block
    program: tuple[int, int, int]
    owner: Given | None
    address: int
    lane: int
    lanes: int
    other: Access | None = None

    def finding(self) -> Finding:
        """Return the row, without its test."""
        owner, block = self.owner, self.block
        index, indices = owner.index(self.address) if owner else (0, ())
        code, line = block.place
        return Finding(
            case="",
            kernel="",
            function=self.function,
            defect=self.defect,
            access=block.doing,
            tensor=owner.name if owner else "",
            shape=owner.shape if owner else (),
            index=index,
            indices=indices,
            lane=self.lane,
            lanes=self.lanes,
            block=tuple(block.shape),
            program=self.program,
            file=code.co_filename,
            line=line,
            text=_text(block.place),
            other=_told(self.other) if self.other else "",
        )


class Findings:
    """Collects; safe to ask at any time."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Defect, str, str, Place, Place | None], Finding] = {}

    def add(self, found: Found) -> None:
        """Add one defect, or count it."""
        other = found.other.lanes.block.place if found.other else None
        key = (found.defect, found.block.doing, found.owner.name if found.owner else "", found.block.place, other)
        if known := self._rows.get(key):
            self._rows[key] = dataclasses.replace(known, times=known.times + 1)
        elif len(self._rows) < _MOST:
            self._rows[key] = found.finding()

    def take(self) -> list[Finding]:
        """Return what was found, and forget it."""
        rows, self._rows = [*self._rows.values()], {}
        return rows


def _text(place: Place) -> str:
    return linecache.getline(place[0].co_filename, place[1]).strip()


_VERBS = {"load": "loads it", "store": "stores to it", "atomic": "has an atomic on it"}


def _told(other: Access) -> str:
    """`program (0, 0, 0) stores to it, and nothing orders the two; line 12: tl.store(out, x)`."""
    block = other.lanes.block
    return f"program {other.index} {_VERBS[block.doing]}, and nothing orders the two; line {block.place[1]}: {_text(block.place)}"
