"""What the card can do, measured in the same run: a device-to-device copy, and matrix products of its library by dtype.

Speeds are shared against these, never against a datasheet.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from warpwave.inside.bench.timing import Timer
from warpwave.inside.facts.device import accelerator
from warpwave.inside.multi_gpu.ledger import is_shared, own_index
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import describe
from warpwave.records import Ceiling, Verdict, to_json
from warpwave.records.words import is_rate

_COPY_BYTES = 4 << 30  # read and written: far more than any cache holds, and little on any GPU
# Smaller copies, in bytes read and written: from one that waits for its launch to one beyond any cache. They are ceilings of smaller cases.
_CURVE_BYTES = (512 << 10, 8 << 20, 64 << 20, 512 << 20)
# Side of the square matrices. A product of this size keeps any card busy, and takes milliseconds on a large one.
_SIDE = 8192
_SIDE_FP32 = 4096  # without matrix units, an eighth of the work
_WAIT_MS = 400.0  # at most this long for each product; more heats the card and tells nothing


def copy_ceiling(journal: Journal, timer: Timer, when: str, done: set[str]) -> None:
    """Measure a device-to-device copy: the ceiling of bandwidths. Before the points, measure smaller copies too, for smaller cases."""
    import torch
    import triton

    here = accelerator()
    assert here is not None
    # A GPU with little free memory copies less; the record includes the size.
    size = min(_COPY_BYTES, here[1].mem_get_info()[0] // 2) // 2 // 256 * 256
    smaller = [moved // 2 for moved in _CURVE_BYTES if moved < size] if when == "before" else []
    for each in (*smaller, size):
        identity = _identity(f"ceiling {when}" if each == size else f"ceiling {when}, {2 * each} bytes")
        if identity in done:
            continue
        journal.write("start", id=identity)
        source = torch.empty(each, dtype=torch.uint8, device=triton.runtime.driver.active.get_active_torch_device()).random_()
        destination = torch.empty_like(source)
        timer.do_bench(functools.partial(destination.copy_, source), return_mode="median")
        del source, destination
        _finish(journal, timer, identity, 2 * each, when)
    here[1].empty_cache()


def product_ceilings(journal: Journal, timer: Timer, units: Iterable[str], done: set[str]) -> None:
    """Measure a matrix product for each dtype, if a point's unit counts operations. After all points: it heats the card."""
    import triton

    if not any(map(is_rate, units)):
        return
    for dtype, (side, make) in _products().items():
        identity = _identity(f"ceiling {dtype}")
        if identity in done:
            continue
        journal.write("start", id=identity)
        try:
            moved = make(timer, side, triton.runtime.driver.active.get_active_torch_device())
        except Exception as error:  # a card, or its library, that does not have this dtype
            journal.write("finish", id=identity, verdict=Verdict.NOT_RUN.value, reason=describe(error))
            continue
        _finish(journal, timer, identity, moved, "after", dtype, 2 * side**3)
    here = accelerator()
    if here is not None:
        here[1].empty_cache()


def _products() -> dict[str, tuple[int, Callable[[Timer, int, Any], int]]]:
    """Return by name the side of the matrices, and what times their product and returns the bytes that it moves.

    `tf32` has fp32 inputs and the matrix units' own precision.
    """
    import torch

    return {
        "bf16": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.bfloat16)),
        "fp16": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.float16)),
        "tf32": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.float32, precision="high")),
        "fp32": (_SIDE_FP32, lambda timer, side, device: _time_product(timer, side, device, torch.float32)),
        "fp8": (_SIDE, _time_fp8),
    }


def _time_product(timer: Timer, side: int, device: Any, dtype: Any, precision: str = "highest") -> int:
    """Multiply random matrices: on zeros a card draws less power and is faster than on real data."""
    import torch

    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()  # the package's own setting
    torch.set_float32_matmul_precision(precision)
    try:
        timer.do_bench(lambda: torch.matmul(a, b, out=out), rep=_WAIT_MS, return_mode="median")
    finally:
        torch.set_float32_matmul_precision(before)
    return int(3 * out.nbytes)


def _time_fp8(timer: Timer, side: int, device: Any) -> int:
    """Multiply with the fp8 of the card: e4m3, or e4m3fnuz on cards that have only that."""
    import torch

    one = torch.ones((), device=device)
    matrices = [torch.randn(side, side, device=device) for _ in range(2)]

    def product(kind: Any) -> Callable[[], Any]:
        a, b = (matrix.to(kind) for matrix in matrices)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    multiply = product(torch.float8_e4m3fn)
    try:
        multiply()
    except (RuntimeError, ValueError):
        multiply = product(torch.float8_e4m3fnuz)
    timer.do_bench(multiply, rep=_WAIT_MS, return_mode="median")
    return 2 * side * side + 2 * side * side


def _identity(what: str) -> str:
    return f"{what}, GPU {own_index()}" if is_shared() else what


def _finish(journal: Journal, timer: Timer, identity: str, moved: int, when: str, *more: Any) -> None:
    """Record the timer's latest timing as a ceiling. `more` are the dtype and the operations of a product."""
    timing = timer.last
    assert timing is not None
    record = Ceiling(own_index(), moved, timing.median_ms, timing.quantile_ms(0.2), timing.quantile_ms(0.8), when, *more)
    journal.write("finish", id=identity, verdict=Verdict.PASSED.value, reason="", ceiling=to_json(record), timed_s=timer.busy_s())


# Detect disturbances of a point: the GPU's clock, and memory that other processes hold, before and after it.
#
# Neither needs a vendor's tool. The clock comes from timing a kernel that waits for a fixed number of cycles. (A tool would read it a
# moment later, when an idle GPU has dropped to a tenth.) Another process on the GPU shows up in its memory, because process ids of other
# containers are not visible in this one.

# A point is weak below this share of the fastest clock in the run.
_SLOW = 0.75
# Ignore this much memory of others: libraries, modules and stacks of this process do not count as its own.
_OTHERS_BYTES = 2 << 30
_CYCLES = 200_000


@dataclass(frozen=True)
class Conditions:
    """The clock in MHz, if it can be measured, and the bytes on the GPU that are not this process's tensors."""

    clock_mhz: float | None
    others_bytes: int | None


class Watch:
    """Observes a GPU. Remembers the fastest clock, and the least memory that others held."""

    def __init__(self, device: Any) -> None:
        """`device` is torch's module for the device."""
        self._device = device
        self.fastest_mhz = 0.0
        self.fewest_bytes: int | None = None

    def look(self) -> Conditions:
        """Return the current conditions; takes a third of a millisecond."""
        seen = Conditions(self._clock(), self._others())
        self.fastest_mhz = max(self.fastest_mhz, seen.clock_mhz or 0.0)
        if seen.others_bytes is not None:
            self.fewest_bytes = min(seen.others_bytes, self.fewest_bytes if self.fewest_bytes is not None else seen.others_bytes)
        return seen

    def weakness(self, *looks: Conditions) -> str:
        """Return why measurements between these looks are unreliable; empty if nothing was detected."""
        reasons = []
        slowest = min((seen.clock_mhz for seen in looks if seen.clock_mhz), default=None)
        if slowest is not None and slowest < _SLOW * self.fastest_mhz:
            reasons.append(f"the clock was at {slowest:.0f} MHz, {slowest / self.fastest_mhz:.0%} of the fastest in this run")
        most = max((seen.others_bytes for seen in looks if seen.others_bytes is not None), default=None)
        if most is not None and self.fewest_bytes is not None and most - self.fewest_bytes > _OTHERS_BYTES:
            reasons.append(f"another process took {(most - self.fewest_bytes) / (1 << 30):.1f} GiB of the card")
        return "; ".join(reasons)

    def _clock(self) -> float | None:
        sleep = getattr(self._device, "_sleep", None)
        if sleep is None:
            return None
        times = []
        for _ in range(3):
            start, end = (self._device.Event(enable_timing=True) for _ in range(2))
            start.record()
            sleep(_CYCLES)
            end.record()
            times.append((start, end))
        self._device.synchronize()
        taken = statistics.median(start.elapsed_time(end) for start, end in times)
        return _CYCLES / taken / 1e3 if taken > 0 else None

    def _others(self) -> int | None:
        try:
            free, total = self._device.mem_get_info()
            return int(total - free - self._device.memory_reserved())
        except (AttributeError, RuntimeError):
            return None
