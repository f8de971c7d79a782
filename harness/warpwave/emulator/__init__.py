"""Execute one code object on the CPU: `load` reads it, `execute` runs one launch of it over memory of this process.

    kernel = load(compiled.asm["hsaco"])
    buffers = [(tensor.data_ptr(), tensor.nbytes)]
    launch = Launch(grid=(4, 1, 1), threads=256, arguments=packed, lds=compiled.metadata.shared, buffers=buffers)
    execute(kernel, launch, limit_instructions=100_000_000)

This room knows nothing of pytest, targets, reports, torch or Triton. docs/emulator.md says what is validated, and what cannot be known.
"""

from __future__ import annotations

from warpwave.emulator.checks import Access, Check, Found, Pair
from warpwave.emulator.code_object import Argument, Kernel, load
from warpwave.emulator.errors import (
    Deadlock,
    EmulatorError,
    InvalidCodeObject,
    NoCompiler,
    OutOfMemoryBounds,
    TimeLimit,
    Trap,
    Unimplemented,
)
from warpwave.emulator.launch import Execution, Launch, execute

__all__ = [
    "Access",
    "Argument",
    "Check",
    "Deadlock",
    "EmulatorError",
    "Execution",
    "Found",
    "InvalidCodeObject",
    "Kernel",
    "Launch",
    "NoCompiler",
    "OutOfMemoryBounds",
    "Pair",
    "TimeLimit",
    "Trap",
    "Unimplemented",
    "execute",
    "load",
]
