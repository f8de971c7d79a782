"""A note of what one call does, and the tape that is made from it: a function that does it again."""

from collections.abc import Callable, Sequence
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
    # On the current device, which is that of the tensors. torch.compile's code allocates like this, too: in half the time.
    "empty": torch._C._dynamo.guards._empty_strided_cuda,
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
        self._gradients: list[tuple[Callable[..., Any], Sequence[Any], Any]] = []
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

    def differentiated(self, apply: Callable[..., Any], args: Sequence[Any], outputs: Any) -> None:
        """Called by an op that records its gradient: `apply(*args, made)` does that; `made` is a tuple of outputs, or a list of one."""
        self._gradients.append((apply, args, outputs))

    def tape(self, result: Any) -> Tape | None:
        """Return what was noted, or None if that cannot be played: Triton is not as expected, or something else than tensors was used."""
        bound = all(bound.compiled for bound, _ in self._launches)
        if self.refused or not self._launches or self._seen != len(self._launches) or not bound:
            return None
        try:
            return self._written(result)
        except Exception:
            return None

    def _written(self, result: Any) -> Tape | None:
        device, n_given = current_device(), len(self._tensors)
        recorded = any(tensor.requires_grad for tensor in (result if isinstance(result, tuple) else (result,)))
        if recorded:
            ((apply, op_args, outputs),) = self._gradients
            if result is not (outputs[0] if isinstance(outputs, tuple) else outputs):
                return None
            result = outputs
        results = result if isinstance(result, tuple) else (result,)
        if any(tensor.get_device() != device for tensor in (*self._tensors, *[tensor for tensor, _ in self._made])):
            return None
        slots: dict[int, int] = {}
        same = []
        for slot, tensor in enumerate(self._tensors):
            first = slots.setdefault(tensor.data_ptr(), slot)
            if first != slot:
                same.append(f"tensors[{first}] is not tensors[{slot}]" if recorded else f"a{first} != a{slot}")
        # What no launch gets is not made again.
        used = {_address(argument) for _, given in self._launches for argument in given}
        used.update(tensor.data_ptr() for tensor in results)
        made = [each for each in self._made if any(_within(each[0], address) for address in used)]
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
            names["byte"] = torch.uint8
            lines[2:2] = [f"scratch = empty(({room},), (1,), byte)", "room = scratch.data_ptr()"]
        known = [*self._tensors, *[tensor for tensor, _ in made]]
        parts = used - {None, *slots}
        for slot, address in enumerate(parts, len(known)):
            (start,) = {tensor.data_ptr() for tensor in known if _within(tensor, address)}
            lines.append(f"a{slot} = a{slots[start]} + {address - start}")
            slots[address] = slot
        lines.append(f"addresses = {', '.join(f'a{i}' for i in range(len(known) + len(parts)))}")
        lines.append(f"stream = current_stream({device})")
        lines += [Direct(bound.compiled, bound.grid, given, _slots(given, slots)).line(names) for bound, given in self._launches]
        back = f"{', '.join(f't{slot}' for slot in returned)}{',' * isinstance(result, tuple)}"
        if recorded:
            places = {id(tensor): f"tensors[{i}]" for i, tensor in enumerate(self._tensors)}
            names |= {"apply": apply} | {f"o{i}": arg for i, arg in enumerate(op_args) if not isinstance(arg, Tensor)}
            of_op = [places[id(arg)] if isinstance(arg, Tensor) else f"o{i}" for i, arg in enumerate(op_args)]
            back = f"apply({', '.join(of_op)}, {f'({back})' if isinstance(result, tuple) else f'[{back}]'})"
        lines.append(f"return {back}")
        return Tape(lines, names)

    def _maker(self, tensor: Tensor, zeros: bool, result: Tensor, names: dict[str, Any]) -> str:
        """Return an expression that makes such a tensor. The result may be a view of all of it."""
        if result.shape != tensor.shape:
            if not (result.is_contiguous() and tensor.is_contiguous() and result.numel() == tensor.numel()):
                raise NotImplementedError("a result that is part of a tensor")
            tensor = result
        dtype, on = f"n{len(names)}", f"n{len(names) + 1}"
        names[dtype], names[on] = tensor.dtype, tensor.device
        shape = tuple(tensor.shape)
        return f"zeros({shape}, dtype={dtype}, device={on})" if zeros else f"empty({shape}, {tensor.stride()}, {dtype})"


def _within(tensor: Tensor, address: int | None) -> bool:
    """Return whether the address is in the memory of a tensor."""
    start, steps = tensor.data_ptr(), zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * step for size, step in steps) * tensor.itemsize
    return address is not None and (address == start or start < address <= start + last)


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
