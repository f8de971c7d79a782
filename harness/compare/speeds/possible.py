"""What no card can have measured, and is therefore no result. Pure.

The limits are far from what hardware does: a figure beyond them was not measured, whatever the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Union

from harness.records import Ceiling, Sample
from harness.records.units import gbps_of, is_memory, is_time, tflops_of
from harness.stats import LARGEST, measurable

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
    return _value(sample) or _possible_times(sample) or _amounts(sample) or _speed(sample, copies, products)


def _value(sample: Sample) -> str:
    value, unit = sample.value, sample.unit
    if value is None or (is_memory(unit) and value >= 0) or measurable(value):
        return ""
    known = gbps_of(unit) or tflops_of(unit) or is_time(unit) or is_memory(unit)
    return f"{value:g} {unit} is not {'a possible figure' if is_time(unit) or is_memory(unit) else 'a speed'}" if known else ""


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
    for name, figure in (
        ("the host's time", sample.host_ms),
        ("the time in a graph", sample.graph_ms),
        ("the bytes moved", sample.bytes_moved),
        ("the bytes of the arguments", sample.argument_bytes),
        ("the size of the cache", sample.cache_bytes),
    ):
        if figure is not None and not 0 <= figure <= LARGEST:
            return f"{name} cannot be {figure:g}"
    return ""


def _speed(sample: Sample, copies: Mapping[int, float], products: Mapping[int, Mapping[str, float]]) -> str:
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
