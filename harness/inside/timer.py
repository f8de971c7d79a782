"""`triton.testing.do_bench`, taken over: the author's call and the author's number stay, the raw timings are kept.

What differs from Triton's: the flush buffer is twice the last-level cache, and both sizes are recorded; the warm-up flushes too; timings
come in rounds (see `rounds`) and every single one is kept in the order in which it was taken. And the host is ahead: where enqueuing a call
takes it longer than flush and call take the device, the device flushes again, so that what is timed is the device and not its waiting for
the host. How long the host took is kept beside it.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.inside.rounds import Gathered, Rule, Series
from harness.stats import quantile

# How much of the last-level cache is overwritten before each timing: what was in it is gone even where it is not evicted in order.
FLUSH_MARGIN = 2
# Twice the largest last-level cache known (256 MiB, on MI300X to MI355X), where neither driver nor targets.yml tells its size.
FLUSH_FLOOR_BYTES = 512 << 20
# Launches below this are also timed without the flush and without the host: replayed from a graph, with a warm cache.
_SHORT_MS = 0.02
_GRAPH_LAUNCHES, _GRAPH_REPLAYS = 20, 11
_MOST_REPETITIONS = 10_000
# The first launches of a turn find caches of instructions and of addresses cold.
_UNTIMED = 2
# The host's time varies more than the device's; a function that waits for the device is never ahead of it.
_HEAD_START = 1.5
_MOST_AHEAD_MS = 10.0
# A round begins with an idle device: so many calls of the host's ahead, and it stays ahead if a repetition takes the device longer.
_LEAD = 3
# A queue of launches that is full holds the host up; in these rounds it is not.
_HOST_ROUNDS = 20


@dataclass(frozen=True)
class Timing:
    """What one `do_bench` call measured. `returned_ms` is the number that the author's code went on with, `host_ms` the time that the host
    needs to enqueue a call; `discarded` counts timings of first rounds, `graph_ms` is a launch in a graph with a warm cache."""

    times_ms: tuple[float, ...]
    warmup: int
    flush_bytes: int
    returned_ms: float
    host_ms: float
    rounds: tuple[int, ...] = ()
    discarded: int = 0
    quiet: bool | None = None
    cache_bytes: int | None = None
    graph_ms: float | None = None
    timer: str = "device events, cache flushed, host ahead"

    @property
    def median_ms(self) -> float:
        """Median of the raw timings."""
        return statistics.median(self.times_ms)

    def quantile_ms(self, q: float) -> float:
        """A quantile of the raw timings, linear between neighbours."""
        return quantile(self.times_ms, q)


@dataclass(frozen=True)
class _Round:
    """Times of a function on the device, the median of the host's for it and for its flushes, and the pace of a repetition with both."""

    times_ms: list[float]
    host_ms: float
    pace_ms: float
    flush_host_ms: float


class Timer:
    """Stands in for `do_bench`; `last` is the timing behind the latest call, `series` the point that is measured, in turns with others."""

    def __init__(
        self,
        device: Any,
        flush: Callable[[], Any],
        flush_bytes: int,
        quick: bool = False,
        cache_bytes: int | None = None,
        rule: Rule | None = None,
    ) -> None:
        """`device` is torch's module for it (`Event`, `synchronize`); `flush` overwrites `flush_bytes` of its memory."""
        self.device, self._flush, self.flush_bytes, self._quick, self.cache_bytes = device, flush, flush_bytes, quick, cache_bytes
        self.rule = rule or Rule()
        self.last: Timing | None = None
        self.series: Series | None = None
        self._flush_ms: float | None = None
        self._busy = False
        self._began = 0.0

    @classmethod
    def on_active_device(cls, quick: bool = False, cache_bytes: int | None = None, rule: Rule | None = None) -> Timer:
        """A timer for the device that Triton runs on; `cache_bytes` is what is known of its last-level cache beside what it tells."""
        import torch
        import triton

        driver = triton.runtime.driver.active
        device = driver.get_device_interface()
        told = getattr(device.get_device_properties(driver.get_current_device()), "L2_cache_size", 0)
        # Drivers do not report caches on the memory's side: what is told is only then the last one when targets.yml says nothing larger.
        last = max(told, cache_bytes) if cache_bytes is not None else None
        flush_bytes = FLUSH_MARGIN * last if last else max(FLUSH_FLOOR_BYTES, 4 * told)
        buffer = torch.empty(flush_bytes // 4, dtype=torch.int32, device=driver.get_active_torch_device())
        return cls(device, buffer.zero_, flush_bytes, quick, last, rule)

    def turn(self, series: Series) -> None:
        """A point's function is about to be called once more."""
        self.last, self.series, self._began = None, series, time.perf_counter()
        series.begin()

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
        """Time `fn` for at most about `rep` milliseconds; signature and result as in `triton.testing.do_bench`.

        The result is of all rounds that this call, at this place of a point's function, has been through.
        """
        if self._quick:
            warmup, rep = warmup / 5, rep / 5
        if self._busy or self.series is None:  # tuning inside of what is timed; a ceiling
            found, alone, tuning = Gathered(self.rule), True, self._busy
        else:
            caller = sys._getframe(1)
            setup_ms, tuning = (time.perf_counter() - self._began) * 1e3, False
            found, alone = self.series.gathered(caller.f_code.co_filename, caller.f_lineno, setup_ms)
        busy, self._busy = self._busy, True
        try:
            self._prepare(fn, found, warmup, rep, grad_to_none)
            self._round(fn, found, grad_to_none)
            while alone and not tuning and not found.enough:
                self._round(fn, found, grad_to_none)
            if (
                found.enough
                and found.graph_ms is None
                and not tuning
                and not grad_to_none
                and statistics.median(found.times_ms) < _SHORT_MS
            ):
                found.graph_ms = self._replay(fn)
        finally:
            self._busy = busy
        times = found.times_ms
        result = _summary(times, quantiles, return_mode)
        first = result if isinstance(result, float) else statistics.median(times) if return_mode == "all" and not quantiles else result[0]
        self.last = self._timing(found, first)
        self._began = time.perf_counter()
        return result

    def _prepare(self, fn: Callable[[], Any], found: Gathered, warmup: float, rep: float, grad_to_none: Sequence[Any] | None) -> None:
        """Compile, look at the pace, warm up: in full the first time, with two launches in later turns."""
        fn()
        self.device.synchronize()
        if not found.rounds:
            pilot = self._run(fn, 3, grad_to_none)
            found.pace_ms, found.host_ms, found.cap_ms = max(pilot.pace_ms, 1e-3), pilot.host_ms, rep
            repetitions = max(1, min(_MOST_REPETITIONS, int(warmup / self.rule.slices / found.pace_ms)))
        else:
            repetitions = _UNTIMED
        warm = self._run(fn, repetitions, grad_to_none, self._flushes(found.host_ms))
        found.host_ms, found.untimed = warm.host_ms, found.untimed + repetitions
        if not found.rounds:  # with the host ahead beyond doubt: these are the device's own times
            found.device_ms = min(warm.times_ms)

    def _round(self, fn: Callable[[], Any], found: Gathered, grad_to_none: Sequence[Any] | None) -> None:
        flushes = self._flushes(found.host_ms, found.device_ms)
        count = max(1, min(_MOST_REPETITIONS, int(found.cap_ms / self.rule.slices / found.pace_ms)))
        measured = self._run(fn, count, grad_to_none, flushes, lead=self._flushes(_LEAD * found.host_ms))
        found.add(measured.times_ms)
        found.host_ms, found.pace_ms = measured.host_ms, max(measured.pace_ms, 1e-3)
        found.spent_ms += count * found.pace_ms

    def _timing(self, found: Gathered, returned_ms: float) -> Timing:
        kept = found.kept
        return Timing(
            times_ms=tuple(found.times_ms),
            warmup=found.untimed,
            flush_bytes=self.flush_bytes,
            returned_ms=returned_ms,
            host_ms=found.host_ms,
            rounds=tuple(map(len, kept)),
            discarded=sum(map(len, found.rounds)) - sum(map(len, kept)),
            quiet=found.quiet,
            cache_bytes=self.cache_bytes,
            graph_ms=found.graph_ms,
        )

    def _flushes(self, host_ms: float, device_ms: float = 0.0) -> int:
        """How many flushes keep the device busy until the host has enqueued the next repetition, whose own time may count."""
        if self._flush_ms is None:
            # Its own time, and what enqueuing it costs the host.
            alone = self._run(lambda: None, _HOST_ROUNDS, None)
            self._flush_ms = max(alone.pace_ms - _HEAD_START * alone.flush_host_ms, alone.pace_ms / 2, 1e-3)
        return max(1, math.ceil(min(_MOST_AHEAD_MS, _HEAD_START * host_ms - device_ms) / self._flush_ms))

    def _run(self, fn: Callable[[], Any], rounds: int, grad_to_none: Sequence[Any] | None, flushes: int = 1, lead: int = 0) -> _Round:
        """Time `fn` again and again, each time after so many flushes; the first time after `lead` more."""
        starts = [self.device.Event(enable_timing=True) for _ in range(rounds)]
        ends = [self.device.Event(enable_timing=True) for _ in range(rounds)]
        host_s, flush_s = [], []
        for _ in range(lead):
            self._flush()
        before = self.device.Event(enable_timing=True)
        before.record()
        for start, end in zip(starts, ends, strict=True):
            for tensor in grad_to_none or ():
                tensor.grad = None
            called = time.perf_counter()
            for _ in range(flushes):
                self._flush()
            began = time.perf_counter()
            flush_s.append(began - called)
            start.record()
            fn()
            end.record()
            host_s.append(time.perf_counter() - began)
        self.device.synchronize()
        times = [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]
        host_ms, flush_host_ms = (statistics.median(taken[:_HOST_ROUNDS]) * 1e3 for taken in (host_s, flush_s))
        return _Round(times, host_ms, before.elapsed_time(ends[-1]) / rounds, flush_host_ms)

    def _replay(self, fn: Callable[[], Any]) -> float | None:
        """Milliseconds of a launch among others in a graph; None where `fn` does what no graph can hold, such as waiting for the device."""
        try:
            graph = self.device.CUDAGraph()
            with self.device.graph(graph):
                for _ in range(_GRAPH_LAUNCHES):
                    fn()
            graph.replay()
            found = [self._run(graph.replay, 1, None, flushes=0).times_ms[0] / _GRAPH_LAUNCHES for _ in range(_GRAPH_REPLAYS)]
        except Exception:
            return None
        return statistics.median(found)


def _summary(times: list[float], quantiles: Sequence[float] | None, mode: str) -> Any:
    """What `do_bench` returns for these arguments."""
    if quantiles is not None:
        picked = [quantile(times, q) for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    if mode == "all":
        return times
    summaries: dict[str, Callable[[list[float]], float]] = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return summaries[mode](times)
