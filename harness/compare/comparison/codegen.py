"""What the compilers made: a row a launch, what was waived, and whether a card's own compiler agrees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.compare.comparison.common import Strict
from harness.records import CompiledKernel, Waiver


@dataclass(frozen=True)
class CodegenCell(Strict):
    """What the compiler of one target made of one launch, for the architecture named in `compiled`."""

    target: str
    compiled: CompiledKernel


@dataclass(frozen=True)
class CodegenRow(Strict):
    """One launch of a kernel function over the architectures. `config` spells its types, constants, warps and stages."""

    kernel: str
    function: str
    config: str
    cells: tuple[CodegenCell, ...]


@dataclass(frozen=True)
class WaiverUse(Strict):
    """What became of a waiver: of the `covered` compiled kernels that it names, `used` broke the gate and were let through."""

    waiver: Waiver
    covered: int
    used: int


class Likeness(str, Enum):
    """How a launch that the JIT compiled on a card stands to what the compile stage made of it without one."""

    EQUAL = "equal"
    RESPECIALIZED = "specialized otherwise"
    ANOTHER_BINARY = "another binary"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Deviation(Strict):
    """A launch on a card of which the compile stage made something else, or nothing."""

    kernel: str
    function: str
    architecture: str
    origin: str
    likeness: Likeness
    reason: str


@dataclass(frozen=True)
class Fidelity(Strict):
    """Of `launched` kernels that the JIT compiled on the cards of `target`, `equal` are byte for byte what `against` made without a GPU.

    Both have the same Triton. Where nothing could be held against the launches, `against` is empty and `reason` says why.
    """

    target: str
    against: str
    triton: str
    launched: int
    equal: int = 0
    deviations: tuple[Deviation, ...] = ()
    reason: str = ""

    def count(self, likeness: Likeness) -> int:
        """How many of the launches stand so."""
        return self.equal if likeness is Likeness.EQUAL else sum(entry.likeness is likeness for entry in self.deviations)
