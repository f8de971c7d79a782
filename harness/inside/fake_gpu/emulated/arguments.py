"""A launch's Python values → the bytes that a kernel reads its arguments from.

The order is that of Triton's own launchers: the arguments without the constants, tuples taken apart, then the two scratch pointers. Where
each one belongs, and what the runtime adds, is in the code object's metadata (LLVM, "User Guide for AMDGPU Backend", code object V5).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from harness.emulator import Argument

_FORMATS = {"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
_FLOATS = {"fp32": "f", "f32": "f", "fp64": "d", "fp16": "e"}
_HIDDEN = "hidden_"
PRINTS = "hidden_hostcall_buffer"


class LaunchError(TypeError):
    """A kernel wants an argument that warpwave cannot pass. The message names it."""


def flatten(signature: Iterable[Any], values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield type and value of each argument that the kernel has at run time, in the kernel's order.

    `signature` holds Triton's names of types: `*fp32`, `i32`, `constexpr`, `tensordesc<fp16[64, 64]>`, or a tuple of such.
    """
    for kind, value in zip(signature, values, strict=True):
        if isinstance(kind, tuple):
            yield from flatten(kind, value)
        elif kind.startswith("tensordesc"):
            yield from _descriptor(value)
        elif kind != "constexpr":
            yield kind, value


def _descriptor(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what stands for a tensor descriptor on a card without hardware for it: base, shape, strides, flags; shape and strides again."""
    yield "*", value.base
    yield from (("i64", size) for size in (*value.shape, *value.strides))
    yield "i1", value.padding == "nan"
    if any(field.name == "round_f32_to_tf32" for field in dataclasses.fields(value)):  # since Triton 3.7
        yield "i1", value.round_f32_to_tf32
    yield from (("i32", size) for size in value.shape)
    yield from (("i64", stride) for stride in value.strides)


def pack(
    layout: Sequence[Argument], size: int, values: Sequence[tuple[str, Any]], grid: tuple[int, int, int], threads: int, printer: int = 0
) -> bytes:
    """Return the kernarg segment of `size` bytes. `values` are all explicit arguments, the scratch pointers among them.

    `printer` is the address of the memory shared with the service that prints for a kernel.

    Raises:
        LaunchError: the kernel wants other arguments, or one that warpwave does not know.
    """
    explicit = [argument for argument in layout if not argument.kind.startswith(_HIDDEN)]
    if len(explicit) != len(values):
        raise LaunchError(f"the kernel has {len(explicit)} arguments, the launch {len(values)}: this Triton passes them in another way")
    segment = bytearray(size)
    for argument, (kind, value) in zip(explicit, values, strict=True):
        data = encode(kind, value)
        if len(data) != argument.size:
            raise LaunchError(f"an argument of type {kind} has {len(data)} bytes, the kernel reads {argument.size}")
        segment[argument.offset : argument.offset + argument.size] = data
    added = {**_added(grid, threads), PRINTS.removeprefix(_HIDDEN): printer}
    for argument in layout:
        if argument.kind.startswith(_HIDDEN):
            value = added.get(argument.kind.removeprefix(_HIDDEN), 0)
            segment[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
    return bytes(segment)


def _added(grid: tuple[int, int, int], threads: int) -> dict[str, int]:
    """Return what the runtime tells a kernel of its launch. Whole workgroups only, so nothing remains."""
    counts = {f"block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
    return {**counts, "group_size_x": threads, "group_size_y": 1, "group_size_z": 1, "grid_dims": 3}


def encode(kind: str, value: Any) -> bytes:
    """Return a value as the kernel reads it. A pointer is a tensor, something else with `data_ptr`, an address, or None."""
    if kind.startswith("*"):
        return struct.pack("<Q", address(value))
    if kind == "bf16":
        return struct.pack("<H", torch.tensor(float(value), dtype=torch.bfloat16).view(torch.uint16).item())
    if kind in _FLOATS:
        return _float(kind, float(value))
    if kind not in _FORMATS:
        raise LaunchError(f"warpwave cannot pass an argument of type {kind}")
    letter = _FORMATS[kind]
    bits = 8 * struct.calcsize(letter)
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _float(kind: str, value: float) -> bytes:
    """Round as C does: a number that is too large becomes infinite, where `struct` would refuse it."""
    try:
        return struct.pack(f"<{_FLOATS[kind]}", value)
    except OverflowError:
        return struct.pack(f"<{_FLOATS[kind]}", float("inf") if value > 0 else float("-inf"))


def address(value: Any) -> int:
    """Return the address that a pointer argument holds."""
    if value is None:
        return 0
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value)
