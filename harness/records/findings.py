"""What a sanitizer finds in a kernel that ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from harness.records.bounds import Bound, Count, LongName, Name, Prose, Word
from harness.records.enums import STRICT

MOST_FINDINGS = 1000  # of one test stage
Sizes = Annotated[tuple[int, ...], Bound(longest=64)]


class Defect(str, Enum):
    """What is wrong with an access to memory.

    `OUT_OF_BOUNDS`: outside of the storage of every tensor that the launch was given, or of the tensor that the pointer came from.
    `UNINITIALISED`: nobody wrote what is read. `RACE`: two programs of one launch, at least one of which writes, and nothing orders them;
    in LDS, two waves. `EARLY`: a result is used before its wave has waited for it. `ORDER`: an element has another value if waves and
    workgroups run in another order. What is in LDS or in registers, `EARLY` and `ORDER` are seen in machine code only.
    """

    OUT_OF_BOUNDS = "out-of-bounds"
    UNINITIALISED = "uninitialised-read"
    RACE = "race"
    EARLY = "used-before-wait"
    ORDER = "depends-on-order"


@dataclass(frozen=True)
class Finding:
    """One defect of one line of a kernel, with its first example.

    `case` is the test in which it was found, `kernel` the row of the report that the test is in, `function` what was launched. `access` is
    `load`, `store` or `atomic`; or `read`, of a function of torch, which has no lanes and no program. `tensor` is the name of the argument,
    of `shape`; `index` is the element that was touched, flat and by dimension. `lane` is the position in the block of `block` lanes, flat;
    `lanes` counts those of the access that are wrong alike. `program` is the id of the program. `text` is the line `line` of `file`.
    `other` says what a race is with. `times` counts the accesses of this test with the same defect at this line.
    """

    __pydantic_config__ = STRICT
    case: LongName
    kernel: Name
    function: Name
    defect: Defect
    access: Word
    tensor: Name
    shape: Sizes
    index: int
    indices: Sizes
    lane: Count
    lanes: Count
    block: Sizes
    program: Annotated[tuple[int, ...], Bound(longest=3)]
    file: Prose
    line: Count
    text: Prose = ""
    other: Prose = ""
    times: Count = 1

    @property
    def place(self) -> str:
        """`file.py:12`, or nothing if the line is not known."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""

    @property
    def example(self) -> str:
        """The first access that has the defect, in words."""
        if not self.program:
            rest = f", nor {self.lanes - 1} more" if self.lanes > 1 else ""
            return f"reads {self.tensor}{list(self.indices)}, of shape {list(self.shape)}, which nobody wrote{rest}"
        by_dimension = f" = [{', '.join(map(str, self.indices))}]" if len(self.indices) > 1 else ""
        lanes = f"lane {self.lane} of {math.prod(self.block)}" + (f" and {self.lanes - 1} more" if self.lanes > 1 else "")
        program = f"program ({', '.join(map(str, self.program))})"
        where = f"{self.tensor}[{self.index}]{by_dimension}, of shape {list(self.shape)}" if self.tensor else "no tensor of the launch"
        other = f"; {self.other}" if self.other else ""
        return f"{self.access} of {where}: {lanes}, {program}{other}"

    @property
    def sentence(self) -> str:
        """The finding in words, with its place."""
        return f"{self.defect.value} in {self.function} at {self.place}: {self.example}: {self.text}"
