"""What a benchmark's unit says: whether its values are operations or bytes a second, times, or memory."""

from __future__ import annotations

from typing import Union

_PREFIXES = {"t": 1.0, "g": 1e-3, "p": 1e3}
_RATES = {f"{prefix}{word}": scale for prefix, scale in _PREFIXES.items() for word in ("flop/s", "flops", "flops/s")}
_TIME_UNITS = frozenset(
    {"s", "sec", "seconds", "ms", "milliseconds", "us", "µs", "μs", "microseconds", "ns", "time", "time (ms)", "latency"}
)
# A benchmark may return how much memory a kernel holds instead of its speed.
_SIZE_UNITS = frozenset({"b", "byte", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"})
_BYTES = {f"{prefix}b/s": 1000.0**power / 1e9 for power, prefix in enumerate(("", "k", "m", "g", "t", "p"))}
_BYTES |= {f"{prefix}ib/s": 1024.0**power / 1e9 for power, prefix in enumerate(("k", "m", "g", "t", "p"), start=1)}


def gbps_of(unit: str) -> Union[float, None]:
    """Return how many GB/s one of the unit is, G = 1e9; None if it is another kind of unit."""
    return _BYTES.get(unit.strip().lower().replace(" ", ""))


def tflops_of(unit: str) -> Union[float, None]:
    """Return how many TFLOP/s one of the unit is, T = 1e12; None if it is another kind of unit."""
    return _RATES.get(unit.strip().lower().replace(" ", ""))


def is_rate(unit: str) -> bool:
    """Return whether values in this unit are operations a second."""
    return tflops_of(unit) is not None


def is_time(unit: str) -> bool:
    """Return whether the unit measures time."""
    return unit.strip().lower() in _TIME_UNITS


def is_memory(unit: str) -> bool:
    """Return whether the unit measures memory in use."""
    return unit.strip().lower() in _SIZE_UNITS
