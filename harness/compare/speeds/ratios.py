"""Turn samples into cells, rows and ratios. Pure: the rules for when a number may be compared."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Union

from harness.compare.model import FAILING, Cell, Change, Noise, Ratio, Row
from harness.compare.speeds.ceilings import copies_gbps, intensity, products_tflops, share_of
from harness.compare.speeds.noise import threshold
from harness.compare.speeds.possible import impossible
from harness.compare.speeds.speedup import speedup
from harness.records import HARMLESS, Sample, Stage, TargetRun, Verdict
from harness.records.units import is_memory, is_time
from harness.stats import LARGEST, harmonic_mean, measurable, median_interval

# A kernel that only reads beats a copy by a few percent. Beyond this, the bytes are counted wrong or come from a cache.
SUSPECT_SHARE = 1.1
# Cases times targets. Above this, only targets that measured a case get a ratio for it: rows for the others would say nothing.
_MOST_ONE_SIDED = 200_000
_SHOWN, _LONGEST, _NAMED = 32, 1000, 10  # parameters in a sentence, characters of it, and names
_MANY = 20

_Measured = tuple[Sample, Cell]


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
    asked = benched(runs)
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
        sound = [cell.share for _, cell in first.values() if cell.sound and cell.share]
        bandwidth = is_bandwidth(every[0][0].unit) and len(asked) > 1
        rows.append(
            Row(
                kernel=kernel,
                case=case,
                provider=provider,
                unit=every[0][0].unit,
                params=every[0][0].params,
                cells=tuple(cell for _, cell in every),
                ratios=tuple(ratios),
                # 0 if a target that was asked to measure has no share. Every target with a share is one of those.
                portability=(harmonic_mean(sound) if len(sound) == len(asked) else 0.0) if bandwidth else None,
            )
        )
    return baseline, tuple(rows)


def benched(runs: Mapping[str, TargetRun]) -> list[str]:
    """Return the targets that were asked to measure speeds, whether or not they did."""
    return [name for name, run in runs.items() if run.samples or any(report.stage is Stage.BENCH for report in run.stages)]


def cells(name: str, run: TargetRun) -> Iterable[_Measured]:
    """Yield every sample of a target with its cell."""
    doubts = _doubts(run)
    gpus = {device.index: device.name for device in run.facts.devices} if run.facts else {}
    copies, products = copies_gbps(run.ceilings), products_tflops(run.ceilings)
    for sample in run.samples:
        verdict, reason = judge(sample, copies, products)
        value = sample.value if verdict is Verdict.PASSED else None
        found = share_of(sample, value, copies, products)
        share = found.value if found else None
        # A library's product is no limit of the hardware; a copy nearly is one.
        suspect = share is not None and is_bandwidth(sample.unit) and share > SUSPECT_SHARE
        doubt = doubts.get(sample.kernel, f"no test of {sample.kernel} passed here")
        above = f"{share:.2f} times the copy bandwidth measured here: bytes are counted wrong, or come from a cache" if suspect else ""
        yield (
            sample,
            Cell(
                target=name,
                device=sample.device,
                gpu=gpus.get(sample.device, f"GPU {sample.device}"),
                verdict=verdict,
                unit=sample.unit,
                value=value,
                low=_finite(sample.low),
                high=_finite(sample.high),
                median_ms=_time(sample.median_ms),
                p20_ms=_time(sample.p20_ms),
                p80_ms=_time(sample.p80_ms),
                share=share,
                share_of=found.of if found else "",
                flops_per_byte=intensity(sample) if value else None,
                verified=not doubt,
                suspect=suspect,
                reason="; ".join(text for text in (reason, above, doubt) if text),
                timings=len(sample.times_ms),
                timer=sample.timer,
                flush_bytes=sample.flush_bytes,
                warmup=sample.warmup,
                bytes_moved=sample.bytes_moved,
                half_width=_half_width(sample),
                quiet=sample.quiet,
                graph_ms=_time(sample.graph_ms),
                cache_bytes=sample.cache_bytes,
                weak=sample.weak or _too_even(sample),
                tuned=sample.tuned,
            ),
        )


def _doubts(run: TargetRun) -> dict[str, str]:
    """Return per tested kernel why its speeds are unverified; the reason is empty if its tests passed."""
    report = next((report for report in run.stages if report.stage is Stage.TEST), None)
    if report and report.verdict not in (Verdict.PASSED, *FAILING):
        return {sample.kernel: f"the tests here are {report.verdict.value}" for sample in run.samples}
    counts: dict[str, Counter[Verdict]] = {}
    for case in run.cases:
        counts.setdefault(case.kernel, Counter())[case.verdict] += 1
    doubts = {}
    for kernel, count in counts.items():
        wrong = sum(number for verdict, number in count.items() if verdict not in HARMLESS)
        passed = "" if count[Verdict.PASSED] else f"no test of {kernel} passed here"
        doubts[kernel] = f"{wrong} of {count.total()} tests of {kernel} did not pass here" if wrong else passed
    return doubts


def _barriers(baseline: Union[str, None], target: str, runs: Mapping[str, TargetRun]) -> list[str]:
    """Return what forbids every ratio between two targets."""
    if baseline is None:
        return []
    first, second = runs[baseline].facts, runs[target].facts
    if first is None or second is None:
        return [f"the facts of {baseline if first is None else target} are missing"]
    pairs = (
        ("kernel sources", first.kernels_hash[:12], second.kernels_hash[:12]),
        ("FP fusion settings", first.fp_fusion, second.fp_fusion),
    )
    same = (first.kernels_hash == second.kernels_hash, first.fp_fusion == second.fp_fusion)
    return [_differs(name, baseline, one, target, two) for equal, (name, one, two) in zip(same, pairs, strict=True) if not equal]


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
    settings = (
        ("parameters", one.params, two.params),
        ("units", one.unit, two.unit),
        ("timers", one.timer, two.timer),
        ("flush sizes", flush(one), flush(two)),
    )
    reasons = [*barriers, *(_differs(name, baseline, a, target, b) for name, a, b in settings if a != b)]
    reasons += [f"{cell.target}: {as_text(cell.reason)}" for cell in (first, second) if not cell.sound]
    if reasons or first.value is None or second.value is None:
        return Ratio(target, baseline, None, Change.REFUSED, "; ".join(reasons))
    ratio = second.value / first.value
    found = speedup(one, two, limit)
    interval = vars(found.interval) if found.interval else {}
    named = {"speedup": interval.get("value"), "low": interval.get("low"), "high": interval.get("high")}
    return Ratio(target, baseline, ratio, found.change, found.reason, **named, threshold=limit)


def first_names(names: Sequence[str]) -> str:
    """Join names with commas; of many, the first and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


def flush(sample: Sample) -> str:
    """Return how the cache was flushed before each timing. Caches differ in size, so compare how often the flush overwrites them."""
    return f"{sample.flush_bytes / sample.cache_bytes:g} x cache" if sample.cache_bytes else str(sample.flush_bytes)


def _too_even(sample: Sample) -> str:
    """Return why identical timings are doubtful: clocks resolve nanoseconds, and no GPU takes exactly as long twenty times."""
    if len(sample.times_ms) < _MANY or len(set(sample.times_ms)) > 1:
        return ""
    return f"all of its {len(sample.times_ms)} timings are {sample.times_ms[0]:g} ms"


def _half_width(sample: Sample) -> Union[float, None]:
    """Return half the width of the median's 95% interval, over the median."""
    if not sample.times_ms or not all(map(measurable, sample.times_ms)):
        return None
    interval = median_interval(sample.times_ms, sample.rounds)
    return (interval.high - interval.low) / 2 / interval.value if interval else None


def _time(value: Union[float, None]) -> Union[float, None]:
    return value if value is not None and measurable(value) else None


def _finite(value: Union[float, None]) -> Union[float, None]:
    return value if value is not None and math.isfinite(value) and abs(value) <= LARGEST else None
