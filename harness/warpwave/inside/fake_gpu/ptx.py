"""`tl.inline_asm_elementwise` in Triton's interpreter: inline PTX, one instruction after another, on all elements at once.

A register is an array of `uint64`, one entry for each element (or group of packed elements), with zeros above its own width. Whole numbers
are computed as Python's integers, floats in fp64, and rounded once. Source: the PTX ISA 8.7, sections 4, 5 and 9.7. An instruction or a
modifier that is not known here is refused by name, and never guessed.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

from warpwave.inside.fake_gpu.arithmetic import E2M1, larger, narrowed, smaller, widened
from warpwave.inside.process.outcomes import NotPretended

Bits = Any  # an array of uint64
Array = Any
Operand = str | tuple[str, ...]

# Elements go into registers as Triton's compiler packs them, and results come out.

_WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}  # of the registers that a constraint asks for
_REGISTER = 32  # elements that are smaller share one, if an instance of the assembly takes several


def create_inline_asm(
    builder: Any, assembly: str, constraints: str, values: Sequence[Any], types: Sequence[Any], pure: bool, pack: int
) -> SimpleNamespace:
    """Run the assembly once for each `pack` elements, which are neighbours here. On a card, which ones share an instance is left open.

    `values` are the interpreter's handles, all of one shape; `types` those of the results: blocks of that shape, or scalars.
    """
    outputs, inputs = _registers(constraints)
    shape = np.broadcast_shapes(*(value.data.shape for value in values)) if values else (1,)
    size = int(np.prod(shape))
    count = -(-size // pack)
    given = [register for value in values for register in _packed(np.broadcast_to(value.data, shape), pack, count)]
    scalars = [getattr(each, "scalar", each) for each in types]
    dtypes = [np.dtype(_get_np_dtype(each)) for each in scalars]
    numbers = [pack // _shared(dtype, pack) for dtype in dtypes]
    if len(given) != len(inputs) or sum(numbers) != len(outputs):
        raise _refused(f"{assembly}: {constraints} does not fit {len(given)} registers in and {sum(numbers)} out")
    with np.errstate(all="ignore"):
        made = iter(run(assembly, outputs, list(zip(given, inputs, strict=True)), count))
    handles = []
    for scalar, dtype, number in zip(scalars, dtypes, numbers, strict=True):
        width, each = dtype.itemsize * 8, _shared(dtype, pack)
        parts = [_cut(register >> np.uint64(width * n), width) for register in itertools.islice(made, number) for n in range(each)]
        bits = np.stack(parts, axis=1).reshape(-1)[:size]
        handles.append(TensorHandle(bits.astype(f"u{dtype.itemsize}").view(dtype).reshape(shape), scalar))
    return SimpleNamespace(get_result=handles.__getitem__, handles=handles)  # as the frontend asks for them, and a trace


def _registers(constraints: str) -> tuple[list[int], list[int]]:
    """Return the widths of the output and the input registers. What the assembly overwrites beside them (`~{memory}`) has none."""
    outputs: list[int] = []
    inputs: list[int] = []
    for each in (part.strip() for part in constraints.split(",")):
        if each.startswith("~"):
            continue
        if (letter := each.lstrip("=&")) not in _WIDTHS:
            raise _refused(f"the constraint {each}")
        (outputs if each.startswith("=") else inputs).append(_WIDTHS[letter])
    return outputs, inputs


def _shared(dtype: np.dtype[Any], pack: int) -> int:
    return min(max(_REGISTER // (int(dtype.itemsize) * 8), 1), pack)


def _packed(data: Array, pack: int, count: int) -> list[Bits]:
    """Return the registers that hold an operand's elements, `pack` for each instance; the last instance is filled up with zeros."""
    elements = np.zeros(count * pack, np.uint64)
    elements[: data.size] = np.ascontiguousarray(data).reshape(-1).view(f"u{data.dtype.itemsize}")
    each, columns = _shared(data.dtype, pack), elements.reshape(count, pack)
    return [_joined([columns[:, first + n] for n in range(each)], data.dtype.itemsize * 8) for first in range(0, pack, each)]


# Programs.

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.+)", re.DOTALL)
_SEVERAL = re.compile(r"(\S+)<(\d+)>")
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z]\w*)((?:\.\w+(?:::\w+)*)*)(?:\s+(.*))?", re.DOTALL)
_TYPE = re.compile(r"pred|[bus](8|16|32|64)|[us]16x2|b?f16(x2)?|f32|f64|tf32|e4m3x2|e5m2x2|e2m1x2")
_WHOLE = re.compile(r"(-?)(0[xX][\da-fA-F]+|0[bB][01]+|0[0-7]+|\d+)U?")
_FLOAT = re.compile(r"-?(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+)([eE][-+]?\d+)?")
_EXACT = re.compile(r"0([fF][\da-fA-F]{8}|[dD][\da-fA-F]{16})")


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

    Raise `NotPretended` for a label, a branch's target, a directive other than `.reg`, or what is no PTX.
    """
    registers: dict[str, str] = {}
    instructions: list[Instruction] = []
    for statement in _COMMENTS.sub(" ", text).replace("$$", "$").split(";"):
        words = statement.strip().lstrip("{}").strip()  # a scope; the braces of a vector follow an instruction's name
        if declared := _DECLARATION.fullmatch(words):
            for name in (part.strip() for part in declared[2].split(",")):
                several = _SEVERAL.fullmatch(name)
                names = [f"{several[1]}{n}" for n in range(int(several[2]))] if several else [name]
                registers |= dict.fromkeys(names, declared[1])
        elif found := _INSTRUCTION.fullmatch(words):
            unless, guard, name, modifiers, operands = found.groups(default="")
            instructions.append(Instruction(name, tuple(modifiers.split(".")[1:]), _operands(operands), guard, bool(unless)))
        elif words:
            raise _refused(words)
    return registers, instructions


def _operands(text: str) -> tuple[Operand, ...]:
    found = [(vector, single.strip()) for vector, single in re.findall(r"\{([^}]*)\}|([^,{}]+)", text)]
    return tuple(tuple(map(str.strip, vector.split(","))) if vector else single for vector, single in found if vector or single)


def _refused(what: object) -> NotPretended:
    return NotPretended(f"tl.inline_asm_elementwise: the interpreter does not run `{' '.join(str(what).split())[:80]}` of inline assembly")


def run(text: str, outputs: Sequence[int], inputs: Sequence[tuple[Bits, int]], count: int) -> list[Bits]:
    """Run a program and return its output registers; raise `NotPretended` for what is not run here.

    `outputs` are the widths of the output registers in bits: 16, 32 or 64. They are `$0`, `$1` and so on; the `inputs` follow, with their
    widths. Each register has `count` entries.
    """
    declared, instructions = parse(text)
    widths = {name: _width(kind) for name, kind in declared.items()}
    widths |= {f"${n}": wide for n, wide in enumerate([*outputs, *(wide for _, wide in inputs)])}
    registers = _Registers(count, widths, {f"${len(outputs) + n}": bits for n, (bits, _) in enumerate(inputs)})
    for instruction in instructions:
        _run(instruction, registers)
    if missing := [f"${n}" for n in range(len(outputs)) if f"${n}" not in registers.bits]:
        raise _refused(f"{text}: it writes no {', '.join(missing)}")
    return [registers.bits[f"${n}"] for n in range(len(outputs))]


@dataclass
class _Registers:
    count: int
    widths: dict[str, int]
    bits: dict[str, Bits]

    def read(self, operand: Operand, kind: str) -> Bits:
        """Return the bits of a register, a vector or a constant that an instruction reads as `kind`."""
        if isinstance(operand, tuple):
            each = _width(kind) // len(operand)
            return _joined([self.read(one, f"b{each}") for one in operand], each)
        if operand in self.bits:
            return _cut(self.bits[operand], _width(kind))
        return np.full(self.count, _constant(operand, kind), np.uint64)

    def write(self, operand: Operand, bits: Bits, kind: str, where: Array | None) -> None:
        """Write bits to a register or to each of a vector; `where` says in which entries, None in all."""
        if isinstance(operand, tuple):
            each = _width(kind) // len(operand)
            for n, one in enumerate(operand):
                self.write(one, _cut(bits >> np.uint64(each * n), each), f"b{each}", where)
        elif operand in self.widths:
            if kind[0] == "s":  # in a wider register, the sign fills what is above
                bits = _read(bits, kind).view(np.uint64)
            old = self.bits.get(operand, np.zeros(self.count, np.uint64))
            self.bits[operand] = _cut(bits if where is None else np.where(where, bits, old), self.widths[operand])
        elif operand != "_":
            raise _refused(f"{operand}, which is no register of the program")


def _constant(text: str, kind: str) -> Any:
    single = kind.partition("x")[0]
    if exact := _EXACT.fullmatch(text):
        bits, source = np.array([int(exact[1][1:], 16)], np.uint64), "f32" if exact[1][0] in "fF" else "f64"
        return (bits if kind in (source, f"b{_width(source)}") else _write(_read(bits, source), kind))[0]
    if whole := _WHOLE.fullmatch(text):
        digits = whole[2]
        value = int(digits, 8 if len(digits) > 1 and digits.isdigit() and digits[0] == "0" else 0) * (-1 if whole[1] else 1)
        return _write([float(value)] if _is_float(single) else np.array([value], object), single if _is_float(single) else kind)[0]
    if _FLOAT.fullmatch(text):
        return _write([float(text)], kind if _is_float(kind) else "f64")[0]
    raise _refused(f"{text}, which is no register that was written")


# Instructions.


def _run(this: Instruction, registers: _Registers) -> None:
    where = (registers.read(this.guard, "pred") == 0) == this.unless if this.guard else None
    kinds = [each for each in this.modifiers if _TYPE.fullmatch(each)]
    others = {each for each in this.modifiers if each not in kinds}
    if not kinds or not this.operands:
        raise _refused(this)
    target, *sources = this.operands
    made, kind, count = kinds[0], kinds[0], len(sources)
    result: Bits | None = None
    if this.name == "setp" and count == 2 and isinstance(target, str) and "x" not in kind:
        truth = _compared(kind, others, *(_read(registers.read(each, kind), kind) for each in sources))
        if truth is not None:
            for name, value in zip(target.split("|"), (truth, ~truth), strict=False):  # with `p|q` a second one is the opposite
                registers.write(name.strip(), value.astype(np.uint64), "pred", where)
            return
    elif this.name == "cvt":
        result = _convert(registers, kinds, others, sources)
    elif this.name == "mov" and not others and count == 1:
        result = registers.read(sources[0], kind)
    elif this.name == "selp" and not others and count == 3:
        result = np.where(registers.read(sources[2], "pred") == 1, *(registers.read(each, kind) for each in sources[:2]))
    elif _is_float(kind.partition("x")[0]):
        result = _on_floats(this.name, [registers.read(each, kind) for each in sources], kind, others)
    elif kind[0] in "busp" and "x" not in kind:
        signed = ["s"] if (this.name, kind[0]) == ("bfe", "s") else []
        types, operation = ON_INTEGERS.get(".".join((this.name, *sorted(others), *signed)), ("", _quotient))
        made = f"{kind[0]}{2 * _width(kind)}" if "wide" in others else "u32" if this.name in ("popc", "clz") else kind
        if types and len(types) == count:
            of_types = [{"t": kind, "u": "u32", "w": made}[letter] for letter in types]
            operands = [_read(registers.read(each, of), of) for each, of in zip(sources, of_types, strict=True)]
            result = _write(np.frompyfunc(functools.partial(operation, _width(kind)), count, 1)(*operands), made)
    if result is None:
        raise _refused(this)
    registers.write(target, result, made, where)


# Whole numbers, as Python's integers: the types of the operands (of the instruction, `u` for u32, `w` for that of the result), and what is
# computed of them, with the number of bits first. What is above the result's width is cut off.


def _quotient(bits: int, x: int, y: int) -> int:
    """Divide towards zero. PTX leaves a division by zero open: here it is 0."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0


def _permuted(bits: int, low: int, high: int, selector: int) -> int:
    """Choose four of eight bytes (`prmt`, without a mode). The highest bit of a selector asks for the byte's sign in all bits."""
    result = 0
    for n in range(4):
        chosen = selector >> 4 * n & 15
        byte = (high << 32 | low) >> 8 * (chosen & 7) & 255
        result |= ((255 if byte & 128 else 0) if chosen & 8 else byte) << 8 * n
    return result


def _logic(bits: int, a: int, b: int, c: int, table: int) -> int:
    """Return `lop3`: bit n of the table is the result where a, b and c have the bits of n, a the highest."""
    result = 0
    for n in range(8):
        if table >> n & 1:
            result |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
    return result


def _field(at: int, length: int) -> int:
    return (1 << (length & 255)) - 1 << (at & 255)


def _signed_field(bits: int, x: int, at: int, length: int) -> int:
    """Return `bfe` of a signed type, which goes on with its sign: the field's highest bit is the sign of the result."""
    field, length = x >> (at & 255) & _field(0, length), length & 255
    return field - (1 << length) if length and field >> length - 1 else field


ON_INTEGERS: dict[str, tuple[str, Callable[..., int]]] = {
    "add": ("tt", lambda bits, x, y: x + y),
    "sub": ("tt", lambda bits, x, y: x - y),
    "min": ("tt", lambda bits, x, y: min(x, y)),
    "max": ("tt", lambda bits, x, y: max(x, y)),
    "and": ("tt", lambda bits, x, y: x & y),
    "or": ("tt", lambda bits, x, y: x | y),
    "xor": ("tt", lambda bits, x, y: x ^ y),
    "neg": ("t", lambda bits, x: -x),
    "abs": ("t", lambda bits, x: abs(x)),
    "not": ("t", lambda bits, x: ~x),
    "cnot": ("t", lambda bits, x: int(x == 0)),
    "mul.lo": ("tt", lambda bits, x, y: x * y),
    "mul.hi": ("tt", lambda bits, x, y: x * y >> bits),
    "mul.wide": ("tt", lambda bits, x, y: x * y),
    "mad.lo": ("ttt", lambda bits, x, y, z: x * y + z),
    "mad.hi": ("ttt", lambda bits, x, y, z: (x * y >> bits) + z),
    "mad.wide": ("ttw", lambda bits, x, y, z: x * y + z),
    "div": ("tt", _quotient),
    "rem": ("tt", lambda bits, x, y: x - _quotient(bits, x, y) * y if y else 0),
    "shl": ("tu", lambda bits, x, by: x << min(by, bits)),
    "shr": ("tu", lambda bits, x, by: x >> min(by, bits)),
    "shf.l.wrap": ("ttu", lambda bits, low, high, by: (high << 32 | low) << (by & 31) >> 32),
    "shf.clamp.l": ("ttu", lambda bits, low, high, by: (high << 32 | low) << min(by, 32) >> 32),
    "shf.r.wrap": ("ttu", lambda bits, low, high, by: (high << 32 | low) >> (by & 31)),
    "shf.clamp.r": ("ttu", lambda bits, low, high, by: (high << 32 | low) >> min(by, 32)),
    "prmt": ("ttt", _permuted),
    "lop3": ("tttt", _logic),
    "bfe": ("tuu", lambda bits, x, at, length: x >> (at & 255) & _field(0, length)),
    "bfe.s": ("tuu", _signed_field),
    "bfi": ("ttuu", lambda bits, x, into, at, length: into & ~_field(at, length) | x << (at & 255) & _field(at, length)),
    "popc": ("t", lambda bits, x: x.bit_count()),
    "clz": ("t", lambda bits, x: bits - x.bit_length()),
    "brev": ("t", lambda bits, x: int(f"{x:0{bits}b}"[::-1], 2)),
}


# Floats. Approximations are computed in fp64 and rounded once. A rounding other than to nearest even is refused, but for conversions to
# whole numbers and `.rz` to bf16.


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x y + z of numbers with at most 24 bits. An inexact sum gets an odd last bit, so that rounding it again rounds it once."""
    product = x * y  # exact in fp64
    total = product + z
    taken = total - product
    lost = (product - (total - taken)) + (z - taken)
    even = (total.view(np.int64) & 1) == 0
    return np.where((lost != 0) & even & np.isfinite(lost), np.nextafter(total, np.copysign(np.inf, lost)), total)


def _keeping_nan(choose: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, choose(x, y))


def _with_signs(choose: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: np.where(np.signbit(x) != np.signbit(y), -1.0, 1.0) * choose(np.abs(x), np.abs(y))


# With their number of operands.
_ON_FLOATS: dict[str, tuple[int, Callable[..., Array]]] = {
    **{name: (2, function) for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide))},
    "fma": (3, _fused),
    "mad": (3, _fused),
    "copysign": (2, lambda x, y: np.copysign(y, x)),  # the first operand has the sign
    "rcp": (1, np.reciprocal),
    "sqrt": (1, np.sqrt),
    "rsqrt": (1, lambda x: 1 / np.sqrt(x)),
    "ex2": (1, np.exp2),
    "lg2": (1, np.log2),
    **{name: (1, getattr(np, name)) for name in ("sin", "cos", "tanh", "abs")},
    "neg": (1, np.negative),
}
for _name, _choose in (("min", smaller), ("max", larger)):
    _ON_FLOATS |= {_name: (2, _choose), f"{_name}.NaN": (2, _keeping_nan(_choose))}
    _ON_FLOATS |= {f"{_name}.abs.xorsign": (2, _with_signs(_choose)), f"{_name}.NaN.abs.xorsign": (2, _with_signs(_keeping_nan(_choose)))}
_CHANGE_NOTHING = {"rn", "approx", "full"}  # the result is computed in fp64, or is the nearest


def _on_floats(name: str, sources: list[Bits], kind: str, others: set[str]) -> Bits | None:
    """Compute with floats; of a packed type, with each of its numbers. None if that is not known here."""
    single, limits = kind.partition("x")[0], others & {"sat", "relu", "ftz"}
    if name in ("abs", "neg") and not others and len(sources) == 1:  # also of NaN, only the sign changes
        signs = _joined([np.full_like(sources[0], 1 << _width(single) - 1)] * (_width(kind) // _width(single)), _width(single))
        return sources[0] & ~signs if name == "abs" else sources[0] ^ signs
    count, operation = _ON_FLOATS.get(".".join((name, *sorted(others - limits - _CHANGE_NOTHING))), (0, np.add))
    if len(sources) != count or (count == 3 and kind == "f64"):  # there is no wider type to compute it in
        return None
    results = []
    with np.errstate(all="ignore"):
        for parts in zip(*(_parts(bits, kind) for bits in sources), strict=True):
            numbers = [_read(bits, single).astype(np.float64) for bits in parts]
            numbers = [_without_denormals(each, single) for each in numbers] if "ftz" in others else numbers
            results.append(_write(_bounded(operation(*numbers), limits, single), single))
    return _joined(results, _width(single))


def _bounded(numbers: Array, modifiers: set[str], kind: str = "f32") -> Array:
    """Apply `.sat` (0 to 1, NaN becomes 0), `.relu` (at least 0, NaN stays) and `.ftz`."""
    if "sat" in modifiers:
        numbers = np.where(np.isnan(numbers), 0.0, np.clip(numbers, 0.0, 1.0))
    if "relu" in modifiers:
        numbers = np.where(numbers < 0, 0.0, numbers)
    return _without_denormals(numbers, kind) if "ftz" in modifiers else numbers


def _without_denormals(numbers: Array, kind: str = "f32") -> Array:
    """Return numbers in fp64, with zeros of the same sign for what their type has as a denormal. bf16 has those of fp32."""
    wide, least = numbers.astype(np.float64), np.finfo(np.float16 if kind == "f16" else np.float32).tiny
    return np.where(np.abs(wide) < least, np.copysign(0.0, wide), wide)


_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": lambda x, y: (x < y) | (x > y),  # of floats: false if one is NaN
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _compared(kind: str, modifiers: set[str], x: Array, y: Array) -> Array | None:
    name = next(iter(modifiers - {"ftz"}), "")
    if len(modifiers - {"ftz"}) != 1:
        return None
    if not _is_float(kind):
        operation = _COMPARISONS.get(_UNSIGNED.get(name, name) if kind[0] != "s" else name)
        return None if operation is None else operation(x, y)
    x, y = (_without_denormals(each, kind) if "ftz" in modifiers else each.astype(np.float64) for each in (x, y))
    unordered = np.isnan(x) | np.isnan(y)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    operation = _COMPARISONS.get(name[:2])
    if operation is None or name[2:] not in ("", "u"):
        return None
    return operation(x, y) | unordered if name.endswith("u") else operation(x, y)


_TO_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_MOST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}


def _convert(registers: _Registers, kinds: list[str], modifiers: set[str], sources: list[Operand]) -> Bits | None:
    """Return the bits of the converted numbers; None if that is not known. Of two sources, the first goes into the upper half."""
    if len(kinds) != 2:
        return None
    of, (single, _, several) = kinds[1], kinds[0].partition("x")
    if len(sources) != (2 if several and "x" not in of else 1):
        return None
    parts = [part for source in reversed(sources) for part in _parts(registers.read(source, of), of)]
    with np.errstate(all="ignore"):
        made = [_converted(_read(part, of.partition("x")[0]), single, of.partition("x")[0], modifiers) for part in parts]
    return None if any(each is None for each in made) else _joined(made, _width(single))


def _converted(numbers: Array, to: str, of: str, modifiers: set[str]) -> Bits | None:
    rounding = _TO_WHOLE.get(next(iter(modifiers & _TO_WHOLE.keys()), ""))
    plain = modifiers - _TO_WHOLE.keys() - {"ftz", "sat"}
    if len(modifiers & _TO_WHOLE.keys()) > 1 or (rounding and plain):
        return None
    if "ftz" in modifiers:
        numbers = _without_denormals(numbers)
    if to == "tf32":
        return _to_tf32(numbers, "rna" in plain) if of == "f32" and plain in ({"rna"}, {"rn"}) and "sat" not in modifiers else None
    if not _is_float(to):
        if _is_float(of) != bool(rounding) or plain or to[0] not in "us" or not (rounding or of[0] in "us"):
            return None
        return _write(_clamped(rounding(numbers.astype(np.float64)), to) if rounding else _clamped(numbers, to, "sat" in modifiers), to)
    if not _is_float(of):
        exact = numbers if to == "f32" and "sat" not in modifiers else numbers.astype(np.float64)
        return _write(_bounded(exact, modifiers & {"sat"}), to) if of[0] in "us" and plain <= {"rn"} and not rounding else None
    if plain - {"rn", "satfinite", "relu", "rz"} or ("rz" in plain and to != "bf16") or (to[0] == "e" and "satfinite" not in plain):
        return None  # to the types of 8 and 4 bits, PTX has no other
    numbers = _bounded(rounding(numbers) if rounding else numbers, modifiers & {"sat", "relu", "ftz"})
    if "rz" in plain:  # to the 16 highest bits
        cut = (numbers.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        numbers = np.where(np.isfinite(numbers), cut, numbers)
    if "satfinite" in plain and to in _MOST:
        numbers = np.where(np.isnan(numbers), numbers, np.clip(numbers, -_MOST[to], _MOST[to]))
    return _write(numbers, to)


def _clamped(numbers: Array, kind: str, ends: bool = True) -> Array:
    """Return whole numbers as Python's; with `ends` what is outside of their type becomes its nearest end, and NaN becomes 0."""
    bits = int(kind[1:])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return np.frompyfunc(lambda x: 0 if x != x else int(min(max(x, least), most)), 1, 1)(numbers) if ends else numbers


def _to_tf32(numbers: Array, away: bool) -> Bits:
    """Round fp32 to ten bits of its mantissa; of two as near, the one away from zero, or the even one."""
    bits = _write(numbers, "f32")
    half = np.uint64(0x1000) if away else np.uint64(0xFFF) + (bits >> np.uint64(13) & np.uint64(1))
    return np.where(np.isfinite(numbers), (bits + half) & np.uint64(0xFFFFE000), bits)


# What the bits of a register mean by the type that an instruction names.

_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_NARROW = {"bf16": tl.bfloat16, "e4m3": tl.float8e4nv, "e5m2": tl.float8e5}
_EVEN_FIRST = np.array([0, 2, 4, 6, 1, 3, 5, 7])


def _is_float(kind: str) -> bool:
    return kind in _FLOATS or kind in _NARROW or kind == "e2m1"


def _width(kind: str) -> int:
    """Return the bits of a type; of `f16x2`, those of both."""
    single, _, several = kind.partition("x")
    bits = {"pred": 1, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m1": 4}.get(single) or int(single[1:])
    return bits * int(several or 1)


def _cut(bits: Bits, count: int) -> Bits:
    return bits & np.uint64((1 << count) - 1)


def _parts(bits: Bits, kind: str) -> list[Bits]:
    """Return the numbers that are packed in a register, the lowest first: two of `f16x2`."""
    each = _width(kind.partition("x")[0])
    return [_cut(bits >> np.uint64(each * n), each) for n in range(_width(kind) // each)]


def _joined(numbers: list[Bits], each: int) -> Bits:
    """Pack numbers of `each` bits into a register, the first into the lowest bits."""
    return np.bitwise_or.reduce([bits << np.uint64(each * n) for n, bits in enumerate(numbers)])


def _read(bits: Bits, kind: str) -> Array:
    """Return numbers: floats as they are (of 8 and 4 bits, and bf16, in fp32), signed ones as int64, and all others as uint64."""
    count = _width(kind)
    if kind in _FLOATS:
        return np.ascontiguousarray(bits).astype(f"u{count // 8}").view(_FLOATS[kind])
    if kind in _NARROW:
        return widened(bits.astype(f"u{count // 8}"), _NARROW[kind])
    if kind == "e2m1":
        return E2M1[_cut(bits, 4).astype(int)]
    return (bits << np.uint64(64 - count)).view(np.int64) >> np.int64(64 - count) if kind[0] == "s" else _cut(bits, count)


def _write(numbers: Array, kind: str) -> Bits:
    """Return the bits of numbers, rounded to nearest even. A float that is too large becomes infinity, or of 8 and 4 bits the largest.

    NaN has the bits that PTX gives it: all but the sign (0x7FFFFFFF). Of e2m1, which has none, it becomes the largest.
    """
    count, nan = _width(kind), np.uint64((1 << _width(kind) - 1) - 1)
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            made = np.asarray(numbers).astype(_FLOATS[kind])
        bits = made.view(f"u{count // 8}").astype(np.uint64)
        return np.where(np.isnan(made), nan, bits) if kind != "f64" else bits
    if kind in _NARROW:
        single = np.asarray(numbers, np.float32)
        return np.where(np.isnan(single), nan, narrowed(single, _NARROW[kind]).astype(np.uint64))
    if kind == "e2m1":
        sizes = np.nan_to_num(np.minimum(np.abs(np.asarray(numbers, np.float32)), 6), nan=6.0)
        nearest = _EVEN_FIRST[np.abs(sizes[..., None] - E2M1[_EVEN_FIRST]).argmin(-1)]  # of two, the one with an even last bit
        return (nearest | np.where(np.signbit(numbers) & ~np.isnan(numbers), 8, 0)).astype(np.uint64)
    return (np.asarray(numbers).astype(object) & (1 << count) - 1).astype(np.uint64)
