"""What the launches of one test executed, and how one of them ended if not well.

A package may catch an exception and compute the same with torch. Then pytest reports a pass of code that the emulator never executed, so
the test's verdict comes from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpwave.emulator import Deadlock, EmulatorError, Execution, OutOfMemoryBounds, TimeLimit, Trap
from warpwave.records import EMULATED

# A limit in instructions ends a test at the same place on every machine that executes so much in a second: two million instructions of
# waves of 64 lanes, or four of 32, which do half as much each. One busy core has executed four times as much (docs/emulator.md).
LANES_PER_SECOND = 128_000_000
# The share of a test's time after which its launch is ended: the supervisor, which kills the process at the end of it, has no figure.
_SHARE = 0.9
# A test's tensors may wait in cycles of references for Python's collector, which counts objects, not bytes. By so much a process may grow.
_MOST_GROWTH = 64 << 20
# What turns tensors into numbers of Python's or of NumPy's.
_READS = frozenset(
    {
        *("item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "nonzero"),
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__contains__"),
    }
)
_OUTCOMES: dict[type[EmulatorError], str] = {TimeLimit: "timeout", OutOfMemoryBounds: "failed", Trap: "failed", Deadlock: "failed"}


@dataclass(frozen=True)
class Fault:
    """How a launch ended: pytest's word for the outcome of its test, and what happened."""

    outcome: str
    message: str


class Account:
    """Counts the launches and wave-instructions of a test, and keeps its first fault.

    `read`: since its first launch, host code has read numbers.

    `card` is the name of the architecture, whose waves have so many `lanes`. A test has `seconds` of time, and may execute a number of
    instructions for each.
    """

    def __init__(self, card: str, lanes: int, seconds: float) -> None:
        self.card, self.seconds, self.limit = card, seconds, int(seconds * LANES_PER_SECOND / lanes)
        self._resident = 0
        self.begin()

    def begin(self) -> None:
        """Start a new test, without what earlier ones left in memory."""
        if self._has_grown():
            _trim()
            if self._has_grown():  # a collection looks through all modules, and takes a third of a second
                gc.collect()
                _trim()
                self._resident = _resident()
        self.launches = self.instructions = 0
        self._until = time.monotonic() + _SHARE * self.seconds
        self.fault: Fault | None = None
        self.read = False

    def watch(self, function: Any, *_: object) -> None:
        """Note whether host code reads numbers that a launch may have made. torch's functions are given here after they are called."""
        self.read = self.read or (self.launches > 0 and getattr(function, "__name__", "") in _READS)

    def _has_grown(self) -> bool:
        return _resident() > self._resident + _MOST_GROWTH

    @property
    def left(self) -> int:
        """The number of instructions that the test may still execute; at least one, so that a launch is refused where it runs."""
        return max(1, self.limit - self.instructions)

    @property
    def seconds_left(self) -> float:
        """The time in seconds that the test's launches still have."""
        return max(0.0, self._until - time.monotonic())

    def add(self, execution: Execution) -> None:
        """Count a launch that ended well."""
        self.launches += 1
        self.instructions += execution.instructions

    def fail(self, error: EmulatorError, complaint: str = "") -> None:
        """Keep how a launch ended. `complaint` is what the kernel wrote to standard error, as a failed assertion does."""
        self.launches += 1
        place = f" at {error.place}" if error.place and str(error.place) not in str(error) else ""
        first = next(iter(complaint.splitlines()), "")
        message = f"{first + ': ' if first else ''}{error}{place}"
        if isinstance(error, TimeLimit):
            self.instructions += error.executed
            did = f"the test executed {self.instructions:,} wave-instructions; {self.limit:,} are allowed, and {self.seconds:g} s"
            message = f"{message.rstrip('.')}; {did}"
        outcome = next((word for kind, word in _OUTCOMES.items() if isinstance(error, kind)), "error")
        self.fault = self.fault or Fault(outcome, message)

    def refuse(self, kernel: str, why: object) -> None:
        """Keep why a launch could not be made."""
        self.launches += 1
        self.fault = self.fault or Fault("error", f"The kernel {kernel} was not executed: {why}.")

    def properties(self) -> dict[str, str]:
        """Return what the test's report says of it: `{"emulated": "gfx942: 6092 wave-instructions in 3 launches"}`."""
        plural = "" if self.launches == 1 else "es"
        return {EMULATED: f"{self.card}: {self.instructions} wave-instructions in {self.launches} launch{plural}"} if self.launches else {}


def _trim() -> None:
    """Give freed memory back to the system: that of the compiler, for example, stays with the process otherwise."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Return the memory of this process in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def executed(properties: Mapping[str, str]) -> int | None:
    """Return how many wave-instructions a test executed, by its properties; None if it launched nothing."""
    found = re.search(r": (\d+) wave-instructions", properties.get(EMULATED, ""))
    return int(found[1]) if found else None
