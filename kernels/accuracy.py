"""The one measure of accuracy of this package: at most twice PyTorch's error on the same card, both against a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch


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
    """Hold a result to twice the error of PyTorch's own op, and to its NaN and infinities; `reference` is the same in float64."""
    if actual.shape != reference.shape:
        return Error(f"{tuple(actual.shape)} where PyTorch has {tuple(reference.shape)}")
    if actual.dtype != pytorch.dtype:
        return Error(f"{actual.dtype} where PyTorch has {pytorch.dtype}")
    # Where PyTorch overflows or has no number, neither may we; these are no errors to measure.
    finite = pytorch.isfinite() & reference.isfinite()
    odd, expected = actual[~finite], pytorch[~finite]
    if not torch.equal(odd.isnan(), expected.isnan()):
        return Error("NaN is missing, or is where PyTorch has none")
    if not torch.equal(odd.nan_to_num(0.0), expected.nan_to_num(0.0)):
        return Error("infinities differ from PyTorch's")
    exact, ours, theirs = (tensor[finite].double() for tensor in (reference, actual, pytorch))
    if not ours.isfinite().all():
        return Error("a NaN or an infinity where PyTorch has a number: perhaps never written")
    if not exact.numel():
        return Error()
    kind = torch.finfo(actual.dtype)
    # The spacing of this dtype at the exact value, or a little more: rounding alone may cost half of it.
    ulp = exact.abs().clamp_min_(kind.tiny).mul_(kind.eps)
    largest, norm = ulp.max() / kind.eps, exact.norm().item()
    # In place: these tensors are copies, and of a large result each takes hundreds of megabytes.
    error, bar = ours.sub_(exact).abs_(), theirs.sub_(exact).abs_().max()
    del exact, theirs
    # Counted in its own spacing, a result that vanishes beside the largest would be off by 1e29 units and by nothing that anyone sees.
    units = (error / ulp.clamp_min((largest * kind.eps**2).item())).max().item()
    # Rounding may cost half a unit; that PyTorch was luckier on a few numbers is no bar. Least of all in the interpreter, where NumPy
    # multiplies: in 200 products of 1 x 130 and 130 x 3, its worst error and PyTorch's are up to five times their mean.
    by_luck = actual.device.type == "cpu" and error.numel() < 16
    times = 5 if by_luck else 4 if _computed_elsewhere(pytorch) else 2
    worst, relative = error.max().item(), error.norm().item() / norm if norm else 0.0
    allowed = torch.maximum(bar, ulp / 2).mul_(times).add_(ulp)
    wrong = "" if (error <= allowed).all() else f"the worst error is {worst:.3e}, PyTorch's is {bar.item():.3e}"
    return Error(wrong, worst, bar.item(), relative, units)


def _computed_elsewhere(pytorch: torch.Tensor) -> bool:
    """Return whether PyTorch computed this on the CPU, although it is on a card: the card is emulated.

    There PyTorch sums in another order than on a card, and rounds less. Three fp32 tests on emulated RDNA cards were above twice its error.
    """
    return pytorch.device.type != "cpu" and pytorch.untyped_storage().device.type == "cpu"
