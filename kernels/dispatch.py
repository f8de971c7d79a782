"""A short way from the host to a kernel: custom ops that eager code calls directly, and the arithmetic of grids.

A `torch.library.custom_op` takes 16 microseconds of host time per call, and 40 with a gradient to record (torch 2.13, an idle core). Many
of these kernels run no longer than that. With plain tensors and without tracing, none of that work is needed: then the op's own function is
called, under an autograd function if there is a gradient to record.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction
from torch.nn import Parameter

from kernels.launches.bound import RECORDING
from kernels.launches.tape import repeatable


def cdiv(x: int, y: int) -> int:
    """`triton.cdiv` for the host. Triton's own also serves kernels, and its wrapper costs microseconds."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """`triton.next_power_of_2` for the host."""
    return 1 << max(n - 1, 0).bit_length()


def fewest_lanes(n_columns: int, vector: int, most: Mapping[int, int]) -> int | None:
    """Return the fewest threads that hold a row of a vector each in so many chunks: `most` says how many, by threads. None: too long."""
    return next((lanes for lanes, chunks in most.items() if n_columns <= chunks * lanes * vector), None)


class CustomOp:
    """A `torch.library` custom op, `registered`, and its function, called without the dispatcher if the result is the same.

    A call returns the first result of an op with a gradient: its backward alone needs the others.
    """

    def __init__(self, name: str, function: Callable[..., Any], mutates_args: Iterable[str], repeats: bool = False) -> None:
        self.registered = torch.library.custom_op(name, function, mutates_args=mutates_args)
        self.register_fake = self.registered.register_fake
        self._function, self._call = function, repeatable(self._in_full) if repeats else self._in_full
        parameters = list(inspect.signature(function).parameters)
        self._mutated = tuple(parameters.index(argument) for argument in mutates_args)
        self._differentiable: Any = None

    def __call__(self, *args: Any) -> Any:
        """Run the op; all arguments are positional."""
        return self._call(*args)

    def _in_full(self, *args: Any) -> Any:
        if _is_observed():
            return self._first(self.registered(*args))
        differentiable = False
        for arg in args:
            kind = type(arg)
            if kind is Tensor or kind is Parameter:
                if arg.requires_grad:
                    differentiable = True
            elif isinstance(arg, Tensor):
                return self._first(self.registered(*args))
        if differentiable and torch.is_grad_enabled():
            # Without gradients, let the registered op raise its error.
            return self._differentiable.apply(*args, None) if self._differentiable else self.registered(*args)
        result = self._function(*args)
        for position in self._mutated:
            # As the dispatcher does for ops that overwrite an input: autograd then detects a saved version as outdated.
            torch.autograd.graph.increment_version(args[position])
        return self._first(result)

    def _first(self, result: Any) -> Any:
        return result[0] if self._differentiable is not None and isinstance(result, tuple) else result

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None]) -> None:
        """Register a gradient as torch does:

        `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` returns a gradient per input.
        """
        self.registered.register_autograd(backward, setup_context=setup_context)

        def forward(ctx: Any, *given: Any) -> Any:
            args, made = given[:-1], given[-1]
            output = made[0] if type(made) is list else made  # in a list, a tensor is no input
            if made is None:
                output = self._function(*args)
                if RECORDING.tape:
                    RECORDING.tape.differentiated(self._differentiable.apply, args, output)
            setup_context(ctx, args, output)
            return output[0] if type(output) is tuple else output

        def gradients(ctx: Any, grad: Any) -> Any:
            found = backward(ctx, grad)
            return (*found, None) if type(found) is tuple else (found, None)

        # `torch.autograd.Function` looks for functorch's transforms, in Python, before it calls this class: here, none is active.
        methods = {"forward": staticmethod(forward), "backward": staticmethod(gradients)}
        self._differentiable = type(self._function.__name__, (_SingleLevelFunction,), methods)
        # What the engine calls. Torch's own looks `backward` up.
        self._differentiable._backward_cls.apply = gradients


def custom_op(
    name: str, *, fake: Callable[..., Any] | None = None, mutates_args: Iterable[str] = (), repeats: bool = False
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Like `torch.library.custom_op`. `fake`: what a compiler calls for shapes and dtypes. `repeats`: the function is `repeatable`."""

    def register(function: Callable[..., Any]) -> CustomOp:
        op = CustomOp(name, function, mutates_args, repeats)
        if fake:
            op.register_fake(fake)
        return op

    return register


# Looking a name up below torch takes about as long as calling it. `is_compiling` alone is looked up each time: torch.compile replaces it.
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


def _is_observed() -> bool:
    """Return whether a compiler, a dispatch mode or functorch must see the op."""
    return torch.compiler.is_compiling() or (_modes() > 0 and not (RECORDING.tape and _modes() == 1)) or _transforms() is not None
