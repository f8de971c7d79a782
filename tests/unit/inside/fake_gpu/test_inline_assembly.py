"""Inline PTX in Triton's interpreter, held to Python's integers, to NumPy and to torch."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.ptx import parse, run
from warpwave.inside.process.outcomes import NotPretended

GENERATOR = np.random.default_rng(7)
COUNT = 512
EDGES = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
WORDS = [np.array([*EDGES, *GENERATOR.integers(0, 1 << 32, COUNT - len(EDGES))], np.uint64)[GENERATOR.permutation(COUNT)] for _ in range(3)]
FLOATS = np.concatenate(
    [GENERATOR.standard_normal(COUNT - 10) * 10.0 ** GENERATOR.integers(-6, 6, COUNT - 10), [0, -0.0, np.inf, -np.inf, np.nan]]
)
FLOATS = np.concatenate([FLOATS, [1e-40, -1e-40, 3e38, 65520, 448]]).astype(np.float32)


def bits_of(values):
    return values.view(np.uint32).astype(np.uint64)


def run_on(text, *inputs, out=32):
    return run(text, [out], [(bits, 32) for bits in inputs], COUNT)[0]


def signed(word, width=32):
    return word - (1 << width) if word >> width - 1 else word


INTEGERS = {
    "add.s32": lambda a, b, c: a + b,
    "sub.u32": lambda a, b, c: a - b,
    "mul.lo.s32": lambda a, b, c: signed(a) * signed(b),
    "mul.hi.s32": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mul.hi.u32": lambda a, b, c: a * b >> 32,
    "mad.lo.u32": lambda a, b, c: a * b + c,
    "div.u32": lambda a, b, c: a // b if b else 0,
    "div.s32": lambda a, b, c: int(Fraction(signed(a), signed(b))) if b else 0,
    "rem.s32": lambda a, b, c: signed(a) - int(Fraction(signed(a), signed(b))) * signed(b) if b else 0,
    "min.s32": lambda a, b, c: min(signed(a), signed(b)),
    "max.u32": lambda a, b, c: max(a, b),
    "and.b32": lambda a, b, c: a & b,
    "xor.b32": lambda a, b, c: a ^ b,
    "not.b32": lambda a, b, c: ~a,
    "shl.b32": lambda a, b, c: a << b if b < 32 else 0,
    "shr.u32": lambda a, b, c: a >> b,
    "shr.s32": lambda a, b, c: signed(a) >> b,
    "shf.l.wrap.b32": lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32,
    "shf.r.clamp.b32": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "prmt.b32": lambda a, b, c: sum(_byte(b << 32 | a, c >> 4 * n & 15) << 8 * n for n in range(4)),
    "bfe.u32": lambda a, b, c: a >> (b & 255) & (1 << (c & 255)) - 1,
    "bfe.s32": lambda a, b, c: _field(signed(a), b & 255, c & 255),
    "bfi.b32": lambda a, b, c: b & ~(_ones(c) << 5) | (a & _ones(c)) << 5,
    "popc.b32": lambda a, b, c: a.bit_count(),
    "clz.b32": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "neg.s32": lambda a, b, c: -a,
    "abs.s32": lambda a, b, c: abs(signed(a)),
    "cvt.u32.u8": lambda a, b, c: a & 255,
    "cvt.s32.s8": lambda a, b, c: signed(a & 255, 8),
    "cvt.sat.u8.s32": lambda a, b, c: min(max(signed(a), 0), 255),
}
NUMBER_OF_OPERANDS = {"mad": 3, "shf": 3, "prmt": 3, "bfe": 3, "not": 1, "popc": 1, "clz": 1, "brev": 1, "neg": 1, "abs": 1, "cvt": 1}


def _ones(length):
    return (1 << min(length & 255, 32)) - 1


def _field(value, at, length):
    """Bits of a number that goes on with its sign, and above them the field's own sign."""
    return signed(value >> at & (1 << length) - 1, length) if length else 0


def _byte(both, selector):
    byte = both >> 8 * (selector & 7) & 255
    return (255 if byte & 128 else 0) if selector & 8 else byte


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers(name):
    amounts = WORDS[1] & np.uint64(63) if name.startswith(("shl", "shr", "bfe.u")) else WORDS[1]
    words = [WORDS[0], amounts, WORDS[2]]
    operands = ", ".join(f"${n}" for n in range(1 + NUMBER_OF_OPERANDS.get(name.split(".")[0], 2)))
    operands = "$0, $1, $2, 5, $3" if name.startswith("bfi") else operands
    expected = [INTEGERS[name](*map(int, row)) & 0xFFFFFFFF for row in zip(*words, strict=True)]

    assert run_on(f"{name} {operands};", *words).tolist() == expected


def test_products_twice_as_wide():
    made = run("mul.wide.s32 $0, $1, $2;", [64], [(WORDS[0], 32), (WORDS[1], 32)], COUNT)[0]

    assert made.tolist() == [signed(int(a)) * signed(int(b)) & (1 << 64) - 1 for a, b in zip(WORDS[0], WORDS[1], strict=True)]


@pytest.mark.parametrize("table", [0xC0, 0x96, 0xE8, 0x1B])
def test_a_table_of_three(table):
    expected = [
        sum((table >> ((a >> n & 1) << 2 | (b >> n & 1) << 1 | c >> n & 1) & 1) << n for n in range(32))
        for a, b, c in zip(*(word.tolist() for word in WORDS), strict=True)
    ]

    assert run_on(f"lop3.b32 $0, $1, $2, $3, {table};", *WORDS).tolist() == expected


APPROXIMATIONS = {
    "ex2.approx.ftz.f32": torch.exp2,
    "lg2.approx.f32": torch.log2,
    "rcp.rn.f32": torch.reciprocal,
    "rsqrt.approx.f32": torch.rsqrt,
    "sqrt.rn.f32": torch.sqrt,
    "tanh.approx.f32": torch.tanh,
    "sin.approx.f32": torch.sin,
    "neg.f32": torch.neg,
    "cvt.rni.f32.f32": torch.round,
    "cvt.rpi.f32.f32": torch.ceil,
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_functions(name):
    made = run_on(f"{name} $0, $1;", bits_of(FLOATS)).astype(np.uint32).view(np.float32)
    given = torch.from_numpy(FLOATS.astype(np.float64))
    expected = APPROXIMATIONS[name](flushed(given) if "ftz" in name else given).float()

    torch.testing.assert_close(torch.from_numpy(made), flushed(expected) if "ftz" in name else expected, rtol=0, atol=0, equal_nan=True)


def flushed(values):
    return torch.where(values.abs() < torch.finfo(torch.float32).tiny, 0.0, values)


def test_a_product_and_a_sum_are_rounded_once():
    """In fp64 and then in fp32, one of these would be rounded twice."""
    rows = [(1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60), (1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60)), (3.0, 1 / 3, 1e-30)]
    columns = np.array([*rows, *GENERATOR.standard_normal((COUNT - len(rows), 3))], np.float32)
    made = run_on("fma.rn.f32 $0, $1, $2, $3;", *(bits_of(np.ascontiguousarray(columns[:, n])) for n in range(3)))

    def once(row):
        exact = Fraction(float(row[0])) * Fraction(float(row[1])) + Fraction(float(row[2]))
        near = np.float32(float(exact))
        return min(
            (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))),
            key=lambda x: abs(Fraction(float(x)) - exact),
        )

    assert made.astype(np.uint32).view(np.float32).tolist() == [float(once(row)) for row in columns]


CONVERSIONS = {
    "cvt.rn.f16.f32": (torch.float16, None),
    "cvt.rn.bf16.f32": (torch.bfloat16, None),
    "cvt.rn.satfinite.f16.f32": (torch.float16, 65504.0),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_to_16_bits(name):
    dtype, most = CONVERSIONS[name]
    given = torch.from_numpy(FLOATS)
    expected = given.clamp(-most, most).to(dtype) if most else given.to(dtype)
    made = torch.from_numpy(run_on(f"cvt{name[3:]} $0, $1;", bits_of(FLOATS), out=16).astype(np.uint16).view(np.int16)).view(dtype)

    torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3x2", torch.float8_e4m3fn), ("e5m2x2", torch.float8_e5m2)])
def test_conversions_to_8_bits_and_back(kind, dtype):
    """The first source is the upper half of the result; too large numbers become the largest."""
    other = FLOATS[::-1].copy()
    made = run_on(f"cvt.rn.satfinite.{kind}.f32 $0, $1, $2;", bits_of(FLOATS), bits_of(other), out=16)
    most = torch.finfo(dtype).max
    halves = [(made >> np.uint64(8)) & np.uint64(255), made & np.uint64(255)]
    for half, given in zip(halves, (FLOATS, other), strict=True):
        expected = torch.from_numpy(given).clamp(-most, most).to(dtype).float()
        torch.testing.assert_close(torch.from_numpy(half.astype(np.uint8)).view(dtype).float(), expected, rtol=0, atol=0, equal_nan=True)
    back = run(f"cvt.rn.f16x2.{kind} $0, $1;", [32], [(made, 16)], COUNT)[0].astype(np.uint32).view(np.float16).reshape(-1, 2)
    torch.testing.assert_close(
        torch.from_numpy(back[:, 1].copy()).float(), torch.from_numpy(halves[0].astype(np.uint8)).view(dtype).float(), equal_nan=True
    )


def test_conversions_to_4_bits():
    """Every sum of neighbours halves to the even one."""
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    between = [(low + high) / 2 for low, high in itertools.pairwise(values)]
    given = np.array([*values, *between, *(-value for value in (*values, *between)), 1e9, -1e9, 0.2, 5.1], np.float32)
    made = run("cvt.rn.satfinite.e2m1x2.f32 $0, $1, $2;", [16], [(bits_of(given), 32)] * 2, len(given))[0]
    evens = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    expected = [*values, *evens, *(-value for value in (*values, *evens)), 6.0, -6.0, 0.0, 6.0]

    assert [math.copysign(values[n & 7], -1 if n & 8 else 1) for n in (int(word) & 15 for word in made)] == expected
    assert all(int(word) >> 4 == int(word) & 15 for word in made)


@pytest.mark.parametrize(
    ("kind", "dtype", "ends"), [("s32", np.int64, (-(2**31), 2**31 - 1)), ("u32", np.int64, (0, 2**32 - 1)), ("s8", np.int64, (-128, 127))]
)
@pytest.mark.parametrize(("rounding", "function"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor)])
def test_conversions_to_whole_numbers(kind, dtype, ends, rounding, function):
    made = run_on(f"cvt.{rounding}.{kind}.f32 $0, $1;", bits_of(FLOATS))
    wide = function(FLOATS.astype(np.float64))
    expected = [0 if np.isnan(value) else int(min(max(value, ends[0]), ends[1])) & 0xFFFFFFFF for value in wide]

    assert made.tolist() == expected


def test_rounding_to_tf32():
    """By integers: the half of the last of ten bits is added, and what is below is cut."""
    words = bits_of(FLOATS)
    expected = [
        0x7FFFFFFF if np.isnan(x) else word if np.isinf(x) else word + 0x1000 & 0xFFFFE000
        for word, x in zip(words.tolist(), FLOATS, strict=True)
    ]

    assert run_on("cvt.rna.tf32.f32 $0, $1;", bits_of(FLOATS)).tolist() == expected


def test_pairs_of_halves():
    x, y = (GENERATOR.standard_normal((COUNT, 2)).astype(np.float16) for _ in range(2))
    made = run_on("fma.rn.f16x2 $0, $1, $2, $1;", *(pair.view(np.uint32)[:, 0].astype(np.uint64) for pair in (x, y)))
    exact = x.astype(np.float64) * y.astype(np.float64) + x.astype(np.float64)

    assert np.array_equal(made.astype(np.uint32).view(np.float16).reshape(-1, 2), exact.astype(np.float16))


def test_denormals_of_halves():
    """`.ftz` of fp16 is about fp16's own denormals."""
    x = np.array([[1e-5, 6.2e-5], [-1e-5, 3e-5]] * (COUNT // 2), np.float16)
    made = run_on("add.ftz.f16x2 $0, $1, $1;", x.view(np.uint32)[:, 0].astype(np.uint64)).astype(np.uint32).view(np.float16).reshape(-1, 2)

    assert np.array_equal(made, np.where(np.abs(x) < np.finfo(np.float16).tiny, 0, x + x))


def test_whole_numbers_to_floats():
    made = run_on("cvt.rn.f32.s32 $0, $1;", WORDS[0]).astype(np.uint32).view(np.float32)
    assert np.array_equal(made, np.array([signed(int(word)) for word in WORDS[0]], np.int64).astype(np.float32))
    half = run_on("cvt.rn.f16.u16 $0, $1;", WORDS[0] & np.uint64(0xFFFF), out=16).astype(np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        assert np.array_equal(half, (WORDS[0] & np.uint64(0xFFFF)).astype(np.float64).astype(np.float16))


@pytest.mark.parametrize(("name", "negative"), [("min.f32", True), ("max.f32", False)])
def test_of_two_zeros_the_negative_one_is_the_smaller(name, negative):
    """Whichever comes first."""
    x = np.array([0.0, -0.0], np.float32)
    chosen = run_on(f"{name} $0, $1, $2;", bits_of(x), bits_of(x[::-1].copy())).astype(np.uint32).view(np.float32)
    assert np.signbit(chosen).tolist() == [negative, negative]


def test_minima_and_comparisons_of_nan():
    x, y = FLOATS, FLOATS[::-1].copy()
    chosen = {
        name: run_on(f"{name} $0, $1, $2;", bits_of(x), bits_of(y)).astype(np.uint32).view(np.float32)
        for name in ("min.f32", "max.NaN.f32")
    }
    assert np.array_equal(chosen["min.f32"], np.fmin(x, y), equal_nan=True)
    assert np.array_equal(chosen["max.NaN.f32"], np.maximum(x, y), equal_nan=True)
    larger = run_on("max.NaN.xorsign.abs.f32 $0, $1, $2;", bits_of(x), bits_of(y)).astype(np.uint32).view(np.float32)
    assert np.array_equal(larger, np.maximum(abs(x), abs(y)) * np.where(np.signbit(x) != np.signbit(y), -1, 1), equal_nan=True)
    for name, expected in {"lt": x < y, "geu": ~(x < y), "ne": (x < y) | (x > y), "neu": x != y, "nan": np.isnan(x) | np.isnan(y)}.items():
        text = f"{{ .reg .pred p, q; setp.{name}.f32 p|q, $1, $2; selp.b32 $0, 1, 0, p; @q mov.b32 $0, 7; }}"
        assert run_on(text, bits_of(x), bits_of(y)).tolist() == np.where(expected, 1, 7).tolist(), name


def test_vectors_scopes_comments_and_constants():
    text = """
    {   // four bytes to two words, as Triton's own documentation does
        .reg .b8 a<4>;
        .reg .b32 w;
        mov.b32 {a0, a1, a2, a3}, $2; /* taken
        apart */
        cvt.u32.u8 $0, a3; cvt.u32.u8 w, a0;
        mad.lo.u32 $1, w, 0x10, 1;
    }
    """
    made = run(text, [32, 32], [(WORDS[0], 32)], COUNT)
    assert made[0].tolist() == [int(word) >> 24 for word in WORDS[0]]
    assert made[1].tolist() == [(int(word) & 255) * 16 + 1 for word in WORDS[0]]
    for constant, expected in {"0f3FC00000": 1.5, "1.5": 1.5, "0d3FF8000000000000": 1.5, "-2.0": -2.0}.items():
        assert run_on(f"mov.f32 $0, {constant};").astype(np.uint32).view(np.float32)[0] == expected


REFUSED = [
    "ld.global.f32 $0, [$1];",
    "add.rz.f32 $0, $1, $1;",
    "bra done;",
    "done: mov.b32 $0, $1;",
    "mov.u32 $0, %laneid;",
    "add.cc.u32 $0, $1, $1;",
    "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;",
    "v_exp_f32 $0, $1",
    "mov.b32 $0, never_written;",
    "mov.b32 nowhere, $1; mov.b32 $0, $1;",
    "ex2.approx.f32 $0, $1, $1;",
    "cvt.rp.f16.f32 $0, $1;",
    ".shared .b32 x; mov.b32 $0, $1;",
    "nanosleep.u32 1;",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_known_is_refused_by_name(text):
    with pytest.raises(NotPretended, match=r"inline_asm_elementwise: the interpreter does not run `"):
        run_on(text, WORDS[0])


def test_the_parts_of_an_instruction():
    registers, (one, two) = parse("{.reg .pred p; .reg .f32 x<2>, y;\n @!p mul.ftz.f32 x0, y, {$$1, z}; bar.sync 0; }")

    assert registers == {"p": "pred", "x0": "f32", "x1": "f32", "y": "f32"}
    assert (one.name, one.modifiers, one.operands, one.guard, one.unless) == ("mul", ("ftz", "f32"), ("x0", "y", ("$1", "z")), "p", True)
    assert str(two) == "bar.sync"
