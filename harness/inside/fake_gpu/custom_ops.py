"""Custom ops on a pretended device: torch's dispatcher would run an op's fake implementation on meta tensors, and launch nothing.

`DirectOp` replaces what `torch.library.custom_op` makes while a package is loaded. It calls the function itself, with the
gradients that the package registered, so that every launch inside it is seen.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch


class DirectOp:
    """A custom op that is called past the dispatcher, on a device of the type `kind`. Registrations that only serve tracing are ignored."""

    def __init__(self, kind: str, function: Callable[..., Any]) -> None:
        self._kind, self._function, self._signature = kind, function, inspect.signature(function)
        self._differentiable: type[torch.autograd.Function] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op, and record it for autograd if a backward was registered."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._differentiable is None:
            return self._function(*bound.args, **bound.kwargs)
        return self._differentiable.apply(*bound.args, bound.kwargs)  # type: ignore[no-untyped-call]

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """As torch's: `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` gives a gradient an input."""

        def forward(ctx: Any, *arguments: Any) -> Any:
            *inputs, keywords = arguments
            output = self._function(*inputs, **keywords)
            if setup_context is not None:
                named = {"keyword_only_inputs": keywords} if keywords else {}
                setup_context(ctx=ctx, inputs=tuple(inputs), output=output, **named)
            return output

        def differentiate(ctx: Any, *grads: Any) -> Any:
            found = backward(ctx, *grads)
            return (*found, None) if isinstance(found, tuple) else (found, None)

        methods = {"forward": staticmethod(forward), "backward": staticmethod(differentiate)}
        self._differentiable = type("Direct", (torch.autograd.Function,), methods)

    def register_fake(self, function: Any, /) -> Any:
        """Ignore it: it only serves tracing."""
        return function

    def register_kernel(self, device_types: Any, function: Any = None, /) -> Any:
        """Use an implementation for the pretended device in place of the function."""

        def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
            kinds = [device_types] if isinstance(device_types, str) else device_types
            if kinds is None or self._kind in kinds:
                self._function = implementation
            return implementation

        return register if function is None else register(function)

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """Ignore it: a bench that measures under autocast still launches the op."""

    register_vmap = register_torch_dispatch = register_fake


def direct_op(kind: str, name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Stand in for `torch.library.custom_op` and `triton_op` on a device of the type `kind`; `name` is not registered."""
    return functools.partial(DirectOp, kind) if function is None else DirectOp(kind, function)


def plain(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: the author's kernels are launched all the same, and no others are generated."""
    return (lambda decorated: decorated) if function is None else function
