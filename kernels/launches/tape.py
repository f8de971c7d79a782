"""Calls that were made before: what a call allocated and launched is noted, and done again for arguments that differ in memory alone.

An op checks its arguments, looks for its plan, allocates and launches. All but the last two come to the same for tensors of the same
dtypes, sizes, strides and alignment. So the second such call is noted, as a `Tape`, and the next ones play it. That is right only if the
call did nothing but allocate, view, and launch by `Bound`: a dispatch mode sees what it asks of torch, and a hook of Triton how often it
launches. Any other call is made in full, each time.

Played are calls of plain tensors on the current NVIDIA device, without a gradient to record, outside of autocast, and if nobody watches:
compilers, modes and transforms of torch, hooks of Triton.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.launches.bound import RECORDING, TRITONS_RUN, Bound
from kernels.launches.direct import Direct

Given, Result = ParamSpec("Given"), TypeVar("Result")

# Calls that are remembered, of each function. Where every call has another shape, none is noted.
_MOST = 4096
_EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")

# Of each function, what is known of a call: a tape, or whether it is one that cannot be noted.
_TABLES: list[dict[Any, Tape | bool]] = []
# Tests of this path without a card replace these two.
possible = torch.version.cuda is not None
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

# Looking a name up below torch takes about as long as calling it.
_is_traced = torch.compiler.is_dynamo_compiling
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
_records_gradients, _runtime = torch.is_grad_enabled, knobs.runtime
# Without an argument, of CUDA: half the time.
_is_autocast = torch.is_autocast_enabled


def repeatable(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return `function`, played from a tape where that comes to the same.

    What it does may depend on the layouts of its tensors, on its other arguments, and on the device: on nothing else, see `refuse`.
    """
    tapes: dict[Any, Tape | bool] = {}
    _TABLES.append(tapes)

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if _is_traced() or not possible or _modes() or _transforms() is not None:
            return function(*args, **kwargs)
        key: list[Any] = []
        tensors: list[Tensor] = []
        addresses: list[int] = []
        try:
            for arg in (*args, tuple(kwargs), *kwargs.values()) if kwargs else args:
                kind = type(arg)
                if kind is Tensor or kind is Parameter:
                    if arg.requires_grad and _records_gradients():
                        return function(*args, **kwargs)
                    address = arg.data_ptr()
                    tensors.append(arg)
                    addresses.append(address)
                    key += arg.get_device(), arg.dtype, arg.shape, arg.stride(), address & 15
                else:
                    key.append(tuple(arg) if kind is list else arg)
            known = tuple(key)
            tape = tapes.get(known)
        except (TypeError, RuntimeError):  # no memory, or no key: the function knows what to say
            return function(*args, **kwargs)
        if type(tape) is Tape:
            played = tape.play(tensors, addresses)
            return function(*args, **kwargs) if played is None else played
        if tape is None:
            if len(tapes) >= _MOST:
                tapes.clear()
            tapes[known] = False
        if tape is not False or _is_watched():
            return function(*args, **kwargs)
        note = _Note(tensors)
        result = note.of(function, args, kwargs)
        tapes[known] = note.tape(result) or True
        return result

    return call


def forget() -> None:
    """Forget all tapes: a test that replaces part of an op wants that part to run."""
    for table in _TABLES:
        table.clear()


def refuse() -> None:
    """Say that the call under way depends on something else, such as a setting of torch's."""
    if RECORDING.tape:
        RECORDING.tape.refused = True


def _is_watched() -> bool:
    """Return whether a tool must see launches: it replaces Triton's `run`, or has hooks; or whether autocast changes dtypes."""
    enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    return JITFunction.run is not TRITONS_RUN or getattr(enter, "calls", True) or getattr(leave, "calls", True) or _is_autocast()


class Tape:
    """What a call did: tensors that it made, launches, and which of the tensors it returned: one, or several."""

    __slots__ = ("_device", "_launches", "_made", "_results", "_same", "_stream")

    def __init__(
        self, device: int, made: list[Any], launches: list[Direct], results: int | tuple[int, ...], same: list[tuple[int, int]]
    ) -> None:
        self._device, self._made, self._launches, self._results, self._same = device, made, launches, results, same
        self._stream = driver.active.get_current_stream

    def play(self, tensors: list[Tensor], addresses: list[int]) -> Any:
        """Do it again, on the current stream, and return the result; or return None, if that would not come to the same."""
        if _is_watched() or current_device() != self._device:
            return None
        for i, j in self._same:
            if addresses[i] != addresses[j]:
                return None
        made = [make() if like is None else make(tensors[like]) for like, make in self._made]
        for tensor in made:
            addresses.append(tensor.data_ptr())
        stream = self._stream(self._device)
        for launch in self._launches:
            launch(addresses, stream)
        results = self._results
        return made[results] if type(results) is int else tuple([made[i] for i in results])


class _Note(TorchDispatchMode):
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
        """Return what was noted, or None if that cannot be played."""
        if (
            self.refused
            or not self._launches
            or self._seen != len(self._launches)
            or not all(bound.compiled for bound, _ in self._launches)
        ):
            return None
        device = current_device()
        if any(tensor.get_device() != device for tensor in (*self._tensors, *[tensor for tensor, _ in self._made])):
            return None
        results = result if isinstance(result, tuple) else (result,)
        slots: dict[int, int] = {}
        same = []
        for slot, tensor in enumerate(self._tensors):
            first = slots.setdefault(tensor.data_ptr(), slot)
            if first != slot:
                same.append((first, slot))
        # What no launch gets is not made again.
        used = {_address(argument) for _, given in self._launches for argument in given}
        used.update(tensor.data_ptr() for tensor in results)
        self._made = [each for each in self._made if each[0].data_ptr() in used]
        for slot, (tensor, _) in enumerate(self._made, len(self._tensors)):
            if slots.setdefault(tensor.data_ptr(), slot) != slot:
                return None
        count = len(self._tensors) + len(self._made)
        try:
            launches = [Direct(bound.compiled, bound.grid, given, _slots(given, slots), count) for bound, given in self._launches]
            returned = [slots[tensor.data_ptr()] - len(self._tensors) for tensor in results]
            made = [
                self._maker(*each, next((results[j] for j, slot in enumerate(returned) if slot == i), each[0]))
                for i, each in enumerate(self._made)
            ]
        except Exception:  # Triton is not as expected, or a launch is not of these tensors: then nothing is played
            return None
        if slots.get(0, len(self._tensors)) < len(self._tensors) or min(returned) < 0 or len({*returned}) < len(returned):
            return None
        return Tape(device, made, launches, tuple(returned) if isinstance(result, tuple) else returned[0], same)

    def _maker(self, tensor: Tensor, zeros: bool, result: Tensor) -> tuple[int | None, Callable[..., Tensor]]:
        """Return what makes such a tensor, and the argument that it takes. The result may be a view of all of it."""
        if result.shape != tensor.shape:
            if not (result.is_contiguous() and tensor.is_contiguous() and result.numel() == tensor.numel()):
                raise NotImplementedError("a result that is part of a tensor")
            tensor = result
        options: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
        if zeros:
            return None, functools.partial(torch.zeros, tensor.shape, **options)
        for i, other in enumerate(self._tensors):
            if (other.dtype, other.shape, other.stride()) == (tensor.dtype, tensor.shape, tensor.stride()) and tensor.is_contiguous():
                return i, torch.empty_like
        return None, functools.partial(torch.empty_strided, tensor.shape, tensor.stride(), **options)


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
