"""`triton.testing.do_bench`, taken over: the author's call and the author's number stay, the raw timings are kept.

What differs from Triton's: the flush buffer is twice the last-level cache, and both sizes are recorded; the warm-up flushes too; timings
come in rounds (see `rounds`) and every single one is kept in the order in which it was taken; and the host is ahead (see `bursts`). How
long it took is kept beside them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.inside.bench.batches import Bursts
from harness.inside.bench.stopping_rule import Gathered, Rounds, Rule
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


@dataclass(frozen=True)
class Timing:
    """What one `do_bench` call measured. `returned_ms` is the number that the author's code went on with, `host_ms` the time that the host
    needs to enqueue a call; `discarded` counts timings of first rounds, `late` those that had the device wait for the host; `graph_ms` is
    a launch in a graph with a warm cache."""

    times_ms: tuple[float, ...]
    warmup: int
    flush_bytes: int
    returned_ms: float
    host_ms: float
    rounds: tuple[int, ...] = ()
    discarded: int = 0
    late: int = 0
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
        self.device, self.flush_bytes, self._quick, self.cache_bytes = device, flush_bytes, quick, cache_bytes
        self._bursts = Bursts(device, flush)
        self.rule = rule or Rule()
        self.last: Timing | None = None
        self.series: Rounds | None = None
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

    def turn(self, series: Rounds) -> None:
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
            if found.rounds:
                self._round(fn, found, grad_to_none, _UNTIMED)
            else:
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
        """Compile, look at the pace, warm up."""
        fn()
        self.device.synchronize()
        pilot = self._bursts.take(fn, 3, grad_to_none)
        found.pace_ms, found.cap_ms = max(pilot.pace_ms, 1e-3), rep
        found.untimed = max(1, min(_MOST_REPETITIONS, int(warmup / self.rule.slices / found.pace_ms)))
        warm = self._bursts.take(fn, found.untimed, grad_to_none, self._bursts.flushes(pilot.host_ms), self._bursts.lead(pilot.host_ms))
        # With the host ahead: these are the device's own times.
        found.host_ms, found.device_ms = warm.host_ms, min(warm.times_ms)

    def _round(self, fn: Callable[[], Any], found: Gathered, grad_to_none: Sequence[Any] | None, untimed: int = 0) -> None:
        count = min(_MOST_REPETITIONS, self.rule.repetitions(found.cap_ms, found.pace_ms))
        flushes = self._bursts.flushes(found.host_ms, found.device_ms)
        found.add(self._bursts.take(fn, count, grad_to_none, flushes, self._bursts.lead(found.host_ms), untimed), untimed)

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
            late=found.late,
            quiet=found.quiet,
            cache_bytes=self.cache_bytes,
            graph_ms=found.graph_ms,
        )

    def _replay(self, fn: Callable[[], Any]) -> float | None:
        """Milliseconds of a launch among others in a graph; None where `fn` does what no graph can hold, such as waiting for the device."""
        try:
            graph = self.device.CUDAGraph()
            with self.device.graph(graph):
                for _ in range(_GRAPH_LAUNCHES):
                    fn()
            graph.replay()
            found = [self._bursts.take(graph.replay, 1, flushes=0).times_ms[0] / _GRAPH_LAUNCHES for _ in range(_GRAPH_REPLAYS)]
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
