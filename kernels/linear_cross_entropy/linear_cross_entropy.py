"""Linear layer and cross entropy in one op: loss and gradients with three products, without ever storing all logits."""

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.contract import autocast_all, check_same
from kernels.cross_entropy import launch
from kernels.cross_entropy.cross_entropy import check_options, scale_
from kernels.cross_entropy.launch import Targets
from kernels.dispatch import cdiv, custom_op
from kernels.matmul.launch import multiply_into

# Tokens at a time. From 2048, products run at full speed. With fewer, the weight's gradient is read and written more often.
MEMORY = ("speed", "low")
FULL_SPEED, FEWEST = 2048, 512


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    memory: str = "speed",
) -> Tensor:
    """Return `cross_entropy(linear(input, linear_weight, linear_bias), target, ...)`, as `torch.nn.functional.linear_cross_entropy`.

    The forward processes a chunk of tokens at a time: the logits, their gradient in the same place, and its contribution to the gradients
    of input, weight and bias. The backward multiplies these by the incoming gradient, and does nothing if that is 1. So only one backward
    is possible. With `reduction="none"`, the incoming gradients are needed first, so the backward recomputes the logits: four products. The
    gradient of the weight is summed in the weight's dtype, once per chunk, with fp32 inside.

    Args:
        input: tokens (H,), (N, H) or (..., H), fp32, fp16 or bf16.
        linear_weight: (V, H), of the same dtype; linear_bias: (V,), likewise.
        target: class indices, of `input`'s shape without the last dimension, int64 or uint8.
        weight, reduction, ignore_index, label_smoothing: as in `cross_entropy`, also for out-of-range targets.
        memory: "speed" holds the logits of 2048 tokens. "low" holds fewer (at least 512): they and the gradient of the input take a quarter
            of the gradient of the weight.

    Raises:
        ValueError: there is no such reduction or `memory`.
        RuntimeError: shapes, dtypes or devices do not match.
        NotImplementedError: another dtype.
    """
    input, linear_weight, linear_bias = autocast_all(input, linear_weight, linear_bias)
    _check(input, linear_weight, linear_bias, target, weight, reduction, label_smoothing, memory)
    dtype = torch.float32 if torch.is_autocast_enabled(input.device.type) else input.dtype
    grad = torch.is_grad_enabled()
    wanted = [grad and tensor is not None and tensor.requires_grad for tensor in (input, linear_weight, linear_bias)]
    tokens = input.reshape(-1, input.shape[-1])
    tensors = tokens.contiguous(), linear_weight.contiguous(), linear_bias, target.reshape(-1), weight
    chunk = _tokens_at_once(memory, tokens.shape[0], *linear_weight.shape)
    loss = _linear_cross_entropy(*tensors, ignore_index, reduction, float(label_smoothing), dtype, chunk, wanted)
    return loss.view(target.shape) if reduction == "none" else loss


def _check(
    input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None, target: Tensor, weight: Tensor | None,
    reduction: str, label_smoothing: float, memory: str,
) -> None:  # fmt: skip
    if memory not in MEMORY:
        raise ValueError(f"memory is one of {', '.join(MEMORY)}, not {memory}")
    if target.is_floating_point():
        raise NotImplementedError("linear_cross_entropy takes class indices; class probabilities are not implemented")
    check_options("linear_cross_entropy", input, target, weight, reduction, label_smoothing)
    check_same("linear_cross_entropy", input, linear_weight, linear_bias)
    if linear_weight.dim() != 2 or not input.dim() or input.shape[-1] != linear_weight.shape[1] or target.shape != input.shape[:-1]:
        shapes = f"input {tuple(input.shape)}, weight {tuple(linear_weight.shape)} and target {tuple(target.shape)}"
        raise RuntimeError(f"linear_cross_entropy expected (..., H), (V, H) and (...), but got {shapes}")
    for name, tensor in {"linear_bias": linear_bias, "weight": weight}.items():
        if tensor is not None and tensor.shape != linear_weight.shape[:1]:
            raise RuntimeError(f"linear_cross_entropy expected {name} of {linear_weight.shape[0]} classes, but got {tuple(tensor.shape)}")


def _empty_results(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, label_smoothing, dtype, chunk, wanted):
    grads = _empty_like(input, linear_weight, linear_bias, [False] * 3 if reduction == "none" else wanted)
    return input.new_empty(input.shape[0] if reduction == "none" else (), dtype=dtype), *grads


@custom_op("warpwave::linear_cross_entropy", fake=_empty_results)
def _linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None, target: Tensor, weight: Tensor | None,
    ignore_index: int, reduction: str, label_smoothing: float, dtype: torch.dtype, chunk: int, wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the loss, and its gradients of input, weight and bias; those not wanted are empty."""
    targets = Targets.of(target, weight, ignore_index, label_smoothing)
    if reduction == "none" or not any(wanted):
        grads = _empty_like(input, linear_weight, linear_bias, [False] * 3)
        found = [launch.walk(logits, targets[rows]) for rows, logits in _logits(input, linear_weight, linear_bias, chunk)]
    else:
        grads, found = _gradients(input, linear_weight, linear_bias, targets, None, reduction == "mean", chunk, wanted)
    known = launch.Parts.concatenated(found, targets)
    loss, *_ = launch.losses(known, targets, linear_weight.shape[0], reduction, dtype)
    return loss, *grads


@custom_op("warpwave::linear_cross_entropy_backward", fake=lambda grad, *given: _empty_like(*given[:3], given[-1]))
def _linear_cross_entropy_backward(
    grad: Tensor, input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None, target: Tensor, weight: Tensor | None,
    ignore_index: int, label_smoothing: float, chunk: int, wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients for losses per token."""
    targets = Targets.of(target, weight, ignore_index, label_smoothing)
    return _gradients(input, linear_weight, linear_bias, targets, grad.contiguous(), False, chunk, wanted)[0]


def _empty_like(input: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    tensors = zip((input, weight, bias), wanted, strict=True)
    of_input, of_weight, of_bias = (torch.empty_like(x) if x is not None and want else input.new_empty(0) for x, want in tensors)
    return of_input, of_weight, of_bias


def _tokens_at_once(memory: str, n_tokens: int, n_classes: int, hidden: int) -> int:
    fitting = hidden // 4 - n_tokens * hidden // max(1, n_classes)
    return FULL_SPEED if memory == "speed" else min(FULL_SPEED, max(FEWEST, cdiv(fitting, 128) * 128))


def _chunks(n_tokens: int, at_most: int) -> list[slice]:
    """Return chunks of tokens of equal size, a multiple of 128, except the last."""
    n_chunks = max(1, -(-n_tokens // at_most))
    size = min(at_most, max(1, -(-n_tokens // (128 * n_chunks))) * 128)
    return [slice(start, min(start + size, n_tokens)) for start in range(0, n_tokens, size)]


def _logits(x: Tensor, weight: Tensor, bias: Tensor | None, chunk: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the logits of one chunk after the other, in the same memory."""
    chunks = _chunks(x.shape[0], chunk)
    place = torch.empty(chunks[0].stop if chunks else 0, weight.shape[0], device=x.device, dtype=x.dtype)
    for rows in chunks:
        logits = place[: rows.stop - rows.start]
        if bias is None:
            multiply_into(logits, x[rows], weight.t())
        else:
            torch.addmm(bias, x[rows], weight.t(), out=logits)
        yield rows, logits


def _gradients(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets, upstream: Tensor | None, mean: bool, chunk: int, wanted: list[bool]
) -> tuple[tuple[Tensor, Tensor, Tensor], list[launch.Parts]]:
    """Return gradients of input, weight and bias, computed chunk by chunk, and the statistics of the tokens."""
    of_input, of_weight, of_bias = grads = _empty_like(x, weight, bias, wanted)
    divisor, words = launch.prepared(targets, weight.shape[0], x.dtype)
    words_a_row = words.numel() // max(1, x.shape[0])
    if not x.shape[0]:
        of_weight.zero_()
        of_bias.zero_()
    of_bias_exactly = torch.zeros(weight.shape[0], device=x.device, dtype=torch.float32) if wanted[2] else None
    found = []
    for rows, logits in _logits(x, weight, bias, chunk):
        some_words = words[rows.start * words_a_row : rows.stop * words_a_row]
        of_rows = None if upstream is None else upstream[rows]
        found.append(launch.in_place(logits, targets[rows], of_rows, divisor if mean else None, some_words))
        if wanted[0]:
            torch.mm(logits, weight, out=of_input[rows])
        if wanted[1]:
            multiply_into(of_weight, logits.t(), x[rows], add=rows.start > 0)
        if of_bias_exactly is not None:
            of_bias_exactly += logits.sum(0, dtype=torch.float32)
    if of_bias_exactly is not None:
        of_bias.copy_(of_bias_exactly)
    return grads, found


def _setup_context(ctx, inputs, output) -> None:
    *tensors, ctx.ignore_index, ctx.reduction, ctx.label_smoothing, _, ctx.chunk, ctx.wanted = inputs
    _, *grads = output
    ctx.mark_non_differentiable(*grads)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*(tensors if ctx.reduction == "none" else grads))


def _backward(ctx, grad: Tensor | None, *_) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 11
    if ctx.reduction == "none":
        grads = _linear_cross_entropy_backward(grad, *ctx.saved_tensors, ctx.ignore_index, ctx.label_smoothing, ctx.chunk, ctx.wanted)
    else:
        # A second backward would scale them again. Autograd refuses it, because they have another version then.
        grads = ctx.saved_tensors
        for tensor in grads:
            scale_(tensor, grad)
    wanted = (gradient if want else None for gradient, want in zip(grads, ctx.wanted, strict=True))
    return *wanted, *(None,) * 8


_linear_cross_entropy.register_autograd(_backward, setup_context=_setup_context)
