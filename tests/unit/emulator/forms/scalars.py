"""What instructions of the scalar unit mean, in Python's integers and numpy; and programs that hold each to it, a wave for each row of operands."""

# ruff: noqa: E501 - a statement is a line

import functools
import re
import struct
from itertools import chain

import numpy as np
from cards import split
from cases import drawn
from machine_code import WAVES, assembled
from vector import MASK32, either, fused, signed, whole

from warpwave.emulator import Launch, execute, load

WAVES_RUN = 2048
MASK64 = 2**64 - 1


def s32(value: int) -> int:
    return signed(value, 32)


@functools.lru_cache(1 << 16)  # the same operands go through many instructions
def f(value: int) -> np.float32:
    return np.uint32(value & MASK32).view(np.float32)


@functools.lru_cache(1 << 16)
def h(value: int) -> np.float16:
    return np.uint16(value & 0xFFFF).view(np.float16)


def of(value) -> int:
    value = np.float32(value)
    return 0x7FC00000 if np.isnan(value) else int(value.view(np.uint32))


def of_half(value) -> int:
    value = np.float16(value)
    return 0x7E00 if np.isnan(value) else int(value.view(np.uint16))


def flagged(bits: int, function):
    def both(*given):
        result = function(*given) & (1 << bits) - 1
        return result, int(result != 0)

    return both


def carried(function):
    def both(*given):
        result = function(*given)
        return result & MASK32, int(result > MASK32 or result < 0)

    return both


def overflowing(function):
    def both(*given):
        result = function(*map(s32, given))
        return result & MASK32, int(not -(2**31) <= result < 2**31)

    return both


def field(value: int, how: int, bits: int) -> int:
    return value >> (how & bits - 1)


def extracted(bits: int, sign: bool):
    def one(value: int, how: int) -> int:
        start, width = how & bits - 1, min(how >> 16 & 0x7F, bits)
        whole_ = signed(value, bits) >> start if sign else value >> start
        part = whole_ & (1 << width) - 1
        return signed(part, width) if sign else part

    return flagged(bits, one)


def compared(kind: str, function):
    view = {"i32": s32, "u32": int, "u64": int, "f32": f, "f16": h}[kind]
    return lambda a, b: (None, int(bool(function(view(a), view(b)))))


def real(function):
    def one(*given):
        with np.errstate(all="ignore"):
            return of(function(*map(f, given)))

    return one


def half(function):
    """Apply a function to halves. Each operand is in the low half of its register, and the result, too; its high half is zero."""

    def one(*given):
        with np.errstate(all="ignore"):
            return of_half(function(*map(h, given)))

    return one


def number(a, b, which):
    """Return the larger or smaller; of a NaN and a number the number, whichever NaN it is; -0 is below +0."""
    return b if a != a else a if b != b else either(a, b, which)


def to_zero(a: int) -> int:
    """Return a float as a half, rounded towards zero: what is too large becomes the largest."""
    with np.errstate(all="ignore"):
        value, nearest = f(a), np.float16(f(a))
        return of_half(np.nextafter(nearest, np.float16(0)) if abs(np.float64(nearest)) > abs(np.float64(value)) else nearest)


def rounded(a: np.float32) -> np.float16:
    with np.errstate(all="ignore"):
        return np.float16(a)


def sign_run(bits: int):
    """Return how many bits are as the sign is, counted from it, and -1 if all are."""
    return lambda a: -1 if a in (0, (1 << bits) - 1) else bits - (a ^ -(a >> bits - 1) & (1 << bits) - 1).bit_length()


def lowest(a: int) -> int:
    """Return the place of the lowest bit that is set, and -1 if none is."""
    return (a & -a).bit_length() - 1


def ones(width: int, at: int, bits: int) -> int:
    return (1 << (width & bits - 1)) - 1 << (at & bits - 1)


def shifted_sum(n: int):
    return carried(lambda a, b: (a << n & 2**40 - 1) + b)


TESTS = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
# Widths of the operands in words, and the function: a result, or a result and the condition code. `scc` in front: it reads the code. `old`, `old2`: the destination.
SCALARS = {
    "s_add_u32": ("1 1", carried(lambda a, b: a + b)), "s_sub_u32": ("1 1", carried(lambda a, b: a - b)), "s_addc_u32": ("scc 1 1", carried(lambda scc, a, b: a + b + scc)), "s_subb_u32": ("scc 1 1", carried(lambda scc, a, b: a - b - scc)),
    "s_add_i32": ("1 1", overflowing(lambda a, b: a + b)), "s_sub_i32": ("1 1", overflowing(lambda a, b: a - b)), "s_addk_i32": ("old 1", overflowing(lambda a, b: a + b)),
    "s_add_u64": ("2 2", lambda a, b: a + b), "s_sub_u64": ("2 2", lambda a, b: a - b), "s_mul_u64": ("2 2", lambda a, b: a * b), "s_mul_i32": ("1 1", lambda a, b: a * b), "s_mulk_i32": ("old 1", lambda a, b: a * b),
    "s_mul_hi_u32": ("1 1", lambda a, b: a * b >> 32), "s_mul_hi_i32": ("1 1", lambda a, b: s32(a) * s32(b) >> 32), "s_abs_i32": ("1", flagged(32, lambda a: abs(s32(a)))),
    "s_min_i32": ("1 1", lambda a, b: (a, 1) if s32(a) < s32(b) else (b, 0)), "s_max_i32": ("1 1", lambda a, b: (a, 1) if s32(a) >= s32(b) else (b, 0)), "s_min_u32": ("1 1", lambda a, b: (a, 1) if a < b else (b, 0)), "s_max_u32": ("1 1", lambda a, b: (a, 1) if a >= b else (b, 0)),
    **{f"s_lshl{n}_add_u32": ("1 1", shifted_sum(n)) for n in (1, 2, 3, 4)},
    **{f"s_{name}_b{bits}": (f"{bits // 32} {bits // 32}", flagged(bits, function)) for bits in (32, 64) for name, function in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "nor": lambda a, b: ~(a | b), "nand": lambda a, b: ~(a & b), "xnor": lambda a, b: ~(a ^ b)}.items()},
    "s_not_b32": ("1", flagged(32, lambda a: ~a)), "s_not_b64": ("2", flagged(64, lambda a: ~a)), "s_mov_b32": ("1", lambda a: a), "s_mov_b64": ("2", lambda a: a), "s_movk_i32": ("1", lambda a: a),
    "s_cmov_b32": ("scc old 1", lambda scc, old, a: a if scc else old), "s_cmov_b64": ("scc old2 2", lambda scc, old, a: a if scc else old), "s_cmovk_i32": ("scc old 1", lambda scc, old, a: a if scc else old), "s_absdiff_i32": ("1 1", flagged(32, lambda a, b: abs(s32(a - b)))),
    "s_lshl_b32": ("1 1", flagged(32, lambda a, b: a << (b & 31))), "s_lshr_b32": ("1 1", flagged(32, lambda a, b: a >> (b & 31))), "s_ashr_i32": ("1 1", flagged(32, lambda a, b: s32(a) >> (b & 31))),
    "s_lshl_b64": ("2 1", flagged(64, lambda a, b: a << (b & 63))), "s_lshr_b64": ("2 1", flagged(64, lambda a, b: a >> (b & 63))), "s_ashr_i64": ("2 1", flagged(64, lambda a, b: signed(a, 64) >> (b & 63))),
    "s_bfe_u32": ("1 1", extracted(32, False)), "s_bfe_i32": ("1 1", extracted(32, True)), "s_bfe_u64": ("2 1", extracted(64, False)), "s_bfe_i64": ("2 1", extracted(64, True)), "s_brev_b32": ("1", lambda a: int(f"{a:032b}"[::-1], 2)), "s_brev_b64": ("2", lambda a: int(f"{a:064b}"[::-1], 2)),
    "s_bfm_b32": ("1 1", lambda a, b: ones(a, b, 32)), "s_bfm_b64": ("1 1", lambda a, b: ones(a, b, 64)), "s_sext_i32_i8": ("1", lambda a: signed(a, 8)), "s_sext_i32_i16": ("1", lambda a: signed(a, 16)),
    **{f"s_pack_{low}{high}_b32_b16": ("1 1", lambda a, b, low=low, high=high: (a >> 16 * (low == "h") & 0xFFFF) | (b >> 16 * (high == "h") & 0xFFFF) << 16) for low in "lh" for high in "lh"},
    "s_bcnt1_i32_b32": ("1", flagged(32, int.bit_count)), "s_bcnt1_i32_b64": ("2", flagged(32, int.bit_count)), "s_bcnt0_i32_b32": ("1", flagged(32, lambda a: 32 - a.bit_count())), "s_bcnt0_i32_b64": ("2", flagged(32, lambda a: 64 - a.bit_count())),
    "s_ff1_i32_b32": ("1", lowest), "s_ff1_i32_b64": ("2", lowest), "s_ff0_i32_b32": ("1", lambda a: lowest(~a & MASK32)), "s_ff0_i32_b64": ("2", lambda a: lowest(~a & MASK64)),
    "s_flbit_i32_b32": ("1", lambda a: 32 - a.bit_length() if a else -1), "s_flbit_i32_b64": ("2", lambda a: 64 - a.bit_length() if a else -1), "s_flbit_i32": ("1", sign_run(32)), "s_flbit_i32_i64": ("2", sign_run(64)), "s_bitset1_b32": ("old 1", lambda old, a: old | 1 << (a & 31)), "s_bitset0_b32": ("old 1", lambda old, a: old & ~(1 << (a & 31))), "s_bitset1_b64": ("old2 1", lambda old, a: old | 1 << (a & 63)), "s_bitset0_b64": ("old2 1", lambda old, a: old & ~(1 << (a & 63))),
    "s_cselect_b32": ("scc 1 1", lambda scc, a, b: a if scc else b), "s_cselect_b64": ("scc 2 2", lambda scc, a, b: a if scc else b),
    "s_bitcmp0_b32": ("1 1", lambda a, b: (None, 1 - (a >> (b & 31) & 1))), "s_bitcmp1_b32": ("1 1", lambda a, b: (None, a >> (b & 31) & 1)), "s_bitcmp0_b64": ("2 1", lambda a, b: (None, 1 - (a >> (b & 63) & 1))), "s_bitcmp1_b64": ("2 1", lambda a, b: (None, a >> (b & 63) & 1)),
    **{f"s_cmp_{name}_{kind}": ("2 2" if kind == "u64" else "1 1", compared(kind, test)) for kind in ("i32", "u32", "u64") for name, test in TESTS.items()},
    **{f"s_cmpk_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("i32", "u32") for name, test in TESTS.items()},
    **{f"s_cmp_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("f32", "f16") for name, test in {**TESTS, "lg": lambda a, b: a < b or a > b, "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b, "nge": lambda a, b: not a >= b, "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "nlg": lambda a, b: not (a < b or a > b), "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b}.items()},
    "s_add_f32": ("1 1", real(lambda a, b: a + b)), "s_sub_f32": ("1 1", real(lambda a, b: a - b)), "s_mul_f32": ("1 1", real(lambda a, b: a * b)), "s_fmac_f32": ("old 1 1", real(lambda old, a, b: fused(a, b, old))),
    "s_fmamk_f32": ("1 1 1", real(lambda a, k, b: fused(a, k, b))), "s_fmaak_f32": ("1 1 1", real(fused)),
    **{f"s_{name}_{kind}": ("1 1", wrap(lambda a, b, how=how, which=which: how(a, b, which))) for kind, wrap in (("f32", real), ("f16", half)) for name, how, which in (("max_num", number, np.fmax), ("min_num", number, np.fmin), ("maximum", either, np.fmax), ("minimum", either, np.fmin))},
    **{f"s_{name}_{kind}": ("1", wrap(function)) for kind, wrap in (("f32", real), ("f16", half)) for name, function in (("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint))},
    "s_add_f16": ("1 1", half(lambda a, b: a + b)), "s_sub_f16": ("1 1", half(lambda a, b: a - b)), "s_mul_f16": ("1 1", half(lambda a, b: a * b)), "s_fmac_f16": ("old 1 1", half(lambda old, a, b: fused(a, b, old, np.float16))),
    "s_cvt_f32_i32": ("1", lambda a: of(s32(a))), "s_cvt_f32_u32": ("1", of), "s_cvt_u32_f32": ("1", lambda a: int(whole(f(a), 0, MASK32))), "s_cvt_i32_f32": ("1", lambda a: int(whole(f(a), -(2**31), 2**31 - 1))),
    "s_cvt_f16_f32": ("1", lambda a: of_half(rounded(f(a)))), "s_cvt_f32_f16": ("1", lambda a: of(h(a))), "s_cvt_hi_f32_f16": ("1", lambda a: of(h(a >> 16))), "s_cvt_pk_rtz_f16_f32": ("1 1", lambda a, b: to_zero(a) | to_zero(b) << 16),
    "v_s_rcp_f32": ("1", real(lambda a: quiet(1 / quiet(a)))), "v_s_sqrt_f32": ("1", real(lambda a: np.sqrt(quiet(a)))), "v_s_exp_f32": ("1", real(lambda a: quiet(np.float32(np.exp2(np.float64(a)))))), "v_s_log_f32": ("1", real(lambda a: np.log2(np.float64(quiet(a))))),
    "v_s_rsq_f32": ("1", real(lambda a: 1 / np.sqrt(np.float64(quiet(a))))),
    **{f"v_s_{name}_f16": ("1", half(lambda a, function=function: function(np.float64(a)))) for name, function in (("rcp", lambda a: 1 / a), ("sqrt", np.sqrt), ("rsq", lambda a: 1 / np.sqrt(a)), ("exp", np.exp2), ("log", np.log2))},
}  # fmt: skip
OLDER = {
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32", "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32", "s_add_nc_u64": "s_add_u64", "s_sub_nc_u64": "s_sub_u64", "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32", "s_or_not1_b64": "s_orn2_b64",
    "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64", "s_clz_i32_u32": "s_flbit_i32_b32", "s_clz_i32_u64": "s_flbit_i32_b64", "s_cls_i32": "s_flbit_i32", "s_cls_i32_i64": "s_flbit_i32_i64",
    **{f"s_{new}_saveexec_b{bits}": f"s_{old}_saveexec_b{bits}" for bits in (32, 64) for new, old in (("and_not1", "andn2"), ("or_not1", "orn2"), ("and_not0", "andn1"), ("or_not0", "orn1"))},
}  # fmt: skip
# What becomes of EXEC: `a` is the operand, `x` is EXEC. A 1 in a name says that the operand is inverted, a 2 that EXEC is.
SAVES = {
    "and": lambda a, x: a & x, "or": lambda a, x: a | x, "xor": lambda a, x: a ^ x, "nand": lambda a, x: ~(a & x), "nor": lambda a, x: ~(a | x), "xnor": lambda a, x: ~(a ^ x),
    "andn1": lambda a, x: ~a & x, "andn2": lambda a, x: a & ~x, "orn1": lambda a, x: ~a | x, "orn2": lambda a, x: a | ~x,
}  # fmt: skip


def quiet(x):
    return x if not abs(x) < np.float32(2.0**-126) else np.copysign(np.float32(0), x)


# Programs.

EDGES = [0, 2**64 - 1, 2**63, 2**63 - 1, 1, 2**32 - 1, 2**32, 2**64 - 2**32, 2**31, 2**31 - 1]


def name_of(mnemonic: str) -> str:
    name = mnemonic.removesuffix("_e64")
    return OLDER.get(name, name)


def given(arch: str) -> list[list[int]]:
    """Return the words of each wave: four operands of 64 bits, the last of them what destinations hold before; and a condition code."""
    rows = [drawn("u", f"{arch} scalar {n}", WAVES_RUN).tolist() for n in range(4)]
    floats, halves = (drawn(kind, f"{arch} scalar floats", 4 * WAVES_RUN).tolist() for kind in ("f32", "f16"))
    kinds = [(word, float_, word, half) for word, float_, half in zip(chain.from_iterable(rows), floats, halves, strict=True)]
    mixed = [[kinds[i * WAVES_RUN + n][n % 4] for n in range(WAVES_RUN)] for i in range(4)]
    mixed[0][: len(EDGES)] = EDGES
    mixed[1] = [first if n % 7 == 0 else second for n, (first, second) in enumerate(zip(mixed[0], mixed[1], strict=True))]
    return mixed


def kind_of_result(name: str) -> str:
    kind = re.findall(r"_([iufb]\d+)", name)[0]
    return "2f16" if name == "s_cvt_pk_rtz_f16_f32" else kind


def same(kind: str, mine: int, theirs: int, roughly: bool) -> bool:
    """Return whether two results are the same; NaN is NaN. The last bit of an approximation is the hardware's own."""
    if kind == "2f16":
        return all(
            same("f16", one >> at & 0xFFFF, other >> at & 0xFFFF, roughly) for one, other, at in ((mine, theirs, 0), (mine, theirs, 16))
        )
    if kind == "f16" and h(mine) != h(mine) and h(theirs) != h(theirs):
        return mine >> 16 == theirs >> 16
    if kind == "f32" and f(mine) != f(mine) and f(theirs) != f(theirs):
        return True
    return mine == theirs or (roughly and abs(mine - theirs) == 1)


class Scalar:
    """A shape of the scalar unit: its code, and what it leaves in a register and in the condition code, wave by wave."""

    def __init__(self, arch: str, shape: str, example: str, rows: list[list[int]]) -> None:
        self.shape, self.wave = shape, WAVES[arch]
        mnemonic = shape.split()[0]
        name = name_of(mnemonic)
        kinds = split(shape.partition(" ")[2])[0]
        literals = split(example.partition(" ")[2])[0]
        codes = [row & 1 for row in rows[2]]
        self.setup = ["s_bitcmp1_b32 s20, 0"]  # the condition code
        if found := re.fullmatch(r"s_(\w+)_saveexec_b(32|64)", name):
            self._saves(mnemonic, found[1], int(found[2]), rows, kinds)
            return
        widths, function = SCALARS[name]
        wanted = widths.split()
        compares = name.startswith(("s_cmp", "s_bitcmp"))
        reads = [one for one in wanted if one in "12"]
        columns = []
        target = "" if compares else {"s": "s26", "s2": "s[26:27]", "v": "v40"}.get(kinds[0], kinds[0])
        out_words = 0 if compares else 2 if kinds[0] in ("s2", "vcc", "exec") else 1
        for one in wanted:
            if one == "scc":
                columns.append(codes)
            elif one in ("old", "old2"):
                columns.append([row & (MASK64 if one == "old2" else MASK32) for row in rows[3]])
                self.setup.append(f"s_mov_b64 {target}, s[22:23]" if one == "old2" else f"s_mov_b32 {target}, s22")
        texts = [] if compares else [target]
        names = literals[0 if compares else 1 :]
        for n, width in enumerate(reads):
            kind, literal = [*kinds[0 if compares else 1 :], ""][n], names[n]
            text, values = self._operand(kind, literal, names.index(literal), int(width), rows)
            texts.append(text)
            columns.append(values)
        results = [function(*row) for row in zip(*columns, strict=True)]
        pairs = [one if isinstance(one, tuple) else (one, None) for one in results]
        bits = (1 << 32 * max(1, out_words)) - 1
        self.values = None if compares else [int(value) & bits for value, _ in pairs]
        self.codes = [code for _, code in pairs] if pairs[0][1] is not None else codes
        self.kind = kind_of_result(name)
        self.roughly = name.startswith("v_s_")
        masked = kinds[0].startswith("exec")
        low = {"s2": "s26", "vcc": "vcc_lo", "exec": "s26"}.get(kinds[0], target or "s26")
        high = {"s2": "s27", "vcc": "vcc_hi", "exec": "s27"}.get(kinds[0], "s27")
        self.code = [*self.setup, f"{mnemonic} {', '.join(texts)}", "s_cselect_b32 s28, 1, 0"]
        if masked:
            self.code += [f"s_mov_b{self.wave} {'s[26:27]' if self.wave == 64 else 's26'}, {kinds[0]}", f"s_mov_b{self.wave} {kinds[0]}, 1"]
            low = "s26"
        self.outs = ([low, high][:out_words] if not compares else []) + ["s28"]

    def _operand(self, kind: str, literal: str, n: int, width: int, rows: list[list[int]]) -> tuple[str, list[int]]:
        inner = re.sub(r"[-|]", "", kind) if not re.match(r"-\d", kind) else kind
        if inner in ("s", "s2", "vcc", "vcc_lo", "vcc_hi", "m0"):
            place = 16 + 2 * n
            both = inner in ("s2", "vcc")
            values = [row & (MASK64 if both else MASK32) for row in rows[n]]
            text = f"s[{place}:{place + 1}]" if inner == "s2" else f"s{place}" if inner == "s" else inner
            if inner not in ("s", "s2"):
                self.setup.insert(0, f"s_mov_b{64 if both else 32} {inner}, {f's[{place}:{place + 1}]' if both else f's{place}'}")
            if kind != inner:
                raise KeyError(f"{kind}: a modified operand")
            return text, values
        if inner in ("exec", "exec_lo"):
            return inner, [1] * WAVES_RUN  # one lane is on
        if inner == "ttmp":
            return "ttmp9", list(range(WAVES_RUN))
        if re.fullmatch(r"-?\d+\.\d+", kind):
            return kind, [of(float(kind))] * WAVES_RUN
        number = int(literal, 0)
        if self.shape.startswith(("s_movk", "s_addk", "s_mulk", "s_cmpk", "s_cmovk")):
            unsigned = self.shape.startswith("s_cmpk") and "_u32" in self.shape
            number = number & 0xFFFF if unsigned else signed(number, 16)
            return str(number & 0xFFFF if unsigned or number >= 0 else number), [number & MASK32] * WAVES_RUN
        wide = number & MASK64 if -16 <= number <= 64 else number & MASK32
        return literal, [wide if width == 2 else wide & MASK32] * WAVES_RUN

    def _saves(self, mnemonic: str, what: str, bits: int, rows: list[list[int]], kinds: list[str]) -> None:
        """EXEC is saved, and changed; both are looked at. 64 bits of it are there in a wave of 32 lanes, too."""
        mask = (1 << bits) - 1
        exec_, first, second, after, saved = {
            64: ("exec", "s[16:17]", "s[18:19]", "s[22:23]", "s[26:27]"),
            32: ("exec_lo", "s16", "s18", "s22", "s26"),
        }[bits]
        before, given_ = [row & mask for row in rows[0]], [row & mask for row in rows[1]]
        target = saved if kinds[0] in ("s", "s2") else kinds[0]
        source = second if kinds[1] in ("s", "s2") else kinds[1]
        if kinds[1] in ("vcc", "vcc_lo"):
            self.setup.insert(0, f"s_mov_b{bits} {kinds[1]}, {second}")
        if kinds[1] in ("int", "lit"):
            raise KeyError(f"{mnemonic} of a constant")
        results = [SAVES[what](one, x) & mask for one, x in zip(given_, before, strict=True)]
        self.values = [old | new << bits for old, new in zip(before, results, strict=True)]
        self.codes = [int(one != 0) for one in results]
        self.kind, self.roughly = f"b{bits}", False
        self.code = [*self.setup, f"s_mov_b{bits} {exec_}, {first}", f"{mnemonic} {target}, {source}", "s_cselect_b32 s28, 1, 0"]
        self.code += [f"s_mov_b{bits} {after}, {exec_}", f"s_mov_b{bits} {exec_}, 1"]
        self.code += [] if target == saved else [f"s_mov_b{bits} {saved}, {target}"]
        words = bits // 32
        self.outs = ["s26", "s27"][:words] + ["s22", "s23"][:words] + ["s28"]


def run(arch: str, cases: list[Scalar], rows: list[list[int]]) -> list[tuple[str, str]]:
    """Run cases in one program, a wave for each row of operands; return the shapes that leave something else."""
    into = np.array([[half for row in rows for half in (row[n] & MASK32, row[n] >> 32)] for n in range(WAVES_RUN)], np.uint64).astype(
        np.uint32
    )
    count = sum(len(case.outs) for case in cases)
    out = np.zeros((WAVES_RUN, count), np.uint32)
    cdna = WAVES[arch] == 64
    wide, narrow, store = (
        ("s_load_dwordx8", "s_load_dwordx4", "global_store_dword") if cdna else ("s_load_b256", "s_load_b128", "global_store_b32")
    )
    gfx12 = arch.startswith("gfx12")
    wait, group = "s_wait_kmcnt 0x0" if gfx12 else "s_waitcnt 0", "ttmp9" if gfx12 else "s2"
    add = "v_add_u32" if cdna else "v_add_nc_u32"
    body = [f"{narrow} s[4:7], s[0:1], 0x0", wait, f"s_mul_i32 s8, {group}, 32", f"s_mul_i32 s9, {group}, {4 * count}"]
    body += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0", "v_mov_b32 v4, 0"]
    body += [f"s_mov_b{WAVES[arch]} {'exec' if cdna else 'exec_lo'}, 1"]
    for case in cases:
        body += [f"{wide} s[16:23], s[4:5], 0x0", wait, *case.code]
        for name in case.outs:
            body += ([f"v_mov_b32 v40, {name}"] if name[0] != "v" or name.startswith("vcc") else []) + [
                f"{store} v4, v40, s[6:7]",
                f"{add} v4, 4, v4",
            ]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in body)))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    execute(
        kernel, Launch((WAVES_RUN, 1, 1), WAVES[arch], arguments, 4096, [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)])
    )
    wrong, at = [], 0
    for case in cases:
        found = out[:, at : at + len(case.outs)].astype(object)
        at += len(case.outs)
        codes = found[:, -1].tolist()
        if codes != case.codes:
            bad = next(n for n in range(WAVES_RUN) if codes[n] != case.codes[n])
            wrong.append((f"{case.shape}    as {case.code[-2]}", f"condition code, wave {bad}: {codes[bad]}"))
        if case.values is None:
            continue
        values = [sum(int(word) << 32 * n for n, word in enumerate(row[:-1])) for row in found.tolist()]
        for n, (mine, theirs) in enumerate(zip(values, case.values, strict=True)):
            if not same(case.kind, mine, theirs, case.roughly):
                wrong.append((f"{case.shape}    as {' | '.join(case.code)}", f"wave {n}: {mine:#x}, not {theirs:#x}"))
                break
    return wrong
