"""AMD's pseudocode, as Python functions: what one instruction does to one lane, or to a wave's scalars.

The text is in the wheel of tinygrad (`str_pcode.py`, taken from AMD's manuals). This reads the part of the language that vector and scalar
arithmetic is written in; what it does not know raises `NotPseudocode`, and is named as not covered.
"""

import importlib
import math
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

FIELDS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}  # bits of exponent and fraction
CANONICAL = {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8 << 48}
_LAYOUTS = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


class NotPseudocode(Exception):  # noqa: N818
    """A function, register or statement of the pseudocode that has no meaning here."""


class Number(NamedTuple):
    """Bits, and what they are: "u" and "i" whole numbers, "f" and "bf" floats, "b" plain bits."""

    kind: str
    width: int
    raw: int

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def value(self) -> Any:
        if self.kind == "bf":
            return Number("f", 32, self.raw << 16).value
        if self.kind == "f":
            return struct.unpack(_LAYOUTS[self.width][0], self.raw.to_bytes(self.width // 8, "little"))[0]
        return self.raw - (1 << self.width) if self.kind == "i" and self.raw >> (self.width - 1) else self.raw


def parts(x: Number) -> tuple[int, int, int]:
    """Return sign, exponent and fraction of a float."""
    exponent, fraction = FIELDS[x.width] if x.kind == "f" else (8, 7)
    return x.raw >> (x.width - 1), x.raw >> fraction & ((1 << exponent) - 1), x.raw & ((1 << fraction) - 1)


def is_nan(x: Number) -> bool:
    return x.value != x.value


def quiet(x: Number) -> Number:
    return Number(x.kind, x.width, x.raw | 1 << (FIELDS[x.width][1] if x.kind == "f" else 7) - 1) if is_nan(x) else x


def rounded(exact: Any, width: int, kind: str = "f", to_zero: bool = False) -> Number:
    """Return the float nearest to a number, ties to even; or the next one towards zero."""
    if kind == "bf":
        single = rounded(exact, 32).raw  # halves of it are decided there once: what is rounded here has at most 24 bits
        return Number("bf", 16, single + 0x7FFF + (single >> 16 & 1) >> 16 if single & 0x7FFFFFFF <= 0x7F800000 else single >> 16 | 0x40)
    if isinstance(exact, float) and (exact != exact or math.isinf(exact) or exact == 0):
        if exact != exact:
            return Number("f", width, CANONICAL[width])
        return Number("f", width, struct.unpack(_LAYOUTS[width][1], struct.pack(_LAYOUTS[width][0], exact))[0])
    exact = Fraction(exact)
    exponent_bits, fraction_bits = FIELDS[width]
    bias, sign, size = (1 << exponent_bits - 1) - 1, int(exact < 0), abs(exact)
    if size == 0:
        return Number("f", width, 0)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    unit = Fraction(2) ** (max(power, 1 - bias) - fraction_bits)
    steps = size // unit if to_zero else round(size / unit)
    raw = int(steps) + ((max(power, 1 - bias) + bias - 1) << fraction_bits)
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    return Number("f", width, sign << (width - 1) | min(raw, infinity - to_zero))


def as_kind(x: Any, kind: str, width: int, to_zero: bool = False) -> Number:
    """Return a value as another kind: floats are rounded, whole numbers wrap, bits stay bits."""
    if isinstance(x, bool):
        x = int(x)
    if kind in ("f", "bf"):
        if isinstance(x, Number) and not x.is_float:
            return (
                Number(kind, width, x.raw & (1 << width) - 1)
                if x.kind == "b"
                else rounded(float(x.value) if x.value == 0 else Fraction(x.value), width, kind)
            )
        if not isinstance(x, Number):
            return rounded(x if isinstance(x, float) else Fraction(x), width, kind)
        if (x.kind, x.width) == (kind, width):
            return x
        if is_nan(x):  # its payload goes along, and so does what it signals
            sign, _, fraction = parts(x)
            shift = (FIELDS[width][1] if kind == "f" else 7) - (FIELDS[x.width][1] if x.kind == "f" else 7)
            moved = fraction << shift if shift >= 0 else fraction >> -shift
            infinity = rounded(math.inf, width, kind).raw
            return Number(kind, width, sign << (width - 1) | infinity | (moved or 1 << (FIELDS[width][1] if kind == "f" else 7) - 1))
        return rounded(x.value if math.isinf(x.value) or x.value == 0 else Fraction(x.value), width, kind, to_zero)
    if isinstance(x, float):
        raise NotPseudocode("a float is stored as a whole number")
    if isinstance(x, Number):
        x = x.raw if x.is_float or (kind == "b" and x.kind == "b") else x.value
    return Number(kind, width, int(x) & (1 << width) - 1)


def fused(a: Number, b: Number, c: Number) -> Number:
    width = max(a.width, b.width, c.width)
    x, y, z = a.value, b.value, c.value
    if all(map(math.isfinite, (x, y, z))):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        return rounded(exact if exact else x * y + z, width)
    return rounded(
        math.nan if any(v != v for v in (x, y, z)) else z if math.isinf(z) and all(map(math.isfinite, (x, y))) else _product(x, y) + z,
        width,
    )


def _scaled(a: Number, b: Number, c: Number, power: int) -> Number:
    sum_ = fused(a, b, c)
    if not math.isfinite(sum_.value) or not all(math.isfinite(x.value) for x in (a, b, c)):
        return sum_
    exact = Fraction(a.value) * Fraction(b.value) + Fraction(c.value)
    return rounded(exact * Fraction(2) ** power, a.width) if exact else sum_


def _product(x: float, y: float) -> float:
    return math.nan if 0 in (x, y) and (math.isinf(x) or math.isinf(y)) else x * y


def _quotient(x: float, y: float) -> float:
    if y == 0:
        return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1, y)
    return x / y


def arithmetic(operation: str, a: Any, b: Any) -> Any:
    if operation == "**":
        return Fraction(int(a.value)) ** _power_of_two(b)
    a, b = (int(x) if isinstance(x, bool) else x for x in (a, b))
    if any(isinstance(x, Fraction) or (isinstance(x, Number) and x.is_float) for x in (a, b)) and operation in "+-*/":
        return _of_floats(operation, a, b)
    widths = [x.width for x in (a, b) if isinstance(x, Number)]
    kinds = [x.kind for x in (a, b) if isinstance(x, Number)]
    x, y = (v.value if isinstance(v, Number) else v for v in (a, b))
    if operation in ("<<", ">>"):
        widths, kinds = ([a.width], [a.kind]) if isinstance(a, Number) else ([], [])
    done = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "&": int.__and__, "|": int.__or__, "^": int.__xor__, "<<": int.__lshift__}
    done |= {">>": int.__rshift__, "%": int.__mod__}
    value = done[operation](x, y)
    if not widths:
        return value
    kind = "i" if all(k == "i" for k in kinds) else "b" if all(k == "b" for k in kinds) else "u"
    return Number(kind, max(widths), value & (1 << max(widths)) - 1)


def _power_of_two(n: Any) -> int:
    return max(-5000, min(5000, number(n)))  # beyond all floats


def _of_floats(operation: str, a: Any, b: Any) -> Number:
    floats = [x for x in (a, b) if isinstance(x, Number) and x.is_float]
    width, kind = max(x.width for x in floats), "bf" if all(x.kind == "bf" for x in floats) else "f"
    exact = next((x for x in (a, b) if isinstance(x, Fraction)), None)
    if exact is not None:  # a power of two: no overflow on the way
        (other,) = floats
        return rounded(Fraction(other.value) * exact if math.isfinite(other.value) and other.value else other.value, width)
    x, y = (float(v.value) if isinstance(v, Number) else float(v) for v in (a, b))
    if operation == "*" and math.isfinite(x) and math.isfinite(y):
        exact = Fraction(x) * Fraction(y)
        return rounded(exact if exact else x * y, width, kind)
    if operation in "+-" and math.isfinite(x) and math.isfinite(y):
        exact = Fraction(x) + Fraction(y) * (1 if operation == "+" else -1)
        return rounded(exact if exact else x + y if operation == "+" else x - y, width, kind)
    if operation == "/" and math.isfinite(x) and math.isfinite(y) and x and y:
        return rounded(Fraction(x) / Fraction(y), width, kind)
    return rounded(
        {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: _product(x, y), "/": lambda: _quotient(x, y)}[operation](), width, kind
    )


def compare(operation: str, a: Any, b: Any) -> bool:
    for x, other in ((a, b), (b, a)):
        if isinstance(x, Number) and x.kind == "signed zero":
            return other.value == 0 and parts(other)[0] == x.raw
        if isinstance(x, Number) and x.kind == "denormal":
            return parts(other)[1] == 0 and parts(other)[2] != 0
    x, y = (v.value if isinstance(v, Number) else v for v in (a, b))
    return bool({"==": x == y, "!=": x != y, "<>": x < y or x > y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operation])


def true(x: Any) -> bool:
    return x.raw != 0 if isinstance(x, Number) else bool(x)


def negative(x: Any) -> Any:
    if isinstance(x, Number) and x.is_float:
        return Number(x.kind, x.width, x.raw ^ 1 << (x.width - 1))
    return Number(x.kind, x.width, -x.value & (1 << x.width) - 1) if isinstance(x, Number) else -x


def inverted(x: Any) -> Any:
    return Number(x.kind, x.width, ~x.raw & (1 << x.width) - 1) if isinstance(x, Number) else ~x


def concatenated(*pieces: Number) -> Number:
    raw, width = 0, 0
    for piece in pieces:
        raw, width = raw << piece.width | piece.raw, width + piece.width
    return Number("b", width, raw)


def cut(x: Any, high: Any, low: Any) -> Number:
    high, low = map(number, (high, low))
    if high < low:  # [0 : 31] turns the bits around
        return Number("b", low - high + 1, int(f"{x.raw >> high & (1 << low - high + 1) - 1:0{low - high + 1}b}"[::-1], 2))
    return Number("u" if x.kind == "b" else x.kind if not x.is_float else "u", high - low + 1, x.raw >> low & (1 << high - low + 1) - 1)


def indexed(x: Any, n: Any) -> Any:
    n = number(n)
    return x[n] if isinstance(x, list) else Number("u", 1, x.raw >> n & 1)


def typed(x: Any, kind: str, width: int) -> Number:
    """Return a register or a variable read as a type."""
    if isinstance(x, (int, bool)):
        x = Number("i", 64, int(x) & 2**64 - 1)
    if x.kind == "denormal":
        return Number("denormal", width, 0)
    if x.kind == "constant":
        return rounded({0: math.inf, 1: math.nan}[x.raw], width)
    if x.is_float and kind in ("f", "bf") and x.width != width:
        return as_kind(x, kind, width)
    return Number(kind, width, x.raw & (1 << width) - 1)


def saturated(x: Any, kind: str, width: int) -> Number:
    """Return a float cut off to a whole number, or a whole number, as the nearest of a type; 0 for NaN."""
    value = x.value
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind == "i" else (0, (1 << width) - 1)
    if isinstance(value, float):
        value = 0 if value != value else high if value == math.inf else low if value == -math.inf else int(value)
    return Number(kind, width, max(low, min(high, value)) & (1 << width) - 1)


def _by_double(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def one(x: Number) -> Number:
        try:
            return rounded(function(x.value), x.width, x.kind)
        except (ValueError, OverflowError):
            return rounded(math.nan, x.width)

    return one


def _whole(function: Callable[[Fraction], int]) -> Callable[[Number], Number]:
    def one(x: Number) -> Number:
        if not math.isfinite(x.value) or x.value == 0:
            return rounded(x.value, x.width) if not is_nan(x) else quiet(x)
        whole = function(Fraction(x.value))
        return rounded(Fraction(whole) if whole else math.copysign(0.0, x.value), x.width)

    return one


def _power(base: Number, x: Number) -> Number:
    try:
        return rounded(2.0**x.value, x.width) if base.value == 2 else rounded(base.value**x.value, x.width)
    except OverflowError:
        return rounded(math.inf, x.width)


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.nan if x < 0 else math.log2(x)


def _mantissa(x: Number) -> Number:
    return rounded(math.frexp(x.value)[0] if math.isfinite(x.value) else x.value, x.width)


def _fract(x: Number) -> Number:
    return rounded(Fraction(x.value) - math.floor(Fraction(x.value)), x.width) if math.isfinite(x.value) else rounded(math.nan, x.width)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isNAN": is_nan,
    "isSignalNAN": lambda x: is_nan(x) and quiet(x) != x,
    "isQuietNAN": lambda x: is_nan(x) and quiet(x) == x,
    "cvtToQuietNAN": quiet,
    "exponent": lambda x: parts(x)[1],
    "sign": lambda x: Number("u", 1, x.raw >> (x.width - 1)),
    "mantissa": _mantissa,
    "abs": lambda x: Number(x.kind, x.width, x.raw & (1 << x.width - 1) - 1 if x.is_float else abs(x.value)),
    "fma": fused,
    "trunc": _whole(math.trunc),
    "floor": _whole(math.floor),
    "fract": _fract,
    "isEven": lambda x: math.isfinite(x.value) and x.value % 2 == 0,
    "sqrt": _by_double(math.sqrt),
    "log2": _by_double(_log2),
    "pow": _power,
    "ldexp": lambda x, n: _of_floats("*", x, Fraction(2) ** _power_of_two(n)),
    "signext": lambda x: Number("i", 64, x.value & 2**64 - 1),
    "signext_from_bit": lambda x, n: Number("i", x.width, _signed(x.raw, number(n)) & (1 << x.width) - 1),
    "bitCount": lambda x: x.raw.bit_count(),
    # What comparison.py puts in the place of pseudocode that is known to be wrong.
    "fma_scaled": lambda a, b, c, n: _scaled(a, b, c, n.value if isinstance(n, Number) else n),
    "may_be_denormal": lambda a, b: parts(a)[1] - parts(b)[1] <= 2 - (1 << FIELDS[a.width][0] - 1) or not parts(arithmetic("/", a, b))[1],
    "nearest_even": _whole(round),
    "below_one": lambda x: Number("f", x.width, x.raw - 1) if x.value == 1 else x,
    "frexp_exp": lambda x: math.frexp(x.value)[1] if math.isfinite(x.value) else 0,
    "f16_to_snorm": lambda x: _norm(x, 32767),
    "f16_to_unorm": lambda x: _norm(x, 65535),
    "f32_to_snorm": lambda x: _norm(x, 32767),
    "f32_to_unorm": lambda x: _norm(x, 65535),
}


def _signed(raw: int, bits: int) -> int:
    raw &= (1 << bits) - 1
    return raw - (1 << bits) if bits and raw >> (bits - 1) else raw


def _norm(x: Number, most: int) -> Number:
    value = 0.0 if is_nan(x) else max(-1.0 if most == 32767 else 0.0, min(1.0, x.value))
    return Number("u", 16, round(Fraction(value) * most) & 0xFFFF)


_CONVERSION = re.compile(r"(bf|[fiu])(\d+)_to_(bf|[fiu])(\d+)$")


def called(env: dict[str, Any], name: str, *given: Any) -> Any:
    """Call a function of the pseudocode: one that is defined on the spot, one of the language, a conversion, or another instruction."""
    if name in env:
        return env[name](*given)
    if name in FUNCTIONS:
        return FUNCTIONS[name](*given)
    if found := _CONVERSION.match(name):
        source, kind = found[1], found[3]
        width = int(found[4])
        if kind in ("f", "bf"):
            made = as_kind(given[0], "bf" if (kind, width) == ("bf", 16) else kind, width, env.get("ROUND_MODE") == "ROUND_TOWARD_ZERO")
            return quiet(made)
        return saturated(given[0], kind, width) if source in ("f", "bf") or width < given[0].width else as_kind(given[0], kind, width)
    if name in ("v_cvt_i16_f32", "v_cvt_u16_f32"):  # named by the pseudocode of a pair of them alone
        return saturated(given[0], name[6], 16)
    if name.startswith(("v_", "s_")):
        text = text_of(env["family"], name)
        if text is None:
            raise NotPseudocode(f"{name}()")
        inner = {f"S{n}": Number("b", 64, x.raw) for n, x in enumerate(given)}
        left = function(text)(env["family"], inner, env["IEEE"])
        return Number(given[0].kind if given else "b", given[0].width, left["D0"].raw & (1 << given[0].width) - 1)
    raise NotPseudocode(f"{name}()")


@cache
def table(family: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the pseudocode of a family, with its mnemonic, by encoding and opcode."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{family}.str_pcode")
    return {(type(op).__name__[:-2], op.value): (re.sub(r"_e(32|64)$", "", op.name.lower()), text) for op, text in module.PCODE.items()}


@cache
def text_of(family: str, mnemonic: str) -> str | None:
    """Return an instruction's pseudocode; if its family's manual names one that it does not have, RDNA4's."""
    return next((text for each in (family, "rdna4") for name, text in table(each).values() if name == mnemonic), None)


# The language: tokens, expressions, statements.
_TOKEN = re.compile(
    r"\s*(\d+'(?:BF|[UIFB])(?=\s*\()|\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[ULF]*|0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[ULF]*"
    r"|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^~!?:<>(){}\[\],.=])"
)
_TYPE = re.compile(r"(bf|[uifb])(\d+)$")
_BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]


class _Expression:
    """One expression, as Python."""

    def __init__(self, text: str) -> None:
        self.tokens, at = [], 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if not found:
                raise NotPseudocode(f"text: {text[at : at + 20]}")
            self.tokens.append(found[1])
            at = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise NotPseudocode(f"{token or 'the end'} instead of {wanted}")
        self.at += 1
        return token

    def whole(self) -> str:
        made = self.choice()
        if self.peek():
            raise NotPseudocode(f"text after an expression: {self.peek()}")
        return made

    def choice(self) -> str:
        made = self.binary(0)
        if self.peek() != "?":
            return made
        self.take()
        first = self.choice()
        self.take(":")
        return f"({first} if true({made}) else {self.choice()})"

    def binary(self, level: int) -> str:
        if level == len(_BINARY):
            return self.unary()
        made = self.binary(level + 1)
        while self.peek() in _BINARY[level]:
            operation = self.take()
            other = self.binary(level + 1)
            if level < 2:
                made = f"(true({made}) {'or' if level == 0 else 'and'} true({other}))"
            else:
                made = f"{'compare' if level in (5, 6) else 'arithmetic'}({operation!r}, {made}, {other})"
        return made

    def unary(self) -> str:
        if self.peek() in ("-", "+", "!", "~"):
            operation = self.take()
            if self.peek() == "0.0" and self.tokens[self.at - 2 : self.at - 1] == [
                "=="
            ]:  # -0 and +0 are told apart where signs are written
                self.take()
                return f"Number('signed zero', 64, {int(operation == '-')})"
            made = self.unary()
            return {"-": f"negative({made})", "+": made, "!": f"(not true({made}))", "~": f"inverted({made})"}[operation]
        made = self.suffixed(self.primary())
        if self.peek() == "**":
            self.take()
            made = f"arithmetic('**', {made}, {self.unary()})"
        return made

    def primary(self) -> str:
        token = self.take()
        if token == "(":
            made = self.choice()
            self.take(")")
            return made
        if token == "{":
            return f"concatenated({', '.join(self.list('}'))})"
        if "'" in token and self.peek() == "(":
            width, kind = token.split("'")
            self.take()
            hexadecimal = self.peek().startswith("0x") and self.tokens[self.at + 1] == ")"
            made = self.choice()
            self.take(")")
            return f"as_kind({f'Number({chr(39)}b{chr(39)}, {width}, number({made}))' if hexadecimal else made}, {kind.lower()!r}, {width})"
        if token[0].isdigit():
            return self.literal(token)
        if self.peek() == "(" and token not in ("and", "or"):
            self.take()
            return f"called(env, {token!r}, {', '.join(self.list(')'))})"
        return f"read(env, {token!r})"

    def list(self, end: str) -> list[str]:
        found = [] if self.peek() == end else [self.choice()]
        while self.peek() == ",":
            self.take()
            found.append(self.choice())
        self.take(end)
        return found

    @staticmethod
    def literal(token: str) -> str:
        width, _, number = token.rpartition("'")
        if "." in number:
            return f"rounded({float(number.rstrip('F'))}, {width or (32 if number.endswith('F') else 64)})"
        value = int(number.rstrip("UL") if number.startswith("0x") else number.rstrip("ULF"), 0)
        if width:
            return f"Number('u', {width}, {value})"
        if number.endswith("F") and not number.startswith("0x"):
            return f"rounded({float(value)}, 32)"
        wide = 64 if "LL" in number else 32
        return f"Number('u', {wide}, {value})" if "U" in number else f"Number('i', 64, {value})" if "LL" in number else str(value)

    def suffixed(self, made: str) -> str:
        while self.peek() in (".", "["):
            if self.take() == ".":
                name = self.take()
                found = _TYPE.match(name)
                made = f"typed({made}, {found[1]!r}, {found[2]})" if found else f"member(env, {made}, {name!r})"
                continue
            first = self.choice()
            if self.peek() == ":":
                self.take()
                made = f"cut({made}, {first}, {self.choice()})"
            else:
                made = f"indexed({made}, {first})"
            self.take("]")
        return made


_CONSTANTS = {
    "INF": Number("constant", 64, 0), "NAN": Number("constant", 64, 1), "DENORM": Number("denormal", 64, 0),
    "PI": rounded(math.pi, 64), "MAX_FLOAT_F32": Number("f", 32, 0x7F7FFFFF), "UNDERFLOW_F32": Number("f", 32, 0),
    "OVERFLOW_F32": Number("f", 32, 0x7F800000), "UNDERFLOW_F64": Number("f", 64, 0), "OVERFLOW_F64": Number("f", 64, 0x7FF << 52),
    "ROUND_NEAREST_EVEN": "ROUND_NEAREST_EVEN", "ROUND_TOWARD_ZERO": "ROUND_TOWARD_ZERO",
}  # fmt: skip


def read(env: dict[str, Any], name: str) -> Any:
    if name in env:
        return env[name]
    if name == "INF":
        return rounded(math.inf, 64)
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in ("WAVE_MODE", "TRAPSTS"):
        return name
    raise NotPseudocode(name)


def member(env: dict[str, Any], of: Any, name: str) -> Any:
    if of == "WAVE_MODE" and name == "IEEE":
        return env["IEEE"]
    raise NotPseudocode(f"{of}.{name}")


def store(env: dict[str, Any], name: str, path: list[Any], value: Any) -> None:
    """Assign to a variable, a part of it, an element or a bit; note what was written of the registers."""
    if name in ("TRAPSTS", "ROUND_MODE", "prev_mode"):
        env[name] = value
        return
    old = env.get(name, Number("b", 64, 0))
    if isinstance(old, list):
        old[number(path[0][1])] = value if len(path) == 1 else as_kind(value, path[1][1], path[1][2])
        return
    low, width, kind = 0, None, None
    for step in path:
        if step[0] == "type":
            kind, width = step[1], step[2] if width is None or width >= step[2] else width
        elif step[0] == "cut":
            high, low = map(number, step[1:])
            width = high - low + 1
        else:
            low, width, kind = number(step[1]), 1, "u"
    if width is None:
        if name in ("D0", "D1", "SCC", "VCC", "EXEC"):
            width = 1 if name == "SCC" else value.width if isinstance(value, Number) else 64
            value = as_kind(value, "u", width) if not isinstance(value, Number) else value
        else:
            declared = env["declared"].get(name)
            env[name] = as_kind(value, *declared) if declared else int(value) if isinstance(value, bool) else value
            return
    made = as_kind(value, kind, width) if kind and kind != "b" else value if isinstance(value, Number) else as_kind(value, "u", width)
    mask = (1 << width) - 1 << low
    raw = old.raw if isinstance(old, Number) else int(old) & 2**64 - 1
    same = isinstance(old, Number) and low == 0 and width == old.width
    env[name] = Number(
        kind or old.kind if same else old.kind if isinstance(old, Number) and old.width >= low + width else "b",
        max(old.width if isinstance(old, Number) else 64, low + width),
        raw & ~mask | made.raw << low & mask,
    )
    env["written"][name] = env["written"].get(name, 0) | mask


def _target(text: str) -> str:
    """Return Python that stores `value` in the place that a text names."""
    text = text.strip()
    if text.startswith("{"):
        names, lines, at = [one.strip() for one in text.strip("{} ").split(",")], [], 0
        for one in reversed(names):
            found = _TYPE.search(one)
            if not found:
                raise NotPseudocode(f"{one} without a type")
            width = int(found[2])
            lines.append(f"whole = value; value = cut(whole, {at + width - 1}, {at}); {_target(one)}; value = whole")
            at += width
        return "; ".join(lines)
    expression = _Expression(text)
    name, path = expression.take(), []
    while expression.peek():
        if expression.take() == ".":
            found = _TYPE.match(expression.take())
            if not found:
                return "pass"  # a flag of exceptions
            path.append(f"('type', {found[1]!r}, {found[2]})")
            continue
        first = expression.choice()
        if expression.peek() == ":":
            expression.take()
            path.append(f"('cut', {first}, {expression.choice()})")
        else:
            path.append(f"('at', {first})")
        expression.take("]")
    return f"store(env, {name!r}, [{', '.join(path)}], value)"


def _statements(text: str) -> list[str]:
    """Return statements, one each, without comments; an unfinished line goes on in the next."""
    found, open_line = [], ""
    for line in re.sub(r"//[^\n]*", "", text).split("\n"):
        open_line = f"{open_line} {line.strip()}".strip()
        if open_line.count("(") > open_line.count(")"):
            continue
        found += [
            part.strip() for part in (open_line.split(";") if "lambda" not in open_line else [open_line.rstrip("; ")]) if part.strip(" ;")
        ]
        open_line = ""
    return [*found, *([open_line] if open_line else [])]


def _block(statements: list[str], indent: int) -> list[str]:
    lines: list[str] = []

    def add(text: str) -> None:
        lines.append("    " * indent + text)

    n = 0
    while n < len(statements):
        one = statements[n]
        n += 1
        if found := re.match(r"(\w+) = lambda\(([\w, ]*)\) \((.*)$", one):
            if " return " in found[3]:
                raise NotPseudocode(f"{found[1]} has statements of its own")
            inner, names = found[3][: found[3].rindex(")")], re.findall(r"\w+", found[2])
            add(f"env[{found[1]!r}] = lambda *given: (lambda env: {_Expression(inner).whole()})({{**env, **dict(zip({names}, given))}})")
            continue
        if found := re.match(r"declare (\w+) : (\d+)'(BF|[UIFB])(?:\[(\d+)\])?$", one):
            width, kind = int(found[2]), found[3].lower()
            add(f"env[{found[1]!r}] = {f'[None] * {found[4]}' if found[4] else f'Number({kind!r}, {width}, 0)'}")
            if not found[4]:
                add(f"env['declared'][{found[1]!r}] = ({kind!r}, {width})")
        elif found := re.match(r"(if|elsif) (.*) then$", one):
            indent -= found[1] == "elsif"
            add(f"{'if' if found[1] == 'if' else 'elif'} true({_Expression(found[2]).whole()}):")
            indent += 1
            add("pass")
        elif one == "else":
            indent -= 1
            add("else:")
            indent += 1
            add("pass")
        elif found := re.match(r"for (\w+) in (.*) : (.*) do$", one):
            first, last = (_Expression(part).whole() for part in found.groups()[1:])
            add(f"for n in range(number({first}), number({last}) + 1):")
            indent += 1
            add(f"env[{found[1]!r}] = n")
        elif one in ("endif", "endfor"):
            indent -= 1
        elif one == "break":
            add("break")
        elif found := re.match(r"(.*?) (\+|-|\*|\||&|\^|<<|>>)= (.*)$", one):
            add(f"value = arithmetic({found[2]!r}, {_Expression(found[1]).whole()}, {_Expression(found[3]).whole()})")
            add(_target(found[1]))
        elif " = " in one:
            *targets, last = one.split(" = ")
            add(f"value = {_Expression(last).whole()}")
            for target in targets:
                add(_target(target))
        else:
            raise NotPseudocode(f"statement: {one[:40]}")
    return lines


def number(x: Any) -> int:
    return int(x.value if isinstance(x, Number) else x)


@cache
def function(text: str) -> Callable[..., dict[str, Any]]:
    """Compile the pseudocode of an instruction: family, registers and MODE.IEEE go in, registers and what was written of them come out."""
    source = "def run(env):\n" + "\n".join(_block(_statements(text), 1) or ["    pass"])
    names = dict(globals())
    exec(compile(source, "pseudocode", "exec"), names)
    run = names["run"]

    def execute(family: str, registers: dict[str, Any], ieee: bool) -> dict[str, Any]:
        env = {"D0": Number("b", 64, 0), **registers, "family": family, "IEEE": ieee, "written": {}, "declared": {}}
        env["S"] = [env.get(f"S{n}") for n in range(3)]
        run(env)
        return env

    return execute
