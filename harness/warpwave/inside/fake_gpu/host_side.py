"""Which tensors are on the host, while others pretend to be on a card, what the host knows of those without data, and who asks.

Marks are attributes of tensors: they live as long as the tensor, and a copy has them, too.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

import torch
import triton

_HOST, _PINNED, _KNOWN, _SHAPE = "_warpwave_host", "_warpwave_pinned", "_warpwave_known", "_warpwave_shape"
_CARD = "_warpwave_card"  # of a storage
_MOST_KNOWN = 1 << 16  # elements
_BEHIND_NUMBERS = re.compile(r",\s+(size|dtype|layout|grad_fn|requires_grad|tangent)=")  # in the text of a tensor
# Where torch itself computes shapes in Python, for operators that autograd calls: it must see tensors as they are.
_OF_TORCH = ("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations")
_WRAPPERS = 3  # functions of a package that it has put before torch's own may stand between
Value = TypeVar("Value")
_NAMES_PLACE = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7)  # in the message of its launchers


def asked_by_torch() -> bool:
    """Whether torch itself, which computes shapes, has called the torch function that the caller of this one sees as a mode."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(1 + _WRAPPERS):
        if frame is None:
            return False
        module = frame.f_globals.get("__name__", "")
        # A fake tensor of a compiler asks whether what it holds has no data. Elsewhere in that module, torch asks where a tensor is.
        if module.startswith(_OF_TORCH) or (module == "torch._subclasses.fake_tensor" and frame.f_code.co_name == "__new__"):
            return True
        frame = frame.f_back
    return False


def is_packages_op(function: Any) -> bool:
    """Whether a function is an op that a package has registered, and not one of torch's own."""
    name = getattr(function, "_name", None) or getattr(function, "_qualified_op_name", "")
    return "::" in str(name) and str(name).partition("::")[0] not in ("aten", "prims")


def switched_on(mode: torch.overrides.TorchFunctionMode | None) -> contextlib.AbstractContextManager[object]:
    """Turn a mode on, if it is not on already: of two, the second would take what the first sends to the CPU for a tensor of the host."""
    overrides: Any = torch.overrides  # the function is not typed, and not public
    stack = overrides._get_current_function_mode_stack()
    return contextlib.nullcontext() if mode is None or any(entry is mode for entry in stack) else mode


def is_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor was made on the host, or brought there."""
    return getattr(tensor, _HOST, False) is True


def is_meta(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, whatever it says to the package."""
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Meta))


def put_on_host(value: Value) -> Value:
    """Mark the tensors in what an operation returned."""
    for tensor in tensors_in(value):
        if type(tensor).__name__ != "FakeTensor":
            tensor.__dict__[_HOST] = True
    return value


def make_shape(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor that the package itself wants on torch's meta device: it is neither on the host nor on the card."""
    put_on_host(tensor).__dict__[_SHAPE] = True
    return tensor


def is_shape(tensor: torch.Tensor) -> bool:
    """Whether `make_shape` has marked it."""
    return tensor.__dict__.get(_SHAPE, False) is True


def marked_as(sources: Iterable[torch.Tensor], made: Value) -> Value:
    """Mark what a call made of tensors: on torch's meta device if one of them is, and on the host if all are there or none is given."""
    sources = list(sources)
    if not any(map(is_shape, sources)):
        return put_on_host(made) if all(map(is_host, sources)) else made
    for tensor in tensors_in(put_on_host(made)):
        tensor.__dict__[_SHAPE] = True
    return made


def put_on_card(tensor: torch.Tensor) -> torch.Tensor:
    """Remove the marks, so that the tensor is on the card."""
    for mark in (_HOST, _SHAPE):
        tensor.__dict__.pop(mark, None)
    return tensor


@contextlib.contextmanager
def unmarked(tensor: torch.Tensor) -> Iterator[None]:
    """Take the marks off a tensor while torch writes it, with all of its attributes."""
    marks = {mark: tensor.__dict__.pop(mark) for mark in (_HOST, _KNOWN, _SHAPE) if mark in tensor.__dict__}
    try:
        yield
    finally:
        tensor.__dict__.update(marks)


def mark_storage(storage: Value) -> Value:
    """Mark the storage of a tensor on the card, before torch writes it or after torch has read it."""
    setattr(storage, _CARD, True)
    return storage


def is_of_card(storage: Any) -> bool:
    """Whether `mark_storage` has marked it."""
    return getattr(storage, _CARD, False) is True


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor on the host as pinned, and with its storage all views of it."""
    setattr(put_on_host(tensor).untyped_storage(), _PINNED, True)
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `pin` has marked it."""
    return getattr(tensor.untyped_storage(), _PINNED, False) is True


def refused(arguments: Iterable[tuple[str, Any]]) -> ValueError | None:
    """Return what Triton's launchers raise if a kernel gets a tensor that a card cannot reach; None if there is none.

    A card reaches pinned memory. A tensor without elements is a null pointer, which a launcher lets pass; so is one of torch's meta device.
    `arguments` are name and value of each, in the kernel's order and with its constants.
    """
    for place, (name, value) in enumerate(_taken_apart(arguments)):
        # A descriptor, or a pointer of another type, has a tensor as its base.
        tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", value)
        if isinstance(tensor, torch.Tensor) and is_host(tensor) and tensor.numel() and not is_shape(tensor) and not is_pinned(tensor):
            at = f" (at {place})" if _NAMES_PLACE else ""
            return ValueError(f"Pointer argument{at} cannot be accessed from Triton (cpu tensor?): {name} is on the host")
    return None


def _taken_apart(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from _taken_apart((f"{name}[{index}]", entry) for index, entry in enumerate(value))
        else:
            yield name, value


def is_knowable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has whole numbers, and not too many: lengths, offsets and indices."""
    return tensor.numel() <= _MOST_KNOWN and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


def know(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Keep what a tensor without data would hold, if that is knowable."""
    return keep(tensor, data) if is_knowable(data) else tensor


def keep(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Keep what a tensor without data would hold."""
    tensor.__dict__[_KNOWN] = data
    return tensor


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the data that a tensor without data would hold, if that is known."""
    return tensor.__dict__.get(_KNOWN)


def forget(tensor: torch.Tensor) -> None:
    """Forget it: something has written to it."""
    tensor.__dict__.pop(_KNOWN, None)


def tensors_in(*values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments or results, also those in lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(*value)
        elif isinstance(value, dict):
            yield from tensors_in(*value.values())


def named_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors that an argument of a launch holds, with their names; an object with an address that holds none as it is."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif hasattr(value, "data_ptr") and hasattr(value, "__dict__"):  # a package's own view of a tensor, which it holds
        yield from [(name, each) for each in vars(value).values() if isinstance(each, torch.Tensor)] or [(name, value)]
    elif isinstance(value, (tuple, list)):
        for position, each in enumerate(value):
            yield from named_in(f"{name}[{position}]", each)
    elif (base := getattr(value, "base", None)) is not None:  # a tensor descriptor, a tensor under another type, or the one of the other
        yield from named_in(name, base)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None if it has none: it is sparse, or torch's compiler traces with it."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_traced(*values: Any) -> bool:
    """Whether there is a tensor among these with which torch follows code for its shapes: it has no pointer."""
    return any(type(each).__module__.startswith("torch._subclasses.") or torch._is_functional_tensor(each) for each in tensors_in(*values))


def texted(device: str, text: str) -> str:
    """Return the text of a tensor with its device where torch writes it: behind the numbers. What has no data is on the meta device."""
    if not text.startswith(("tensor(", "Parameter containing")):
        return text
    text = text.replace(", device='meta'", "", 1)
    numbers = _BEHIND_NUMBERS.search(text)
    at = numbers.start() if numbers else text.rindex(")")
    return f"{text[:at]}, device='{device}'{text[at:]}" if device else text
