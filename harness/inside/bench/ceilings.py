"""What the card can do, measured in the same run: a device-to-device copy, and matrix products of its library by dtype.

Speeds are shared against these, never against a datasheet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.inside.bench.do_bench import Timer, Timing
from harness.inside.facts.device import accelerator
from harness.inside.multi_gpu.cards import is_shared, own_index
from harness.inside.process.exceptions import describe
from harness.inside.process.journal import Journal
from harness.records import Ceiling, Verdict, to_json
from harness.records.units import is_rate

_COPY_BYTES = 4 << 30
# Side of the square matrices. A product of this size keeps any card busy, and takes milliseconds on a large one.
_SIDE = 8192
_SIDE_FP32 = 4096  # without matrix units, an eighth of the work
_WAIT_MS = 400.0  # at most this long for each product; more heats the card and tells nothing


def copy_ceiling(journal: Journal, timer: Timer, when: str, done: set[str]) -> None:
    """Measure a device-to-device copy: the ceiling of bandwidths."""
    import triton

    identity = _identity(f"ceiling {when}")
    if identity in done:
        return
    journal.write("start", id=identity)
    # A GPU with little free memory copies less; the record includes the size.
    here = accelerator()
    assert here is not None
    size = min(_COPY_BYTES, here[1].mem_get_info()[0] // 2) // 2 // 256 * 256
    timing = _time_copy(timer, size, triton.runtime.driver.active.get_active_torch_device())
    _finish(journal, timer, identity, Ceiling(own_index(), 2 * size, *_quantiles(timing), when))
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
            timing, moved = make(timer, side, triton.runtime.driver.active.get_active_torch_device())
        except Exception as error:  # a card, or its library, that does not have this dtype
            journal.write("finish", id=identity, verdict=Verdict.NOT_RUN.value, reason=describe(error))
            continue
        _finish(journal, timer, identity, Ceiling(own_index(), moved, *_quantiles(timing), "after", dtype, 2 * side**3))
    here = accelerator()
    if here is not None:
        here[1].empty_cache()


def _products() -> dict[str, tuple[int, Callable[[Timer, int, Any], tuple[Timing, int]]]]:
    """Return by name the side of the matrices, and what times their product. `tf32` has fp32 inputs and the matrix units' own precision."""
    import torch

    return {
        "bf16": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.bfloat16)),
        "fp16": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.float16)),
        "tf32": (_SIDE, lambda timer, side, device: _time_product(timer, side, device, torch.float32, precision="high")),
        "fp32": (_SIDE_FP32, lambda timer, side, device: _time_product(timer, side, device, torch.float32)),
        "fp8": (_SIDE, _time_fp8),
    }


def _time_product(timer: Timer, side: int, device: Any, dtype: Any, precision: str = "highest") -> tuple[Timing, int]:
    """Multiply random matrices: on zeros a card draws less power and is faster than on real data."""
    import torch

    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with _float32_precision(precision):
        timer.do_bench(lambda: torch.matmul(a, b, out=out), rep=_WAIT_MS, return_mode="median")
    assert timer.last is not None
    return timer.last, 3 * out.nbytes


def _time_fp8(timer: Timer, side: int, device: Any) -> tuple[Timing, int]:
    """Multiply with the fp8 of the card: e4m3, or e4m3fnuz on cards that have only that."""
    import torch

    one = torch.ones((), device=device)
    matrices = [torch.randn(side, side, device=device) for _ in range(2)]
    kinds = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e4m3fnuz") if hasattr(torch, name)]
    for position, kind in enumerate(kinds):
        a, b = (matrix.to(kind) for matrix in matrices)

        def multiply(a: Any = a, b: Any = b) -> Any:
            return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        try:
            multiply()
        except (RuntimeError, ValueError):
            if position == len(kinds) - 1:
                raise
            continue
        timer.do_bench(multiply, rep=_WAIT_MS, return_mode="median")
        break
    assert timer.last is not None
    return timer.last, 2 * side * side + 2 * side * side


@contextmanager
def _float32_precision(precision: str) -> Iterator[None]:
    """Set what torch may do to fp32 inputs, and restore the package's own setting."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _time_copy(timer: Timer, size: int, device: Any) -> Timing:
    """Copy `size` bytes of random data, and free the buffers."""
    import torch

    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    destination = torch.empty_like(source)
    timer.do_bench(lambda: destination.copy_(source), return_mode="median")
    assert timer.last is not None
    return timer.last


def _identity(what: str) -> str:
    return f"{what}, GPU {own_index()}" if is_shared() else what


def _quantiles(timing: Timing) -> tuple[float, float, float]:
    return timing.median_ms, timing.quantile_ms(0.2), timing.quantile_ms(0.8)


def _finish(journal: Journal, timer: Timer, identity: str, record: Ceiling) -> None:
    journal.write("finish", id=identity, verdict=Verdict.PASSED.value, reason="", ceiling=to_json(record), timed_s=timer.busy_s())
