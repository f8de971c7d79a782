"""A pretended card in Triton's interpreter: tensors live on the CPU, and kernels run there."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import triton

from harness.inside.fake_gpu.custom_ops import plain, shared_ops
from harness.inside.fake_gpu.driver import PretendedDriver, call_once, capability, keep_in_backward
from harness.inside.fake_gpu.interpreted.device_library import library
from harness.inside.fake_gpu.interpreted.narrow_floats import narrow_floats
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.streams import Graph
from harness.inside.fake_gpu.torch_device import Patch, apply, patches, torch_device
from harness.inside.fake_gpu.torch_objects import objects
from harness.inside.fake_gpu.tuner import Tuning
from harness.records import Architecture

# The number of multiprocessors only sizes grids, and a grid-stride loop is right for every size. A small one is fast.
_PROCESSORS = 4
# Tests that ask whether there is room for a tensor of gigabytes would fill the host's memory, and take hours.
_FREE_BYTES = 8 << 30


def interpreted_device(card: Architecture, kinds: Sequence[str], more: Sequence[Patch] = ()) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `more` is changed first, below all else.

    `warmup` answers with an object that has the attributes which occupancy code asks for and that launches through the interpreter.
    """
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction

    undo = contextlib.ExitStack()
    apply(list(more), undo)
    device = torch_device(card.torch_device)
    card = replace(card, properties={**card.properties, "multiprocessor_count": _PROCESSORS})
    triton.runtime.driver.set_active(PretendedDriver(card, device, card.properties, lambda binary: (32, 0, card.program_threads)))
    free = min(_FREE_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    tuning = Tuning()
    autocast = _autocast(kinds)
    originals: list[Patch] = [(owner, name, getattr(owner, name)) for owner, name, _ in autocast]
    changes: list[Patch] = [
        *patches(card, device, capability(card), free),
        *objects(kinds),
        *shared_ops(kinds),
        *tuning.patches(),
        *library(card.backend),
        *narrow_floats(),
        (triton.testing, "do_bench", call_once),
        (triton.testing, "do_bench_cudagraph", call_once),
        (InterpretedFunction, "warmup", _warmup),
        (InterpretedFunction, "run", _with_handle(InterpretedFunction.run)),
        (GridExecutor, "__call__", _captured(GridExecutor.__call__)),
        (torch, "compile", _compile(torch.compile, originals)),
        (torch.library, "opcheck", _without_mode(torch.library.opcheck, originals)),
        *autocast,
    ]
    apply(changes, undo)
    keep_in_backward(undo.enter_context(Redirect(torch.device("cpu"), kinds, device)), undo)
    return tuning, undo.close


def _warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
    return _InterpretedKernel(self, kwargs)


def _with_handle(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a launch returns on a card: the compiled kernel."""

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        run(self, *args, **kwargs)
        return _InterpretedKernel(self, kwargs)

    return launch


class _InterpretedKernel:
    """A kernel in the interpreter: it can be launched, and has a compiled kernel's public attributes."""

    n_regs, n_spills = 32, 0

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self.function, self.options = function, options
        self.metadata = SimpleNamespace(shared=1024, num_warps=options.get("num_warps", 4), num_stages=options.get("num_stages", 1))

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]  # type: ignore[no-any-return]


def _captured(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a graph that is being captured remember a launch, and none of the calls of torch within it."""

    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            result = launch(executor, *args, **kwargs)
        for graph in Graph.capturing:
            graph.remember(run, (executor, *args), kwargs, None)
        return result

    return run


def _compile(compile_: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Leave code as it is where torch would generate kernels for it: that takes long, and needs a card. Other backends are the author's."""

    def chosen(model: Any = None, **options: Any) -> Any:
        if options.get("backend", "inductor") == "inductor":
            return plain(model, **options)
        if model is None:
            return functools.partial(chosen, **options)
        return _without_mode(compile_(model, **options), originals)

    return chosen


def _without_mode(function: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Let torch's own compiler see tensors as they are, and the functions that it has rules for."""
    if isinstance(function, torch.nn.Module):
        module: Callable[..., Any] = function
        return module

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction(), contextlib.ExitStack() as undo:
            apply(originals, undo)
            return function(*args, **kwargs)

    return run


def _autocast(kinds: Sequence[str]) -> list[Patch]:
    """Return what makes autocast for a GPU one for the CPU, too: that is where the tensors are.

    torch keeps a state for each type of device, also where there is none, so its own questions have the right answers.
    """
    autocast: Any = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__
    open_ones: list[Any] = []

    def begin(self: Any) -> Any:
        if self.device in kinds:
            open_ones.append(autocast("cpu", dtype=self.fast_dtype, enabled=self._enabled))
            enter(open_ones[-1])
        return enter(self)

    def end(self: Any, *raised: Any) -> Any:
        result = leave(self, *raised)
        if self.device in kinds:
            leave(open_ones.pop(), *raised)
        return result

    return [(autocast, "__enter__", begin), (autocast, "__exit__", end)]
