"""Launches that are bound once. To find the binary for a call, Triton looks at each argument, which takes longer than many a kernel.

A launch returns the compiled kernel, and a compiled kernel can be launched: both are in Triton's own tutorials, and the same in 3.6 to 3.9.
So a `Bound` is launched by Triton once, and by its compiled kernel from then on. That is right only for arguments that Triton would compile
the same way, so the caller keeps a `Bound` under a key of all that this depends on: the device, dtypes, sizes and strides, which tensors
are None, and which start on 16 bytes. On AMD it also depends on the size of a tensor's memory, and no AMD card has run this. So launches
are bound on NVIDIA's cards only.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from kernels.configs import card

TRITONS_RUN = JITFunction.run


class _Recording(threading.local):
    """Who notes the launches of this thread: see `tape`."""

    tape: Any = None


RECORDING = _Recording()


class Bound:
    """A kernel with its grid and options. `bound(*arguments)` is `kernel[grid](*arguments, **options)`.

    `arguments` are all parameters that are not among `options`, in order, before those that are.
    """

    __slots__ = ("_constants", "_kernel", "_options", "_run", "compiled", "grid")

    def __init__(self, kernel: Any, grid: tuple[int, ...], /, **options: Any) -> None:
        self._kernel, self.grid, self._options = kernel, grid, options
        self.compiled: CompiledKernel | None = None
        self._run: Callable[..., None] | None = None
        self._constants: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> None:
        """Launch on the current stream."""
        if RECORDING.tape:
            RECORDING.tape.launched(self, (*arguments, *self._constants))
        # A tool that watches launches replaces `run`, and sees them all.
        if self._run and JITFunction.run is TRITONS_RUN:
            self._run(*arguments, *self._constants)
            return
        compiled = self._kernel[self.grid](*arguments, **self._options)
        if isinstance(compiled, CompiledKernel) and not self._kernel.pre_run_hooks and card().name.startswith("sm_"):
            self._constants = tuple([self._options[name] for name in self._kernel.arg_names[len(arguments) :]])
            self.compiled, self._run = compiled, compiled[(*self.grid, 1, 1)[:3]]


def on_boundary(*tensors: torch.Tensor | None) -> tuple[bool, ...]:
    """Return whether each tensor starts on 16 bytes, by which Triton compiles another binary."""
    return tuple([tensor is not None and tensor.data_ptr() % 16 == 0 for tensor in tensors])


def descriptors(make: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Return `make`, which makes a tensor descriptor, for tensors that differ in nothing but their memory: checked once, then copied."""
    template: Any = None

    def describe(x: torch.Tensor) -> Any:
        nonlocal template
        if template is None:
            template = make(x)
            template.base = None  # keeps no memory
        copy = object.__new__(type(template))
        copy.__dict__.update(template.__dict__, base=x)
        return copy

    return describe
