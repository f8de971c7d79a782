"""Every way in which an execution can end other than well. Each names the kernel, the instruction, its pc and its source line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Place:
    """Where in a kernel: `pc` is the byte offset from the kernel's entry.

    `line` is "file.py:12" of the kernel's source, or None without debug information; `file` is the path of that file.
    """

    kernel: str
    pc: int
    instruction: str
    line: Union[str, None] = None
    file: str = ""

    def __str__(self) -> str:
        line = f", {self.line}" if self.line else ""
        return f"`{self.instruction}` (kernel {self.kernel}, pc {self.pc:#x}{line})"


class EmulatorError(Exception):
    """An execution that did not end well; `place` is None if no instruction is to blame."""

    def __init__(self, message: str, place: Union[Place, None] = None) -> None:
        super().__init__(message)
        self.place = place


class InvalidCodeObject(EmulatorError):
    """The bytes are no code object that can be read: not ELF, no descriptor, or made for an unknown architecture."""


class NoCompiler(EmulatorError):
    """The C core could not be built: this machine has no C compiler, or it refused."""


class Unimplemented(EmulatorError):
    """The kernel has an instruction, or a form of one, that the emulator does not implement. It never guesses a result."""


class OutOfMemoryBounds(EmulatorError):
    """A lane accessed memory outside of the launch's buffers; `address` is the first byte, `lane` the lane of its wave."""

    def __init__(self, message: str, place: Place, address: int, size: int, lane: int, workgroup: tuple[int, int, int], wave: int) -> None:
        super().__init__(message, place)
        self.address, self.size, self.lane, self.workgroup, self.wave = address, size, lane, workgroup, wave


class Trap(EmulatorError):
    """The kernel executed `s_trap`: a failed `device_assert`, or a path that the compiler thought impossible."""


class TimeLimit(EmulatorError):
    """The launch executed as many instructions as it was allowed to; `executed` counts wave-instructions."""

    def __init__(self, message: str, executed: int) -> None:
        super().__init__(message)
        self.executed = executed


class Deadlock(EmulatorError):
    """Every wave waits at a barrier that can never complete."""
