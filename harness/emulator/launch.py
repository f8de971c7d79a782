"""One launch: what goes in, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from harness.emulator.code_object import Kernel
from harness.emulator.errors import Unimplemented


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    `grid` counts workgroups, not threads. `threads` is the size of a workgroup in x (warps times lanes); y and z are 1.
    `arguments` is the packed kernarg segment, at the offsets of `Kernel.arguments`; pointers in it are addresses of this process.
    `lds` is the LDS of a workgroup in bytes; the kernel's own fixed size is used if it is larger.
    `buffers` lists (address, bytes) of all memory that the kernel may touch. Any access outside ends in `OutOfMemoryBounds`; no
    access is made there. The caller keeps that memory alive. Kernarg segment, scratch and the code object's constants need no entry.
    """

    grid: tuple[int, int, int]
    threads: int
    arguments: bytes
    lds: int = 0
    buffers: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Execution:
    """What was executed: `instructions` counts wave-instructions, `waves` the waves of all workgroups."""

    instructions: int
    waves: int


def execute(kernel: Kernel, launch: Launch, *, limit_instructions: Union[int, None] = None) -> Execution:
    """Execute all workgroups of one launch, to their end, before returning. Results are in the buffers.

    Deterministic: the same launch gives the same bits. Raise an `EmulatorError` if it did not end well; what was stored until then
    stays stored. `limit_instructions` bounds the wave-instructions of the launch (`TimeLimit`).
    """
    raise Unimplemented(f"Kernel {kernel.name} was not executed: {kernel.architecture} is not implemented yet.")
