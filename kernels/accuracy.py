"""The one measure of accuracy of this package: at most twice PyTorch's error on the same card, both against a float64 reference.

Without a card, at most eight times, for a result in fp32.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_BLOCK = 1 << 20  # elements


@dataclass(frozen=True)
class Error:
    """What a result is off by: the worst absolute errors, ours and PyTorch's, the relative Frobenius norm, and units in the last place.

    `wrong` says what breaks the rule; it is empty if nothing does. Without elements to compare, the errors are None.
    """

    wrong: str = ""
    worst: float | None = None
    pytorch: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0


def error_of(actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor) -> Error:
    """Hold a result to twice the error of PyTorch's own op, and to its NaN and infinities; `reference` is the same in float64.

    Where PyTorch computes on the CPU, an fp32 result may have eight times its error.
    """
    if actual.shape != reference.shape:
        return Error(f"{tuple(actual.shape)} where PyTorch has {tuple(reference.shape)}")
    if actual.dtype != pytorch.dtype:
        return Error(f"{actual.dtype} where PyTorch has {pytorch.dtype}")
    kind, blocks = torch.finfo(actual.dtype), list(_blocks(actual, pytorch, reference))
    if wrong := next((wrong for block in blocks if (wrong := _wrong(*block))), ""):
        return Error(wrong)
    count, largest, bar, squares = 0, kind.tiny, 0.0, 0.0
    for block in blocks:
        _, theirs, exact = _numbers(*block)
        if exact.numel():
            count, largest = count + exact.numel(), max(largest, exact.abs().max().item())
            bar, squares = max(bar, (theirs - exact).abs_().max().item()), squares + exact.square().sum().item()
    if not count:
        return Error()
    times = 8 if kind.bits > 16 and _computed_on_cpu(pytorch) else 2
    worst, off, units, within = 0.0, 0.0, 0.0, True
    for block in blocks:
        ours, _, exact = _numbers(*block)
        if not exact.numel():
            continue
        # The spacing of this dtype at the exact value, or a little more: rounding alone may cost half of it.
        error, ulp = (ours - exact).abs_(), exact.abs().clamp_min_(kind.tiny).mul_(kind.eps)
        # Counted in its own spacing, a result that vanishes beside the largest would be off by 1e29 units and by nothing that anyone sees.
        units = max(units, (error / ulp.clamp_min(largest * kind.eps**2)).max().item())
        worst, off = max(worst, error.max().item()), off + error.square().sum().item()
        within &= bool((error <= (ulp / 2).clamp_min_(bar).mul_(times).add_(ulp)).all())
    wrong = "" if within else f"the worst error is {worst:.3e}, PyTorch's is {bar:.3e}"
    return Error(wrong, worst, bar, (off / squares) ** 0.5 if squares else 0.0, units)


def _blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the same part of each tensor, part after part: float64 copies of a whole large result take hundreds of megabytes each."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _BLOCK):
        yield tuple(tensor[start : start + _BLOCK] for tensor in flat)


def _numbers(*block: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what is a number in PyTorch's result and in the exact one: `exact` is float64, so that differences to it are, too."""
    finite = block[1].isfinite() & block[2].isfinite()
    return block if finite.all() else tuple(tensor[finite] for tensor in block)


def _wrong(actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor) -> str:
    """Return what is wrong with NaN and infinities. Where PyTorch overflows or has no number, neither may we: no errors to measure."""
    odd = ~(pytorch.isfinite() & reference.isfinite())
    if not torch.equal(actual[odd].isnan(), pytorch[odd].isnan()):
        return "NaN is missing, or is where PyTorch has none"
    odd = actual.isinf() | pytorch.isinf()  # a number of PyTorch's is none to compare if only the exact result is odd there
    if not torch.equal(actual[odd], pytorch[odd]):
        return "infinities differ from PyTorch's"
    if not _numbers(actual, pytorch, reference)[0].isfinite().all():
        return "a NaN or an infinity where PyTorch has a number: perhaps never written"
    return ""


def _computed_on_cpu(pytorch: torch.Tensor) -> bool:
    """Return whether PyTorch computed this on the CPU: in Triton's interpreter, and on an emulated card.

    There a sum of products in fp32 has as many partial sums as the processor has lanes, up to 16 in PyTorch. NumPy, which multiplies in
    the interpreter, may have one, and so may a card. That alone is four times the error. Rounding a result to 16 bits costs more than this.
    """
    return pytorch.untyped_storage().device.type == "cpu"
