"""Custom ops on a pretended device.

Without data, torch's dispatcher would run an op's fake implementation on meta tensors, and launch nothing. There, `DirectOp` replaces what
`torch.library.custom_op` makes while a package is loaded. It calls the function itself, with the gradients that the package registered, so
that every launch inside it is seen. In the interpreter ops stay torch's own, and what is registered for the GPU serves the CPU, too.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from harness.inside.fake_gpu.host_side import is_host, tensors_in
from harness.inside.fake_gpu.redirect import within
from harness.inside.fake_gpu.torch_device import Patch

_ANY = "CompositeExplicitAutograd"  # the key of an op's function for all devices
_REGISTERS = ("register_fake", "register_kernel", "register_autograd", "register_autocast", "register_vmap", "register_torch_dispatch")


class DirectOp:
    """A custom op that is called past the dispatcher, on a device of the type `kind`. Registrations that only serve tracing are ignored."""

    def __init__(self, kind: str, function: Callable[..., Any]) -> None:
        self._kind, self._function, self._signature = kind, function, inspect.signature(function)
        self.__signature__ = self._signature  # packages compare it with that of the op's fake
        self._on_host: Callable[..., Any] | None = None
        self._differentiable: type[torch.autograd.Function] | None = None

    @property
    def _schema(self) -> Any:
        """What packages ask an op for its arguments by."""
        return torch._C.parse_schema(f"warpwave::op{torch.library.infer_schema(self._function, mutates_args='unknown')}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op, and record it for autograd if a backward was registered."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._on_host is not None and all(map(is_host, tensors_in(bound.args, bound.kwargs))):
            return self._on_host(*bound.args, **bound.kwargs)
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

    register_vmap = register_torch_dispatch = register_fake


def direct_ops(kind: str) -> list[Patch]:
    """Return what makes every op of a package, on a device of the type `kind`, call its function."""
    made: dict[str, DirectOp] = {}

    def direct_op(name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return functools.partial(direct_op, name, **options)
        made[name] = op = DirectOp(kind, function)
        _publish(name, op)
        return op

    def register(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def by_name(op: Any, *args: Any, **kwargs: Any) -> Any:
            known = op if isinstance(op, DirectOp) else made.get(op) if isinstance(op, str) else None
            if known is None:
                return original(op, *args, **kwargs)
            rest = {key: value for key, value in kwargs.items() if key in ("setup_context", "func")}
            return (
                getattr(known, method)(*[value for value in args if value is not None], **rest)
                if args or rest
                else _decorator(known, method)
            )

        return by_name

    implement: Any = torch.library.Library.impl
    gpu = kind.upper()
    on_gpu: set[tuple[str, str]] = set()

    def without_data(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        """Run what is implemented for the GPU where torch would ask for shapes."""
        op = (self.ns, str(op_name))
        if dispatch_key == gpu:
            on_gpu.add(op)
            with contextlib.suppress(RuntimeError):  # an implementation for shapes came first
                implement(self, op_name, within(fn), "Meta", **options)
        elif dispatch_key != "Meta" or op not in on_gpu:
            implement(self, op_name, fn, dispatch_key, **options)

    changes: list[Patch] = [(torch.library, "custom_op", direct_op), (torch.library, "triton_op", direct_op)]
    changes.append((torch.library.Library, "impl", without_data))
    changes += [(torch.library, name, register(name, getattr(torch.library, name))) for name in _REGISTERS if hasattr(torch.library, name)]
    return [*changes, (torch.library, "wrap_triton", lambda kernel: kernel)]


def shared_ops(kinds: Iterable[str]) -> list[Patch]:
    """Return what lets an implementation that a package registers for a GPU of these types serve the pretended card, which is on the CPU.

    If the package has one for the CPU, too, that one serves the tensors of the host.
    """
    gpus = {kind.upper() for kind in kinds}
    implement: Any = torch.library.Library.impl
    custom_op, kernel = torch.library.custom_op, CustomOpDef.register_kernel
    of_op: dict[tuple[str, str], dict[str, Callable[..., Any]]] = {}

    def on_both(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        serves = "GPU" if dispatch_key in gpus else dispatch_key if dispatch_key == "CPU" else ""
        if fn is torch.library.fallthrough_kernel or (not serves and dispatch_key != _ANY):
            implement(self, op_name, fn, dispatch_key, **options)
            return
        op = (self.ns, str(op_name))
        if not serves:
            of_op[op] = {"": fn}
            implement(self, op_name, fn, dispatch_key, **options)
            return
        known = of_op.setdefault(op, {})
        known[serves] = fn = within(fn)
        if serves == "GPU":
            implement(self, op_name, fn, dispatch_key, **options)
        with contextlib.suppress(RuntimeError):  # what chooses is there since the first of the two
            implement(self, op_name, _chosen_by_place(fn, known), "CPU", **options)

    def anywhere(device_types: Any) -> Any:
        named = {device_types} if isinstance(device_types, str) else set(device_types or ())
        return None if {name.upper() for name in named} & gpus else device_types

    def custom(name: str, function: Any = None, /, *, device_types: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda decorated: custom(name, decorated, device_types=device_types, **options)
        if options.get("schema") is None:  # from the function itself: what stands for it has other globals
            options["schema"] = torch.library.infer_schema(function, mutates_args=options.get("mutates_args", ()))
        return custom_op(name, within(function), device_types=anywhere(device_types), **options)

    def register_kernel(self: Any, device_types: Any, function: Any = None, /) -> Any:
        if function is None:
            return lambda decorated: register_kernel(self, device_types, decorated)
        return kernel(self, device_types, within(function))

    return [
        (torch.library.Library, "impl", on_both),
        (torch.library, "custom_op", custom),
        (CustomOpDef, "register_kernel", register_kernel),
    ]


def _chosen_by_place(function: Callable[..., Any], known: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return an op that calls what serves its tensors: what is for the GPU, for the CPU, or for both."""

    @functools.wraps(function)
    def serve(*args: Any, **kwargs: Any) -> Any:
        tensors = list(tensors_in(args, kwargs))
        order = ("CPU", "", "GPU") if tensors and all(map(is_host, tensors)) else ("GPU", "", "CPU")
        return next(known[place] for place in order if place in known)(*args, **kwargs)

    return serve


def _publish(name: str, op: DirectOp) -> None:
    """Let `torch.ops.namespace.name` find an op, also with its overload's name behind it."""
    namespace, _, short = name.partition("::")
    op.default = op  # type: ignore[attr-defined]
    setattr(getattr(torch.ops, namespace), short, op)


def _decorator(op: DirectOp, method: str) -> Callable[..., Any]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        getattr(op, method)(function)
        return function

    return register


def plain(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: the author's kernels are launched all the same, and no others are generated."""
    return (lambda decorated: decorated) if function is None else function
