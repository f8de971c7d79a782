"""What the compilers produced: a row per launch, the waivers, and whether the JIT on a GPU produces the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.compare.model.common import Strict
from harness.records import CompiledKernel, Waiver


@dataclass(frozen=True)
class CodegenCell(Strict):
    """What one target's compiler made of one launch, for the architecture in `compiled`."""

    target: str
    compiled: CompiledKernel


@dataclass(frozen=True)
class CodegenRow(Strict):
    """One launch of a kernel function on all architectures. `config` holds its types, constants, warps and stages."""

    kernel: str
    function: str
    config: str
    cells: tuple[CodegenCell, ...]


@dataclass(frozen=True)
class WaiverUse(Strict):
    """How a waiver was used: it names `covered` compiled kernels, of which `used` broke the gate and were let through."""

    waiver: Waiver
    covered: int
    used: int


class Likeness(str, Enum):
    """How a launch that the JIT compiled on a GPU compares with what the compile stage made without one."""

    EQUAL = "equal"
    RESPECIALIZED = "specialized otherwise"
    ANOTHER_BINARY = "another binary"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Deviation(Strict):
    """A launch on a GPU that the compile stage compiled differently or not at all."""

    kernel: str
    function: str
    architecture: str
    origin: str
    likeness: Likeness
    reason: str


@dataclass(frozen=True)
class Fidelity(Strict):
    """The JIT compiled `launched` kernels on the GPUs of `target`; `equal` are byte for byte what `against` made without a GPU.

    Both use the same Triton. If nothing could be compared with the launches, `against` is empty and `reason` says why.
    """

    target: str
    against: str
    triton: str
    launched: int
    equal: int = 0
    deviations: tuple[Deviation, ...] = ()
    reason: str = ""

    def count(self, likeness: Likeness) -> int:
        """Return how many of the launches have this likeness."""
        return self.equal if likeness is Likeness.EQUAL else sum(entry.likeness is likeness for entry in self.deviations)
