"""Calls that were made before: what a call allocated and launched is noted, and done again for arguments that differ in memory alone.

An op checks its arguments, looks for its plan, allocates and launches. All but the last two come to the same for tensors of the same
dtypes, sizes, strides and alignment. So the second such call is noted, as a `Tape`, and the next ones play it. That is right only if the
call did nothing but allocate, view, and launch by `Bound`: a dispatch mode sees what it asks of torch, and a hook of Triton how often it
launches. Any other call is made in full, each time.

Played are calls of plain tensors on the current NVIDIA device, outside of autocast, and if nobody watches: compilers, modes and transforms
of torch, hooks of Triton. Where there is a gradient to record, the call must be that of one op, and give its first result.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from kernels.launches.bound import RECORDING
from kernels.launches.note import Note, Tape, is_watched

Given, Result = ParamSpec("Given"), TypeVar("Result")

# Calls that are remembered, of each function. Where every call has another shape, none is noted.
_MOST = 4096

# Of each function, what is known of a call: a tape, or whether it is one that cannot be noted.
_TABLES: list[dict[Any, Tape | bool]] = []
# Tests of this path without a card replace this.
possible = torch.version.cuda is not None

# Looking a name up below torch takes about as long as calling it.
_is_traced = torch.compiler.is_dynamo_compiling
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
_records_gradients = torch.is_grad_enabled


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
        records = _records_gradients()
        try:
            for arg in (*args, tuple(kwargs), *kwargs.values()) if kwargs else args:
                kind = type(arg)
                if kind is Tensor or kind is Parameter:
                    address = arg.data_ptr()
                    tensors.append(arg)
                    addresses.append(address)
                    key += arg.get_device(), arg.dtype, arg.shape, arg.stride(), address & 15, records and arg.requires_grad
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
        if tape is not False or is_watched():
            return function(*args, **kwargs)
        note = Note(tensors)
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
