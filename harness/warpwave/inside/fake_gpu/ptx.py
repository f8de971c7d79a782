"""Runs the assembly of `tl.inline_asm_elementwise` in Triton's interpreter: PTX, one instruction after another, on all elements at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

from warpwave.inside.fake_gpu import ptx_numbers
from warpwave.inside.fake_gpu.ptx_numbers import (
    Array,
    Bits,
    Instruction,
    Operand,
    cut,
    is_float,
    joined,
    parse,
    parts,
    read,
    refused,
    width,
    write,
)

# Runs a program of inline PTX: one instruction after another, each for all elements at once.
#
# Source: the PTX ISA 8.7, section 9.7. An instruction or a modifier that is not known here is refused by name, and never guessed.

_TYPE = re.compile(r"pred|[bus](8|16|32|64)|[us]16x2|b?f16(x2)?|f32|f64|tf32|e4m3x2|e5m2x2|e2m1x2")
_WHOLE = re.compile(r"(-?)(0[xX][\da-fA-F]+|0[bB][01]+|0[0-7]+|\d+)U?")
_FLOAT = re.compile(r"-?(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+)([eE][-+]?\d+)?")
_EXACT = re.compile(r"0([fF][\da-fA-F]{8}|[dD][\da-fA-F]{16})")
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": lambda x, y: (x < y) | (x > y),  # of floats: false if one is NaN
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def run(text: str, outputs: Sequence[int], inputs: Sequence[tuple[Bits, int]], count: int) -> list[Bits]:
    """Run a program and return its output registers.

    Args:
        outputs: The width of each output register in bits: 16, 32 or 64. They are `$0`, `$1` and so on, and the inputs follow.
        inputs: The input registers with their widths.
        count: The entries of each register.

    Raises:
        NotPretended: the program has something that is not run here.
    """
    declared, instructions = parse(text)
    registers = Registers(count, {name: width(kind) for name, kind in declared.items()})
    for n, (bits, wide) in enumerate(inputs):
        registers.widths[f"${len(outputs) + n}"], registers.bits[f"${len(outputs) + n}"] = wide, bits
    registers.widths |= {f"${n}": wide for n, wide in enumerate(outputs)}
    for instruction in instructions:
        _run(instruction, registers)
    if missing := [f"${n}" for n in range(len(outputs)) if f"${n}" not in registers.bits]:
        raise refused(f"{text}: it writes no {', '.join(missing)}")
    return [registers.bits[f"${n}"] for n in range(len(outputs))]


class Registers:
    """The registers of a program, by name."""

    def __init__(self, count: int, widths: dict[str, int]) -> None:
        self.count, self.widths, self.bits = count, widths, dict[str, Bits]()

    def read(self, operand: Operand, kind: str) -> Bits:
        """Return the bits of a register, a vector or a constant that an instruction reads as `kind`."""
        count = width(kind)
        if isinstance(operand, tuple):
            each = count // len(operand)
            return joined([self.read(one, f"b{each}") for one in operand], each)
        if operand in self.bits:
            return cut(self.bits[operand], count)
        return np.full(self.count, self._constant(operand, kind), np.uint64)

    def write(self, operand: Operand, bits: Bits, kind: str, where: Array | None) -> None:
        """Write bits to a register or to each of a vector; `where` says in which entries, None in all."""
        if isinstance(operand, tuple):
            each = width(kind) // len(operand)
            for n, one in enumerate(operand):
                self.write(one, cut(bits >> np.uint64(each * n), each), f"b{each}", where)
        elif operand in self.widths:
            if kind[0] == "s":  # in a wider register, the sign fills what is above
                bits = read(bits, kind).view(np.uint64)
            old = self.bits.get(operand, np.zeros(self.count, np.uint64))
            self.bits[operand] = cut(bits if where is None else np.where(where, bits, old), self.widths[operand])
        elif operand != "_":
            raise refused(f"{operand}, which is no register of the program")

    def _constant(self, text: str, kind: str) -> np.uint64:
        if exact := _EXACT.fullmatch(text):
            value = np.array(int(exact[1][1:], 16), np.uint64)
            source = "f32" if exact[1][0] in "fF" else "f64"
            same = kind in (source, f"b{width(source)}")
            return np.uint64(value if same else write(read(value[None], source), kind)[0])
        if whole := _WHOLE.fullmatch(text):
            digits = whole[2]
            octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
            value = (int(digits, 8) if octal else int(digits, 0)) * (-1 if whole[1] else 1)
            single = kind.partition("x")[0]
            return write(np.array([float(value)]), single)[0] if is_float(single) else np.uint64(value & (1 << width(kind)) - 1)
        if _FLOAT.fullmatch(text):
            return write(np.array([float(text)]), kind if is_float(kind) else "f64")[0]
        raise refused(f"{text}, which is no register that was written")


def _run(this: Instruction, registers: Registers) -> None:
    where = None
    if this.guard:
        where = (registers.read(this.guard, "pred") == 0) == this.unless
    kinds = [each for each in this.modifiers if _TYPE.fullmatch(each)]
    others = {each for each in this.modifiers if each not in kinds}
    if not kinds or not this.operands:
        raise refused(this)
    target, *sources = this.operands
    if this.name == "setp":
        _compare(this, registers, kinds[0], others, where)
        return
    if this.name == "cvt":
        registers.write(target, ptx_numbers.convert(this, registers.read, kinds, others), kinds[0], where)
        return
    kind = kinds[0]
    made = f"{kind[0]}{2 * width(kind)}" if "wide" in others else "u32" if this.name in ("popc", "clz") else kind
    single = kind.partition("x")[0]
    if this.name == "mov" and not others and len(sources) == 1:
        result = registers.read(sources[0], kind)
    elif this.name == "selp" and not others and len(sources) == 3:
        chosen = registers.read(sources[2], "pred") == 1
        result = np.where(chosen, registers.read(sources[0], kind), registers.read(sources[1], kind))
    elif is_float(single):
        result = _on_floats(this, [registers.read(source, kind) for source in sources], kind, others)
    else:
        result = _on_integers(this, registers, kind, others, sources)
    registers.write(target, result, made, where)


def _on_floats(this: Instruction, sources: list[Bits], kind: str, others: set[str]) -> Bits:
    """Compute with floats; of a packed type, with each of its numbers."""
    single, name = kind.partition("x")[0], "fma" if this.name == "mad" else this.name
    if this.name in ("abs", "neg") and not others:  # also of NaN, only the sign changes
        signs = joined([np.full_like(sources[0], 1 << width(single) - 1)] * (width(kind) // width(single)), width(single))
        return sources[0] & ~signs if this.name == "abs" else sources[0] ^ signs
    if name == "fma" and kind == "f64":
        raise refused(this)  # there is no wider type to compute it in
    results = []
    for operands in zip(*(parts(bits, kind) for bits in sources), strict=True):
        result = ptx_numbers.compute(name, others, [read(bits, single) for bits in operands], single)
        if result is None:
            raise refused(this)
        results.append(write(result, single))
    return joined(results, width(single))


def _on_integers(this: Instruction, registers: Registers, kind: str, others: set[str], sources: list[Operand]) -> Bits:
    name, count = this.name, width(kind)

    def bits(n: int, of: str = kind) -> Bits:
        return registers.read(sources[n], of)

    match name, len(sources), others:
        case ("mul", 2, _) | ("mad", 3, _) if len(others) == 1 and others <= {"lo", "hi", "wide"}:
            half = next(iter(others))
            result = ptx_numbers.product(bits(0), bits(1), kind, half)
            wide = f"{kind[0]}{2 * count if half == 'wide' else count}"
            return result + bits(2, wide) if name == "mad" else result
        case "div" | "rem", 2, set() if not others:
            return write(ptx_numbers.divided(name, read(bits(0), kind), read(bits(1), kind)), kind)
        case "shl" | "shr", 2, set() if not others:
            return write(ptx_numbers.shifted(name, read(bits(0), kind), bits(1, "u32"), kind), kind)
        case "shf", 3, _ if others in ({"l", "wrap"}, {"l", "clamp"}, {"r", "wrap"}, {"r", "clamp"}):
            return ptx_numbers.funnel(bits(0), bits(1), bits(2, "u32"), "l" in others, "wrap" in others)
        case "prmt", 3, set() if not others:
            return ptx_numbers.permuted(bits(0), bits(1), bits(2))
        case "lop3", 4, set() if not others:
            return ptx_numbers.logic(bits(0), bits(1), bits(2), int(bits(3)[0]) if registers.count else 0)
        case "bfe", 3, set() if not others:
            return ptx_numbers.extracted(bits(0), bits(1, "u32"), bits(2, "u32"), kind)
        case "bfi", 4, set() if not others:
            return ptx_numbers.inserted(bits(0), bits(1), bits(2, "u32"), bits(3, "u32"), count)
        case "popc" | "clz" | "brev", 1, set() if not others:
            return ptx_numbers.counted(name, bits(0), count)
    operation = ptx_numbers.ARITHMETIC.get(name)
    if operation is None or others or "x" in kind or len(sources) != (1 if name in ("neg", "abs", "not", "cnot") else 2):
        raise refused(this)
    with np.errstate(over="ignore"):
        return write(operation(*(read(bits(n), kind) for n in range(len(sources)))), kind)


def _compare(this: Instruction, registers: Registers, kind: str, others: set[str], where: Array | None) -> None:
    """Set a predicate, and with `p|q` a second one to the opposite."""
    if len(this.operands) != 3 or isinstance(this.operands[0], tuple) or "x" in kind:
        raise refused(this)
    first, second = (registers.read(operand, kind) for operand in this.operands[1:])
    compared = others - {"ftz"}
    name = next(iter(compared), "")
    if len(compared) != 1:
        raise refused(this)
    result = _compared(name, read(first, kind), read(second, kind), kind, "ftz" in others)
    if result is None:
        raise refused(this)
    for target, value in zip(this.operands[0].split("|"), (result, ~result), strict=False):
        registers.write(target.strip(), value.astype(np.uint64), "pred", where)


def _compared(name: str, x: Array, y: Array, kind: str, ftz: bool) -> Array | None:
    if not is_float(kind):
        unsigned = _UNSIGNED.get(name)
        operation = _COMPARISONS.get(unsigned or name)
        if operation is None or (unsigned and x.dtype == np.int64):
            return None
        return operation(x, y)
    x, y = (ptx_numbers.without_denormals(value, kind) if ftz else value.astype(np.float64) for value in (x, y))
    unordered = np.isnan(x) | np.isnan(y)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    operation = _COMPARISONS.get(name.removesuffix("u") if name != "u" else "")
    return None if operation is None else operation(x, y) | (unordered if name.endswith("u") else False)


# `tl.inline_asm_elementwise` in Triton's interpreter: elements go into registers as Triton's compiler packs them, and results come out.

_WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
_REGISTER = 32  # elements that are smaller share one, if an instance of the assembly takes several


class Results:
    """The tensors that the assembly makes, as the frontend asks for them."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def get_result(self, n: int) -> Any:
        """Return one of them."""
        return self._handles[n]


def create_inline_asm(
    builder: Any, assembly: str, constraints: str, values: Sequence[Any], types: Sequence[Any], pure: bool, pack: int
) -> Results:
    """Run the assembly once for each `pack` elements, which are neighbours here. On a card, which ones share an instance is left open.

    Args:
        values: The interpreter's handles, all of one shape.
        types: The results' types: blocks of that shape, or scalars.
    """
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
