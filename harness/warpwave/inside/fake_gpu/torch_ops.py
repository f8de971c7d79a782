"""Custom ops, and torch's own, on a pretended card: with data on the CPU, and without data."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch

from warpwave.inside.fake_gpu.host_side import is_host, is_traced, tensors_in
from warpwave.inside.fake_gpu.redirect import Redirect, within
from warpwave.inside.process.lacking import unbuilt

# With data: ops stay torch's own, and what a package registers for the GPU serves the CPU, too.

_ANY = "CompositeExplicitAutograd"  # the key of an op's function for all devices


class SharedOps:
    """Lets what a package registers for a GPU of these types serve the pretended card, which is on the CPU.

    If the package has a function for the CPU, too, that one serves the tensors of the host. If torch has one of its own, the package
    replaces it on the card only: torch's own goes on to serve the host, and numbers beside tensors, which a card leaves to the CPU.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self._gpus = {kind.upper() for kind in kinds}
        self._of_op: dict[tuple[str, str], dict[str, Callable[..., Any]]] = {}
        self._on_card: dict[tuple[str, str], _OnCardOnly] = {}

    def implementing(
        self, implement: Callable[..., None], library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any
    ) -> None:
        """Register a function for a dispatch key, and keep what serves whom."""
        serves = "GPU" if dispatch_key in self._gpus else dispatch_key if dispatch_key == "CPU" else ""
        if fn is torch.library.fallthrough_kernel or (not serves and dispatch_key != _ANY):
            implement(library, op_name, fn, dispatch_key, **options)
            return
        op = (library.ns, str(op_name))
        if not serves:
            self._of_op[op] = {"": within(fn)}
            implement(library, op_name, within(fn), dispatch_key, **options)
            return
        if op not in self._of_op:
            with contextlib.suppress(AttributeError, RuntimeError):  # torch has no kernel of its own for the CPU, or cannot hand it out
                kernel = torch.library.get_kernel("::".join(op), "CPU")
                self._on_card[op] = _OnCardOnly("::".join(op), kernel, self._of_op.setdefault(op, {}))
        known, fn = self._of_op.setdefault(op, {}), within(fn)
        if serves == "GPU":
            implement(library, op_name, fn, dispatch_key, **options)
        # What chooses is there since the first of the two. torch warns that it replaces a kernel; here that is only on the card.
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if op in self._on_card:
                known[serves] = fn if options.get("with_keyset") else lambda keys, *args, **kwargs: fn(*args, **kwargs)
                # It may stand where warpwave has put a kernel of its own, which some releases of torch refuse to replace.
                implement(library, op_name, self._on_card[op], "CPU", **{**options, "with_keyset": True, "allow_override": True})
            else:
                known[serves] = fn
                implement(library, op_name, _chosen_by_place(fn, known), "CPU", **options)


def if_built(register: Callable[..., Any], op: Any, *args: Any, **options: Any) -> Any:
    """Describe an operator, as `torch.library.register_fake` does. One of compiled code that is not built here needs no description."""

    def tolerant(describe: Callable[[], Any], function: Any) -> Any:
        try:
            return describe()
        except RuntimeError as error:
            if not unbuilt(error, ()):
                raise
            return function

    done = tolerant(lambda: register(op, *args, **options), lambda function: function)
    if args or not callable(done):
        return done
    return lambda function: tolerant(lambda: done(function), function)


def of_kernels(name: str, function: Any = None, /, **options: Any) -> Any:
    """Stand in for `triton_op`: torch does not look into the op, since kernels of the interpreter cannot be traced."""
    if function is None:
        return lambda decorated: of_kernels(name, decorated, **options)
    made: Any = torch.library.custom_op(name, function, **options)
    made.register_fake(function)
    return made


def with_out_dtype(
    function: Callable[..., Any], *args: Any, out_dtype: torch.dtype | None = None, out: torch.Tensor | None = None, **options: Any
) -> Any:
    """Give a product of narrow numbers the `out_dtype` that torch has for cards alone: sums are not rounded to the operands' type."""
    if args and isinstance(args[-1], torch.dtype):
        *args, out_dtype = args  # type: ignore[assignment]
    if out_dtype is None:
        return function(*args, **options) if out is None else function(*args, out=out, **options)
    made = function(*(each.to(out_dtype) if isinstance(each, torch.Tensor) else each for each in args), **options)
    return made if out is None else out.copy_(made)


def _chosen_by_place(function: Callable[..., Any], known: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return an op that calls what serves its tensors: what is for the GPU, for the CPU, or for both."""

    @functools.wraps(function)
    def serve(*args: Any, **kwargs: Any) -> Any:
        tensors = list(tensors_in(args, kwargs))
        order = ("CPU", "", "GPU") if tensors and all(map(is_host, tensors)) else ("GPU", "", "CPU")
        return next(known[place] for place in order if place in known)(*args, **kwargs)

    return serve


class _OnCardOnly:
    """What a package registers for the GPU, where torch has a kernel of its own for the CPU: a card leaves the host's tensors to that.

    `known` has the package's functions by place, "GPU" and "CPU". Each takes the dispatch keys first.
    """

    _own = threading.local()

    def __init__(self, op: str, kernel: Any, known: dict[str, Callable[..., Any]]) -> None:
        namespace, _, name = op.partition("::")
        name, _, overload = name.partition(".")
        schema = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")._schema
        self._tensors = [place for place, argument in enumerate(schema.arguments) if str(argument.type) in _TENSOR_TYPES]
        self._kernel, self.known = kernel, known

    def __call__(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        is_running = getattr(self._own, "is_running", False)
        if not is_running and self._is_on_card(args, kwargs):
            function = self.known.get("GPU", self._kernel.call_boxed)
            return function(keys, *map(_of_card, args), **{name: _of_card(value) for name, value in kwargs.items()})
        if not is_running and "CPU" in self.known:
            return self.known["CPU"](keys, *args, **kwargs)
        self._own.is_running = True
        try:
            return self._kernel.call_boxed(keys, *self._without_numbers(args, kwargs), **kwargs)
        finally:
            self._own.is_running = is_running

    def _is_on_card(self, args: Any, kwargs: Any) -> bool:
        tensors = list(tensors_in(args, kwargs))
        if all(map(is_host, tensors)) and (tensors or self._tensors):
            return False
        disabled: Any = torch._C._is_torch_function_all_disabled  # then the call is warpwave's own
        return not disabled() and (Redirect.current is None or Redirect.current.is_asked_of_card())

    def _without_numbers(self, args: Any, kwargs: Any) -> list[Any]:
        """Return positional arguments with tensors for numbers: torch hands that of `tensor + 1.5` to Python, and does not take it back."""
        given = list(args)
        for place in self._tensors:
            if place < len(given) and isinstance(given[place], (bool, int, float, complex)):
                given[place] = _as_tensor(given[place], list(tensors_in(args, kwargs)))
        return given


_TENSOR_TYPES = ("Tensor", "Optional[Tensor]")


def _as_tensor(number: Any, beside: list[torch.Tensor]) -> torch.Tensor:
    """Return a number as a tensor that promotes the type of those beside it no further than the number does."""
    if not beside:
        return torch.tensor(number, device="cpu")
    main = next((tensor for tensor in beside if tensor.dim()), beside[0])
    promoted = torch.result_type(main, number)
    is_exact = main.dim() and promoted == main.dtype and isinstance(number, float)  # a number is not rounded to half
    return torch.tensor(number, dtype=torch.float64 if is_exact else promoted, device="cpu")


def _of_card(value: Any) -> Any:
    """Return the card's device for that on which its tensors are."""
    redirect = Redirect.current
    return redirect.claim if redirect and isinstance(value, torch.device) and value == redirect.to else value


class Traceable:
    """What `torch.library.wrap_triton` makes of a kernel: a launch for real tensors. Where torch only traces, it launches nothing."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch: Callable[..., Any] = self._kernel[grid]
        return lambda *args, **kwargs: None if is_traced(args, kwargs) else launch(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


# Operations of torch's on fp16 and bf16 as a card computes them: sums are of fp32, and the result is rounded once.
#
# On the CPU, torch adds some of these in halves. A mean loss over 4096 tokens in bf16, half of them ignored, is 2.0 instead of 8.07; the
# gradient of a layer norm's bias over 4096 rows is off by 65%; the product of 512 numbers, by 30 units in the last place. And it keeps a
# layer norm's mean and deviation in halves for the backward, where a card keeps fp32. A test would blame a correct kernel for that.

_HALVES = (torch.float16, torch.bfloat16)
# Each operation, with the arguments whose type its results have; `None` is for a result in fp32.
_OPERATIONS: dict[str, tuple[int | None, ...]] = {
    "native_layer_norm": (0, None, None),
    "_log_softmax": (0,),
    "nll_loss_forward": (0, 0),
    "nll_loss2d_forward": (0, 0),
    "native_layer_norm_backward": (1, 5, 5),
    "native_group_norm_backward": (1, 4, 4),
    "embedding_dense_backward": (0,),
    "prod": (0,),
    "prod.dim_int": (0,),
}


def sum_in_fp32() -> Callable[[], None]:
    """Replace the operations. Return what undoes that. A torch without `library.get_kernel` keeps its own."""
    get: Any = getattr(torch.library, "get_kernel", None)
    library: Any = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they replace torch's own, as they should
        for name, places in _OPERATIONS.items() if get else ():
            library.impl(name, _widened(get(f"aten::{name}", "CPU"), places), "CPU", with_keyset=True)
    undo: Callable[[], None] = library._destroy
    return undo


def _widened(kernel: Any, places: tuple[int | None, ...]) -> Callable[..., Any]:
    """Return an operation that computes halves in fp32. What is asked for in another type (`dtype`, `half_to_float`) stays in it."""

    def compute(keys: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[places[0] or 0].dtype
        given = [None if place is None else args[place] for place in places]
        dtypes = [torch.float32 if place is None else getattr(each, "dtype", first) for place, each in zip(places, given, strict=True)]
        if not any(dtype in _HALVES for dtype in dtypes) or kwargs.get("dtype") is not None:
            return kernel.call_boxed(keys, *args, **kwargs)
        found = kernel.call_boxed(keys, *map(_wide, args), **kwargs)
        several = found if isinstance(found, (list, tuple)) else [found]
        rounded = [each if each is None else each.to(dtype) for each, dtype in zip(several, dtypes, strict=True)]
        return tuple(rounded) if isinstance(found, (list, tuple)) else rounded[0]

    return compute


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value


# Custom ops without data. torch's dispatcher would run an op's fake implementation on meta tensors, and launch nothing. What is for the GPU
# runs there in its place, so that every launch in it is seen.


class DirectOps:
    """Makes every op of a package, on a device of the type `kind`, run where torch would ask for the shapes of its results."""

    def __init__(self, kind: str) -> None:
        self._key = kind.upper()
        self._on_gpu: dict[tuple[str, str], Callable[..., Any]] = {}
        self._of_all: dict[tuple[str, str], Callable[..., Any]] = {}

    def implementing(
        self, implement: Callable[..., None], library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any
    ) -> None:
        """Register a function for a dispatch key."""
        op, known = _named(library, op_name), {self._key: self._on_gpu, _ANY: self._of_all}.get(dispatch_key)
        if known is not None and fn is not torch.library.fallthrough_kernel and not _torch_registers():
            known[op] = fn = within(fn)
            if dispatch_key == _ANY:
                implement(library, op_name, fn, dispatch_key, **options)
            with contextlib.suppress(RuntimeError):  # what gives shapes came first, and asks here
                implement(library, op_name, fn, "Meta", **options)
        elif dispatch_key != "Meta" or (op not in self._on_gpu and op not in self._of_all):
            implement(library, op_name, fn, dispatch_key, **options)

    def giving_shapes(self, register_fake: Callable[..., None], library: Any, op_name: Any, fn: Any, *args: Any, **options: Any) -> None:
        """Register what gives shapes: for where torch traces, and for an op that has nothing for the GPU."""
        op = _named(library, op_name)

        def shapes(*given: Any, **named: Any) -> Any:
            runs = None if is_traced(given, named) else self._on_gpu.get(op) or self._of_all.get(op)
            return (runs or fn)(*given, **named)

        if op not in self._on_gpu and op not in self._of_all:  # with both, torch refuses the second, or chooses one
            register_fake(library, op_name, shapes, *args, **options)


def _torch_registers() -> bool:
    """Whether torch itself defines an op, in a module that it imports only now: such an op has rules for tensors without data."""
    frame: FrameType | None = sys._getframe(2)
    passing = ("torch.library", "torch._library", "warpwave.")
    while frame is not None and str(name := frame.f_globals.get("__name__", "")).startswith(passing):
        frame = frame.f_back
    return frame is not None and str(name).partition(".")[0] in ("torch", "functorch")


def _named(library: Any, op: Any) -> tuple[str, str]:
    """Return the namespace and name of an op of a library, which may be given as the op itself."""
    name = op if isinstance(op, str) else f"{op._schema.name}.{op._schema.overload_name}".rstrip(".")
    return library.ns, name.rpartition("::")[2]
