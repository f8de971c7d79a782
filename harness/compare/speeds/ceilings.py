"""The ceilings of a run: the copy for bandwidths, and matrix products by dtype for operations a second. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Union

from harness.compare.speeds.possible import impossible_ceiling
from harness.records import Ceiling, Sample
from harness.records.units import is_rate, tflops_of
from harness.stats import measurable

_DTYPE = re.compile(r"(?:torch\.|tl\.)?(bf16|bfloat16|fp16|float16|half|fp32|float32|tf32|fp8\w*|float8\w*)")
_LONG = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
# A kernel of fp32 inputs that is faster than this share of the product without matrix units uses them, in their own precision.
_BEYOND = 1.1


@dataclass(frozen=True)
class Share:
    """A value over a ceiling, and the words for that ceiling: `the copy`, `the bf16 product`."""

    value: float
    of: str


def copies_gbps(ceilings: Iterable[Ceiling]) -> dict[int, float]:
    """Return the largest valid copy bandwidth measured on each device, in GB/s."""
    found: dict[int, float] = {}
    for ceiling in ceilings:
        if not ceiling.dtype and not impossible_ceiling(ceiling):
            found[ceiling.device] = max(ceiling.gbps, found.get(ceiling.device, 0.0))
    return found


def products_tflops(ceilings: Iterable[Ceiling]) -> dict[int, dict[str, float]]:
    """Return by device and dtype the largest valid speed of a matrix product, in TFLOP/s."""
    found: dict[int, dict[str, float]] = {}
    for ceiling in ceilings:
        if ceiling.dtype and ceiling.flops and not impossible_ceiling(ceiling):
            device = found.setdefault(ceiling.device, {})
            device[ceiling.dtype] = max(ceiling.tflops, device.get(ceiling.dtype, 0.0))
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
    """Return the dtype in the name of a case, `softmax/fp32/N=1024`, by its short name; empty if there is none."""
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


__all__ = ["Share", "copies_gbps", "dtype_of", "intensity", "is_rate", "products_tflops", "share_of"]
