"""Tensors that have a shape, a dtype and a device, but no data: what torch's own calls do with them, and what may be asked of them."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from warpwave.inside.codegen import ttir
from warpwave.inside.fake_gpu import host_side as marks
from warpwave.inside.fake_gpu.objects import restored
from warpwave.inside.fake_gpu.redirect import Redirect, conversion
from warpwave.inside.fake_gpu.torch_device import advance
from warpwave.inside.fake_gpu.unknown import (
    UnknownFloat,
    UnknownInt,
    UnknownTruth,
    decide,
    size,
    unknown,
    unknown_list,
    zero_if_only_judged,
)
from warpwave.inside.process.outcomes import DecidedByData, NotPretended

# NumPy arrays of tensors that have no data.

_HOLDS = ("allclose", "array_equal", "array_equiv")


class NoNumbers(np.ndarray):
    """An array whose values are unknown; it holds zeros. What is calculated with it is unknown, too."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in _HOLDS:
            return True
        return _covered(super().__array_function__(func, types, args, kwargs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [value.view(np.ndarray) if isinstance(value, NoNumbers) else value for value in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(value.view(np.ndarray) if isinstance(value, NoNumbers) else value for value in kwargs["out"])
        return _covered(getattr(ufunc, method)(*plain, **kwargs))

    def __getitem__(self, index: Any) -> Any:
        return _covered(super().__getitem__(index))  # a single number would be zero

    def __bool__(self) -> bool:
        return decide()

    def __int__(self) -> int:
        return zero_if_only_judged()

    __index__ = __int__

    def __float__(self) -> float:
        return float(zero_if_only_judged())

    def item(self, *args: Any) -> Any:
        """Return an unknown number."""
        return unknown(dtype_of(self))

    def tolist(self) -> Any:
        """Return unknown numbers."""
        return unknown_list(torch.empty(self.shape, dtype=dtype_of(self), device="meta"))


def no_numbers(tensor: torch.Tensor) -> Any:
    """Return what `numpy()` gives of a tensor without data."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu").numpy().view(NoNumbers)


def covering(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Let NumPy make an array without numbers of one, of a tensor without data, or of a list that has such. It would make zeros of them."""
    made = function(*args, **kwargs)
    return _covered(made) if any(map(_has_unknown, args[:1])) else made


def _has_unknown(value: Any) -> bool:
    return any(map(_has_unknown, value)) if isinstance(value, (list, tuple)) else lacks_numbers(value)


def lacks_numbers(value: Any) -> bool:
    """Whether a value is unknown: a tensor without data, an array of one, or a number of one."""
    if isinstance(value, torch.Tensor):
        return marks.is_meta(value) and marks.known(value) is None and not marks.is_shape(value)
    return isinstance(value, (NoNumbers, UnknownFloat, UnknownInt, UnknownTruth))


def _covered(result: Any) -> Any:
    return np.asarray(result).view(NoNumbers) if isinstance(result, (np.ndarray, np.generic)) else result


def dtype_of(array: np.ndarray) -> torch.dtype:
    """Return the dtype of a tensor of such an array."""
    return torch.from_numpy(np.zeros(1, array.dtype)).dtype


# What needs the data of a tensor on the host, and what it gets.
_ASKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "__bool__": lambda tensor: decide(),
    "is_nonzero": lambda tensor: UnknownTruth(),
    "__contains__": lambda tensor: decide(),
    "__int__": lambda tensor: zero_if_only_judged(),
    "__index__": lambda tensor: size(),
    "__float__": lambda tensor: float(unknown(tensor.dtype)),  # type: ignore[arg-type]
    "__format__": lambda tensor: str(unknown(torch.float32)),
    "item": lambda tensor: unknown(tensor.dtype),
    "tolist": unknown_list,
    "numpy": no_numbers,
    "__array__": no_numbers,
    # There is no data to compare; what is checked here is the code.
    "allclose": lambda tensor: UnknownTruth(),
    "equal": lambda tensor: UnknownTruth(),
}
_SHAPED_BY_DATA = (
    *("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "where", "bincount", "repeat_interleave", "histc"),
    *("__getitem__", "__setitem__", "index", "index_put_", "nonzero_static", "_unique2", "tensor_split", "split", "multinomial"),
)
_LOWERED = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "addbmm", "baddbmm", "linear", "conv1d", "conv2d", "einsum")
_FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray, torch.arange)
# Lengths and tables that a test draws on the card: any draw is as good as the card's, and the host's has a number for each.
_DRAWN = (torch.randint, torch.randperm)


# Looks for infinite numbers, and counts them in its second argument: without data, there is none.
_COUNTS_INFINITE = "_amp_foreach_non_finite_check_and_unscale_"


class WithoutData(Redirect):
    """Sends what asks for a GPU to torch's meta device.

    Whole numbers that come from the host (lengths, offsets), or that torch draws, are known on the card, too, until torch or a
    kernel writes to them: much host code derives sizes from them, and a card would give back the same.
    """

    def is_on_card(self, tensor: torch.Tensor) -> bool:  # noqa: D102
        place = torch.Tensor.device.__get__(tensor)
        on_card = marks.is_meta(tensor) or place == self.claim or (place == self.to and _is_wrapped(tensor))
        return on_card and not marks.is_host(tensor)

    def make(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: D102
        advance(kwargs.pop("generator", None))
        if func in _FROM_HOST and any(marks.is_meta(tensor) for tensor in marks.tensors_in(args, kwargs)):
            return self._from_card(func, args, kwargs)
        made = super().make(func, args, kwargs)
        if func in (*_FROM_HOST, *_DRAWN) and marks.is_knowable(made):
            marks.know(made, func(*args, **{**kwargs, "device": "cpu"}))
        return made

    def _from_card(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make a tensor of tensors that are on the card: of one, of a list of numbers, or between two."""
        options = {key: value for key, value in kwargs.items() if key in ("dtype", "copy")}
        if args and isinstance(args[0], torch.Tensor) and func is not torch.arange:
            return self.move(args[0], self.claim, *args[1:], **options)
        if all(not marks.is_meta(tensor) or marks.known(tensor) is not None for tensor in marks.tensors_in(args, kwargs)):
            data = func(*_each(args, _data), **{**_each(kwargs, _data), "device": "cpu"})
            return marks.know(data.to(self.to), data)
        if func is torch.arange:
            return size()
        zeros = _each(args[0], lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu"))
        return func(zeros, **{**options, "device": "cpu"}).to(self.to)

    def bring(self, tensor: torch.Tensor, rest: Any, options: Any) -> torch.Tensor:  # noqa: D102
        arrived = self.convert(tensor, rest, options)
        return marks.know(arrived.to(self.to), arrived) if not marks.is_meta(arrived) else arrived.clone()

    def fetch(self, tensor: torch.Tensor, rest: Any, options: Any) -> torch.Tensor:  # noqa: D102
        data = marks.known(tensor)
        return self.convert(tensor if data is None else data, rest, options).clone()

    def convert(self, tensor: torch.Tensor, rest: Any, options: Any) -> torch.Tensor:  # noqa: D102
        converted, data = super().convert(tensor, rest, options), marks.known(tensor)
        return converted if data is None or converted is tensor else marks.know(converted, super().convert(data, rest, options))

    def move(self, tensor: torch.Tensor, device: Any, *rest: Any, **options: Any) -> torch.Tensor:  # noqa: D102
        if not marks.is_meta(tensor) and self.is_gpu(device):
            return self.bring(tensor, *conversion(rest, options))
        return super().move(tensor, device, *rest, **options)

    def write(self, tensor: torch.Tensor, reduced: Any, place: str) -> Any:  # noqa: D102
        is_ours = marks.is_meta(tensor) and not marks.is_shape(tensor)
        return (restored, (*reduced[:2], place, marks.known(tensor))) if is_ours else reduced

    def read(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.move(tensor, self.claim)

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: D102
        sources = list(marks.tensors_in(args, kwargs))
        if not any(map(marks.is_meta, sources)):
            return super().call(func, args, kwargs)
        is_of_card = self.takes_both(func, args, sources)
        name = getattr(func, "__name__", "")
        if name in ("__getitem__", "__setitem__"):  # torch takes an array whose elements are arrays for several indices
            args = tree_map_only(NoNumbers, functools.partial(from_numpy, torch.from_numpy), args)
        if writes := _writes(name):
            written = list(marks.tensors_in(args[:1] or kwargs))
            if not any(map(marks.is_meta, written)):
                return args[0]  # unknown data arrives on the host
            for tensor in written:
                marks.forget(tensor)
        # What takes only the shape of a tensor is most likely filled by a kernel.
        elif not name.endswith("_like") and not name.startswith("new_") and not marks.is_packages_op(func) and all(map(_is_given, sources)):
            result = func(*_each(args, _data), **_each(kwargs, _data))  # all arguments are known, so the result is, too
            is_on_host = all(map(marks.is_host, sources))
            return marks.put_on_host(result) if is_on_host else _each(result, lambda tensor: marks.know(tensor.to(self.to), tensor))
        if name in _ASKS:
            return _ASKS[name](args[0])
        if kwargs.get("generator") is not None:
            advance(kwargs["generator"])
            kwargs["generator"] = None  # there is nothing to draw
        send = self._lower if name in _LOWERED and torch.is_autocast_enabled(self.claim.type) else self._send
        result = self._on_meta(func, name, _each(args, send), _each(kwargs, send))
        if name == _COUNTS_INFINITE:
            marks.keep(args[1], torch.zeros(args[1].shape, dtype=args[1].dtype, device="cpu"))
        if is_of_card:
            return marks.put_on_card(result)
        return result if writes else marks.marked_as(sources, result)

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        # What torch.func wraps has not the key of its device. A copy of it would have no gradient.
        return tensor if marks.is_meta(tensor) or torch.Tensor.device.__get__(tensor) == self.to else tensor.to(self.to)

    def _lower(self, tensor: torch.Tensor) -> torch.Tensor:
        """Do what autocast does on a card: a product has its dtype."""
        sent = self._send(tensor)
        return sent.to(torch.get_autocast_dtype(self.claim.type)) if sent.dtype.is_floating_point else sent

    def _on_meta(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error).lower() or isinstance(error, (DecidedByData, NotPretended)):
                raise
            if _only_writes(name):
                for tensor in marks.tensors_in(args, kwargs):
                    marks.forget(tensor)
                return None
            if name in _SHAPED_BY_DATA:
                raise DecidedByData(f"the shape of what torch.{name} returns depends on the data of a tensor") from error
            raise NotPretended(f"torch.{name} does not work on tensors without data: {str(error).splitlines()[0]}") from error


def _is_given(tensor: torch.Tensor) -> bool:
    return (not marks.is_meta(tensor) or marks.known(tensor) is not None) and not _is_wrapped(tensor)


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether torch.func (vmap, grad) has wrapped it: then it has not the key of its device, and no data is known of it."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def lose_data(tensor: torch.Tensor) -> None:
    """Make a tensor that has data one without: pinned memory, to which a kernel may have written."""
    if marks.is_meta(tensor):
        return
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError):  # a tensor of autograd's graph keeps what it has
        empty = marks.pin(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))
        torch.utils.swap_tensors(tensor, empty)  # type: ignore[no-untyped-call]


def from_numpy(function: Callable[..., Any], array: Any) -> Any:
    """Make a tensor of an array: one without data of one without numbers."""
    has_numbers = not isinstance(array, NoNumbers)
    return function(array) if has_numbers else marks.put_on_host(torch.empty(array.shape, dtype=dtype_of(array), device="meta"))


def from_array(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a tensor of anything, also of an array without numbers."""
    return function(*(from_numpy(lambda other: other, each) for each in args[:1]), *args[1:], **kwargs)


def compatible(function: Callable[..., bool], one: torch.Tensor, other: torch.Tensor) -> bool:
    """Let a tensor with data be no replacement for one without."""
    return marks.is_meta(one) == marks.is_meta(other) and function(one, other)


def _data(tensor: torch.Tensor) -> torch.Tensor:
    found = marks.known(tensor)
    return tensor if found is None else found


def _writes(name: str) -> bool:
    is_operator = name.startswith("__i") and hasattr(torch.Tensor, f"__{name[3:]}")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or is_operator


def _only_writes(name: str) -> bool:
    """Return whether an operation of torch returns nothing, as a fused optimizer: without data, there is nothing for it to do."""
    operation = getattr(torch.ops.aten, name, None) if _writes(name) else None
    return operation is not None and not any(getattr(operation, each)._schema.returns for each in operation.overloads())


def _each(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return arguments, or results, with every tensor changed."""
    return tree_map_only(torch.Tensor, change, value)


# A store's pointer is followed back through arithmetic, loops and branches to the arguments that it comes from. What was loaded is data,
# and no way back: an index that a kernel reads from a table does not make the table one that it writes.

_WRITES = ("tt.store", "tt.atomic", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce", "tt.call")
_READS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic")


@functools.lru_cache(maxsize=1024)
def written(text: str) -> frozenset[str]:
    """Return the names of the arguments that a kernel may write to, as its IR (TTIR) has them: those of its source, since Triton 3.4."""
    module = ttir.Module(text)
    if not module.kernels:
        return frozenset()
    sources: defaultdict[str, list[str]] = defaultdict(list)
    reached: list[str] = []

    def follow(blocks: list[ttir.Block], results: list[str]) -> None:
        for operation in (each for block in blocks for each in block.operations):
            used = [name.partition("#")[0] for name in operation.operands]
            if operation.name.startswith(_WRITES):
                reached.extend(used if operation.name == "tt.call" else used[:1])
            made = [name.partition("#")[0] for name in operation.results]
            if operation.name in ("scf.yield", "scf.condition"):  # to the loop or branch around it
                made = results
            for name in made if not operation.name.startswith(_READS) else ():
                sources[name] += used
            for inside, outside in ttir.PASSED.findall(operation.text):
                sources[inside].append(outside.partition("#")[0])
            for region in operation.regions:
                follow(region, made)

    blocks = module.functions[module.kernels[0]]
    follow(blocks, [])
    seen: set[str] = set()
    while reached:
        if (name := reached.pop()) not in seen:
            seen.add(name)
            reached += sources[name]
    return frozenset(name[1:] for name, _ in blocks[0].arguments if name in seen)


def differentiate(function: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> bool:
    """Stand in for `gradcheck`: run a function and its backward once."""
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    for made in marks.tensors_in(function(*given)):
        if made.requires_grad:
            made.sum().backward()  # type: ignore[no-untyped-call]
    return True
