"""Custom ops on a card whose tensors have no data.

torch's dispatcher would run an op's fake implementation on meta tensors, and launch nothing. `DirectOp` replaces what
`torch.library.custom_op` makes while a package is loaded. It calls the function itself, with the gradients that the package registered, so
that every launch inside it is seen.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from warpwave.inside.fake_gpu.host_side import is_host, is_traced, tensors_in
from warpwave.inside.fake_gpu.redirect import within

REGISTERS = ("register_fake", "register_kernel", "register_autograd", "register_autocast", "register_vmap", "register_torch_dispatch")


class DirectOp:
    """A custom op that is called past the dispatcher, on a device of the type `kind`. What only serves tracing is ignored."""

    def __init__(self, kind: str, function: Callable[..., Any], schema: str | None = None) -> None:
        self._kind, self._function, self._signature, self._given = kind, function, inspect.signature(function), schema
        self._plain = function
        self.__signature__ = self._signature  # packages compare it with that of the op's fake
        self._on_host: Callable[..., Any] | None = None
        self._fake: Callable[..., Any] | None = None
        self._methods: dict[str, Any] = {}
        self._differentiable: type[torch.autograd.Function] | None = None

    @property
    def _schema(self) -> Any:
        """What packages ask an op for its arguments by."""
        given = self._given or torch.library.infer_schema(self._function, mutates_args="unknown")
        return torch._C.parse_schema(f"warpwave::op{given}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op, and record it for autograd if a backward was registered."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._fake is not None and is_traced(bound.args, bound.kwargs):
            return self._fake(*bound.args, **bound.kwargs)
        if self._on_host is not None and all(map(is_host, tensors_in(bound.args, bound.kwargs))):
            return self._on_host(*bound.args, **bound.kwargs)
        if self._differentiable is None:
            return self._function(*bound.args, **bound.kwargs)
        return self._differentiable.apply(*bound.args, bound.kwargs)  # type: ignore[no-untyped-call]

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """As torch's: `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` gives a gradient an input."""

        def keep(ctx: Any, inputs: Any, output: Any) -> None:
            *given, keywords = inputs
            if setup_context is not None:
                named = {"keyword_only_inputs": keywords} if keywords else {}
                setup_context(ctx=ctx, inputs=tuple(given), output=output, **named)

        def differentiate(ctx: Any, *grads: Any) -> Any:
            found = backward(ctx, *grads)
            return (*found, None) if isinstance(found, tuple) else (found, None)

        self._apply_with(setup_context=keep, backward=differentiate)

    def register_vmap(self, function: Any = None, /) -> Any:
        """As torch's: `function(info, in_dims, *args)` runs the op for a whole batch."""
        if function is None:
            return self.register_vmap

        def batch(info: Any, in_dims: Any, *arguments: Any) -> Any:
            *inputs, keywords = arguments
            return function(info, tuple(in_dims[: len(inputs)]), *inputs, **keywords)

        self._apply_with(vmap=batch)
        return function

    def _apply_with(self, **methods: Callable[..., Any]) -> None:
        """Run the op through autograd from now on, with these of its methods. The last argument has what was given by name."""
        self._methods |= {name: staticmethod(method) for name, method in methods.items()}

        def forward(*arguments: Any) -> Any:
            *inputs, keywords = arguments
            return self._function(*inputs, **keywords)

        standard = {"forward": staticmethod(forward), "setup_context": staticmethod(lambda ctx, inputs, output: None)}
        self._differentiable = type("Direct", (torch.autograd.Function,), {**standard, **self._methods})

    def register_fake(self, function: Any, /) -> Any:
        """Keep what gives the shapes of results, for where torch traces."""
        self._fake = function
        return function

    def register_torch_dispatch(self, dispatch_class: Any, function: Any = None, /) -> Any:
        """Ignore what a mode of torch, or a subclass of a tensor, would do with the op: it only serves tracing."""
        return (lambda given: given) if function is None else function

    def register_effect(self, effect: Any) -> None:
        """Ignore it: only a compiled graph is ordered by effects."""

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Use the op's function, and not what was registered for a type of devices, within a `with`."""
        function, on_host = self._function, self._on_host
        try:
            if not enabled and device_type == self._kind:
                self._function = self._plain
            elif not enabled and device_type == "cpu":
                self._on_host = None
            yield
        finally:
            self._function, self._on_host = function, on_host

    def register_kernel(self, device_types: Any, function: Any = None, /) -> Any:
        """Use an implementation for the pretended device in place of the function, and one for the CPU for tensors of the host."""

        def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
            kinds = [device_types] if isinstance(device_types, str) else device_types
            if kinds is None or self._kind in kinds:
                self._function = implementation
            elif "cpu" in kinds:
                self._on_host = implementation
            return implementation

        return register if function is None else register(function)

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """Ignore it: a bench that measures under autocast still launches the op."""


class DirectOps:
    """Makes every op of a package, on a device of the type `kind`, call its function."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._made: dict[str, DirectOp] = {}
        self._on_gpu: dict[tuple[str, str], Callable[..., Any]] = {}

    def defining(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `custom_op` or `triton_op`."""

        def define(name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
            # Torch itself defines an op in a module that it imports only now: such an op has rules for tensors without data.
            if str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0] in ("torch", "functorch"):
                return original(name, function, **options) if function else original(name, **options)
            return self._direct_op(name, function, **options)

        return define

    def _direct_op(self, name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return functools.partial(self._direct_op, name, **options)
        self._made[name] = op = DirectOp(self._kind, function, options.get("schema"))
        namespace, _, short = name.partition("::")
        op.default = op  # type: ignore[attr-defined]  # `torch.ops.namespace.name` finds it, also with its overload's name behind it
        setattr(getattr(torch.ops, namespace), short, op)
        return op

    def registering(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return one of torch's functions that register something for an op, as `method` of the op does."""

        def by_name(op: Any, *args: Any, **kwargs: Any) -> Any:
            known = op if isinstance(op, DirectOp) else self._made.get(op) if isinstance(op, str) else None
            if known is None:
                return original(op, *args, **kwargs)
            rest = {key: value for key, value in kwargs.items() if key in ("setup_context", "func")}
            if args or rest:
                return getattr(known, method)(*[value for value in args if value is not None], **rest)

            def register(function: Callable[..., Any]) -> Callable[..., Any]:
                getattr(known, method)(function)
                return function

            return register

        return by_name

    def implementing(self, implement: Callable[..., None]) -> Callable[..., None]:
        """Return `Library.impl`: what is implemented for the GPU runs where torch would ask for shapes."""

        def without_data(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
            op = _named(library, op_name)
            if dispatch_key == self._kind.upper():
                self._on_gpu[op] = within(fn)
                with contextlib.suppress(RuntimeError):  # what gives shapes came first, and asks here
                    implement(library, op_name, self._on_gpu[op], "Meta", **options)
            elif dispatch_key != "Meta" or op not in self._on_gpu:
                implement(library, op_name, fn, dispatch_key, **options)

        return without_data

    def giving_shapes(self, register_fake: Callable[..., None]) -> Callable[..., None]:
        """Return `Library._register_fake`, for ops that have nothing for the GPU. With both, torch refuses the second, or chooses one."""

        def unless_on_gpu(library: Any, op_name: Any, fn: Any, *args: Any, **options: Any) -> None:
            op = _named(library, op_name)
            if op not in self._on_gpu:
                register_fake(library, op_name, lambda *given, **named: self._on_gpu.get(op, fn)(*given, **named), *args, **options)

        return unless_on_gpu


def _named(library: Any, op: Any) -> tuple[str, str]:
    """Return the namespace and name of an op of a library, which may be given as the op itself."""
    name = op if isinstance(op, str) else f"{op._schema.name}.{op._schema.overload_name}".rstrip(".")
    return library.ns, name.rpartition("::")[2]
