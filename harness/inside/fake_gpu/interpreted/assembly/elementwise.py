"""`tl.inline_asm_elementwise` in Triton's interpreter: elements go into registers as Triton's compiler packs them, and results come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.inside.fake_gpu.interpreted.assembly.numbers import Array, Bits, cut, joined
from harness.inside.fake_gpu.interpreted.assembly.program import run
from harness.inside.fake_gpu.interpreted.assembly.text import refused
from harness.inside.fake_gpu.torch_device import Patch

_WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
_REGISTER = 32  # elements that are smaller share one, if an instance of the assembly takes several


def inline_assembly() -> list[Patch]:
    """Return what makes the interpreter run inline assembly."""
    from triton.runtime.interpreter import InterpreterBuilder

    return [(InterpreterBuilder, "create_inline_asm", _create)]


class Results:
    """The tensors that the assembly makes, as the frontend asks for them."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def get_result(self, n: int) -> Any:
        """Return one of them."""
        return self._handles[n]


def _create(builder: Any, assembly: str, constraints: str, values: Sequence[Any], types: Sequence[Any], pure: bool, pack: int) -> Results:
    """Run the assembly once for each `pack` elements, which are neighbours here. On a card, which ones share an instance is left open.

    Args:
        values: The interpreter's handles, all of one shape.
        types: The results' types: blocks of that shape, or scalars.
    """
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    outputs, inputs = _registers(constraints)
    shape = np.broadcast_shapes(*(value.data.shape for value in values)) if values else (1,)
    size = int(np.prod(shape))
    count = -(-size // pack)
    given = [bits for value in values for bits in _packed(_bits(value.data, shape), value.data.dtype.itemsize * 8, pack, count)]
    scalars = [getattr(each, "scalar", each) for each in types]
    dtypes = [np.dtype(_get_np_dtype(each)) for each in scalars]
    numbers = [pack // _shared(dtype.itemsize * 8, pack) for dtype in dtypes]
    if len(given) != len(inputs) or sum(numbers) != len(outputs):
        raise refused(f"{assembly}: {constraints} does not fit {len(given)} registers in and {sum(numbers)} out")
    with np.errstate(all="ignore"):
        made = run(assembly, outputs, list(zip(given, inputs, strict=True)), count)
    handles, at = [], 0
    for scalar, dtype, number in zip(scalars, dtypes, numbers, strict=True):
        bits = _unpacked(made[at : at + number], dtype.itemsize * 8, pack)[:size]
        handles.append(TensorHandle(bits.astype(f"u{dtype.itemsize}").view(dtype).reshape(shape), scalar))
        at += number
    return Results(handles)


def _registers(constraints: str) -> tuple[list[int], list[int]]:
    """Return the widths of the output and the input registers. What the assembly overwrites beside them (`~{memory}`) has none."""
    outputs: list[int] = []
    inputs: list[int] = []
    for each in (part.strip() for part in constraints.split(",")):
        if each.startswith("~"):
            continue
        letter = each.lstrip("=&")
        if letter not in _WIDTHS:
            raise refused(f"the constraint {each}")
        (outputs if each.startswith("=") else inputs).append(_WIDTHS[letter])
    return outputs, inputs


def _shared(width: int, pack: int) -> int:
    """Return how many elements share a register."""
    return min(max(_REGISTER // width, 1), pack)


def _bits(data: Array, shape: tuple[int, ...]) -> Bits:
    whole = np.ascontiguousarray(np.broadcast_to(data, shape)).reshape(-1)
    return whole.view(f"u{whole.dtype.itemsize}").astype(np.uint64)


def _packed(bits: Bits, width: int, pack: int, count: int) -> list[Bits]:
    """Return the registers that hold an operand's elements, `pack` for each instance; the last instance is filled up with zeros."""
    elements = np.concatenate([bits, np.zeros(count * pack - len(bits), np.uint64)]).reshape(count, pack)
    each = _shared(width, pack)
    return [joined([elements[:, first + n] for n in range(each)], width) for first in range(0, pack, each)]


def _unpacked(registers: list[Bits], width: int, pack: int) -> Bits:
    each = _shared(width, pack)
    return np.stack([cut(register >> np.uint64(width * n), width) for register in registers for n in range(each)], axis=1).reshape(-1)
