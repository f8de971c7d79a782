"""`cvt`: from one type of number to another. Source: the PTX ISA 8.7, section 9.7.9.21."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.inside.fake_gpu.interpreted.assembly import floats
from harness.inside.fake_gpu.interpreted.assembly.numbers import Array, Bits, is_float, joined, parts, read, width, write
from harness.inside.fake_gpu.interpreted.assembly.text import Instruction, Operand, refused

_MOST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}
_SMALL = ("e4m3", "e5m2", "e2m1")


def convert(this: Instruction, read_bits: Callable[[Operand, str], Bits], kinds: list[str], others: set[str]) -> Bits:
    """Return the bits of the converted numbers. Two sources are packed into one result, the first into its upper half.

    Raises:
        NotPretended: types or modifiers that are not known here.
    """
    if len(kinds) != 2:
        raise refused(this)
    to, of = kinds
    single, _, several = to.partition("x")
    sources = this.operands[1:]
    if len(sources) != (2 if several and "x" not in of else 1):
        raise refused(this)
    bits = [part for source in reversed(sources) for part in parts(read_bits(source, of), of)]
    converted = [_convert(this, read(part, of.partition("x")[0]), single, of.partition("x")[0], others) for part in bits]
    return joined(converted, width(single))


def _convert(this: Instruction, numbers: Array, to: str, of: str, others: set[str]) -> Bits:
    """Convert numbers that have been read from their bits."""
    rounding = others & set(floats.ROUNDINGS)
    plain = others - rounding - {"ftz", "sat"}
    if "ftz" in others:
        numbers = floats.without_denormals(numbers)
    if to == "tf32" and of == "f32" and plain in ({"rna"}, {"rn"}) and not rounding | others & {"sat"}:
        return _to_tf32(numbers, away="rna" in plain)
    if is_float(of) and to[0] in "us" and len(rounding) == 1 and not plain:
        return write(floats.whole(numbers, next(iter(rounding)), to), to)
    if is_float(of) and is_float(to):
        return _between_floats(this, numbers, to, rounding, others, plain)
    if is_float(to) and of[0] in "us" and plain <= {"rn"} and not rounding:
        exact = numbers if to == "f32" else numbers.astype(np.float64)
        return write(floats.bounded(exact.astype(np.float64), {"sat"}) if "sat" in others else exact, to)
    if of[0] in "us" and to[0] in "us" and not plain | rounding:
        return write(_limited(numbers, to) if "sat" in others else numbers, to)
    raise refused(this)


def _between_floats(this: Instruction, numbers: Array, to: str, rounding: set[str], others: set[str], plain: set[str]) -> Bits:
    if to in _SMALL and "satfinite" not in plain:
        raise refused(this)  # PTX has no other
    if rounding and not plain:
        with np.errstate(all="ignore"):
            numbers = floats.ROUNDINGS[next(iter(rounding))](numbers)
    elif plain - {"rn", "satfinite", "relu", "rz"} or rounding or ("rz" in plain and to != "bf16"):
        raise refused(this)
    numbers = floats.bounded(numbers, others & {"sat", "relu", "ftz"})
    if "rz" in plain:
        numbers = floats.toward_zero(numbers, 16)
    if "satfinite" in plain and to in _MOST:
        numbers = np.where(np.isnan(numbers), numbers, np.clip(numbers, -_MOST[to], _MOST[to]))
    return write(numbers, to)


def _to_tf32(numbers: Array, away: bool) -> Bits:
    """Round fp32 to ten bits of its mantissa; of two as near, the one away from zero, or the even one."""
    bits = write(numbers, "f32")
    half = np.uint64(0x1000) if away else np.uint64(0xFFF) + (bits >> np.uint64(13) & np.uint64(1))
    return np.where(np.isfinite(numbers), (bits + half) & np.uint64(0xFFFFE000), bits)


def _limited(numbers: Array, to: str) -> Array:
    count = int(to[1:])
    least, most = (-(2 ** (count - 1)), 2 ** (count - 1) - 1) if to[0] == "s" else (0, 2**count - 1)
    return np.array([min(max(int(number), least), most) for number in numbers], np.int64 if to[0] == "s" else np.uint64)
