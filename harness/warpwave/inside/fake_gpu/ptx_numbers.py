"""`cvt`: from one type of number to another. Source: the PTX ISA 8.7, section 9.7.9.21."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from warpwave.inside.fake_gpu.arithmetic import larger, smaller
from warpwave.inside.process.outcomes import NotPretended

# What the bits of a register mean by the type that an instruction names, for all elements at once.
#
# A register is an array of `uint64`, one entry for each element (or group of packed elements), with zeros above its own width.

Bits = Any  # an array of uint64
Array = Any

_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_NARROW = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)


def is_float(kind: str) -> bool:
    """Whether a type is one of floats."""
    return kind in _FLOATS or kind in _NARROW or kind == "e2m1"


def width(kind: str) -> int:
    """Return the bits of a type; of `f16x2`, those of both."""
    if kind == "pred":
        return 1
    single, _, several = kind.partition("x")
    bits = {"bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m1": 4}.get(single) or int(single[1:])
    return bits * int(several or 1)


def cut(bits: Bits, count: int) -> Bits:
    """Return the low `count` bits."""
    return bits & np.uint64((1 << count) - 1)


def parts(bits: Bits, kind: str) -> list[Bits]:
    """Return the numbers that are packed in a register, the lowest first: two of `f16x2`."""
    single, _, several = kind.partition("x")
    each = width(single)
    return [cut(bits >> np.uint64(each * n), each) for n in range(int(several or 1))]


def joined(numbers: list[Bits], each: int) -> Bits:
    """Pack numbers of `each` bits into a register, the first into the lowest bits."""
    return np.bitwise_or.reduce([bits << np.uint64(each * n) for n, bits in enumerate(numbers)])


def read(bits: Bits, kind: str) -> Array:
    """Return numbers: floats as they are (of 8 and 4 bits, and bf16, in fp32), signed ones as int64, and all others as uint64."""
    count = width(kind)
    if kind in _FLOATS:
        return np.ascontiguousarray(bits).astype(f"u{count // 8}").view(_FLOATS[kind])
    if kind in _NARROW:
        narrow = torch.from_numpy(np.ascontiguousarray(bits).astype(f"u{count // 8}").view(f"i{count // 8}"))
        return narrow.view(_NARROW[kind]).to(torch.float32).numpy()
    if kind == "e2m1":
        return np.where(bits & np.uint64(8), -1, 1).astype(np.float32) * _E2M1[(bits & np.uint64(7)).astype(int)]
    if kind[0] == "s":
        shift = np.uint64(64 - count)
        return (bits << shift).view(np.int64) >> np.int64(64 - count)
    return cut(bits, count)


def write(numbers: Array, kind: str) -> Bits:
    """Return the bits of numbers, rounded to nearest even. A float that is too large becomes infinity, or of 8 and 4 bits the largest.

    NaN has the bits that PTX gives it: all but the sign (0x7FFFFFFF).
    """
    count = width(kind)
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            made = np.asarray(numbers).astype(_FLOATS[kind])
        bits = made.view(f"u{count // 8}").astype(np.uint64)
        return np.where(np.isnan(made), np.uint64((1 << count - 1) - 1), bits) if kind != "f64" else bits
    if kind in _NARROW:
        single = torch.from_numpy(np.array(numbers, np.float32))
        if kind != "bf16":
            most = torch.finfo(_NARROW[kind]).max
            single = single.clamp(-most, most)  # NaN stays
        bits = single.to(_NARROW[kind]).view(torch.int16 if count == 16 else torch.int8).numpy().view(f"u{count // 8}").astype(np.uint64)
        return np.where(single.isnan().numpy(), np.uint64((1 << count - 1) - 1), bits)
    if kind == "e2m1":
        return _as_e2m1(np.asarray(numbers, np.float32))
    numbers = np.asarray(numbers)
    return cut(numbers.astype(np.int64).view(np.uint64) if numbers.dtype != np.uint64 else numbers, count)


def _as_e2m1(numbers: Array) -> Bits:
    """Round to the nearest of eight values, of two to the one with an even last bit. NaN becomes the largest."""
    sizes = np.where(np.isnan(numbers), 6, np.minimum(np.abs(numbers), 6))
    above = np.searchsorted(_E2M1, sizes).clip(1, 7)
    low, high = sizes - _E2M1[above - 1], _E2M1[above] - sizes
    nearest = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return (nearest | np.where(np.signbit(numbers) & ~np.isnan(numbers), 8, 0)).astype(np.uint64)


# Instructions on floats: arithmetic, comparisons, and conversions. Approximations are computed in fp64 and rounded once.
#
# Source: the PTX ISA 8.7, sections 9.7.3 to 9.7.5 and 9.7.9. A rounding other than to nearest even is refused, but for conversions to
# whole numbers and `.rz` to bf16.

# Modifiers that change nothing here: the result is computed in fp64, or is the nearest.
PRECISIONS = {"rn", "approx", "full", "ftz"}
_TINY = {"f16": np.finfo(np.float16).tiny}  # the smallest number that is no denormal; bf16 has that of fp32


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x y + z of numbers with at most 24 bits. An inexact sum gets an odd last bit, so that rounding it again rounds it once."""
    product = x * y  # exact in fp64
    total = product + z
    taken = total - product
    lost = (product - (total - taken)) + (z - taken)
    even = (total.view(np.int64) & 1) == 0
    return np.where((lost != 0) & even & np.isfinite(lost), np.nextafter(total, np.copysign(np.inf, lost)), total)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": _fused,
    "div": np.divide,
    "min": smaller,
    "max": larger,
    "abs": np.abs,
    "neg": np.negative,
    "copysign": lambda x, y: np.copysign(y, x),  # the first operand has the sign
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_OF_TWO = ("add", "sub", "mul", "div", "min", "max", "copysign")
# `.NaN`: a NaN among the operands is the result.
KEEPING_NAN: dict[str, Callable[..., Array]] = {
    name: lambda x, y, compute=compute: np.where(np.isnan(x) | np.isnan(y), np.nan, compute(x, y))
    for name, compute in (("min", smaller), ("max", larger))
}
# `.xorsign.abs`: of the magnitudes, with the product's sign.
_WITH_SIGNS = {"xorsign", "abs"}
ROUNDINGS: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def compute(name: str, modifiers: set[str], operands: list[Array], kind: str) -> Array | None:
    """Return what an instruction makes of floats, in fp64; None if it has a modifier or a number of operands that is not known here."""
    if name in ("min", "max") and modifiers >= _WITH_SIGNS and len(operands) == 2:
        size = compute(name, modifiers - _WITH_SIGNS, list(map(np.abs, operands)), kind)
        return None if size is None else np.where(np.signbit(operands[0]) != np.signbit(operands[1]), -size, size)
    operation = (KEEPING_NAN if "NaN" in modifiers else OPERATIONS).get(name)
    wanted = 3 if name == "fma" else 2 if name in _OF_TWO else 1
    if operation is None or len(operands) != wanted or modifiers - PRECISIONS - {"NaN", "sat", "relu"}:
        return None
    with np.errstate(all="ignore"):
        result = operation(*(without_denormals(value, kind) if "ftz" in modifiers else value.astype(np.float64) for value in operands))
        return bounded(result, modifiers, kind)


def bounded(result: Array, modifiers: set[str], kind: str = "f32") -> Array:
    """Apply `.sat` (0 to 1, NaN becomes 0), `.relu` (at least 0, NaN stays) and `.ftz`."""
    if "sat" in modifiers:
        result = np.where(np.isnan(result), 0.0, np.clip(result, 0.0, 1.0))
    if "relu" in modifiers:
        result = np.where(result < 0, 0.0, result)
    return without_denormals(result, kind) if "ftz" in modifiers else result


def without_denormals(values: Array, kind: str = "f32") -> Array:
    """Return numbers in fp64, with zeros of the same sign for what their type has as a denormal."""
    wide = values.astype(np.float64)
    return np.where(np.abs(wide) < _TINY.get(kind, np.finfo(np.float32).tiny), np.copysign(0.0, wide), wide)


def whole(values: Array, rounding: str, kind: str) -> Array:
    """Round to whole numbers of a type. What is outside of it becomes its nearest end, and NaN becomes 0."""
    least, most = _ends(kind)
    with np.errstate(all="ignore"):
        rounded = np.nan_to_num(ROUNDINGS[rounding](values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # The largest of 64 bits is no fp64.
    ends = np.where(rounded >= float(most), most, np.where(rounded <= least, least, 0)).astype(object)
    inside = (rounded > least) & (rounded < float(most))
    return np.where(inside, np.where(inside, rounded, 0).astype(np.int64 if kind[0] == "s" else np.uint64), ends).astype(
        np.int64 if kind[0] == "s" else np.uint64
    )


def _ends(kind: str) -> tuple[int, int]:
    """Return the least and the largest number of a type of whole ones."""
    bits = int(kind[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)


def toward_zero(values: Array, kept: int) -> Array:
    """Cut fp32 to the `kept` highest bits, as `.rz` to bf16 does. What is not finite stays."""
    bits = values.astype(np.float32).view(np.uint32)
    return np.where(np.isfinite(values), (bits & np.uint32(0xFFFFFFFF << 32 - kept & 0xFFFFFFFF)).view(np.float32), values)


# The text of inline PTX: its registers and its instructions, in order.
#
# Source: the PTX ISA 8.7, sections 4 (syntax) and 5 (state spaces and types).

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.+)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z]\w*)((?:\.\w+(?:::\w+)*)*)(?:\s+(.*))?", re.DOTALL)
_SEVERAL = re.compile(r"(\S+)<(\d+)>")

Operand = str | tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """`@p cvt.rn.bf16x2.f32 d, a, b;` A vector operand, `{a, b}`, is a tuple. `guard` is the predicate; `unless`: it is negated."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str = ""
    unless: bool = False

    def __str__(self) -> str:
        return ".".join((self.name, *self.modifiers))


def parse(text: str) -> tuple[dict[str, str], list[Instruction]]:
    """Return the declared registers with their types, and the instructions.

    Raises:
        NotPretended: a label, a branch's target, a directive other than `.reg`, or what is no PTX.
    """
    registers: dict[str, str] = {}
    instructions: list[Instruction] = []
    for statement in _COMMENTS.sub(" ", text).replace("$$", "$").split(";"):
        words = statement.strip().lstrip("{}").strip()  # a scope; the braces of a vector follow an instruction's name
        if not words:
            continue
        if declared := _DECLARATION.fullmatch(words):
            registers |= dict.fromkeys(_names(declared[2]), declared[1])
        elif found := _INSTRUCTION.fullmatch(words):
            unless, guard, name, modifiers, operands = found.groups(default="")
            parts = tuple(modifiers.split(".")[1:])
            instructions.append(Instruction(name, parts, tuple(_operands(operands)), guard, bool(unless)))
        else:
            raise refused(words)
    return registers, instructions


def refused(what: object) -> NotPretended:
    """Return the error for a statement that this interpreter does not run."""
    return NotPretended(f"tl.inline_asm_elementwise: the interpreter does not run `{' '.join(str(what).split())[:80]}` of inline assembly")


def _names(declared: str) -> list[str]:
    names: list[str] = []
    for name in (part.strip() for part in declared.split(",")):
        several = _SEVERAL.fullmatch(name)
        names += [f"{several[1]}{n}" for n in range(int(several[2]))] if several else [name]
    return names


def _operands(text: str) -> list[Operand]:
    """Split at the commas that are not within braces."""
    found: list[Operand] = []
    for vector, single in re.findall(r"\{([^}]*)\}|([^,{}]+)", text):
        if vector:
            found.append(tuple(part.strip() for part in vector.split(",")))
        elif single.strip():
            found.append(single.strip())
    return found


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
    rounding = others & set(ROUNDINGS)
    plain = others - rounding - {"ftz", "sat"}
    if "ftz" in others:
        numbers = without_denormals(numbers)
    if to == "tf32" and of == "f32" and plain in ({"rna"}, {"rn"}) and not rounding | others & {"sat"}:
        return _to_tf32(numbers, away="rna" in plain)
    if is_float(of) and to[0] in "us" and len(rounding) == 1 and not plain:
        return write(whole(numbers, next(iter(rounding)), to), to)
    if is_float(of) and is_float(to):
        return _between_floats(this, numbers, to, rounding, others, plain)
    if is_float(to) and of[0] in "us" and plain <= {"rn"} and not rounding:
        exact = numbers if to == "f32" else numbers.astype(np.float64)
        return write(bounded(exact.astype(np.float64), {"sat"}) if "sat" in others else exact, to)
    if of[0] in "us" and to[0] in "us" and not plain | rounding:
        if "sat" in others:
            least, most = _ends(to)
            numbers = np.array([min(max(int(number), least), most) for number in numbers], np.int64 if to[0] == "s" else np.uint64)
        return write(numbers, to)
    raise refused(this)


def _between_floats(this: Instruction, numbers: Array, to: str, rounding: set[str], others: set[str], plain: set[str]) -> Bits:
    if to in _SMALL and "satfinite" not in plain:
        raise refused(this)  # PTX has no other
    if rounding and not plain:
        with np.errstate(all="ignore"):
            numbers = ROUNDINGS[next(iter(rounding))](numbers)
    elif plain - {"rn", "satfinite", "relu", "rz"} or rounding or ("rz" in plain and to != "bf16"):
        raise refused(this)
    numbers = bounded(numbers, others & {"sat", "relu", "ftz"})
    if "rz" in plain:
        numbers = toward_zero(numbers, 16)
    if "satfinite" in plain and to in _MOST:
        numbers = np.where(np.isnan(numbers), numbers, np.clip(numbers, -_MOST[to], _MOST[to]))
    return write(numbers, to)


def _to_tf32(numbers: Array, away: bool) -> Bits:
    """Round fp32 to ten bits of its mantissa; of two as near, the one away from zero, or the even one."""
    bits = write(numbers, "f32")
    half = np.uint64(0x1000) if away else np.uint64(0xFFF) + (bits >> np.uint64(13) & np.uint64(1))
    return np.where(np.isfinite(numbers), (bits + half) & np.uint64(0xFFFFE000), bits)


# Instructions on whole numbers and on bits. Source: the PTX ISA 8.7, sections 9.7.1, 9.7.7 and 9.7.9.

# Of two operands; the type is that of the instruction.
ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.abs,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "cnot": lambda x: (x == 0).astype(np.uint64),
}


def divided(name: str, x: Array, y: Array) -> Array:
    """Return the quotient towards zero, or its remainder. PTX leaves a division by zero open: here it is 0."""
    safe = np.where(y == 0, 1, y)
    size = np.abs(x) // np.abs(safe)
    quotient = np.where((x < 0) != (safe < 0), -size.astype(np.int64), size.astype(np.int64)) if x.dtype == np.int64 else x // safe
    result = quotient if name == "div" else x - quotient * safe
    return np.where(y == 0, 0, result).astype(x.dtype)


def product(x: Bits, y: Bits, kind: str, half: str) -> Array:
    """Return the low or high half of a product, or all of it (`wide`), as Python computes it."""
    count = int(kind[1:])
    full = read(x, kind).astype(object) * read(y, kind).astype(object)
    wanted = full >> count if half == "hi" else full
    return (wanted % (1 << 64)).astype(np.uint64)


def shifted(name: str, x: Array, amount: Bits, kind: str) -> Array:
    """Shift; by more than the width, nothing is left, or of a signed number its sign."""
    most = int(kind[1:])
    by = np.minimum(cut(amount, 32), np.uint64(most))
    if name == "shr" and kind[0] == "s":
        return x >> np.minimum(by, np.uint64(63)).astype(np.int64)
    near = np.minimum(by, np.uint64(63))
    moved = x << near if name == "shl" else x >> near
    return np.where(by >= most, np.uint64(0), moved)


def funnel(low: Bits, high: Bits, amount: Bits, left: bool, wraps: bool) -> Bits:
    """Shift two registers of 32 bits as one, and return the upper (left) or lower word."""
    by = amount & np.uint64(31) if wraps else np.minimum(cut(amount, 32), np.uint64(32))
    both = high << np.uint64(32) | low
    moved = both << by if left else both >> by
    return cut(moved >> np.uint64(32) if left else moved, 32)


def permuted(low: Bits, high: Bits, selector: Bits) -> Bits:
    """Choose four of eight bytes (`prmt`, without a mode). The highest bit of a selector asks for the byte's sign in all bits."""
    both, result = high << np.uint64(32) | low, np.zeros_like(low)
    for n in range(4):
        chosen = selector >> np.uint64(4 * n)
        byte = both >> (chosen & np.uint64(7)) * np.uint64(8) & np.uint64(0xFF)
        signs = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        result |= np.where(chosen & np.uint64(8), signs, byte) << np.uint64(8 * n)
    return result


def logic(a: Bits, b: Bits, c: Bits, table: int) -> Bits:
    """Return `lop3`: bit n of the table is the result where a, b and c have the bits of n, a the highest."""
    result = np.zeros_like(a)
    for n in range(8):
        if table >> n & 1:
            result |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
    return cut(result, 32)


def extracted(x: Bits, at: Bits, length: Bits, kind: str) -> Bits:
    """Return `bfe`: bits from `at` on, with the sign of the field's highest bit above them if the type is signed."""
    count = int(kind[1:])
    at, length = np.minimum(at & np.uint64(255), np.uint64(count)), length & np.uint64(255)
    top = np.minimum(at + length - np.uint64(1), np.uint64(count - 1))
    negative = (length > 0) & ((x >> top & np.uint64(1)) == 1)
    length = np.minimum(length, np.uint64(count) - at)  # there are no more bits
    mask = (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
    mask = np.where(length >= 64, ~np.uint64(0), mask)
    field = x >> np.minimum(at, np.uint64(63)) & mask
    if kind[0] != "s":
        return field
    return cut(np.where(negative, field | ~mask, field), count)


def inserted(x: Bits, into: Bits, at: Bits, length: Bits, count: int) -> Bits:
    """Return `bfi`: the low bits of one number in another."""
    at, length = at & np.uint64(255), np.minimum(length & np.uint64(255), np.uint64(count))
    mask = np.where(length >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1))
    near = np.minimum(at, np.uint64(63))
    moved = np.where(at >= count, np.uint64(0), mask << near)
    return cut(into & ~moved | x << near & moved, count)


def counted(name: str, x: Bits, count: int) -> Bits:
    """Return `popc`, `clz` or `brev` of numbers of `count` bits."""
    bits = x[..., None] >> np.arange(count, dtype=np.uint64) & np.uint64(1)
    if name == "popc":
        return bits.sum(-1).astype(np.uint64)
    if name == "clz":
        return (count - np.where(bits == 1, np.arange(1, count + 1), 0).max(-1)).astype(np.uint64)
    return (bits << np.arange(count - 1, -1, -1).astype(np.uint64)).sum(-1).astype(np.uint64)
