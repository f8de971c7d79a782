"""`triton.testing.do_bench`, taken over: the author's call and the author's number stay, the raw timings are kept.

What differs from Triton's: the flush buffer is larger than every last-level cache in use and its size is recorded, the warm-up flushes
too, and every single timing is kept in the order in which it was taken. And the host is ahead: where enqueuing a call takes it longer than
the flush takes the device, the device flushes again, so that what is timed is the device and not its waiting for the host. How long the
host took is kept beside it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Twice the largest last-level cache known (256 MiB, on MI300X to MI355X); drivers do not report memory-side caches.
FLUSH_FLOOR_BYTES = 512 << 20
_MOST_REPETITIONS = 10_000
# The host's time varies more than the device's; a function that waits for the device is never ahead of it.
_HEAD_START = 1.5
_MOST_FLUSHES = 16
# A queue of launches that is full holds the host up; in these rounds it is not.
_HOST_ROUNDS = 20


@dataclass(frozen=True)
class Timing:
    """What one `do_bench` call measured. `returned_ms` is the number that the author's code went on with, `host_ms` the time that the host
    needs to enqueue a call."""

    times_ms: tuple[float, ...]
    warmup: int
    flush_bytes: int
    returned_ms: float
    host_ms: float
    timer: str = "device events, cache flushed, host ahead"

    @property
    def median_ms(self) -> float:
        """Median of the raw timings."""
        return statistics.median(self.times_ms)

    def quantile_ms(self, q: float) -> float:
        """A quantile of the raw timings, linear between neighbours."""
        return quantile(self.times_ms, q)


@dataclass(frozen=True)
class _Rounds:
    """Times of a function on the device, the median of the host's, and the pace of a round with its flushes."""

    times_ms: list[float]
    host_ms: float
    pace_ms: float


class Timer:
    """Stands in for `do_bench`; `last` is the timing behind the latest call."""

    def __init__(self, device: Any, flush: Callable[[], Any], flush_bytes: int, quick: bool = False) -> None:
        """`device` is torch's module for it (`Event`, `synchronize`); `flush` overwrites `flush_bytes` of its memory."""
        self._device, self._flush, self.flush_bytes, self._quick = device, flush, flush_bytes, quick
        self.last: Timing | None = None
        self._flush_ms: float | None = None

    @classmethod
    def on_active_device(cls, quick: bool = False) -> Timer:
        """A timer for the device that Triton runs on."""
        import torch
        import triton

        driver = triton.runtime.driver.active
        device = driver.get_device_interface()
        cache = getattr(device.get_device_properties(driver.get_current_device()), "L2_cache_size", 0)
        flush_bytes = max(FLUSH_FLOOR_BYTES, 4 * cache)
        buffer = torch.empty(flush_bytes // 4, dtype=torch.int32, device=driver.get_active_torch_device())
        return cls(device, buffer.zero_, flush_bytes, quick)

    def do_bench(
        self,
        fn: Callable[[], Any],
        warmup: float = 25,
        rep: float = 100,
        grad_to_none: Sequence[Any] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **ignored: Any,
    ) -> Any:
        """Time `fn` for about `rep` milliseconds after `warmup` milliseconds; signature and result as in `triton.testing.do_bench`."""
        if self._quick:
            warmup, rep = warmup / 5, rep / 5
        fn()
        self._device.synchronize()
        pilot = self._run(fn, 3, grad_to_none)
        pace = max(pilot.pace_ms, 1e-3)
        rounds_warm = max(1, min(_MOST_REPETITIONS, int(warmup / pace)))
        rounds = max(5, min(_MOST_REPETITIONS, int(rep / pace)))
        warm = self._run(fn, rounds_warm, grad_to_none, self._flushes(pilot.host_ms))
        measured = self._run(fn, rounds, grad_to_none, self._flushes(warm.host_ms))
        times = measured.times_ms
        result = _summary(times, quantiles, return_mode)
        first = result if isinstance(result, float) else statistics.median(times) if return_mode == "all" and not quantiles else result[0]
        self.last = Timing(tuple(times), rounds_warm, self.flush_bytes, first, measured.host_ms)
        return result

    def _flushes(self, host_ms: float) -> int:
        """How many flushes keep the device busy until the host has enqueued what comes after them."""
        if self._flush_ms is None:
            self._flush_ms = max(self._run(lambda: None, 3, None).pace_ms, 1e-3)
        return max(1, min(_MOST_FLUSHES, math.ceil(_HEAD_START * host_ms / self._flush_ms)))

    def _run(self, fn: Callable[[], Any], rounds: int, grad_to_none: Sequence[Any] | None, flushes: int = 1) -> _Rounds:
        """Time `fn` again and again, each time after so many flushes."""
        starts = [self._device.Event(enable_timing=True) for _ in range(rounds)]
        ends = [self._device.Event(enable_timing=True) for _ in range(rounds)]
        host_s = []
        before = self._device.Event(enable_timing=True)
        before.record()
        for start, end in zip(starts, ends, strict=True):
            for tensor in grad_to_none or ():
                tensor.grad = None
            for _ in range(flushes):
                self._flush()
            began = time.perf_counter()
            start.record()
            fn()
            end.record()
            host_s.append(time.perf_counter() - began)
        self._device.synchronize()
        times = [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]
        return _Rounds(times, statistics.median(host_s[:_HOST_ROUNDS]) * 1e3, before.elapsed_time(ends[-1]) / rounds)


def quantile(values: Sequence[float], q: float) -> float:
    """A quantile of `values`, linear between neighbours."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _summary(times: list[float], quantiles: Sequence[float] | None, mode: str) -> Any:
    """What `do_bench` returns for these arguments."""
    if quantiles is not None:
        picked = [quantile(times, q) for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    if mode == "all":
        return times
    summaries: dict[str, Callable[[list[float]], float]] = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return summaries[mode](times)
