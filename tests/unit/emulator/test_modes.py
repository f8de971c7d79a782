"""What MODE changes: directions of rounding, denormals, halves that overflow; and registers beside an instruction's own."""

import math
import re
from fractions import Fraction

import machine_code
import numpy as np
import programs
import pytest
import torch
import triton
import triton.language as tl
from comparison import compare
from machine_code import _ASSEMBLY, WAVES, lanes, run

from warpwave.emulator import Unimplemented

RANDOM = np.random.default_rng(5)
KINDS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
COUNT, MANY = 512, 4096  # lanes; exact fractions take their time


def words(values: np.ndarray) -> list[np.ndarray]:
    if values.dtype == np.float16:
        return [values.view(np.uint16).astype(np.uint32)]
    return list(values.view(np.uint32).reshape(len(values), -1).T)


def value(rows: list[np.ndarray], kind: str) -> np.ndarray:
    if kind == "f16":
        return (rows[0] & 0xFFFF).astype(np.uint16).view(np.float16)
    if kind == "f64":
        return (rows[0].astype(np.uint64) | rows[1].astype(np.uint64) << np.uint64(32)).view(np.float64)
    return rows[0].view(np.float32)


def drawn(kind: str, binades: tuple[float, float], edges: list[float], share: float, count: int) -> np.ndarray:
    """Draw numbers over some binades, a share of them edges."""
    with np.errstate(all="ignore"):
        values = RANDOM.standard_normal(count) * 2.0 ** RANDOM.uniform(*binades, count)
        return np.where(RANDOM.random(count) < share, RANDOM.choice(edges, count), values).astype(KINDS[kind])


def in_mode(arch: str, field: tuple[int, int], mode: int, code: str, rows: list[np.ndarray], results: int) -> list[np.ndarray]:
    wait = "" if WAVES[arch] == 32 else "s_nop 4\n"
    set_mode = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {field[0]}, {field[1]}), "
    usual = 0xF0 >> field[0] & (1 << field[1]) - 1
    return lanes(arch, f"{set_mode}{mode:#x}\n {wait} {code}\n {set_mode}{usual:#x}\n {wait}", rows, results)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


# Rounding: exact fractions say what comes out.

UP, DOWN, TO_ZERO = 1, 2, 3
DIRECTIONS = (UP, DOWN, TO_ZERO)


def numbers(kind: str) -> np.ndarray:
    info = np.finfo(KINDS[kind])
    least, tiny, most = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    edges = [0.0, -0.0, least, -3 * least, tiny, most, -most, 1.0]
    return drawn(kind, {"f16": (-14, 10), "f32": (-60, 60), "f64": (-300, 300)}[kind], edges, 0.2, COUNT)


def directed(exact: Fraction, kind: str, direction: int) -> float:
    info, magnitude = np.finfo(KINDS[kind]), abs(exact)
    if exact == 0:
        return 0.0
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, int(info.minexp))
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - int(info.nmant))
    away = (direction == UP and exact > 0) or (direction == DOWN and exact < 0)
    rounded = (-(-magnitude // unit) if away else magnitude // unit) * unit
    most = math.inf if away else float(info.max)
    result = most if rounded >= Fraction(2) ** int(info.maxexp) else float(rounded)
    return result if exact > 0 else -result


ARITHMETIC = {
    "v_add_f32 v40, v10, v11": lambda a, b, c: a + b,
    "v_mul_f32 v40, v10, v11": lambda a, b, c: a * b,
    "v_fma_f32 v40, v10, v11, v12": lambda a, b, c: a * b + c,
    "v_add_f64 v[40:41], v[10:11], v[12:13]": lambda a, b, c: a + b,
    "v_fma_f64 v[40:41], v[10:11], v[12:13], v[14:15]": lambda a, b, c: a * b + c,
    "v_add_f16 v40, v10, v11": lambda a, b, c: a + b,
    "v_sub_f16 v40, v10, v11": lambda a, b, c: a - b,
    "v_mul_f16 v40, v10, v11": lambda a, b, c: a * b,
    "v_fma_f16 v40, v10, v11, v12": lambda a, b, c: a * b + c,
}


@pytest.mark.parametrize("text", ARITHMETIC)
def test_arithmetic_rounds_in_each_direction(text):
    kind = re.search(r"f\d\d", text)[0]
    operands = [numbers(kind) for _ in range(3)]
    for direction in DIRECTIONS:
        rows, mode = [row for one in operands for row in words(one)], direction if kind == "f32" else direction << 2
        found = value(in_mode("gfx942", (0, 8), 0xF0 | mode, f"v_mov_b32 v40, 0\n {text}", rows, 2 if kind == "f64" else 1), kind)
        expected = [
            directed(ARITHMETIC[text](*map(Fraction, given)), kind, direction)
            for given in zip(*(one.tolist() for one in operands), strict=True)
        ]

        assert found.tolist() == expected


def test_packed_halves_and_conversions_round_in_each_direction():
    wide, low, high = numbers("f32"), numbers("f16"), numbers("f16")
    pair = words(low)[0] | words(high)[0] << 16
    for direction in DIRECTIONS:
        code = "v_cvt_f16_f32 v40, v10\n v_pk_mul_f16 v41, v11, v11 op_sel:[0,1] op_sel_hi:[1,0]"
        narrow, both = in_mode("gfx942", (0, 8), 0xF0 | direction << 2, code, [words(wide)[0], pair], 2)
        assert value([narrow], "f16").tolist() == [directed(Fraction(x), "f16", direction) for x in wide.tolist()]
        products = [directed(Fraction(x) * Fraction(y), "f16", direction) for x, y in zip(low.tolist(), high.tolist(), strict=True)]
        assert value([both], "f16").tolist() == products == value([both >> 16], "f16").tolist()


def test_the_direction_of_halves_does_not_change_floats():
    rows = [words(numbers("f32"))[0], words(numbers("f32"))[0]]
    usual, halves, floats = (in_mode("gfx942", (0, 8), mode, "v_mul_f32 v40, v10, v11", rows, 1)[0] for mode in (0xF0, 0xFC, 0xF3))

    np.testing.assert_array_equal(halves, usual)
    assert (floats != usual).any()


def test_what_rounds_in_no_known_way_is_refused():
    with pytest.raises(Unimplemented, match="v_dot2c_f32_f16"):
        in_mode("gfx942", (0, 8), 0xF1, "v_dot2c_f32_f16 v40, v10, v10", words(numbers("f32")), 1)


# Denormals: what always flushes them, what never does, and what does if MODE says so: bit 0 keeps those of sources, bit 1 those of results.


def small() -> np.ndarray:
    """Draw floats around the smallest normal one, half of them denormal."""
    edges = [0.0, -0.0, 1e-45, -1e-45, 2.0**-126, -(2.0**-126), 1.1754942e-38, 1.0, -3.0, np.inf, 2.0**126, 2.0**127]
    return drawn("f32", (-140, -115), edges, 1 / 8, MANY)


A, B, C = small(), small(), small()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("keeps", range(4))
def test_denormals_of_half_and_double(arch, keeps):
    half = ".l" if WAVES[arch] == 32 else ""
    for kind, code in (("f16", f"v_add_f16 v40{half}, v10{half}, v11{half}"), ("f64", "v_add_f64 v[40:41], v[10:11], v[12:13]")):
        a, b = ((RANDOM.standard_normal(COUNT) * float(np.finfo(KINDS[kind]).tiny) * 2).astype(KINDS[kind]) for _ in range(2))
        rows = [*words(a), *words(b)]
        found = value(in_mode(arch, (0, 8), keeps << 6 | 0x30, "v_mov_b32 v40, 0\n " + code, rows, len(rows) // 2), kind)
        x, y = (a, b) if keeps & 1 else (flushed(a), flushed(b))
        expected = x + y if keeps & 2 else flushed(x + y)

        np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}"))


APPROXIMATED = {"sqrt": np.sqrt, "rcp": np.reciprocal, "rsq": lambda x: 1 / np.sqrt(x), "log": np.log2, "exp": np.exp2}


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("name", APPROXIMATED)
def test_approximated_functions_flush_whatever_the_mode(name, arch):
    x = np.abs(A) if name != "exp" else np.linspace(-150, -120, MANY, dtype=np.float32)
    (result,) = lanes(arch, f"v_{name}_f32 v40, v10", words(x), 1)
    with np.errstate(all="ignore"):
        expected = flushed(APPROXIMATED[name](flushed(x).astype(np.float64)).astype(np.float32))

    np.testing.assert_allclose(result.view(np.float32), expected, rtol=1.2e-7, atol=0)


FLUSHING = {
    "v_add_f32 v40, v10, v11": lambda a, b, c: a + b,
    "v_mul_f32 v40, v10, v11": lambda a, b, c: a * b,
    "v_sub_f32 v40, v10, v11": lambda a, b, c: a - b,
    "v_max_f32 v40, v10, v11": lambda a, b, c: np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b)),
    "v_fma_f32 v40, v10, v11, v12": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32),
    "v_add_f32_e64 v40, -v10, |v11|": lambda a, b, c: -a + np.abs(b),
    "v_cmp_lt_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1.0, vcc": lambda a, b, c: (a < b).astype(np.float32),
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("text", FLUSHING)
def test_arithmetic_flushes_as_mode_says(text, mode, arch):
    code = text.replace("vcc", "vcc_lo").replace("v_max_f32", "v_max_num_f32") if arch == "gfx1201" else text
    (result,) = in_mode(arch, (4, 2), mode, code, [*words(A), *words(B), *words(C)], 1)
    with np.errstate(all="ignore"):
        expected = FLUSHING[text](*(x if mode & 1 else flushed(x) for x in (A, B, C)))
        expected = expected if mode & 2 else flushed(expected)

    number = ~np.isnan(expected)  # numpy's sums of infinities have NaNs of another sign
    np.testing.assert_array_equal(result[number], expected.astype(np.float32).view(np.uint32)[number])


def test_classes_and_moves_see_denormals_in_every_mode():
    text = "v_cmp_class_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1, vcc\n v_mov_b32 v41, v10"
    classes, moved = in_mode("gfx942", (4, 2), 0, text, [*words(A), np.full(MANY, 0x90, np.uint32)], 2)

    np.testing.assert_array_equal(classes, (flushed(A) != A) & (A != 0))
    np.testing.assert_array_equal(moved, words(A)[0])


@triton.jit
def arithmetic(x, y, total, product, quotient, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(total + i, a + b)
    tl.store(product + i, a * b)
    tl.store(quotient + i, tl.div_rn(a, b))


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("flush", [False, True])
def test_a_kernel_flushes_if_it_allows_it(flush, arch):
    """An exact quotient keeps denormals by default, although its first step flushes them."""
    x, y = A[:1024], B[:1024]
    into = {name: torch.zeros(1024) for name in ("total", "product", "quotient")}
    tensors = {"x": torch.from_numpy(x.copy()), "y": torch.from_numpy(y.copy()), **into}
    run(arithmetic, arch, (1,), tensors, {"BLOCK": 1024}, allow_flush_denorm=flush)
    of = flushed if flush else (lambda v: v)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(into["total"].numpy(), of(of(x) + of(y)))
        np.testing.assert_array_equal(into["product"].numpy(), of(of(x) * of(y)))
        if not flush:
            np.testing.assert_array_equal(into["quotient"].numpy(), x / y)


@pytest.mark.parametrize(("kind", "denormal", "factor"), [("f16", 0x0200, 0x3C00), ("bf16", 0x0040, 0x7E80)])
@pytest.mark.parametrize(("arch", "keeps"), [("gfx90a", False), ("gfx942", True), ("gfx950", True)])
def test_only_the_matrix_unit_of_gfx90a_flushes_halves(arch, keeps, kind, denormal, factor):
    name = "v_mfma_f32_16x16x16_" + kind if arch != "gfx90a" else f"v_mfma_f32_16x16x16{kind}" + ("_1k" if kind == "bf16" else "")
    rows = [np.full(64, word << 16 | word, np.uint32) for word in (denormal, denormal, factor, factor)]
    result = lanes(arch, f"{name} v[40:43], v[10:11], v[12:13], 0\n s_nop 15", rows, 4)
    product = 2.0**-15 if kind == "f16" else 2.0**-127 * 2.0**126

    for row in result:
        np.testing.assert_array_equal(row.view(np.float32), np.float32(16 * product if keeps else 0))


# MODE.FP16_OVFL: a half that overflows is the largest number, unless an operand is infinite or a division by zero makes it so.

MOST = 65504.0
OVERFLOWING = {
    "v_add_f16 v40, v10, v11": lambda a, b, c: a + b,
    "v_sub_f16 v40, v10, v11": lambda a, b, c: a - b,
    "v_mul_f16 v40, v10, v11": lambda a, b, c: a * b,
    "v_fma_f16 v40, v10, v11, v12": lambda a, b, c: a * b + c,
    "v_pk_mul_f16 v40, v10, v11": lambda a, b, c: a * b,
    "v_rcp_f16 v40, v10": lambda a, b, c: 1 / a,
    "v_cvt_f16_f32 v40, v10": lambda a, b, c: a,
}


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("text", OVERFLOWING)
def test_a_half_that_overflows_is_the_largest_number(text, arch):
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, MOST, -MOST, 6e-8, 40000.0, -300.0]
    operands = [drawn("f16", (-16, 14), edges, 0.4, MANY) for _ in range(3)]
    if "cvt" in text:
        operands[0] = drawn("f32", (-20, 40), [np.inf, -np.inf, np.nan, 65519.0, 65520.0], 0.2, MANY)
    rows = [words(one)[0] for one in operands]
    if "pk" in text:  # the higher halves are those of the lane before
        rows = [row | np.roll(row, 1) << np.uint32(16) for row in rows]
    code = text
    if WAVES[arch] == 32 and not re.match(r"v_fma_|v_pk_", text):  # registers of halves are halves of registers there
        code = re.sub(r"\bv(\d+)\b", r"v\1.l", text, count=1 if "f32" in text else 0)
    (found,) = in_mode(arch, (23, 1), 1, f"v_mov_b32 v40, 0\n {code}", rows, 1)
    with np.errstate(all="ignore"):
        exact = OVERFLOWING[text](*(one.astype(np.float64) for one in operands))
        rounded = exact.astype(np.float16)
    used = operands[: max(1, text.count("v1"))]
    finite = np.isfinite(np.stack([one.astype(np.float64) for one in used])).all(0) & ~np.isnan(exact)
    finite &= (operands[0] != 0) | ("rcp" not in text)
    expected = np.where(np.isinf(rounded) & finite, np.copysign(np.float16(MOST), rounded), rounded)

    halves = [value([found], "f16")] + ([np.roll(value([found >> 16], "f16"), -1)] if "pk" in text else [])
    for half in halves:
        same = (
            half if "rcp" not in text else np.where(np.isfinite(expected) & (np.abs(expected) != MOST), expected, half)
        )  # an approximation
        np.testing.assert_array_equal(same, expected)
    assert (np.abs(expected) == MOST).sum() > 20
    assert np.isinf(expected).sum() > 20


# Registers that an instruction leaves alone, and operands that packed operations share.

PACKED = {
    "v_pk_add_f32 v[40:41], v[10:11], 1.0{}": ("op_sel_hi:[1,0]", lambda x: x + np.float32(1)),
    "v_pk_mul_f32 v[40:41], v[10:11], -4.0{}": ("op_sel_hi:[1,0]", lambda x: x * np.float32(-4)),
    "v_pk_fma_f32 v[40:41], v[10:11], 0.5, 2.0{}": ("op_sel_hi:[1,0,0]", lambda x: x * np.float32(0.5) + np.float32(2)),
    "v_pk_mov_b32 v[40:41], 7, 7{}": ("op_sel:[1,0]", lambda x: np.full(len(x), 7, np.uint32).view(np.float32)),
}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("text", PACKED)
def test_both_halves_read_a_constant(arch, text):
    """Whatever op_sel says: LLVM's code for a splat needs it (SIInstrInfo.cpp, V_MOV_B64_PSEUDO)."""
    select, meaning = PACKED[text]
    rows = [RANDOM.standard_normal(MANY).astype(np.float32) for _ in range(2)]
    for more in ("", f" {select}"):
        for half, row in zip(lanes(arch, text.format(more), [row.view(np.uint32) for row in rows], 2), rows, strict=True):
            np.testing.assert_array_equal(half.view(np.float32), meaning(row))


SAVED = "v_mov_b32 v40, v11\n s_mov_b64 s[10:11], exec\n {}\n v_mov_b32 v40, v10\n s_mov_b64 exec, s[10:11]"


@pytest.mark.parametrize(("mask", "on"), [("v_cmp_gt_u32 vcc, 20, v0\n s_and_b64 exec, exec, vcc", 20), ("s_mov_b64 exec, 0", 0)])
def test_lanes_that_are_off_keep_their_registers(mask, on):
    (result,) = lanes("gfx942", SAVED.format(mask), [*words(A), *words(B)], 1)

    np.testing.assert_array_equal(result, np.where(np.arange(MANY) % 64 < on, words(A)[0], words(B)[0]))


def test_accumulation_registers_are_registers_of_their_own():
    code = "v_accvgpr_write_b32 a3, v10\n v_accvgpr_write_b32 a4, 7\n s_nop 4\n v_mov_b32 v3, v11\n"
    code += " v_accvgpr_read_b32 v40, a3\n v_accvgpr_read_b32 v41, a4\n v_mov_b32 v42, v3"
    first, constant, other = lanes("gfx942", code, [*words(A), *words(B)], 3)

    np.testing.assert_array_equal([first, other], [words(A)[0], words(B)[0]])
    assert (constant == 7).all()


def test_a_buffers_offset_is_a_sum_of_32_bits():
    """An offset that is out of range alone comes back into it with a scalar offset: triton-lang/triton#10673, measured on gfx942."""
    odd = np.arange(64) % 2 == 1
    offsets = np.where(odd, np.uint32(0xFFFFFFFC), np.uint32(0)).astype(np.uint32)
    code = "s_mov_b32 s20, s4\n s_mov_b32 s21, s5\n s_mov_b32 s22, {}\n s_mov_b32 s23, 0x27000\n s_mov_b32 s24, 8\n"
    code += "buffer_load_dword v40, v11, s[20:23], s24 offen\n buffer_load_dword v41, v11, s[20:23], 0 offen"
    for size in (256, 8):
        added, alone = lanes("gfx942", code.format(size), [np.arange(64, dtype=np.uint32) + 100, offsets], 2)

        np.testing.assert_array_equal(added, np.where(odd, 101, 102 if size > 8 else 0))
        np.testing.assert_array_equal(alone, np.where(odd, 0, 100))


def test_a_sparse_product_leaves_out_what_a_lacks():
    """No product is made of a value of B that no value of A stands for, so that an infinity there does not become a NaN."""
    one, infinite = np.uint32(0x3C003C00), np.uint32(0x7C007C00)
    rows = [np.full(64, word, np.uint32) for word in (one, one, np.uint32(0x3C00), infinite, np.uint32(0x3C00), infinite, np.uint32(0))]
    zeros = "\n ".join(f"v_mov_b32 v{40 + n}, 0" for n in range(4))
    code = f"{zeros}\n s_nop 7\n v_smfmac_f32_16x16x32_f16 v[40:43], v[10:11], v[12:15], v16\n s_nop 7\n s_nop 7"

    assert all((row.view(np.float32) == 16).all() for row in lanes("gfx942", code, rows, 4))


# A sample of what `nox -s emulator` and `nox -s programs` compare: operations with AMD's pseudocode, random programs with numpy.


SAMPLE = (
    r"v_(pk_)?(min|max|med)\w*_f\d+|s_(min|max)\w*_f|v_div_|v_cvt_(f32_f16|f16_f32)|v_frexp_mant|v_dot2_f32_bf16|v_ldexp"
    r"|s_cvt_f32_f16|s_xor_saveexec|s_or_saveexec|s_bfe|s_mul_hi|s_addc"
)


@pytest.mark.parametrize("arch", ["gfx950", "gfx1100"])  # for the others, forms/test_forms.py has all of them each time
def test_operations_do_what_the_pseudocode_says(arch):
    found = compare(arch, 64, seed=3, only=SAMPLE)

    assert found.differ == []
    assert len(found.agreed) > 40


def sampled_in_mode(monkeypatch, arch: str, code: str, directives: str, *columns: int) -> list[int]:
    """Return what an instruction leaves in v40 in all lanes, in a kernel with other directives."""
    lines = [line for line in _ASSEMBLY.splitlines() if not any(word.split()[0] in line for word in directives.splitlines() if word)]
    at = next(n for n, line in enumerate(lines) if ".amdhsa_next_free_sgpr" in line)
    changed = [*lines[:at], *(f"\t\t{word}" for word in directives.splitlines()), *lines[at:]]
    monkeypatch.setattr(machine_code, "_ASSEMBLY", "\n".join(changed) + "\n")
    machine_code.assembled.cache_clear()
    try:
        rows = [np.full(WAVES[arch], bits, np.uint32) for bits in columns]
        return sorted(set(lanes(arch, code, rows, 1)[0].tolist()))
    finally:
        machine_code.assembled.cache_clear()


SIGNALS, ONE = 0x7F800001, 0x3F800000


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(("ieee", "result"), [(1, SIGNALS | 0x400000), (0, ONE)])
def test_a_signalling_nan_gives_way_where_mode_is_not_ieee(monkeypatch, arch, ieee, result):
    assert sampled_in_mode(monkeypatch, arch, "v_max_f32 v40, v10, v11", f".amdhsa_ieee_mode {ieee}", SIGNALS, ONE) == [result]


@pytest.mark.parametrize(("ieee", "denormals", "result"), [(1, 0, 0xC0000000), (0, 3, 0xC0000000), (0, 0, 0xC0800000)])
def test_a_result_is_scaled_only_without_ieee_and_denormals(monkeypatch, ieee, denormals, result):
    """Of -1 - 1. A card of RDNA3 ignores the scale in IEEE mode; ISA guides name both."""
    directives = f".amdhsa_ieee_mode {ieee}\n.amdhsa_float_denorm_mode_32 {denormals}"
    assert sampled_in_mode(monkeypatch, "gfx1100", "v_sub_f32_e64 v40, v10, v11 mul:2", directives, 0xBF800000, ONE) == [result]


def test_a_pattern_of_lanes_that_a_family_lacks_is_refused():
    broadcast = 0x7E500200 | 0xFA, 0xFF00000A | 0x142 << 8  # v_mov_b32 v40, v10 row_bcast:15
    code = ".long " + ", ".join(f"{word:#x}" for word in broadcast)
    lanes("gfx942", code, [np.zeros(64, np.uint32)], 1)
    with pytest.raises(Unimplemented):
        lanes("gfx1100", code, [np.zeros(32, np.uint32)], 1)


def on_the_card(function, tensors, warps):
    return programs.by_emulator(function, "gfx942", tensors, warps)


def test_a_program_agrees():
    assert programs.compared(3, on_the_card) == ""


def test_a_disagreement_is_reported(monkeypatch):
    _, plan, *_ = programs.drawn(3)
    last = plan[-1][0]
    text, _ = programs.WHOLE[last]
    monkeypatch.setitem(programs.WHOLE, last, (text, lambda a, b, k: np.zeros_like(a)))

    assert programs.compared(3, on_the_card).endswith("counts differ")
