"""Timings of a function on the device, a burst at a time: each after flushes of the cache, all with the host ahead of the device.

What is timed is the device, and never its waiting for the host. So it is kept busy with flushes for as long as the host needs to enqueue
the next call, and afterwards each timing is held against the host's clock: one that the device was ready for before the host had enqueued
it is late, and does not count.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# The device takes so much longer over flushes and call than the host over enqueuing them. What the host varies by, the lead covers.
_HEAD_START = 1.2
_MOST_AHEAD_MS = 10.0
# A burst begins with an idle device: so many calls of the host's ahead, and it stays ahead if a repetition takes the device longer.
_LEAD = 2
# A queue of launches that is full holds the host up; in these repetitions it is not.
_HOST_REPETITIONS = 20


@dataclass(frozen=True)
class Burst:
    """Times of a function on the device in ms, less those that were `late`; the median of the host's for it and for its flushes, the pace
    of a repetition with both, and what all of it took. A function that itself waits for the device is late each time: then all count."""

    times_ms: list[float]
    late: int
    host_ms: float
    flush_host_ms: float
    pace_ms: float
    spent_ms: float


class Bursts:
    """Takes them, on one device."""

    def __init__(self, device: Any, flush: Callable[[], Any]) -> None:
        """`device` is torch's module for it (`Event`, `current_stream`, `synchronize`); `flush` overwrites its last-level cache."""
        self.device, self._flush = device, flush
        self._events: list[Any] = []
        self._flush_ms: float | None = None

    def take(
        self,
        fn: Callable[[], Any],
        repetitions: int,
        grad_to_none: Sequence[Any] | None = None,
        flushes: int = 1,
        lead: int = 0,
        untimed: int = 0,
    ) -> Burst:
        """Call `fn` again and again, each time after so many flushes, the first time after `lead` more; not timed at first, then timed."""
        count = untimed + repetitions
        origin, first, *events = self._enough_events(2 * count + 2)
        starts, ends = events[:count], events[count:]
        # By itself each `record` would ask for the stream, for several microseconds of the host's.
        stream = self.device.current_stream()
        began = time.perf_counter()  # before, or the device could come to it earlier than the clock was read
        origin.record(stream)
        for _ in range(lead):
            self._flush()
        first.record(stream)
        flush_s, host_s, enqueued_s = [], [], []
        for start, end in zip(starts, ends, strict=True):
            for tensor in grad_to_none or ():
                tensor.grad = None
            called = time.perf_counter()
            for _ in range(flushes):
                self._flush()
            flushed = time.perf_counter()
            start.record(stream)
            fn()
            end.record(stream)
            enqueued = time.perf_counter()
            flush_s.append(flushed - called)
            host_s.append(enqueued - flushed)
            enqueued_s.append(enqueued - began)
        self.device.synchronize()
        timed = slice(untimed, count)
        times = [start.elapsed_time(end) for start, end in zip(starts[timed], ends[timed], strict=True)]
        # The device comes to `origin` no earlier than the host, so it may have come to a `start` later than this says, never earlier.
        reached = [origin.elapsed_time(start) for start in starts[timed]]
        in_time = [taken for taken, at, host in zip(times, reached, enqueued_s[timed], strict=True) if host * 1e3 <= at]
        host_ms, flush_host_ms = (statistics.median(taken[:_HOST_REPETITIONS]) * 1e3 for taken in (host_s, flush_s))
        pace_ms = first.elapsed_time(ends[-1]) / count
        self._events = [origin, first, *events]
        return Burst(in_time or times, len(times) - len(in_time or times), host_ms, flush_host_ms, pace_ms, origin.elapsed_time(ends[-1]))

    def flushes(self, host_ms: float, device_ms: float = 0.0) -> int:
        """How many flushes keep the device busy until the host has enqueued a repetition, whose own time on the device may count."""
        if self._flush_ms is None:
            # Its own time, less what enqueuing it takes off the head start.
            alone = self.take(lambda: None, _HOST_REPETITIONS)
            self._flush_ms = max(alone.pace_ms - _HEAD_START * alone.flush_host_ms, alone.pace_ms / 2, 1e-3)
        return max(1, math.ceil(min(_MOST_AHEAD_MS, _HEAD_START * host_ms - device_ms) / self._flush_ms))

    def lead(self, host_ms: float) -> int:
        """How many flushes put the host ahead at the beginning of a burst."""
        return self.flushes(_LEAD * host_ms)

    def _enough_events(self, count: int) -> list[Any]:
        """So many events: those of the last burst again, unless that is under way (an autotuner may call from within a function)."""
        there, self._events = self._events[:count], []
        return there + [self.device.Event(enable_timing=True) for _ in range(count - len(there))]
