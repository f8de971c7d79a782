"""Cross entropy of logits and class indices. The forward reads the logits once; the gradient takes another read and write, or a write."""

import torch
from torch import Tensor

from kernels.contract import check_dtype
from kernels.cross_entropy import launch
from kernels.cross_entropy.launch import Targets
from kernels.dispatch import custom_op


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    inplace_backward: bool = False,
) -> Tensor:
    """Return the cross entropy between logits and class indices, differentiable in the logits, as `torch.nn.functional.cross_entropy`.

    A target that is neither a class nor `ignore_index` makes the loss of its row NaN, and so the mean. PyTorch stops the program instead
    (on the CPU with an IndexError). Nothing is read outside of the row, and the host never waits.

    Args:
        input: logits (C,), (N, C) or (N, C, d1, ...), fp32, fp16 or bf16; computed in fp32, rounded once. If classes are not adjacent in
            memory, as in the last case, a copy is made first.
        target: class indices (), (N,) or (N, d1, ...), int64 or uint8.
        weight: of each class (C,), floating point.
        size_average, reduce: deprecated, see `reduction`.
        ignore_index: rows with this target have no loss and no gradient.
        reduction: "mean" (over the weights of the rows that are not ignored; NaN if all are), "sum" or "none".
        label_smoothing: the share of each target that is spread over all classes.
        inplace_backward: with an `input` that requires a gradient, compute it in the forward and write it over the logits, which must not
            be read any more: two passes over memory instead of three, and half the space. Only one backward is possible. The logits must be
            (N, C), with adjacent classes in memory.

    Returns:
        (N,) or (N, d1, ...) for "none", else a scalar; of `input`'s dtype, under autocast fp32 (from the logits as they are).

    Raises:
        ValueError: the batch sizes differ, or there is no such reduction.
        RuntimeError: other shapes, the target's dtype, devices, the smoothing, or logits that cannot be written over.
        NotImplementedError: another dtype, or targets that are probabilities.
    """
    if size_average is not None or reduce is not None:
        reduction = torch.nn._reduction.legacy_get_string(size_average, reduce)
    logits = _checked(input, target, weight, reduction, label_smoothing)
    autocast = torch.is_autocast_enabled(input.device.type)
    options = (target.reshape(-1), weight, ignore_index, reduction, float(label_smoothing), torch.float32 if autocast else input.dtype)
    if inplace_backward and torch.is_grad_enabled() and input.requires_grad:
        if input.dim() != 2 or input.stride(-1) != 1 or input.stride(0) < input.shape[1]:
            raise RuntimeError("cross_entropy can write the gradient over (N, C) logits only, with neighbours in memory")
        loss = _InPlace.apply(logits, *options)
    else:
        loss = _cross_entropy(logits, *options)
    return loss.view(target.shape) if reduction == "none" else loss


def check_options(op: str, input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float) -> None:
    """Refuse dtypes, devices and options that PyTorch refuses, with its errors."""
    check_dtype(op, input)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"{op} expected target dtype to be Long or Byte, but got {target.dtype}")
    if any(tensor is not None and tensor.device != input.device for tensor in (target, weight)):
        raise RuntimeError(f"{op} expected all tensors to be on the same device")


def _checked(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float) -> Tensor:
    """Refuse what PyTorch refuses, with its errors. Return the logits as (rows, classes), with adjacent classes in memory."""
    if target.is_floating_point() and target.shape == input.shape:
        raise NotImplementedError("cross_entropy takes class indices; class probabilities are not implemented")
    check_options("cross_entropy", input, target, weight, reduction, label_smoothing)
    classes = input.movedim(1, -1) if input.dim() > 1 else input
    if not input.dim() or (target.shape != classes.shape[:-1] and (input.dim() > 1 or target.numel() != 1)):
        if input.dim() > 1 and target.dim() and input.shape[0] != target.shape[0]:
            raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")
        raise RuntimeError(
            f"cross_entropy expected targets {tuple(classes.shape[:-1])}, one for each row of logits, but got {tuple(target.shape)}"
        )
    if weight is not None and (weight.shape != classes.shape[-1:] or not weight.is_floating_point()):
        raise RuntimeError(
            f"weight tensor should be defined for all {classes.shape[-1]} classes but got weight of shape {tuple(weight.shape)}"
        )
    rows = classes.reshape(-1, classes.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.shape[-1] < 2 else rows.contiguous()


def _empty_loss(input: Tensor, reduction: str, dtype: torch.dtype) -> Tensor:
    return input.new_empty(input.shape[0] if reduction == "none" else (), dtype=dtype)


def _empty_results(input, target, weight, ignore_index, reduction, label_smoothing, dtype):
    shapes = (2, input.shape[0]), 0 if reduction == "none" else 1
    statistics, divisor = (input.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return _empty_loss(input, reduction, dtype), statistics, divisor


@custom_op("warpwave::cross_entropy", fake=_empty_results)
def _cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, statistics of rows (2, N), and the mean's divisor (1,), which is empty for losses per row."""
    targets = Targets.of(target, weight, ignore_index, label_smoothing)
    loss, divisor, statistics = launch.losses(launch.walk(input, targets), targets, input.shape[1], reduction, dtype)
    return loss, statistics, divisor


@custom_op("warpwave::cross_entropy_backward", fake=lambda grad, input, *_: torch.empty_like(input))
def _cross_entropy_backward(
    grad: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, statistics: Tensor, divisor: Tensor,
    ignore_index: int, reduction: str, label_smoothing: float,
) -> Tensor:  # fmt: skip
    out = torch.empty_like(input)
    targets = Targets.of(target, weight, ignore_index, label_smoothing)
    launch.gradient(input, out, targets, statistics, grad, divisor if reduction == "mean" else None)
    return out


def _setup_context(ctx, inputs, output) -> None:
    input, target, weight, *ctx.options, _ = inputs
    _, statistics, divisor = output
    ctx.mark_non_differentiable(statistics, divisor)
    ctx.save_for_backward(input, target, weight, statistics, divisor)


def _backward(ctx, grad: Tensor, *_) -> tuple[Tensor | None, ...]:
    return _cross_entropy_backward(grad, *ctx.saved_tensors, *ctx.options), None, None, None, None, None, None


_cross_entropy.register_autograd(_backward, setup_context=_setup_context)


@custom_op("warpwave::cross_entropy_", fake=lambda input, *options: _empty_loss(input, options[3], options[5]), mutates_args=("input",))
def _cross_entropy_(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float, dtype: torch.dtype
) -> Tensor:
    """Return the loss, and leave its gradient in `input`."""
    targets = Targets.of(target, weight, ignore_index, label_smoothing)
    divisor, words = launch.prepared(targets, input.shape[1], input.dtype)
    found = launch.in_place(input, targets, None, divisor if reduction == "mean" else None, words)
    return launch.losses(found, targets, input.shape[1], reduction, dtype)[0]


@custom_op("warpwave::scale_", fake=lambda x, by: None, mutates_args=("x",))
def scale_(x: Tensor, by: Tensor) -> None:
    """Multiply `x` by a number, or each of its rows by one. If it is 1, the usual case, nothing is read or written."""
    launch.scale(x, by)


class _InPlace(torch.autograd.Function):
    """Autograd is not told that the logits change. They are used up, and code that saved them notices the new version."""

    @staticmethod
    def forward(ctx, input: Tensor, *options) -> Tensor:
        loss = _cross_entropy_(input, *options)
        ctx.save_for_backward(input)
        return loss

    @staticmethod
    def backward(ctx, grad: Tensor):
        # A second backward would scale again. Autograd refuses it, because the saved tensor has another version then.
        gradient = ctx.saved_tensors[0].detach()
        scale_(gradient, grad)
        return gradient, None, None, None, None, None, None
