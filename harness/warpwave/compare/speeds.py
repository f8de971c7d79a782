"""Speeds: what a sample is worth, samples as rows with ratios, and the summaries of rows. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Union

from warpwave.compare.model import FAILING, Cell, Change, Geomean, Noise, Portability, Ratio, Refusal, Row, Speed
from warpwave.records import HARMLESS, LAUNCHED_PROPERTY, CaseResult, Ceiling, Sample, Stage, TargetRun, Verdict, grouped, plural
from warpwave.records.words import gbps_of, is_memory, is_time, tflops_of
from warpwave.stats import LARGEST, Interval, geometric_mean, harmonic_mean, measurable, median, median_interval, quantile, ratio_of_medians

# The limits are far from what hardware does: a figure beyond them was not measured, whatever the reason.
# A card's clock ticks twenty times in 10 ns; no launch begins and ends within that. Timings are stored to the nanosecond.
LEAST_MS = 1e-5
# The fastest cards of 2025 copy 8 TB/s, and multiply 20 PFLOP/s in 4 bits.
MOST_GBPS, MOST_TFLOPS = 1e5, 1e5
# The caches next to the arithmetic units of a card read up to 60 times as fast as its memory, all together (L4: 15 TB/s, 0.3 TB/s), and
# its narrowest dtype multiplies up to 170 times as fast as fp32. A point that lies in a cache, or counts bytes twice, stays far below this.
MOST_SHARE = 200.0
_USUAL_GBPS = 1e4  # for a card whose copy was not measured


def impossible(sample: Sample, copies: Mapping[int, float], products: Mapping[int, Mapping[str, float]]) -> str:
    """Say why a point cannot have been measured; empty if it can. `copies` and `products` are the ceilings of its run, by device.

    Of a unit that is not known, no value is impossible: a difference in percent may be negative.
    """
    return _value(sample) or _possible_times(sample) or _amounts(sample) or _impossible_speed(sample, copies, products)


def _value(sample: Sample) -> str:
    value, unit = sample.value, sample.unit
    if value is None or (is_memory(unit) and value >= 0) or measurable(value):
        return ""
    if lower_is_better(unit):
        return f"{value:g} {unit} is not a possible figure"
    return f"{value:g} {unit} is not a speed" if gbps_of(unit) or tflops_of(unit) else ""


def _possible_times(sample: Sample) -> str:
    median = sample.median_ms
    if wrong := _each((median, sample.p20_ms, sample.p80_ms)):
        return wrong
    if sample.times_ms:
        least, most = min(sample.times_ms), max(sample.times_ms)
        if not (measurable(least) and measurable(most)):
            return f"its timings are from {least:g} to {most:g} ms, which are not possible times"
        if median is not None and not least - LEAST_MS <= median <= most + LEAST_MS:
            return f"its median is {median:g} ms, its timings are from {least:g} to {most:g} ms"
    return _order(median, sample.p20_ms, sample.p80_ms)


def _amounts(sample: Sample) -> str:
    amounts = {
        "the host's time": sample.host_ms,
        "the time in a graph": sample.graph_ms,
        "the bytes moved": sample.bytes_moved,
        "the bytes of the arguments": sample.argument_bytes,
        "the size of the cache": sample.cache_bytes,
    }
    wrong = (f"{name} cannot be {figure:g}" for name, figure in amounts.items() if figure is not None and not 0 <= figure <= LARGEST)
    return next(wrong, "")


def _impossible_speed(sample: Sample, copies: Mapping[int, float], products: Mapping[int, Mapping[str, float]]) -> str:
    copy, product = copies.get(sample.device), max(products.get(sample.device, {}).values(), default=None)
    most_gbps, most_tflops = MOST_SHARE * (copy or _USUAL_GBPS), min(MOST_TFLOPS, MOST_SHARE * (product or MOST_TFLOPS))
    value = sample.value or 0.0
    if value * (gbps_of(sample.unit) or 0.0) > most_gbps:
        return _beyond(f"{value:g} {sample.unit}", most_gbps, "GB/s", copy)
    if value * (tflops_of(sample.unit) or 0.0) > most_tflops:
        return _beyond(f"{value:g} {sample.unit}", most_tflops, "TFLOP/s", product)
    if sample.median_ms and sample.bytes_moved and sample.bytes_moved / sample.median_ms * 1e-6 > most_gbps:
        return _beyond(f"{sample.bytes_moved:g} bytes in {sample.median_ms:g} ms", most_gbps, "GB/s", copy)
    return ""


def impossible_ceiling(ceiling: Ceiling) -> str:
    """Say why a ceiling cannot have been measured; empty if it can."""
    times = (ceiling.median_ms, ceiling.p20_ms, ceiling.p80_ms)
    found = _each(times) or _order(*times)
    if found or (ceiling.dtype and not ceiling.flops):
        return found
    speed, most, unit = (ceiling.tflops, MOST_TFLOPS, "TFLOP/s") if ceiling.dtype else (ceiling.gbps, MOST_GBPS, "GB/s")
    if ceiling.bytes_moved < 0 or not measurable(speed):
        return f"{speed:g} {unit} with {ceiling.bytes_moved} bytes is not a speed"
    return _beyond(f"{speed:g} {unit}", most, unit, None) if speed > most else ""


def _each(times: Iterable[Union[float, None]]) -> str:
    wrong = next((time for time in times if time is not None and not (time >= LEAST_MS and measurable(time))), None)
    return "" if wrong is None else f"{wrong:g} ms is not a possible time"


def _order(median: Union[float, None], low: Union[float, None], high: Union[float, None]) -> str:
    known = {name: time for name, time in (("p20", low), ("the median", median), ("p80", high)) if time is not None}
    if all(second >= first - LEAST_MS for first, second in itertools.pairwise(known.values())):
        return ""
    return f"{', '.join(f'{name} is {time:g} ms' for name, time in known.items())}: they are not in order"


def _beyond(what: str, most: float, unit: str, measured: Union[float, None]) -> str:
    why = f"{MOST_SHARE:g} times the {measured:.4g} {unit} measured here" if measured else f"{most:g} {unit}"
    return f"no card reaches {what}: it is more than {why}"


_DTYPE = re.compile(r"(?:torch\.|tl\.)?(bf16|bfloat16|fp16|float16|half|fp32|float32|tf32|fp8\w*|float8\w*)")
_LONG = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
# A kernel of fp32 inputs that is faster than this share of the product without matrix units uses them, in their own precision.
_BEYOND = 1.1


@dataclass(frozen=True)
class Share:
    """A value over a ceiling, and the words for that ceiling: `the copy`, `the bf16 product`."""

    value: float
    of: str


def large_copies(ceilings: Iterable[Ceiling]) -> list[Ceiling]:
    """Return the valid copies of the largest size on each device. Free memory may differ a little between the first and the last."""
    copies = [ceiling for ceiling in ceilings if not ceiling.dtype and not impossible_ceiling(ceiling)]
    largest = {device: max(sizes) for device, sizes in grouped((copy.device, copy.bytes_moved) for copy in copies).items()}
    return [copy for copy in copies if 2 * copy.bytes_moved > largest[copy.device]]


def copies_gbps(ceilings: Iterable[Ceiling]) -> dict[int, float]:
    """Return the bandwidth of the fastest large copy on each device, in GB/s."""
    return {device: max(speeds) for device, speeds in grouped((copy.device, copy.gbps) for copy in large_copies(ceilings)).items()}


# A launch takes about this long on any card, by the device's own clock. An older run has no small copy that would say it.
_LAUNCH_MS = 0.005
# Where the ceiling is a large copy or product, a case counts only if it would need this many launches' time at that speed: then the launch
# costs it less than a tenth. Where the ceiling is a copy of the same size, the launch may cost up to half: it is in the copy too.
_LAUNCHES, _LAUNCHES_ON_CURVE = 9.0, 1.0


class CopyCurve:
    """How fast one device copies any number of bytes.

    Between two sizes that were measured, the time grows evenly with the bytes, as for a launch and a bandwidth. A smaller copy takes as
    long as the smallest, and a larger one has the speed of the largest.
    """

    def __init__(self, copies: Sequence[Ceiling], timings: Iterable[float]) -> None:
        """`copies` are the valid ones of this device, `timings` the median times in ms of its points."""
        times = grouped((copy.bytes_moved, copy.median_ms) for copy in copies)
        self._points = sorted((moved, min(found)) for moved, found in times.items())
        self.fits = len(copies) > len(large_copies(copies))
        shortest = min((time for time in timings if time >= LEAST_MS), default=_LAUNCH_MS)
        self.launch_ms = self._points[0][1] if self.fits else min(shortest, _LAUNCH_MS)

    def gbps(self, moved: int) -> float:
        """Return the bandwidth of a copy of so many bytes."""
        if moved <= self._points[0][0]:
            return moved / self._points[0][1] * 1e-6
        for (less, before), (more, after) in itertools.pairwise(self._points):
            if moved <= more:
                return moved / (before + (after - before) * (moved - less) / (more - less)) * 1e-6
        return self._points[-1][0] / self._points[-1][1] * 1e-6


def copy_curves(run: TargetRun) -> dict[int, CopyCurve]:
    """Return the curve of each device whose copy was measured."""
    copies = grouped((one.device, one) for one in run.ceilings if not one.dtype and not impossible_ceiling(one))
    passed = (sample for sample in run.samples if sample.verdict is Verdict.PASSED)
    times = grouped((sample.device, sample.median_ms) for sample in passed if sample.median_ms)
    return {device: CopyCurve(found, times.get(device, ())) for device, found in copies.items()}


def products_tflops(ceilings: Iterable[Ceiling]) -> dict[int, dict[str, float]]:
    """Return by device and dtype the largest valid speed of a matrix product, in TFLOP/s."""
    products = (one for one in ceilings if one.dtype and one.flops and not impossible_ceiling(one))
    found: dict[int, dict[str, float]] = {}
    for (device, dtype), speeds in grouped(((one.device, one.dtype), one.tflops) for one in products).items():
        found.setdefault(device, {})[dtype] = max(speeds)
    return found


def share_of(
    sample: Sample, value: Union[float, None], copies: Mapping[int, float], products: Mapping[int, Mapping[str, float]]
) -> Union[Share, None]:
    """Return the value's share of the ceiling for its unit and dtype; None if no such ceiling was measured."""
    if not value:
        return None
    if sample.unit.strip().lower() == "gb/s":
        copy = copies.get(sample.device)
        return Share(value / copy, "the copy") if copy else None
    scale = tflops_of(sample.unit)
    known = products.get(sample.device, {})
    if scale is None or not known:
        return None
    dtype = dtype_of(sample)
    speed = value * scale
    if dtype == "fp32" and "tf32" in known and speed > _BEYOND * known.get("fp32", 0.0):
        dtype = "tf32"
    ceiling = known.get(dtype)
    return Share(speed / ceiling, f"the {dtype} product") if ceiling else None


def dtype_of(sample: Sample) -> str:
    """Return the dtype among a sample's parameters, or in its case, by its short name; empty if there is none."""
    words = [value for value in sample.params.values() if isinstance(value, str)]
    return next(filter(None, map(_short, words)), "") or dtype_in(sample.case)


def dtype_in(case: str) -> str:
    """Return the dtype in the name of a case, `softmax/fp32/N=1024`; empty if there is none."""
    return next(filter(None, map(_short, case.split("/"))), "")


def _short(word: str) -> str:
    found = _DTYPE.fullmatch(word)
    name = _LONG.get(found[1], found[1]) if found else ""
    return "fp8" if name.startswith(("fp8", "float8")) else name


def intensity(sample: Sample) -> Union[float, None]:
    """Return the operations that a point does for each byte that it must move at least; None if either is unknown."""
    scale = tflops_of(sample.unit)
    if scale is None or not sample.value or not sample.median_ms or not sample.argument_bytes or not measurable(sample.median_ms):
        return None
    found = sample.value * scale * 1e9 * sample.median_ms / sample.argument_bytes
    return found if measurable(found) else None


@dataclass(frozen=True)
class Speedup:
    """The first median time over the second, with the verdict. `interval` is None if there are too few timings."""

    change: Change
    interval: Union[Interval, None]
    reason: str = ""


def speedup(base: Sample, head: Sample, threshold: float) -> Speedup:
    """Compare by the timings, so that the unit does not matter.

    Faster or slower: the whole 95% interval lies beyond the threshold. Same: the whole interval lies within it. An interval that contains
    the threshold is ambiguous, and so is a sample that was measured while something disturbed the GPU.
    """
    interval = interval_of(base, head)
    if interval is None:
        return Speedup(Change.AMBIGUOUS, None, "there are too few timings for an interval")
    weak = [sample.weak for sample in (base, head) if sample.weak]
    if weak:
        return Speedup(Change.AMBIGUOUS, interval, f"weak: {'; '.join(dict.fromkeys(weak))}")
    return Speedup(decide(interval, threshold), interval)


def interval_of(base: Sample, head: Sample) -> Union[Interval, None]:
    """Return the ratio of the median times with its 95% interval; None if there are too few timings."""
    times = (*base.times_ms, *head.times_ms)
    if not times or not all(map(measurable, times)):
        return None
    return ratio_of_medians(base.times_ms, head.times_ms, (base.rounds, head.rounds))


def decide(interval: Interval, threshold: float) -> Change:
    """Return the verdict on a ratio of times. A threshold of 0.03 is a factor of 1.03 in either direction."""
    beyond = 1 + threshold
    if interval.low > beyond:
        return Change.FASTER
    if interval.high < 1 / beyond:
        return Change.SLOWER
    return Change.SAME if 1 / beyond <= interval.low and interval.high <= beyond else Change.AMBIGUOUS


# How far a point moves though nobody changed it: in an A/A run, all of the bench stage runs again in a fresh process, because BASE and HEAD
# are measured that way. Two halves of one pass share addresses and temperature, and would call any drift a change of the code.

# Nobody would act on a smaller difference, however well it is measured.
SMALLEST = 0.01
# The threshold without an A/A run, or with too few points. This is an assumption, and reports say so.
ASSUMED = 0.03
# Of 20 equal points, a new point is the one that moves most with a probability of 1 in 20. Fewer points cannot support 95%.
ENOUGH = 19
# A comparison has as many points as the A/A run, and one of them may move further than all of those. Without a margin, every second
# comparison of the same code would report a change. With this margin, fewer than 1 in 20 do in simulations on recorded timings
# (tests/unit/compare/test_stats.py), and fewer than 1 in 100 single points.
_MARGIN = 2.5


def noise(name: str, run: TargetRun) -> Union[Noise, None]:
    """Return how far the points moved between the two passes, beyond their own intervals; None without an A/A run.

    Verdicts compare intervals, so this does too. A noisy point has a wide interval and does not raise the threshold for quiet ones.
    """
    first = {key_of(sample): sample for sample in run.samples}
    beyond, moved = [], []
    for second in run.again:
        base = first.get(key_of(second))
        interval = interval_of(base, second) if base and _sound(base) and _sound(second) else None
        if interval:
            beyond.append((max(interval.low, 1 / interval.high, 1.0) - 1, f"{second.case} {second.provider}"))
            moved.append(max(interval.value, 1 / interval.value) - 1)
    if not beyond:
        return None
    largest, case = max(beyond)
    enough = len(beyond) >= ENOUGH
    threshold = max(SMALLEST if enough else ASSUMED, _MARGIN * largest)
    return Noise(name, len(beyond), enough, threshold, quantile(moved, 0.95), largest, case if largest else "")


def threshold(sides: Iterable[Union[Noise, None]]) -> float:
    """Return the smallest change that counts (0.03 is 3%): the larger threshold of the two sides, or `ASSUMED` without A/A runs."""
    return max((side.threshold for side in sides if side), default=ASSUMED)


def explain(noises: Sequence[Noise]) -> str:
    """Return a sentence on where the thresholds come from."""
    if not noises:
        return f"A change below {ASSUMED:.0%} is assumed to be noise; `warpwave run TARGET --aa` measures it."
    each = "; ".join(
        f"{entry.target} {entry.threshold:.1%} ({entry.n} points measured twice{'' if entry.enough else ', too few to be sure'})"
        for entry in noises
    )
    return f"A change below this is noise, by an A/A run: {each}."


def _sound(sample: Sample) -> bool:
    return sample.verdict is Verdict.PASSED and not sample.weak


def key_of(sample: Sample) -> tuple[str, str, str, int]:
    """Return by what a point is found in another run, or in another pass."""
    return (sample.kernel, sample.case, sample.provider, sample.device)


# A kernel that only reads beats a copy by a few percent. Beyond this, the bytes are counted wrong or come from a cache.
SUSPECT_SHARE = 1.1
# Cases times targets. Above this, only targets that measured a case get a ratio for it: rows for the others would say nothing.
_MOST_ONE_SIDED = 200_000
_SHOWN, _LONGEST, _NAMED = 32, 1000, 10  # parameters in a sentence, characters of it, and names
_MANY = 20

_Measured = tuple[Sample, Cell]
_OF_SAMPLE = ("device", "unit", "timer", "flush_bytes", "warmup", "bytes_moved", "quiet", "cache_bytes", "tuned")  # that a cell has, too


def lower_is_better(unit: str) -> bool:
    """Return whether less is better: time and memory."""
    return is_time(unit) or is_memory(unit)


def is_bandwidth(unit: str) -> bool:
    """Return whether a value in this unit can be compared with a copy."""
    return unit.strip().lower() == "gb/s"


def judge(
    sample: Sample, copies: Mapping[int, float] = MappingProxyType({}), products: Mapping[int, Mapping[str, float]] = MappingProxyType({})
) -> tuple[Verdict, str]:
    """Return the verdict and reason of a sample: whether it has a number, and one that can have been measured, as far as ceilings say."""
    if sample.verdict is not Verdict.PASSED:
        return sample.verdict, sample.reason or sample.verdict.value
    if sample.value is None:
        return Verdict.INVALID, sample.reason or "no value was returned"
    if wrong := impossible(sample, copies, products):
        return Verdict.INVALID, wrong
    if not measurable(sample.value):
        return Verdict.INVALID, f"{sample.value:g} {sample.unit} is not a speed"
    return Verdict.PASSED, ""


def compare_speeds(runs: Mapping[str, TargetRun], noises: Mapping[str, Union[Noise, None]]) -> tuple[Union[str, None], tuple[Row, ...]]:
    """Return the baseline and a row per kernel, case and provider, in the authors' order.

    The baseline is None if fewer than two targets measured anything. `noises` are the findings of A/A runs, per target.
    """
    measured = [name for name, run in runs.items() if run.samples]
    baseline = measured[0] if len(measured) > 1 else None
    barriers = {name: _barriers(baseline, name, runs) for name in measured if baseline and name != baseline}
    found: dict[tuple[str, str, str], dict[str, list[_Measured]]] = {}
    for name in measured:
        for sample, cell in cells(name, runs[name]):
            found.setdefault((sample.kernel, sample.case, sample.provider), {}).setdefault(name, []).append((sample, cell))
    rows = []
    few = len(barriers) * len(found) <= _MOST_ONE_SIDED
    for (kernel, case, provider), by_target in found.items():
        every = [pair for pairs in by_target.values() for pair in pairs]
        # In a ratio, its first GPU stands for a target. The others are shown beside it.
        first = {name: min(pairs, key=lambda pair: pair[1].device) for name, pairs in by_target.items()}
        ratios = [
            _ratio(baseline, name, first, barriers[name], threshold((noises[baseline], noises[name])))
            for name in (barriers if few and baseline in first else first)
            if baseline and name in barriers and (few or baseline in first)
        ]
        rows.append(
            Row(
                kernel=kernel,
                case=case,
                provider=provider,
                unit=every[0][0].unit,
                params=every[0][0].params,
                cells=tuple(cell for _, cell in every),
                ratios=tuple(ratios),
            )
        )
    return baseline, tuple(rows)


def benched(runs: Mapping[str, TargetRun]) -> list[str]:
    """Return the targets that were asked to measure speeds, whether or not they did."""
    return [name for name, run in runs.items() if run.samples or any(report.stage is Stage.BENCH for report in run.stages)]


def cells(name: str, run: TargetRun) -> Iterable[_Measured]:
    """Yield every sample of a target with its cell."""
    doubts = Doubts(run)
    gpus = {device.index: device.name for device in run.facts.devices} if run.facts else {}
    copies, products, curves = copies_gbps(run.ceilings), products_tflops(run.ceilings), copy_curves(run)
    for sample in run.samples:
        verdict, reason = judge(sample, copies, products)
        value = sample.value if verdict is Verdict.PASSED else None
        found = share_of(sample, value, copies, products)
        peak = share = found.value if found else None
        curve = curves.get(sample.device)
        on_curve = bool(curve and curve.fits and value and sample.bytes_moved and is_bandwidth(sample.unit))
        if curve and on_curve and value and sample.bytes_moved:
            share = value / curve.gbps(sample.bytes_moved)
        needed = (peak or 0.0) * (sample.median_ms or 0.0)  # the time in ms that the ceiling would need
        launches = _LAUNCHES_ON_CURVE if on_curve else _LAUNCHES
        # A library's product is no limit of the hardware; a copy nearly is one.
        suspect = is_bandwidth(sample.unit) and min(peak or 0.0, share or 0.0) > SUSPECT_SHARE
        doubt = doubts.of(sample).reason
        above = f"{peak:.2f} times the copy bandwidth measured here: bytes are counted wrong, or come from a cache" if suspect else ""
        yield (
            sample,
            Cell(
                target=name,
                gpu=gpus.get(sample.device, f"GPU {sample.device}"),
                verdict=verdict,
                value=value,
                low=_finite(sample.low),
                high=_finite(sample.high),
                median_ms=_time(sample.median_ms),
                p20_ms=_time(sample.p20_ms),
                p80_ms=_time(sample.p80_ms),
                graph_ms=_time(sample.graph_ms),
                share=share,
                share_of=found.of if found else "",
                launch_bound=bool(curve and needed and needed < launches * curve.launch_ms),
                flops_per_byte=intensity(sample) if value else None,
                verified=not doubt,
                suspect=suspect,
                reason="; ".join(text for text in (reason, above, doubt) if text),
                timings=len(sample.times_ms),
                half_width=_half_width(sample),
                weak=sample.weak or _too_even(sample),
                **{name: getattr(sample, name) for name in _OF_SAMPLE},
            ),
        )


@dataclass(frozen=True)
class Doubt:
    """Why a speed is unverified; empty if it is not. `tests` are those that failed, each with how it ended."""

    reason: str = ""
    tests: frozenset[tuple[str, str]] = frozenset()


class Doubts:
    """Which speeds of a target its tests verify.

    A test that fails costs the points that launch one of the functions that it launched. Where that was not noted, as of a test whose
    process died, it costs those of its folder. A point that launches no Triton function needs no test.
    """

    def __init__(self, run: TargetRun) -> None:
        report = next((report for report in run.stages if report.stage is Stage.TEST), None)
        self._ended = "" if report is None or report.verdict in (Verdict.PASSED, *FAILING) else f"the tests here are {report.verdict.value}"
        self._by_function: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._by_kernel: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._everywhere: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._passed: set[str] = set()  # functions
        self._tested: set[str] = set()  # kernels
        self._counts = Counter(case.kernel for case in run.cases)
        for case in run.cases:
            functions = launched_by(case)
            if case.verdict in HARMLESS and case.verdict is not Verdict.KNOWN:
                self._tested.update([case.kernel] if case.verdict is Verdict.PASSED else ())
                self._passed.update(functions or () if case.verdict is Verdict.PASSED else ())
                continue
            failed = (case.id, case.message.partition(":")[0] if case.verdict is Verdict.KNOWN else case.verdict.value)
            self._everywhere[case.kernel].add(failed)
            for function in functions or ():
                self._by_function[function].add(failed)
            if functions is None:
                self._by_kernel[case.kernel].add(failed)

    def of(self, sample: Sample) -> Doubt:
        """Return why the speed of a point is unverified."""
        if sample.launches_noted and not sample.launched:
            return Doubt()
        if self._ended:
            return Doubt(self._ended)
        if not sample.launches_noted:  # an older run
            tests = self._everywhere.get(sample.kernel, set())
        else:
            tests = set(self._by_kernel.get(sample.kernel, ())).union(*(self._by_function.get(name, ()) for name in sample.launched))
        if tests:
            return Doubt(self._words(sample, tests), frozenset(tests))
        if sample.kernel in self._tested or not self._passed.isdisjoint(sample.launched):
            return Doubt()
        return Doubt(f"no test of {sample.kernel} passed here" if self._counts else "no test ran here")

    def _words(self, sample: Sample, tests: set[tuple[str, str]]) -> str:
        known = [name for name in sample.launched if name in self._by_function] if sample.launches_noted else []
        if known:
            return f"{plural(len(tests), 'test', 'that launches', 'that launch')} {first_names(known)} did not pass here"
        return f"{len(tests)} of {self._counts[sample.kernel]} tests of {sample.kernel} did not pass here"


def launched_by(case: CaseResult) -> Union[list[str], None]:
    """Return the functions that a test launched; None if that was not noted, or a long list was cut."""
    text = case.properties.get(LAUNCHED_PROPERTY)
    return None if text is None or "…" in text else text.split()


def _barriers(baseline: Union[str, None], target: str, runs: Mapping[str, TargetRun]) -> list[str]:
    if baseline is None:
        return []
    first, second = runs[baseline].facts, runs[target].facts
    if first is None or second is None:
        return [f"the facts of {baseline if first is None else target} are missing"]
    found = []
    if first.kernels_hash != second.kernels_hash:
        found.append(_differs("kernel sources", baseline, first.kernels_hash[:12], target, second.kernels_hash[:12]))
    if first.fp_fusion != second.fp_fusion:
        found.append(_differs("FP fusion settings", baseline, first.fp_fusion, target, second.fp_fusion))
    return found


def _differs(name: str, baseline: str, first: object, target: str, second: object) -> str:
    return f"different {name}: {baseline} {as_text(first)}, {target} {as_text(second)}"


def as_text(setting: object) -> str:
    """Return a setting as text, shortened if it is long or has many parameters: there is a sentence for each pair that differs."""
    if isinstance(setting, dict):
        first = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in itertools.islice(setting.items(), _SHOWN)}
        text = str(first) if len(first) == len(setting) else f"{str(first)[:-1]}, and {len(setting) - len(first)} more}}"
    else:
        text = str(setting)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _ratio(baseline: str, target: str, measured: Mapping[str, _Measured], barriers: list[str], limit: float) -> Ratio:
    for name in (baseline, target):
        if name not in measured:
            return Ratio(target, baseline, None, Change.ONE_SIDED, f"{name} has no result for this case")
    (one, first), (two, second) = measured[baseline], measured[target]
    reasons = [*barriers, *(_differs(name, baseline, a, target, b) for name, a, b in other_settings(one, two))]
    reasons += [f"{cell.target}: {as_text(cell.reason)}" for cell in (first, second) if not cell.sound]
    if reasons or first.value is None or second.value is None:
        return Ratio(target, baseline, None, Change.REFUSED, "; ".join(reasons))
    ratio = second.value / first.value
    found = speedup(one, two, limit)
    interval = vars(found.interval) if found.interval else {}
    named = {"speedup": interval.get("value"), "low": interval.get("low"), "high": interval.get("high")}
    return Ratio(target, baseline, ratio, found.change, found.reason, **named, threshold=limit)


def other_settings(one: Sample, other: Sample) -> list[tuple[str, object, object]]:
    """Return what was measured differently: two samples that differ in it are not compared."""
    settings: tuple[tuple[str, object, object], ...] = (
        ("parameters", one.params, other.params),
        ("units", one.unit, other.unit),
        ("timers", one.timer, other.timer),
        ("flush sizes", _flush(one), _flush(other)),
    )
    return [(name, first, second) for name, first, second in settings if first != second]


def first_names(names: Sequence[str]) -> str:
    """Join names with commas; of many, the first and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


def _flush(sample: Sample) -> str:
    """Return how the cache was flushed before each timing. Caches differ in size, so compare how often the flush overwrites them."""
    return f"{sample.flush_bytes / sample.cache_bytes:g} x cache" if sample.cache_bytes else str(sample.flush_bytes)


def _too_even(sample: Sample) -> str:
    # Clocks resolve nanoseconds, and no GPU takes exactly as long twenty times.
    if len(sample.times_ms) < _MANY or len(set(sample.times_ms)) > 1:
        return ""
    return f"all of its {len(sample.times_ms)} timings are {sample.times_ms[0]:g} ms"


def _half_width(sample: Sample) -> Union[float, None]:
    if not sample.times_ms or not all(map(measurable, sample.times_ms)):
        return None
    interval = median_interval(sample.times_ms, sample.rounds)
    return (interval.high - interval.low) / 2 / interval.value if interval else None


def _time(value: Union[float, None]) -> Union[float, None]:
    return value if value is not None and measurable(value) else None


def _finite(value: Union[float, None]) -> Union[float, None]:
    return value if value is not None and math.isfinite(value) and abs(value) <= LARGEST else None


# Each kernel has an efficiency on each target. Nobody reads more than these, and most of them would be 0.
_MOST_TARGETS, _MOST_EFFICIENCIES = 100, 100_000


def condense(rows: Iterable[Row]) -> tuple[Speed, ...]:
    """Return a line per kernel, provider, unit, target and GPU model. GPUs of one model that shared a sweep are one line."""
    cells = ((row, cell) for row in rows for cell in row.cells)
    groups = grouped(((row.kernel, row.provider, cell.unit, cell.target, cell.gpu), (row, cell)) for row, cell in cells)
    return tuple(_summarize(*key[:3], group) for key, group in groups.items())


def geomeans(rows: Iterable[Row]) -> tuple[Geomean, ...]:
    """Return the mean ratio per kernel, provider and unit over the cases that are sound on both."""
    ratios = ((row, ratio) for row in rows for ratio in row.ratios)
    groups = grouped(((row.kernel, row.provider, row.unit, one.target, one.baseline), one.value) for row, one in ratios)
    means = []
    for key, group in groups.items():
        values = [value for value in group if value is not None]
        means.append(Geomean(*key, len(values), geometric_mean(values) if values else None))
    return tuple(means)


def portabilities(rows: Iterable[Row], targets: Sequence[str]) -> tuple[Portability, ...]:
    """Return a portability per kernel and provider, over the targets that were asked to measure; empty for one target or more than 100.

    A case that is not sound on every target is left out. Otherwise two targets would be judged by different shapes. A target
    without a single sound case of the kernel cannot run it, and then the portability is 0.
    """
    comparable = [row for row in rows if is_bandwidth(row.unit)] if 1 < len(targets) <= _MOST_TARGETS else []
    groups = grouped(((row.kernel, row.provider), row) for row in comparable)
    if len(groups) * len(targets) > _MOST_EFFICIENCIES:
        return ()
    return tuple(_portability(*key, group, targets) for key, group in groups.items())


def _portability(kernel: str, provider: str, rows: Sequence[Row], targets: Sequence[str]) -> Portability:
    sound = [
        {cell.target: cell.share for cell in sorted(row.cells, key=lambda cell: -cell.device) if cell.sound and cell.share} for row in rows
    ]
    able = [target for target in targets if any(target in found for found in sound)]
    shares: dict[str, list[float]] = {target: [] for target in targets}
    whole = [found for found in sound if able and all(target in found for target in able)]
    for found in whole:
        for target in able:
            shares[target].append(found[target])
    means = {target: geometric_mean(found) if found else 0.0 for target, found in shares.items()}
    return Portability(kernel, provider, means, len(whole), harmonic_mean(list(means.values())))


def refusals(rows: Iterable[Row]) -> tuple[Refusal, ...]:
    """Group what was not compared by its reason."""
    refused = ((row, ratio) for row in rows for ratio in row.ratios if ratio.value is None)
    groups = grouped(((row.kernel, row.provider, one.target, one.baseline, one.reason), row.case) for row, one in refused)
    return tuple(Refusal(*key, cases=tuple(cases)) for key, cases in groups.items())


def _summarize(kernel: str, provider: str, unit: str, group: list[tuple[Row, Cell]]) -> Speed:
    first = group[0][1]
    good = [(cell.value, row, cell) for row, cell in group if cell.value is not None and not cell.suspect]
    reason = next((cell.reason for _, cell in group if not cell.verified), "")
    empty = Speed(kernel, provider, unit, first.target, first.gpu, len(good), len(group) - len(good), first.verified, reason)
    if not good:
        return empty
    pick = min if lower_is_better(unit) else max
    best = pick(good, key=lambda entry: entry[0])[2]
    shares = [cell.share for _, _, cell in good if cell.share is not None]
    busy = [(value, cell.share) for value, _, cell in good if not cell.launch_bound]
    busy_shares = [share for _, share in busy if share is not None]
    ceilings = {cell.share_of for _, _, cell in good if cell.share is not None}
    return replace(
        empty,
        best=best.value,
        best_share=best.share,
        share_of=ceilings.pop() if len(ceilings) == 1 else "the product of each dtype" if ceilings else "",
        median=median([value for value, _, _ in good]),
        median_share=median(shares) if shares else None,
        busy=median([value for value, _ in busy]) if busy else None,
        busy_share=median(busy_shares) if busy_shares else None,
        launch_bound=sum(cell.launch_bound for _, _, cell in good),
    )
