"""A note of what one call does, and the tape that is made from it: a function that does it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.launches.bound import RECORDING, TRITONS_RUN, Bound
from kernels.launches.direct import Direct

_EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")
# Bytes: where CUDA's memory starts is a multiple of it.
_ALIGNED = 512
_runtime = knobs.runtime

# A test without a card replaces this.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

# What a tape uses. Without an argument, `is_autocast_enabled` is that of CUDA, in half the time.
_NAMES = {
    "empty_like": torch.empty_like,
    "empty_strided": torch.empty_strided,
    "zeros": torch.zeros,
    "JITFunction": JITFunction,
    "TRITONS_RUN": TRITONS_RUN,
    "runtime": _runtime,
    "is_autocast": torch.is_autocast_enabled,
}


def is_watched() -> bool:
    """Return whether a tool must see launches: it replaces Triton's `run`, or has hooks; or whether autocast changes dtypes."""
    hooks = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    return JITFunction.run is not TRITONS_RUN or any(getattr(hook, "calls", True) for hook in hooks) or torch.is_autocast_enabled()


class Tape:
    """What a call did. `play(tensors, addresses)` does it again and returns the result; or None, where that would not come to the same."""

    __slots__ = ("play",)

    def __init__(self, lines: list[str], names: dict[str, Any]) -> None:
        # Triton writes the way to a kernel like this, too: a loop over what is known takes as long as what it does.
        exec("\n    ".join(["def play(tensors, addresses):", *lines]), names)
        self.play: Callable[[list[Tensor], list[int]], Any] = names["play"]


class Note(TorchDispatchMode):
    """Notes what a call does."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.refused = False
        self._tensors = tensors
        self._made: list[tuple[Tensor, bool]] = []
        self._launches: list[tuple[Bound, tuple[Any, ...]]] = []
        self._seen = 0

    def of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function."""

        def count(_: Any) -> None:
            self._seen += RECORDING.tape is self

        RECORDING.tape = self
        _runtime.launch_enter_hook.add(count)
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            RECORDING.tape = None
            _runtime.launch_enter_hook.remove(count)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = op(*args, **(kwargs or {})), op._schema.name
        if name in _EMPTY or name == "aten::zeros":
            self._made.append((result, name == "aten::zeros"))
        elif not op.is_view:
            self.refused = True
        return result

    def launched(self, bound: Bound, arguments: tuple[Any, ...]) -> None:
        """Called by `bound` before it launches."""
        self._launches.append((bound, arguments))

    def tape(self, result: Any) -> Tape | None:
        """Return what was noted, or None if that cannot be played: Triton is not as expected, or something else than tensors was used."""
        bound = all(bound.compiled for bound, _ in self._launches)
        if self.refused or not self._launches or self._seen != len(self._launches) or not bound:
            return None
        try:
            return self._written(result if isinstance(result, tuple) else (result,), isinstance(result, tuple))
        except Exception:
            return None

    def _written(self, results: tuple[Tensor, ...], several: bool) -> Tape | None:
        device, n_given = current_device(), len(self._tensors)
        if any(tensor.get_device() != device for tensor in (*self._tensors, *[tensor for tensor, _ in self._made])):
            return None
        slots: dict[int, int] = {}
        same = []
        for slot, tensor in enumerate(self._tensors):
            first = slots.setdefault(tensor.data_ptr(), slot)
            if first != slot:
                same.append(f"a{first} != a{slot}")
        # What no launch gets is not made again.
        used = {_address(argument) for _, given in self._launches for argument in given}
        used.update(tensor.data_ptr() for tensor in results)
        made = [each for each in self._made if each[0].data_ptr() in used]
        for slot, (tensor, _) in enumerate(made, n_given):
            if slots.setdefault(tensor.data_ptr(), slot) != slot:
                return None
        returned = [slots[tensor.data_ptr()] for tensor in results]
        if slots.get(0, n_given) < n_given or min(returned) < n_given or len({*returned}) < len(returned):
            return None
        enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
        names: dict[str, Any] = {**_NAMES, "enter": enter, "leave": leave, "entering": enter.calls, "leaving": leave.calls}
        names |= {"current_stream": driver.active.get_current_stream, "current_device": current_device}
        watched = "runtime.launch_enter_hook is not enter or entering or runtime.launch_exit_hook is not leave or leaving"
        conditions = ["JITFunction.run is not TRITONS_RUN", watched, "is_autocast()", *same]
        if torch.cuda.device_count() > 1:
            conditions.append(f"current_device() != {device}")
        lines = [f"{', '.join(f'a{i}' for i in range(n_given))}, = addresses", f"if {' or '.join(conditions)}: return None"]
        of_results = dict(zip(returned, results, strict=True))
        room = 0
        for slot, (tensor, zeros) in enumerate(made, n_given):
            if slot in of_results or zeros:
                lines.append(f"t{slot} = {self._maker(tensor, zeros, of_results.get(slot, tensor), names)}")
                lines.append(f"a{slot} = t{slot}.data_ptr()")
            else:  # what is not returned is made together
                lines.append(f"a{slot} = room + {room}")
                room += -(-tensor.untyped_storage().nbytes() // _ALIGNED) * _ALIGNED
        if room:
            names |= {"byte": torch.uint8, "here": self._tensors[0].device}
            lines[2:2] = [f"scratch = empty_strided(({room},), (1,), dtype=byte, device=here)", "room = scratch.data_ptr()"]
        lines.append(f"addresses = {', '.join(f'a{i}' for i in range(n_given + len(made)))}")
        lines.append(f"stream = current_stream({device})")
        lines += [Direct(bound.compiled, bound.grid, given, _slots(given, slots)).line(names) for bound, given in self._launches]
        lines.append(f"return {', '.join(f't{slot}' for slot in returned)}{',' * several}")
        return Tape(lines, names)

    def _maker(self, tensor: Tensor, zeros: bool, result: Tensor, names: dict[str, Any]) -> str:
        """Return an expression that makes such a tensor. The result may be a view of all of it."""
        if result.shape != tensor.shape:
            if not (result.is_contiguous() and tensor.is_contiguous() and result.numel() == tensor.numel()):
                raise NotImplementedError("a result that is part of a tensor")
            tensor = result
        for i, other in enumerate(self._tensors):
            if not zeros and _layout(other) == _layout(tensor) and tensor.is_contiguous():
                return f"empty_like(tensors[{i}])"
        dtype, on = f"n{len(names)}", f"n{len(names) + 1}"
        names[dtype], names[on] = tensor.dtype, tensor.device
        make = f"zeros({tuple(tensor.shape)}" if zeros else f"empty_strided({tuple(tensor.shape)}, {tensor.stride()}"
        return f"{make}, dtype={dtype}, device={on})"


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()


def _address(argument: Any) -> int | None:
    """Return the address of a tensor, or of a descriptor's."""
    tensor = getattr(argument, "base", argument)
    return tensor.data_ptr() if isinstance(tensor, Tensor) else None


def _slots(arguments: tuple[Any, ...], slots: dict[int, int]) -> dict[int, int]:
    """Return the slot of each tensor among the arguments, and of each descriptor's.

    Raises:
        KeyError: it is none of those known.
    """
    memory = {i: _address(argument) for i, argument in enumerate(arguments)}
    return {i: slots[address] for i, address in memory.items() if address is not None}
