"""A replacement for `triton.testing.do_bench`. The author's call and result stay the same, and the raw timings are kept.

It differs from Triton's in these points: the flush buffer is twice the last-level cache, and both sizes are recorded. The warm-up flushes
too. Timings come in rounds (see `stopping_rule`), and each one is kept in order. The host stays ahead of the device (see `batches`), and
its own times are kept.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from harness.inside.bench.batches import Bursts
from harness.inside.bench.call_bytes import touched
from harness.inside.bench.stopping_rule import Gathered, Rounds, Rule
from harness.stats import quantile

# Overwrite this multiple of the last-level cache before each timing. Twice the size clears caches that do not evict in order.
FLUSH_MARGIN = 2
# Twice the largest known last-level cache (256 MiB, on MI300X to MI355X), used if neither the driver nor targets.yml reports a size.
FLUSH_FLOOR_BYTES = 512 << 20
# Shorter launches are also timed without flush and host: replayed from a graph, with a warm cache.
_SHORT_MS = 0.02
_GRAPH_LAUNCHES, _GRAPH_REPLAYS = 20, 11
_MOST_REPETITIONS = 10_000
# The first launches of a turn find the caches of instructions and addresses cold.
_UNTIMED = 2


@dataclass(frozen=True)
class Timing:
    """What one `do_bench` call measured. `returned_ms` is the number that the author's code received.

    `host_ms` is the time the host needs to enqueue a call. `discarded` counts timings of early rounds that do not count, `late` those for
    which the device waited for the host. `graph_ms` is the time of a launch in a graph, with a warm cache. `argument_bytes` are those of
    the tensors that one call gave to kernels.
    """

    times_ms: tuple[float, ...]
    warmup: int
    flush_bytes: int
    returned_ms: float
    host_ms: float | None
    rounds: tuple[int, ...] = ()
    discarded: int = 0
    late: int = 0
    quiet: bool | None = None
    cache_bytes: int | None = None
    graph_ms: float | None = None
    argument_bytes: int | None = None
    tuned: dict[str, str] = field(default_factory=dict)
    timer: str = "device events, cache flushed, host ahead"

    @property
    def median_ms(self) -> float:
        """Median of the raw timings."""
        return statistics.median(self.times_ms)

    def quantile_ms(self, q: float) -> float:
        """Return a quantile of the raw timings, interpolated linearly."""
        return quantile(self.times_ms, q)


class Timer:
    """Replaces `do_bench`. `last` is the timing of the latest call; `series` is the point being measured, in turns with others."""

    def __init__(
        self,
        device: Any,
        flush: Callable[[], Any],
        flush_bytes: int,
        quick: bool = False,
        cache_bytes: int | None = None,
        rule: Rule | None = None,
    ) -> None:
        """`device` is torch's module for the device (`Event`, `synchronize`); `flush` overwrites `flush_bytes` of its memory."""
        self.device, self.flush_bytes, self.quick, self.cache_bytes = device, flush_bytes, quick, cache_bytes
        self._bursts = Bursts(device, flush)
        self.rule = rule or Rule()
        self.last: Timing | None = None
        self.series: Rounds | None = None
        self._known_cache: Callable[[], int | None] = lambda: cache_bytes
        self._busy = False
        self._began = 0.0

    @classmethod
    def on_active_device(cls, quick: bool = False, cache_bytes: int | None = None, rule: Rule | None = None) -> Timer:
        """Return a timer for the device that Triton uses. `cache_bytes` is what targets.yml says about its last-level cache."""
        timer = cls.when_used(quick, rule, lambda: cache_bytes)
        timer.begin()
        return timer

    @classmethod
    def when_used(cls, quick: bool, rule: Rule | None, known_cache: Callable[[], int | None]) -> Timer:
        """Return the same timer, but leave the device alone until `begin`, or until something is timed."""
        timer = cls(None, lambda: None, 0, quick, None, rule)
        timer._known_cache = known_cache
        return timer

    def begin(self) -> None:
        """Begin to use the device, unless this timer does already."""
        if self.device is not None:
            return
        import torch
        import triton

        driver = triton.runtime.driver.active
        self.device = driver.get_device_interface()
        reported = getattr(self.device.get_device_properties(driver.get_current_device()), "L2_cache_size", 0)
        known = self._known_cache()
        # Drivers do not report caches on the memory side. The reported cache is the last one only if targets.yml has no larger one.
        self.cache_bytes = max(reported, known) if known is not None else None
        self.flush_bytes = FLUSH_MARGIN * self.cache_bytes if self.cache_bytes else max(FLUSH_FLOOR_BYTES, 4 * reported)
        buffer = torch.empty(self.flush_bytes // 4, dtype=torch.int32, device=driver.get_active_torch_device())
        self._bursts = Bursts(self.device, buffer.zero_)

    def busy_s(self) -> float:
        """Return for how many seconds the device was busy with what was timed, since the last call."""
        busy_ms, self._bursts.busy_ms = self._bursts.busy_ms, 0.0
        return round(busy_ms / 1e3, 6)

    def turn(self, series: Rounds) -> None:
        """Prepare for the next call of a point's function."""
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
        """Time `fn` for at most about `rep` milliseconds. Signature and result are those of `triton.testing.do_bench`.

        The result covers all rounds so far of this call site in the point's function.
        """
        self.begin()
        if self.quick:
            warmup, rep = warmup / 5, rep / 5
        if self._busy or self.series is None:  # autotuning inside the timed function, or a ceiling
            found, alone, tuning = Gathered(self.rule), True, self._busy
        else:
            caller = _caller()
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
        result = summary(times, quantiles, return_mode)
        self.last = self._timing(found, leading(result, times, quantiles))
        self._began = time.perf_counter()
        return result

    def _prepare(self, fn: Callable[[], Any], found: Gathered, warmup: float, rep: float, grad_to_none: Sequence[Any] | None) -> None:
        """Compile, estimate the pace, and warm up."""
        with touched() as found.touched:
            fn()
        self.device.synchronize()
        pilot = self._bursts.take(fn, 3, grad_to_none)
        found.pace_ms, found.cap_ms = max(pilot.pace_ms, 1e-3), rep
        found.untimed = max(1, min(_MOST_REPETITIONS, int(warmup / self.rule.slices / found.pace_ms)))
        warm = self._bursts.take(fn, found.untimed, grad_to_none, self._bursts.flushes(pilot.host_ms), self._bursts.lead(pilot.host_ms))
        # The host was ahead, so these are pure device times.
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
            argument_bytes=found.touched.nbytes if found.touched else None,
            tuned=found.touched.tuned if found.touched else {},
        )

    def _replay(self, fn: Callable[[], Any]) -> float | None:
        """Return milliseconds per launch in a graph; None if a graph cannot record `fn`, for example because it waits for the device."""
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


def _caller() -> FrameType:
    """Return the frame that called `do_bench`, past what stands in for it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("harness.inside.scripts."):
        frame = frame.f_back
    return frame


def leading(result: Any, times: Sequence[float], quantiles: Sequence[float] | None) -> float:
    """Return the number that a sample shows of what `do_bench` returned: the first one, or the median of all timings."""
    if isinstance(result, (int, float)):
        return float(result)
    return float(result[0]) if quantiles else statistics.median(times)


def summary(times: list[float], quantiles: Sequence[float] | None, mode: str) -> Any:
    """Return what `do_bench` returns for these arguments."""
    if quantiles is not None:
        picked = [quantile(times, q) for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    if mode == "all":
        return times
    summaries: dict[str, Callable[[list[float]], float]] = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return summaries[mode](times)
