"""Each vector and scalar operation that the emulator has, against AMD's pseudocode, on random and edge operands."""

import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from machine_code import WAVES, lanes
from pseudocode import CANONICAL, NotPseudocode, Number, function, is_nan, table

from warpwave.emulator.decode.decoder import FAMILIES, context, decode
from warpwave.emulator.decode.instruction import F16, F32, F64, MIX, PKF, PKH
from warpwave.emulator.library import core

ENCODINGS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "SOP1", "SOP2", "SOPC", "SOPK")
EDGES = {
    16: (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFD23, 0x7FFF, 0x3800, 0xFFFF),
    32: (
        0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
        0x7F800001, 0xFFA12345, 0xFFC54321, 0x7E800000, 0x7F000000, 0x4F000000, 0x4F800000, 0x3F000000, 0x7FFFFFFF, 0xFFFFFFFF, 31, 32, 33, 0x477FF000,
    ),
    64: (
        0, 1 << 63, 1, (1 << 63) + 1, (1 << 52) - 1, 1 << 52, 0x7FEF << 48 | (1 << 48) - 1, 0x3FF0 << 48, 0xBFF0 << 48, 0x7FF0 << 48, 0xFFF0 << 48,
        0x7FF8 << 48, (0x7FF0 << 48) + 1, 0xFFF4 << 48, 0x41E0 << 48, 0x43E0 << 48, 2**63 - 1, 2**64 - 1, 63, 64, 0x7FE0 << 48, 0x36A0 << 48,
    ),
}  # fmt: skip
LITERAL = 0x40490FDB

# What is left out, and why: by the name of the operation.
LEFT_OUT = (
    (
        r"v_s?mfma|v_smfmac|v_wmma|v_swmmac|v_accvgpr",
        "products of matrices and their registers: tests/unit/emulator/forms/test_forms.py holds them",
    ),
    (
        r"v_readlane|v_writelane|v_readfirstlane|v_permlane|v_swap|v_mbcnt|v_movrel|v_pk_mov",
        "reads other lanes or selects registers: the forms of tests/unit/emulator/forms",
    ),
    (
        r"s_(getreg|setreg|getpc|setpc|swappc|call|rfe|waitcnt|version|barrier|sleep|sendmsg|wakeup|trap|get_barrier|alloc)",
        "control: tests/unit/emulator/forms/test_control.py",
    ),
    (r"v_nop|v_clrexcp|v_pipeflush", "does nothing"),
    (r".*(fp8|bf8|fp4|fp6|bf6|scalef32|_sr_)", "the pseudocode names a conversion and does not say what it is"),
    (
        r"v_fma_mix|v_mad_mix|v_dot4_i32_iu8|v_dot8_i32_iu4|v_bitop3",
        "modifiers of the instruction choose what it does: the forms of tests/unit/emulator/forms",
    ),
    (r"v_dot2_bf16_bf16", "the pseudocode rounds its sums; measured on a gfx1200, they are cut off (triton-lang/triton#11217)"),
    (r"v_(sin|cos)_", "the pseudocode says the sine of a rounded product with 2 pi; the card's is exact at whole quarters of a turn"),
)
# Pseudocode that is put right before it is compared with: by the name of the operation, what is exchanged or added, and why.
CORRECTED: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = (
    (
        r"v_div_fmas_(f32|f64)",
        ((r"2\.0F? \*\* \d+ \* fma\((.*)\)", r"fma_scaled(\1, exponent(S2.{t}) > {bias} ? {by} : -{by})"),),
        "it scales by 2**32; v_div_scale has scaled by 2**64 (doubles: 2**128), up or down, and one rounding follows",
    ),
    (
        r"v_div_scale_(f32|f64)",
        (
            (r"VCC = 0x(\d)LL", r"VCC.u64[laneId] = \1"),
            (r"D0\.(f\d+) = NAN", r"VCC.u64[laneId] = 1;\nD0.\1 = NAN"),
            (r"1\.0 / (?:64'F\()?S1\.(f\d+)\)? == DENORM\.f64", r"1.0F / S1.\1 == DENORM.\1"),
            (r"S2\.(f\d+) / S1\.f\d+ == DENORM\.f\d+", r"may_be_denormal(S2.\1, S1.\1)"),
            (r"(elsif \(\(1.*\n.*\n.*\n.*\n?.*ldexp\(S0\.f\d+, )", r"\1-"),
        ),
        "recorded on RDNA3: VCC is 1 where an operand is 0, and where the quotient may be denormal by its exponents; 2**126 does not overflow",
    ),
    (
        r"v_div_fixup_(f16|f32|f64)",
        ((r"-abs\(S0\.(f\d+)\) : abs", r"isNAN(S0.\1) ? -INF.\1 : -abs(S0.\1) : isNAN(S0.\1) ? INF.\1 : abs"),),
        "recorded on RDNA3: an estimate that is NaN is an overflow",
    ),
    (
        r"v_rndne_(f16|f32|f64)|s_rndne_(f16|f32)",
        ((r"\A(?s:.*)\Z", r"D0.{t} = nearest_even(S0.{t})"),),
        "floor(x + 0.5) rounds the sum before it is cut off, and loses the sign of zero (IEEE 754)",
    ),
    (
        r"v_ldexp_(f16)",
        ((r"16'F\((.*)\)$", r"\1"),),
        "it makes the power of two a half before the product; that overflows where the product does not",
    ),
    (r"v_fract_(f16|f32|f64)", ((r"$", r"\nD0.{t} = below_one(D0.{t})"),), "the result is below 1: LLVM makes OpenCL's fract of it"),
    (
        r"v_frexp_exp_i(?:16|32)_(f16|f32|f64)",
        ((r"\A(?s:.*)\Z", r"D0.i{w} = frexp_exp(S0.{t})"),),
        "it leaves denormals out; LLVM takes the exponent of them from it",
    ),
    (r"s_bcnt[01]_i32_b(32|64)", ((r"D0\.u64 != 0ULL", "D0.u32 != 0U"),), "it reads 64 bits of a result that has 32"),
)


def corrected(name: str, text: str) -> str:
    """Return pseudocode with what is known to be wrong in it put right."""
    for pattern, exchanges, _ in CORRECTED:
        if found := re.fullmatch(pattern, name):
            kind = next(group for group in found.groups() if group)
            bias, by = {"f64": (1023, 128)}.get(kind, (127, 64))
            for old, new in exchanges:
                new = (
                    new.replace("{t}", kind)
                    .replace("{bias}", str(bias))
                    .replace("{by}", str(by))
                    .replace("{w}", "16" if kind == "f16" else "32")
                )
                text = re.sub(old, new, text, count=old == "$")
    return text


APPROXIMATE = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log)_(iflag_)?f")
FLUSHING = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log)_(iflag_)?f32")


@dataclass
class Operation:
    """One operation of one card: where its pseudocode is, how it is encoded, and what the emulator calls it."""

    encoding: str
    opcode: int
    name: str
    text: str
    words: tuple[int, ...]
    kind: int
    core_name: str

    @property
    def is_scalar(self) -> bool:
        return self.encoding.startswith("SOP") or self.name.startswith("v_s_")


@dataclass
class Compared:
    """What came of one card."""

    arch: str
    agreed: list[str] = field(default_factory=list)
    differ: list[tuple[str, str]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # names of the core's operations, by the reason
    operations: set[str] = field(default_factory=set)  # of the core, compared


def encoded(family: str, encoding: str, opcode: int) -> tuple[int, ...]:
    """Return the words of an instruction: sources in v10, v12, v14 or s20, s22, the result in v40 or s24; masks in VCC."""
    cdna = family == "cdna"
    literal = (LITERAL,)
    if encoding == "VOP1":
        return (0x7E000000 | 40 << 17 | opcode << 9 | 266, *literal)
    if encoding == "VOP2":
        return (opcode << 25 | 40 << 17 | 12 << 9 | 266, *literal)
    if encoding == "VOPC":
        return (0x7C000000 | opcode << 17 | 12 << 9 | 266, *literal)
    if encoding in ("VOP3", "VOP3SD"):
        name = table(family)[encoding, opcode][0]
        if name.startswith("v_s_"):
            return (0x35 << 26 | opcode << 16 | 24, 20)
        third = 106 if "cndmask" in name else 270
        return (
            (0x34 if cdna else 0x35) << 26 | opcode << 16 | (106 << 8 if encoding == "VOP3SD" else 0) | 40,
            266 | 268 << 9 | third << 18,
        )
    if encoding == "VOP3P":
        return ((0b110100111 << 23 if cdna else 0xCC << 24) | opcode << 16 | 1 << 14 | 40, 266 | 268 << 9 | 270 << 18 | 3 << 27)
    if encoding == "SOP1":
        return (0b101111101 << 23 | 24 << 16 | opcode << 8 | 20, *literal)
    if encoding == "SOP2":
        return (0b10 << 30 | opcode << 23 | 24 << 16 | 22 << 8 | 20, *literal)
    if encoding == "SOPC":
        return (0b101111110 << 23 | opcode << 16 | 22 << 8 | 20, *literal)
    return (0b1011 << 28 | opcode << 23 | 24 << 16 | LITERAL & 0xFFFF, *literal)


def operations(arch: str, compared: Compared) -> Iterator[Operation]:
    """Yield the operations that the emulator has on a card and that have pseudocode; note the others that it has."""
    family, seen = FAMILIES[arch], set()
    have = core(WAVES[arch]).operations
    numbers = {one.number: one for one in have.values()}
    for (encoding, opcode), (mnemonic, text) in table(family).items():
        if encoding not in ENCODINGS:
            continue
        words = encoded(family, encoding, opcode)
        code = struct.pack(f"<{len(words)}I", *words)
        one = decode(context(code, arch, WAVES[arch], have), 0, 4)[0]
        if one.name != mnemonic or one.operation is None:
            continue
        name, text = numbers[one.operation].name, corrected(mnemonic, text)
        if (name, text) in seen:
            continue
        seen.add((name, text))
        why = next((why for pattern, why in LEFT_OUT if re.match(pattern, mnemonic) or re.match(pattern, name)), None)
        try:
            function(text)
        except NotPseudocode as error:
            why = why or f"its pseudocode is not read: {error}"
        if why:
            compared.left_out.setdefault(why, []).append(name)
            continue
        yield Operation(encoding, opcode, mnemonic, text, words[: one.size // 4], numbers[one.operation].d, name)


def operand(drawn: random.Random, widths: tuple[int, ...]) -> int:
    """Return 64 bits: random ones or an edge, of one of the widths."""
    width = drawn.choice(widths)
    kind = drawn.random()
    if kind < 0.4:
        value = drawn.choice(EDGES[width])
    elif kind < 0.5:
        value = drawn.randrange(-40, 70) & (1 << width) - 1
    elif kind < 0.7 and width > 16:  # floats near 1
        value = struct.unpack(
            *(("<I", struct.pack("<f", drawn.gauss(0, 4))) if width == 32 else ("<Q", struct.pack("<d", drawn.gauss(0, 4))))
        )[0]
    else:
        value = drawn.getrandbits(width)
    return value | drawn.getrandbits(64 - width) << width if width < 64 else value


def cases(one: Operation, count: int, seed: int) -> list[tuple[int, int, int, int, int]]:
    """Return operands: S0, S1, S2, the old D0, and VCC's or SCC's bit."""
    drawn = random.Random(f"{seed} {one.name}")
    found = {int(bits) for bits in re.findall(r"\.[bfiu]+(\d+)", one.text + one.name) if int(bits) in EDGES} | {
        int(b) for b in re.findall(r"_[a-z]+(16|32|64)", one.name)
    }
    widths = tuple(sorted(found)) or (32,)
    made = []
    for _ in range(count):
        row = [operand(drawn, widths) for _ in range(4)]
        if drawn.random() < 0.2:  # what two operands have in common is often a case of its own
            row[drawn.randrange(3)] = row[drawn.randrange(3)]
        made.append((*row, drawn.getrandbits(1)))
    return made  # type: ignore[return-value]


def expected(family: str, one: Operation, row: tuple[int, int, int, int, int], lane: int, ieee: bool) -> dict[str, Any]:
    """Return the registers that the pseudocode leaves."""
    s0, s1, s2, d0, bit = row
    full = (1 << (64 if family == "cdna" else 32)) - 1
    registers: dict[str, Any] = {
        name: Number("b", 64, value) for name, value in zip(("S0", "S1", "S2", "D0"), (s0, s1, s2, d0), strict=True)
    }
    if one.encoding == "SOPK":  # the register, and the immediate
        registers["S0"], registers["S1"] = (
            (registers["D0"], Number("b", 16, LITERAL & 0xFFFF)) if "cmpk" in one.name else (Number("b", 16, LITERAL & 0xFFFF), None)
        )
    registers |= {
        "SCC": Number("u", 1, bit),
        "VCC": Number("u", 64, bit << lane),
        "EXEC": Number("u", 64, full),
        "laneId": lane,
        "D1": Number("u", 1, 0),
    }
    registers |= {
        "SIMM16": Number("b", 16, LITERAL & 0xFFFF),
        "SIMM32": Number("b", 32, LITERAL),
        "OPSEL": Number("u", 4, 0),
        "OPSEL_HI": Number("u", 3, 7),
    }
    if "div_scale" in one.name:
        registers["D0"] = registers["S0"]
    return evaluated(family, one.name, one.text, registers, ieee)


def evaluated(family: str, name: str, text: str, registers: dict[str, Any], ieee: bool) -> dict[str, Any]:
    """Return the registers that pseudocode leaves, where approximations flush denormals."""
    flushes = FLUSHING.match(name)
    if flushes and not registers["S0"].raw & 0x7F800000:
        registers["S0"] = Number("b", 64, registers["S0"].raw & 0x80000000)
    left = function(text)(family, {"ROUND_MODE": "ROUND_NEAREST_EVEN", **registers}, ieee)
    if flushes and not left["D0"].raw & 0x7F800000:
        left["D0"] = Number("f", 32, left["D0"].raw & 0x80000000)
    return left


def execute(arch: str, one: Operation, given: list[tuple[int, int, int, int, int]]) -> np.ndarray:
    """Run an operation; return for each set of operands the two words of D0, VCC's or SCC's bit, and EXEC's bit."""
    wave, cdna = WAVES[arch], WAVES[arch] == 64
    each = [row for row in given for _ in range(wave)] if one.is_scalar else given
    columns = [np.array([row[n] >> shift & 0xFFFFFFFF for row in each], np.uint32) for n in range(4) for shift in (0, 32)]
    columns.append(np.array([row[4] for row in each], np.uint32))
    vcc, exec_, b, saved, target = ("vcc", "exec", "b64", "s[28:29]", "s[40:41]") if cdna else ("vcc_lo", "exec_lo", "b32", "s28", "s40")
    code, wait = ".long " + ", ".join(f"{word:#x}" for word in one.words), "s_nop 4" if cdna else "s_nop 0"
    after = [f"s_mov_{b} {saved}, {exec_}", f"s_mov_{b} {exec_}, -1", wait]
    if one.is_scalar:
        body = [f"v_readfirstlane_b32 s{s}, v{v}" for s, v in ((20, 10), (21, 11), (22, 12), (23, 13), (24, 16), (25, 17), (26, 18))]
        body += [wait, "s_cmp_lg_u32 s26, 0", code, "s_cselect_b32 s27, 1, 0", *after]
        body += ["v_mov_b32 v40, s24", "v_mov_b32 v41, s25", "v_mov_b32 v42, s27"]
    else:
        body = ["v_mov_b32 v40, v16", "v_mov_b32 v41, v17", f"v_cmp_ne_u32 {vcc}, 0, v18", wait, code]
        if one.encoding == "VOP3" and one.name.startswith("v_cmp" if cdna else "v_cmp_"):
            body.append(f"s_mov_{b} {vcc}, {target}")
        body += [*after, f"v_cndmask_b32 v42, 0, 1, {vcc}"]
    out = np.stack(lanes(arch, "\n".join([*body, f"v_cndmask_b32 v43, 0, 1, {saved}"]), columns, 4))
    return out[:, ::wave] if one.is_scalar else out


def same(one: Operation, wanted: int, got: int, mask: int) -> bool:
    """Return whether what was written is the same; where the pseudocode computes a NaN, any quiet one is."""
    width, pieces = {F16: (16, 1), PKH: (16, 2), F32: (32, 1), MIX: (32, 1), F64: (64, 1), PKF: (32, 2)}.get(one.kind, (64, 1))
    if one.kind not in (F16, PKH, F32, MIX, F64, PKF):
        width = 16 if one.name.endswith(("f16", "f16_f32")) else 64
        pieces = 64 // width
    for n in range(pieces):
        ones = (1 << width) - 1
        room, a, b = (x >> n * width & ones for x in (mask, wanted, got))
        if not room or a & room == b & room:
            continue
        if room != ones or (width == 64 and one.kind != F64):
            return False
        x, y = Number("f", width, a), Number("f", width, b)
        if a == CANONICAL[width] and is_nan(y) and b >> ({16: 9, 32: 22, 64: 51}[width]) & 1:
            continue
        near = APPROXIMATE.match(one.name) and not is_nan(x) and not is_nan(y) and abs(a - b) <= 1
        if not near:
            return False
    return True


def compare(arch: str, count: int, seed: int = 1, only: str = "") -> Compared:
    compared, family = Compared(arch), FAMILIES[arch]
    wave, ieee = WAVES[arch], FAMILIES[arch] != "rdna4"
    for one in list(operations(arch, compared)):
        if not re.match(only, one.name):
            continue
        scalar = one.is_scalar
        given = cases(one, count if scalar else -(-count // wave) * wave, seed)
        found = execute(arch, one, given)
        wrong, problem = [], ""
        for n, row in enumerate(given):
            try:
                left = expected(family, one, row, 0 if scalar else n % wave, ieee)
            except NotPseudocode as error:
                problem = f"its pseudocode is not read: {error}"
                break
            got = int(found[0][n]) | int(found[1][n]) << 32
            written = left["written"]
            lane = n % wave
            compares = one.name.startswith("v_cmp") and "D0" in written
            bit = left["SCC"].raw & 1 if scalar else (left["D0"] if compares else left["VCC"]).raw >> lane & 1
            if {"D1"} & written.keys():
                bit = left["D1"].raw
            mask = written.get("D0", 0)
            if one.name.startswith("v_cmp"):
                mask = 0
            wanted = left["D0"].raw
            off = left["EXEC"].raw >> lane & 1
            if (
                not same(one, wanted, got, mask)
                or bit != int(found[2][n])
                or (not scalar and "cmpx" in one.name and off != int(found[3][n]))
            ):
                wrong.append(
                    f"S0 {row[0]:#x}, S1 {row[1]:#x}, S2 {row[2]:#x}, D0 {row[3]:#x}, bit {row[4]}: {got:#x} and {int(found[2][n])}, not {wanted:#x} and {bit} (mask {mask:#x})"
                )
        if problem:
            compared.left_out.setdefault(problem, []).append(one.core_name)
            continue
        compared.operations.add(one.core_name)
        if wrong:
            compared.differ.append((one.name, f"{len(wrong)} of {len(given)}: {wrong[0]}"))
        else:
            compared.agreed.append(one.name)
    return compared
