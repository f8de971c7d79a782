"""Make samples: the fields that a point has before it is measured, and those that its timing adds."""

from __future__ import annotations

import dataclasses

from harness.inside.bench.do_bench import Timing
from harness.inside.benchmarks import Point
from harness.inside.multi_gpu.cards import own_index
from harness.inside.scripts.calls import Call
from harness.records import Sample, Verdict


def fields_of(point: Point) -> dict[str, object]:
    """Return the fields of a sample that are known before it is measured."""
    return {
        "case": point.case,
        "kernel": point.kernel,
        "provider": point.provider,
        "params": point.params,
        "unit": point.unit,
        "device": own_index(),
    }


def fields_of_call(call: Call) -> dict[str, object]:
    """Return those of a measurement in a script: its unit is that of `do_bench`."""
    return {
        "case": call.case,
        "kernel": call.kernel,
        "provider": call.provider,
        "params": call.params,
        "unit": "ms",
        "device": own_index(),
        "source": call.source,
    }


def with_timing(sample: Sample, timing: Timing) -> Sample:
    """Add the raw timings to a sample. The bytes that the author counted follow from GB/s and the time it was computed from."""
    in_gbps = sample.unit.replace(" ", "").lower() == "gb/s" and sample.value is not None
    return dataclasses.replace(
        sample,
        median_ms=timing.median_ms,
        p20_ms=timing.quantile_ms(0.2),
        p80_ms=timing.quantile_ms(0.8),
        times_ms=tuple(round(time_ms, 6) for time_ms in timing.times_ms),  # to the nanosecond; events resolve less
        rounds=timing.rounds,
        discarded=timing.discarded,
        late=timing.late,
        quiet=timing.quiet,
        timer=timing.timer,
        flush_bytes=timing.flush_bytes,
        cache_bytes=timing.cache_bytes,
        warmup=timing.warmup,
        host_ms=timing.host_ms,
        graph_ms=timing.graph_ms,
        argument_bytes=timing.argument_bytes,
        tuned=timing.tuned,
        bytes_moved=round(sample.value * timing.returned_ms * 1e6) if in_gbps and sample.value else None,
    )


def verdict_of(error: Exception) -> Verdict:
    """Return what an exception makes of a point."""
    return Verdict.OOM if type(error).__name__ == "OutOfMemoryError" else Verdict.ERROR


def finite(value: object) -> float | None:
    """Return a number that JSON can hold, or None."""
    number = float(value) if isinstance(value, (int, float)) else None
    return number if number is not None and abs(number) < float("inf") else None
