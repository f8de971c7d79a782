"""Detect disturbances of a point: the GPU's clock, and memory that other processes hold, before and after it.

Neither needs a vendor's tool. The clock comes from timing a kernel that waits for a fixed number of cycles. (A tool would read it a moment
later, when an idle GPU has dropped to a tenth.) Another process on the GPU shows up in its memory, because process ids of other containers
are not visible in this one.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

# A point is weak below this share of the fastest clock in the run.
_SLOW = 0.75
# Ignore this much memory of others: libraries, modules and stacks of this process do not count as its own.
_OTHERS_BYTES = 2 << 30
_CYCLES = 200_000


@dataclass(frozen=True)
class Conditions:
    """The clock in MHz, if it can be measured, and the bytes on the GPU that are not this process's tensors."""

    clock_mhz: float | None
    others_bytes: int | None


class Watch:
    """Observes a GPU. Remembers the fastest clock, and the least memory that others held."""

    def __init__(self, device: Any) -> None:
        """`device` is torch's module for the device."""
        self._device = device
        self.fastest_mhz = 0.0
        self.fewest_bytes: int | None = None

    def look(self) -> Conditions:
        """Return the current conditions; takes a third of a millisecond."""
        seen = Conditions(self._clock(), self._others())
        self.fastest_mhz = max(self.fastest_mhz, seen.clock_mhz or 0.0)
        if seen.others_bytes is not None:
            self.fewest_bytes = min(seen.others_bytes, self.fewest_bytes if self.fewest_bytes is not None else seen.others_bytes)
        return seen

    def weakness(self, *looks: Conditions) -> str:
        """Return why measurements between these looks are unreliable; empty if nothing was detected."""
        reasons = []
        slowest = min((seen.clock_mhz for seen in looks if seen.clock_mhz), default=None)
        if slowest is not None and slowest < _SLOW * self.fastest_mhz:
            reasons.append(f"the clock was at {slowest:.0f} MHz, {slowest / self.fastest_mhz:.0%} of the fastest in this run")
        most = max((seen.others_bytes for seen in looks if seen.others_bytes is not None), default=None)
        if most is not None and self.fewest_bytes is not None and most - self.fewest_bytes > _OTHERS_BYTES:
            reasons.append(f"another process took {(most - self.fewest_bytes) / (1 << 30):.1f} GiB of the card")
        return "; ".join(reasons)

    def _clock(self) -> float | None:
        sleep = getattr(self._device, "_sleep", None)
        if sleep is None:
            return None
        times = []
        for _ in range(3):
            start, end = (self._device.Event(enable_timing=True) for _ in range(2))
            start.record()
            sleep(_CYCLES)
            end.record()
            times.append((start, end))
        self._device.synchronize()
        taken = statistics.median(start.elapsed_time(end) for start, end in times)
        return _CYCLES / taken / 1e3 if taken > 0 else None

    def _others(self) -> int | None:
        try:
            free, total = self._device.mem_get_info()
            return int(total - free - self._device.memory_reserved())
        except (AttributeError, RuntimeError):
            return None
