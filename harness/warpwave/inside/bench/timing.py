"""A replacement for `triton.testing.do_bench`. The author's call and result stay the same, and the raw timings are kept.

It differs from Triton's in these points: the flush buffer is twice the last-level cache, and both sizes are recorded. The warm-up flushes
too. Timings come in rounds (see `Rule`), and each one is kept in order. The host stays ahead of the device (see `Bursts`), and
its own times are kept.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from warpwave.inside.scripts.hooks import noted
from warpwave.records import What
from warpwave.stats import median_interval, quantile

# Time a function on the device in bursts: each call follows cache flushes, and the host stays ahead of the device.
#
# Only the device's work is timed, never its waiting for the host. So flushes keep the device busy while the host enqueues the next call.
# Afterwards, each timing is compared with the host's clock. If the device was ready before the host had enqueued the call, the timing is
# late and does not count.

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
        # Events of the last burst are used again, unless it is still running: an autotuner may call from within `fn`.
        kept, self._events = self._events[: 2 * count + 2], []
        origin, first, *events = kept + [self.device.Event(enable_timing=True) for _ in range(2 * count + 2 - len(kept))]
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


# What a call launches: the bytes of the tensors that it gives to Triton kernels, and the configurations that autotuners chose.
#
# The bytes are the least that the call has to move, if each is used once.

_MOST, _LONGEST = 20, 400  # configurations of a call, and characters of each


class Touched:
    """The distinct tensors that were given to kernels, by where their memory begins.

    `tuned` are configurations by kernel, `functions` the names of what was launched.
    """

    def __init__(self) -> None:
        self._found: dict[int, int] = {}
        self.tuned: dict[str, str] = {}
        self.functions: dict[str, None] = {}

    def note(self, values: Any) -> None:
        """Note the tensors among a launch's arguments. A view of a whole, or an expanded one, counts what it has in memory."""
        import torch

        for value in values:
            if isinstance(value, torch.Tensor) and value.numel():
                size = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
                self._found[value.data_ptr()] = max(size, self._found.get(value.data_ptr(), 0))

    @property
    def nbytes(self) -> int | None:
        """Bytes of all of them; None if there was no launch with a tensor."""
        return sum(self._found.values()) or None


@contextmanager
def touched() -> Iterator[Touched]:
    """Note the arguments of every launch inside, and what autotuners chose. Other code than Triton's kernels is not seen."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    found, run, tune = Touched(), JITFunction.run, Autotuner.run

    def choosing(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = tune(self, *args, **kwargs)
        if (chosen := getattr(self, "best_config", None)) is not None and len(found.tuned) < _MOST:
            found.tuned[getattr(getattr(self, "base_fn", self.fn), "__name__", "kernel")] = str(chosen)[:_LONGEST]
        return result

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.note((*args, *kwargs.values()))
        return run(self, *args, **kwargs)

    JITFunction.run, Autotuner.run = noting, choosing
    try:
        with noted(lambda name: found.functions.setdefault(name)):
            yield found
    finally:
        JITFunction.run, Autotuner.run = run, tune


# The rules for when a point has been measured enough, and which of its rounds count. Pure.
#
# A point is measured in rounds, and the providers of one case take turns, so that a GPU that warms up or slows down does so for all of
# them. Quiet points end early. Noisy points continue until their time is up, and are marked.

# At least this many rounds at the end count as settled.
_SETTLED = 4


@dataclass(frozen=True)
class Rule:
    """When to stop: `target` is half the median's 95% interval over the median; the cap is the author's `rep` milliseconds.

    A round takes a `slices`-th of the cap, or a `rounds`-th of `timings`, which takes longer for slow calls. After `rounds` rounds with
    `timings` timings, the interval is computed, and once more after `settled` rounds. It determines how many rounds the target needs
    (Stein's two stages), and that many are measured, up to the cap. Checking after each round and stopping at the first narrow interval
    would give intervals that are too narrow: in simulations they miss the true median one time in six.
    """

    target: float = What.precision
    rounds: int = 5
    settled: int = 11
    timings: int = 50
    slices: int = 80

    def repetitions(self, cap_ms: float, pace_ms: float) -> int:
        """Return how many repetitions of that pace make a round."""
        asked = max(cap_ms / self.slices / pace_ms, self.timings / self.rounds)
        return max(1, int(min(asked, cap_ms / self.rounds / pace_ms)))


@dataclass
class Gathered:
    """What one `do_bench` call of a point has gathered over its rounds, in ms. `spent_ms` includes flushes."""

    rule: Rule = field(default_factory=Rule)
    rounds: list[list[float]] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    cap_ms: float = 0.0
    spent_ms: float = 0.0
    pace_ms: float = 0.0
    host_ms: float = 0.0
    device_ms: float = 0.0
    untimed: int = 0
    late: int = 0
    graph_ms: float | None = None
    touched: Touched | None = None
    planned: int | None = None
    look_at: int = 0
    looked_behind: int | None = None

    def add(self, burst: Burst, untimed: int = 0) -> None:
        """Add a round, with the number of `untimed` repetitions before its timings."""
        self.rounds.append(burst.times_ms)
        self.medians.append(statistics.median(burst.times_ms))
        self.host_ms, self.pace_ms = burst.host_ms, max(burst.pace_ms, 1e-3)
        self.spent_ms += burst.spent_ms
        self.untimed += untimed
        self.late += burst.late

    @property
    def discarded(self) -> int:
        """How many rounds at the beginning do not count, because the GPU was still reaching its clock."""
        return unsettled(self.medians)

    @property
    def kept(self) -> list[list[float]]:
        """The rounds that count."""
        return self.rounds[self.discarded :]

    @property
    def times_ms(self) -> list[float]:
        """The timings of the rounds that count, in order."""
        return list(itertools.chain.from_iterable(self.kept))

    @property
    def quiet(self) -> bool:
        """Whether all rounds that the target needs have been measured."""
        return self.planned is not None and len(self.rounds) - self.discarded >= self.planned

    @property
    def enough(self) -> bool:
        """Whether no more rounds are needed."""
        kept = self.kept
        if self.looked_behind != self.discarded:  # start over if the GPU had not settled before
            self.looked_behind, self.look_at, self.planned = self.discarded, self.rule.rounds, None
        if len(kept) < self.rule.rounds:
            return False
        if self.planned is None and len(kept) >= self.look_at and sum(map(len, kept)) >= self.rule.timings:
            takes = self._takes(kept)
            if takes <= len(kept) or len(kept) >= self.rule.settled:
                self.planned = takes
            self.look_at = self.rule.settled
        return self.quiet or self.spent_ms >= self.cap_ms

    def _takes(self, kept: list[list[float]]) -> int:
        """Return how many rounds are needed: an interval narrows with the square root of their number."""
        interval = median_interval(self.times_ms, [len(times) for times in kept])
        if interval is None:
            return len(kept)
        width = (interval.high - interval.low) / 2 / interval.value
        return math.ceil(len(kept) * (width / self.rule.target) ** 2)


@dataclass
class Rounds:
    """A point over its rounds: what each `do_bench` call of its author's function has gathered, by call site.

    Each round calls the author's function again, so that everything it sets up around `do_bench` is in place. Its result is computed from
    all rounds so far. A function whose setup takes longer than its measurement is called only twice; its second call measures all remaining
    rounds.
    """

    rule: Rule = field(default_factory=Rule)
    calls: dict[tuple[str, int, int], Gathered] = field(default_factory=dict)
    latest: list[tuple[str, int, int]] = field(default_factory=list)
    turns: int = 0

    def begin(self) -> None:
        """Prepare for a call of the author's function."""
        self.latest = []
        self.turns += 1

    def gathered(self, file: str, line: int, setup_ms: float) -> tuple[Gathered, bool]:
        """Return what a call site has gathered, and whether it must continue until it has enough.

        `setup_ms` is the time since the function started, or since its last measurement.
        """
        again = sum(place[:2] == (file, line) for place in self.latest)
        place = (file, line, again)
        self.latest.append(place)
        found = self.calls.setdefault(place, Gathered(self.rule))
        # The first turn includes compilation. Only the second shows the cost of the setup.
        return found, self.turns > 1 and setup_ms > found.cap_ms > 0

    @property
    def enough(self) -> bool:
        """Whether every call of the latest turn has enough. A function without `do_bench` is called once."""
        return all(self.calls[place].enough for place in self.latest)


def unsettled(medians: Sequence[float]) -> int:
    """Return how many rounds at the beginning to discard.

    Discard those whose median is further from all of the last half than the medians of that half are from each other. Random noise almost
    never triggers this; a GPU whose clock is still rising does.
    """
    later = medians[-max(_SETTLED, len(medians) // 2) :]
    first = medians[: len(medians) - len(later)]
    if not first:
        return 0
    low, high = min(later), max(later)
    near = (low - (high - low), high + (high - low))
    return next((count for count, median in enumerate(first) if near[0] <= median <= near[1]), len(first))


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
    the tensors that one call gave to kernels, and `launched` their names; None if that was not seen.
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
    launched: tuple[str, ...] | None = None

    @property
    def median_ms(self) -> float:
        """Median of the raw timings."""
        return statistics.median(self.times_ms)

    def quantile_ms(self, q: float) -> float:
        """Return a quantile of the raw timings, interpolated linearly."""
        return quantile(self.times_ms, q)


class Timer:
    """Replaces `do_bench`. `last` is the timing of the latest call; `series` is the point being measured, in turns with others."""

    def __init__(self, device: Any, flush: Callable[[], Any], flush_bytes: int, quick: bool = False, rule: Rule | None = None) -> None:
        """`device` is torch's module for the device (`Event`, `synchronize`); `flush` overwrites `flush_bytes` of its memory."""
        self.device, self.flush_bytes, self.quick = device, flush_bytes, quick
        self.cache_bytes: int | None = None
        self._bursts = Bursts(device, flush)
        self.rule = rule or Rule()
        self.last: Timing | None = None
        self.series: Rounds | None = None
        self._known_cache: Callable[[], int | None] = lambda: None
        self._busy = False
        self._began = 0.0

    @classmethod
    def when_used(cls, quick: bool, rule: Rule | None, known_cache: Callable[[], int | None]) -> Timer:
        """Return a timer for the device that Triton uses, which it leaves alone until `begin`, or until something is timed.

        `known_cache` returns what targets.yml says about the device's last-level cache, in bytes.
        """
        timer = cls(None, lambda: None, 0, quick, rule)
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
            replays = found.enough and found.graph_ms is None and not tuning and not grad_to_none
            if replays and statistics.median(found.times_ms) < _SHORT_MS:
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
            launched=self._launched(found),
        )

    def _launched(self, found: Gathered) -> tuple[str, ...] | None:
        """Return what all calls of a point launched: its number may come from any of them."""
        calls = [found, *(self.series.calls.values() if self.series else ())]
        names = [each.touched.functions for each in calls if each.touched]
        return tuple(dict.fromkeys(name for each in names for name in each)) if names else None

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
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("warpwave.inside.scripts."):
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
