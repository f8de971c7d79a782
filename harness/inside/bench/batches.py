"""Time a function on the device in bursts: each call follows cache flushes, and the host stays ahead of the device.

Only the device's work is timed, never its waiting for the host. So flushes keep the device busy while the host enqueues the next call.
Afterwards, each timing is compared with the host's clock. If the device was ready before the host had enqueued the call, the timing is late
and does not count.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# The flushes and the call take the device this much longer than the host needs to enqueue them. The lead absorbs the host's variation.
_HEAD_START = 1.2
_MOST_AHEAD_MS = 10.0
# A burst starts with an idle device. The host enqueues this many calls ahead, to stay ahead if a repetition is slow for it.
_LEAD = 2
# A full launch queue blocks the host. In this many repetitions, the queue does not fill up.
_HOST_REPETITIONS = 20


@dataclass(frozen=True)
class Burst:
    """Device times of a function in ms without the `late` ones, and medians of the host's times for the call and its flushes.

    `pace_ms` is the device time of a repetition including flushes, `spent_ms` that of the whole burst. If every timing is late, because the
    function itself waits for the device, all of them count.
    """

    times_ms: list[float]
    late: int
    host_ms: float
    flush_host_ms: float
    pace_ms: float
    spent_ms: float


class Bursts:
    """Takes bursts on one device."""

    def __init__(self, device: Any, flush: Callable[[], Any]) -> None:
        """`device` is torch's module for the device (`Event`, `current_stream`, `synchronize`); `flush` overwrites its last-level cache."""
        self.device, self._flush = device, flush
        self._events: list[Any] = []
        self._flush_ms: float | None = None
        self.busy_ms = 0.0  # device time of all bursts so far

    def take(
        self,
        fn: Callable[[], Any],
        repetitions: int,
        grad_to_none: Sequence[Any] | None = None,
        flushes: int = 1,
        lead: int = 0,
        untimed: int = 0,
    ) -> Burst:
        """Call `fn` repeatedly, each time after `flushes` flushes, and the first time after `lead` more.

        The first `untimed` calls are not timed.
        """
        count = untimed + repetitions
        origin, first, *events = self._enough_events(2 * count + 2)
        starts, ends = events[:count], events[count:]
        # Otherwise each `record` would look up the stream, which costs the host several microseconds.
        stream = self.device.current_stream()
        began = time.perf_counter()  # read the clock first, or the device could reach `origin` before it
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
        # The device reaches `origin` after the host's clock was read. So a `start` may really be later than computed, never earlier.
        reached = [origin.elapsed_time(start) for start in starts[timed]]
        in_time = [taken for taken, at, host in zip(times, reached, enqueued_s[timed], strict=True) if host * 1e3 <= at]
        host_ms, flush_host_ms = (statistics.median(taken[:_HOST_REPETITIONS]) * 1e3 for taken in (host_s, flush_s))
        pace_ms, spent_ms = first.elapsed_time(ends[-1]) / count, origin.elapsed_time(ends[-1])
        self.busy_ms += spent_ms
        self._events = [origin, first, *events]
        return Burst(in_time or times, len(times) - len(in_time or times), host_ms, flush_host_ms, pace_ms, spent_ms)

    def flushes(self, host_ms: float, device_ms: float = 0.0) -> int:
        """Return how many flushes keep the device busy while the host enqueues a repetition; its own device time may be included."""
        if self._flush_ms is None:
            # The device time of a flush, minus the head start that enqueuing it costs.
            alone = self.take(lambda: None, _HOST_REPETITIONS)
            self._flush_ms = max(alone.pace_ms - _HEAD_START * alone.flush_host_ms, alone.pace_ms / 2, 1e-3)
        return max(1, math.ceil(min(_MOST_AHEAD_MS, _HEAD_START * host_ms - device_ms) / self._flush_ms))

    def lead(self, host_ms: float) -> int:
        """Return how many flushes put the host ahead at the start of a burst."""
        return self.flushes(_LEAD * host_ms)

    def _enough_events(self, count: int) -> list[Any]:
        """Return this many events. Reuse those of the last burst, unless it is still running: an autotuner may call from within `fn`."""
        reused, self._events = self._events[:count], []
        return reused + [self.device.Event(enable_timing=True) for _ in range(count - len(reused))]
