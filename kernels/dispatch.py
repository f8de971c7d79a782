"""A short way from the host to a kernel: custom ops that eager code calls directly, and the arithmetic of grids.

A `torch.library.custom_op` takes 16 microseconds of host time per call, and 40 with a gradient to record (torch 2.13, an idle core). Many
of these kernels run no longer than that. With plain tensors and without tracing, none of that work is needed: then the op's own function is
called, under an ordinary `torch.autograd.Function` if there is a gradient to record (4 and 12 microseconds).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)
# Whoever replaces Triton's launch, to count or to record launches, must see all of them.
_LAUNCH = triton.JITFunction.run
_IS_TRITONS = inspect.isfunction(_LAUNCH) and _LAUNCH.__code__.co_filename == inspect.getsourcefile(triton.JITFunction)
_DRIVERS = ("triton.backends.nvidia.driver",)


def cdiv(x: int, y: int) -> int:
    """`triton.cdiv` for the host. Triton's own also serves kernels, and its wrapper costs microseconds."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """`triton.next_power_of_2` for the host."""
    return 1 << max(n - 1, 0).bit_length()


class Bound:
    """A kernel with its grid and options, called with its tensors and sizes: `bound(*arguments)`, as `kernel[grid](*arguments, **options)`.

    Triton looks at all arguments of each call, to find the binary for such arguments. Who makes a `Bound` promises that they are alike in
    every call: the same sizes, and tensors of the same dtypes, each on a 16-byte boundary or not. So Triton looks at the first call on a
    device, and later ones launch the binary that it returned. This happens with drivers that are known to take it, and with none of
    Triton's hooks set. In every other case each call is Triton's own: in its interpreter, without a card, under a profiler.

    `options` has the kernel's constants, which are its last parameters, in their order, and the launch options.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], options: dict[str, Any]) -> None:
        self._kernel, self._grid, self._options = kernel, grid, options
        self._direct = _IS_TRITONS and isinstance(kernel, triton.JITFunction)
        self._constants = tuple(options[name] for name in kernel.arg_names if name in options) if self._direct else ()
        self._ready: dict[tuple[Any, int], tuple[Any, ...]] = {}

    def __call__(self, *arguments: Any) -> None:
        """Launch on the current stream."""
        if not self._direct or triton.JITFunction.run is not _LAUNCH or _has_hooks():
            self._kernel[self._grid](*arguments, **self._options)
            return
        driver = triton.runtime.driver.active
        device = driver.get_current_device()
        ready = self._ready.get((driver, device))
        if ready is None:
            compiled = self._kernel[self._grid](*arguments, **self._options)
            if type(driver).__module__ in _DRIVERS and compiled is not None:
                self._ready[driver, device] = compiled.run, compiled.function, compiled.packed_metadata
            return
        run, function, metadata = ready
        stream = driver.get_current_stream(device)
        run(*self._grid, *_ONES[len(self._grid) :], stream, function, metadata, None, None, None, *arguments, *self._constants)


class Alike:
    """Makes descriptors of tensors that differ in their address alone: `make` builds and checks the first, and the others are copies."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self._make = make
        self._kind: Any = None
        self._fields: dict[str, Any] = {}

    def __call__(self, tensor: Tensor) -> Any:
        """Return the descriptor of a tensor."""
        if self._kind is None:
            first = self._make(tensor)
            self._fields = {**vars(first), "base": None}  # keeps no tensor alive
            self._kind = type(first)
            return first
        found = object.__new__(self._kind)
        found.__dict__.update(self._fields)
        found.base = tensor
        return found


_ONES = (1, 1, 1)


def _has_hooks() -> bool:
    knobs = triton.knobs.runtime
    return bool(getattr(knobs.launch_enter_hook, "calls", True) or getattr(knobs.launch_exit_hook, "calls", True))


def on_boundary(*tensors: Tensor | None) -> tuple[bool, ...]:
    """Return whether each tensor starts on 16 bytes, by which Triton compiles another binary."""
    return tuple([tensor is not None and tensor.data_ptr() % 16 == 0 for tensor in tensors])


class CustomOp:
    """A `torch.library` custom op, `registered`, and its function, called without the dispatcher if the result is the same."""

    def __init__(self, name: str, function: Callable[..., Any], mutates_args: Iterable[str]) -> None:
        self.registered = torch.library.custom_op(name, function, mutates_args=mutates_args)
        self.register_fake = self.registered.register_fake
        self._function = function
        parameters = list(inspect.signature(function).parameters)
        self._mutated = tuple(parameters.index(argument) for argument in mutates_args)
        self._differentiable: type[torch.autograd.Function] | None = None

    def __call__(self, *args: Any) -> Any:
        """Run the op; all arguments are positional."""
        if _is_observed() or any(isinstance(arg, Tensor) and type(arg) not in _PLAIN for arg in args):
            return self.registered(*args)
        if torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            # Without gradients, let the registered op raise its error.
            return self._differentiable.apply(*args) if self._differentiable else self.registered(*args)
        result = self._function(*args)
        for position in self._mutated:
            # As the dispatcher does for ops that overwrite an input: autograd then detects a saved version as outdated.
            torch.autograd.graph.increment_version(args[position])
        return result

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None]) -> None:
        """Register a gradient as torch does:

        `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` returns a gradient per input.
        """
        self.registered.register_autograd(backward, setup_context=setup_context)

        def forward(ctx: Any, *args: Any) -> Any:
            output = self._function(*args)
            setup_context(ctx, args, output)
            return output

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._differentiable = type(self._function.__name__, (torch.autograd.Function,), methods)


def custom_op(name: str, *, mutates_args: Iterable[str] = ()) -> Callable[[Callable[..., Any]], CustomOp]:
    """Like `torch.library.custom_op`."""
    return lambda function: CustomOp(name, function, mutates_args)


def _is_observed() -> bool:
    """Return whether a compiler, a dispatch mode or functorch must see the op."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
