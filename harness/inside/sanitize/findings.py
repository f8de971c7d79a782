"""What was found since it was last taken: each defect of each line once, with its first example."""

from __future__ import annotations

import dataclasses
import functools
import linecache
from collections.abc import Callable
from dataclasses import dataclass

from harness.inside.fake_gpu.interpreted.places import Place
from harness.inside.sanitize.memory import Block, Given
from harness.inside.sanitize.races import Access
from harness.inside.sanitize.written import Later
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
            other=_told(self.other) if self.other else self._beyond() if owner and self.defect is Defect.OUT_OF_BOUNDS else "",
        )

    def _beyond(self) -> str:
        """Say what the index does not: it may be inside the shape, or be that of an element whose first bytes are inside."""
        assert self.owner is not None
        inside, size = self.owner.memory.start + self.owner.memory.nbytes - self.address, self.block.itemsize
        said = [f"bytes {inside} to {size - 1} of its {size} are outside"] if 0 < inside < size else []
        if any(stride == 0 and length > 1 for stride, length in zip(self.owner.strides, self.owner.shape, strict=True)):
            said.append(f"the tensor has strides {list(self.owner.strides)} and {self.owner.memory.nbytes} bytes")
        return "; ".join(said)


class Findings:
    """Collects; safe to ask at any time."""

    def __init__(self) -> None:
        self._rows: dict[tuple[object, ...], Finding] = {}
        self._later: list[Later] = []

    def add(self, found: Found) -> None:
        """Add one defect, or count it."""
        other = found.other.lanes.block.place if found.other else None
        key = (found.defect, found.block.doing, found.owner.name if found.owner else "", found.block.place, other)
        self._keep(key, found.finding)

    def later(self, finding: Finding) -> Later:
        """Add one finding of torch's calls, unless something shows until the test ends that it is none."""
        self._later.append(Later(finding))
        return self._later[-1]

    def take(self) -> list[Finding]:
        """Return what was found, and forget it."""
        for each in self._later:
            row = each.finding
            if each.wanted:
                self._keep((row.defect, row.function, row.tensor, row.file, row.line), functools.partial(lambda row: row, row))
        self._later.clear()
        rows, self._rows = [*self._rows.values()], {}
        return rows

    def _keep(self, key: tuple[object, ...], make: Callable[[], Finding]) -> None:
        if known := self._rows.get(key):
            self._rows[key] = dataclasses.replace(known, times=known.times + 1)
        elif len(self._rows) < _MOST:
            self._rows[key] = make()


def _text(place: Place) -> str:
    return linecache.getline(place[0].co_filename, place[1]).strip()


_VERBS = {"load": "loads it", "store": "stores to it", "atomic": "has an atomic on it"}


def _told(other: Access) -> str:
    """`program (0, 0, 0) stores to it, and nothing orders the two; line 12: tl.store(out, x)`."""
    block = other.lanes.block
    return f"program {other.index} {_VERBS[block.doing]}, and nothing orders the two; line {block.place[1]}: {_text(block.place)}"
