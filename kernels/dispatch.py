"""The host's way to a kernel, kept short: custom ops that eager code calls directly, and the arithmetic of grids.

What `torch.library.custom_op` makes costs 16 microseconds of host time a call, and 40 with a gradient to record (torch 2.13, an idle core),
as much as many of these kernels run. Nothing in that time is needed where tensors are plain and nobody traces: then the op's own function
is called, under an ordinary `torch.autograd.Function` where there is something to record (4 and 12 microseconds).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)


def cdiv(x: int, y: int) -> int:
    """`triton.cdiv` for the host: wrapped to serve kernels too, that one costs microseconds."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """`triton.next_power_of_2` for the host."""
    return 1 << max(n - 1, 0).bit_length()


class CustomOp:
    """A `torch.library` custom op, `registered`, and the function it was made of, called past the dispatcher where that is the same."""

    def __init__(self, name: str, function: Callable[..., Any], mutates_args: Iterable[str]) -> None:
        self.registered = torch.library.custom_op(name, function, mutates_args=mutates_args)
        self.register_fake = self.registered.register_fake
        self._function = function
        parameters = list(inspect.signature(function).parameters)
        self._mutated = tuple(parameters.index(argument) for argument in mutates_args)
        self._differentiable: type[torch.autograd.Function] | None = None

    def __call__(self, *args: Any) -> Any:
        """Run the op; every argument by position."""
        if _is_observed() or any(isinstance(arg, Tensor) and type(arg) not in _PLAIN for arg in args):
            return self.registered(*args)
        if torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            # Without gradients, the registered op has the error message.
            return self._differentiable.apply(*args) if self._differentiable else self.registered(*args)
        result = self._function(*args)
        for position in self._mutated:
            # What the dispatcher does for an op that writes over its input: whoever saved it for a backward will be told.
            torch.autograd.graph.increment_version(args[position])
        return result

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None]) -> None:
        """As torch's: `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` gives a gradient an input."""
        self.registered.register_autograd(backward, setup_context=setup_context)

        def forward(ctx: Any, *args: Any) -> Any:
            output = self._function(*args)
            setup_context(ctx, args, output)
            return output

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._differentiable = type(self._function.__name__, (torch.autograd.Function,), methods)


def custom_op(name: str, *, mutates_args: Iterable[str] = ()) -> Callable[[Callable[..., Any]], CustomOp]:
    """As `torch.library.custom_op`."""
    return lambda function: CustomOp(name, function, mutates_args)


def _is_observed() -> bool:
    """Whether somebody between the caller and the kernel has to see the op: a compiler, a dispatch mode, functorch."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
