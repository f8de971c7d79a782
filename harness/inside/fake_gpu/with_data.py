"""A pretended card whose tensors have data: they live on the CPU, and say that they are on the card."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import triton

from harness.inside.fake_gpu.autocast import of_card
from harness.inside.fake_gpu.compiled import followed, plain
from harness.inside.fake_gpu.custom_ops import shared_ops
from harness.inside.fake_gpu.driver import PretendedDriver, call_once, capability, keep_in_backward
from harness.inside.fake_gpu.objects.made import objects
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.references.halves import sum_in_fp32
from harness.inside.fake_gpu.torch_device import Patch, apply, patches, torch_device
from harness.inside.fake_gpu.tuner import Tuning
from harness.inside.fake_gpu.vendor_blas import vendor_blas
from harness.records import Architecture

# Tests that ask whether there is room for a tensor of gigabytes would fill the host's memory, and take hours.
_FREE_BYTES = 8 << 30
_OF_TORCH = ("inductor", "cudagraphs", "eager", "aot_eager", "aot_eager_decomp_partition")


def card_with_data(
    card: Architecture, kinds: Sequence[str], driver: Callable[[Architecture, torch.device], PretendedDriver], launching: Sequence[Patch]
) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `driver` makes Triton's driver for the card; `launching` is what else has to change so that kernels run.
    """
    device = torch_device(card.torch_device)
    triton.runtime.driver.set_active(driver(card, device))
    free = min(_FREE_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    tuning = Tuning()
    autocast = of_card(kinds)
    products: list[Patch] = [(torch, name, _with_out_dtype(getattr(torch, name))) for name in ("mm", "bmm", "addmm", "baddbmm")]
    originals: list[Patch] = [(owner, name, getattr(owner, name)) for owner, name, _ in (*autocast, *products)]
    changes: list[Patch] = [
        *patches(card, device, capability(card), free),
        *objects(kinds),
        *vendor_blas(card),
        *shared_ops(kinds),
        *tuning.patches(),
        (triton.testing, "do_bench", call_once),
        (triton.testing, "do_bench_cudagraph", call_once),
        *launching,
        (torch, "compile", _compile(torch.compile, originals)),
        (torch.library, "opcheck", _without_mode(torch.library.opcheck, originals)),
        *autocast,
        *products,
    ]
    undo = contextlib.ExitStack()
    undo.callback(sum_in_fp32())  # before `shared_ops` changes what a library does
    apply(changes, undo)
    keep_in_backward(undo.enter_context(Redirect(torch.device("cpu"), kinds, device)), undo)
    return tuning, undo.close


def _compile(compile_: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Leave code as it is for torch's own backends: their kernels need a card, and their tracer sees no launch in the interpreter.

    Other backends are the author's.
    """

    def chosen(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(chosen, **options)
        if options.get("backend", "inductor") in _OF_TORCH:
            return followed(plain(model, **options))
        return _without_mode(compile_(model, **options), originals)

    return chosen


def _with_out_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a product of narrow numbers the `out_dtype` that torch has for cards alone: sums are not rounded to the operands' type."""

    @functools.wraps(function)
    def product(*args: Any, out_dtype: torch.dtype | None = None, out: torch.Tensor | None = None, **options: Any) -> Any:
        if args and isinstance(args[-1], torch.dtype):
            *args, out_dtype = args  # type: ignore[assignment]
        if out_dtype is None:
            return function(*args, **options) if out is None else function(*args, out=out, **options)
        made = function(*(each.to(out_dtype) if isinstance(each, torch.Tensor) else each for each in args), **options)
        return made if out is None else out.copy_(made)

    return product


def _without_mode(function: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Let torch's own compiler see tensors as they are, and the functions that it has rules for."""
    if isinstance(function, torch.nn.Module):
        module: Callable[..., Any] = function
        return module

    def run(*args: Any, **kwargs: Any) -> Any:
        with _modes_taken_off(), contextlib.ExitStack() as undo:
            apply(originals, undo)
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def _modes_taken_off() -> Iterator[None]:
    """Take all modes off. Those that torch's compiler enters itself work: it indexes with tensors by one."""
    modes = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
    for _ in modes:
        torch._C._pop_torch_function_stack()
    try:
        with torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        for mode in modes:
            torch._C._push_on_torch_function_stack(mode)
