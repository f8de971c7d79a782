"""A stand-in for a GPU in Triton's interpreter: tensors live on the CPU, and kernels run there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from harness.inside.fake_gpu.driver import PretendedDriver
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.torch_device import torch_device


def interpreted_device(package: Path, kinds: Sequence[str]) -> Callable[[], None]:
    """Stand in for a GPU of any of these types in Triton's interpreter; to the package it is one of the first. Return what undoes it.

    `warmup` answers with an object that has the attributes which occupancy code asks for and that launches through the interpreter.
    """
    from triton.runtime.interpreter import InterpretedFunction

    # The figures only size grids, and a grid-stride loop is right for every size. Small ones are fast.
    properties = {"multiprocessor_count": 4, "max_num_regs": 65536, "max_shared_mem": 65536, "max_threads_per_sm": 2048, "warpSize": 32}
    driver = PretendedDriver(GPUTarget("cpu", 0, 32), torch.device("cpu"), properties, lambda binary: (32, 0, 1024))
    triton.runtime.driver.set_active(driver)

    def warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        return _InterpretedKernel(self, kwargs)

    torch_device(kinds[0])
    undo = contextlib.ExitStack()
    undo.callback(setattr, InterpretedFunction, "warmup", InterpretedFunction.warmup)
    InterpretedFunction.warmup = warmup
    undo.enter_context(Redirect(torch.device("cpu"), kinds, package=package))
    return undo.close


class _InterpretedKernel:
    """The result of `kernel.warmup(...)` in the interpreter: it can be launched, and has a compiled kernel's public attributes."""

    n_regs, n_spills = 32, 0

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self.function, self.options = function, options
        self.metadata = SimpleNamespace(shared=1024, num_warps=options.get("num_warps", 4), num_stages=options.get("num_stages", 1))

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]  # type: ignore[no-any-return]
