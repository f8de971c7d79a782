"""Whether a point was measured on a card that was left alone: its clock and what others hold of its memory, before and after it.

Neither needs a vendor's tool. The clock is measured where the work is done: a kernel that waits for a number of the clock's cycles, timed.
(What a tool says of it is of a moment later, when an idle card has gone down to a tenth.) And that somebody else has come to the card shows
in its memory: process ids of other containers do not show in this one.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

# Below this share of the fastest clock seen in the run, a point is weak.
_SLOW = 0.75
# What of the card's memory others may come to hold: libraries, modules and stacks of this very process are not counted as its own.
_OTHERS_BYTES = 2 << 30
_CYCLES = 200_000


@dataclass(frozen=True)
class Conditions:
    """The clock in MHz, where it can be measured, and the bytes on the card that are not this process's tensors."""

    clock_mhz: float | None
    others_bytes: int | None


class Watch:
    """Looks at a card; remembers the fastest clock and the most memory that was free of others."""

    def __init__(self, device: Any) -> None:
        """`device` is torch's module for it."""
        self._device = device
        self.fastest_mhz = 0.0
        self.fewest_bytes: int | None = None

    def look(self) -> Conditions:
        """As it is now; takes a third of a millisecond."""
        seen = Conditions(self._clock(), self._others())
        self.fastest_mhz = max(self.fastest_mhz, seen.clock_mhz or 0.0)
        if seen.others_bytes is not None:
            self.fewest_bytes = min(seen.others_bytes, self.fewest_bytes if self.fewest_bytes is not None else seen.others_bytes)
        return seen

    def weakness(self, *looks: Conditions) -> str:
        """Why what was measured between these looks is not to be relied on; empty where nothing was seen."""
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
