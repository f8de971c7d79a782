"""What a benchmark's unit says: whether its values are operations a second."""

from __future__ import annotations

from typing import Union

_PREFIXES = {"t": 1.0, "g": 1e-3, "p": 1e3}
_RATES = {f"{prefix}{word}": scale for prefix, scale in _PREFIXES.items() for word in ("flop/s", "flops", "flops/s")}


def tflops_of(unit: str) -> Union[float, None]:
    """Return how many TFLOP/s one of the unit is, T = 1e12; None if it is another kind of unit."""
    return _RATES.get(unit.strip().lower().replace(" ", ""))


def is_rate(unit: str) -> bool:
    """Return whether values in this unit are operations a second."""
    return tflops_of(unit) is not None
