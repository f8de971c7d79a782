"""What instructions of the scalar unit leave, by AMD's pseudocode; and programs that hold each to it, a wave for each row of operands."""

import re
import struct
from itertools import chain

import numpy as np
from cards import split
from cases import drawn
from comparison import corrected, evaluated
from machine_code import WAVES, assembled
from pseudocode import Number, is_nan, text_of
from vector import MASK32, signed

from warpwave.emulator import Launch, execute, load
from warpwave.emulator.decode.decoder import FAMILIES

WAVES_RUN = 128
MASK64 = 2**64 - 1
EDGES = [0, 2**64 - 1, 2**63, 2**63 - 1, 1, 2**32 - 1, 2**32, 2**64 - 2**32, 2**31, 2**31 - 1]


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
    return "2f16" if name == "s_cvt_pk_rtz_f16_f32" else re.findall(r"_([iufb]\d+)", name)[0]


def same(kind: str, mine: int, theirs: int, roughly: bool) -> bool:
    """Return whether two results are the same; NaN is NaN. The last bit of an approximation is the hardware's own."""
    if kind == "2f16":
        return all(same("f16", mine >> at & 0xFFFF, theirs >> at & 0xFFFF, roughly) for at in (0, 16))
    if kind[0] == "f" and all(is_nan(Number("f", int(kind[1:]), word & (1 << int(kind[1:])) - 1)) for word in (mine, theirs)):
        return kind == "f32" or mine >> 16 == theirs >> 16
    return mine == theirs or (roughly and abs(mine - theirs) == 1)


class Scalar:
    """A shape of the scalar unit: its code, and what it leaves in registers and in the condition code, wave by wave."""

    def __init__(self, arch: str, shape: str, example: str, rows: list[list[int]]) -> None:
        self.shape, self.wave = shape, WAVES[arch]
        mnemonic = shape.split()[0]
        name, family = mnemonic.removesuffix("_e64"), FAMILIES[arch]
        self.kind, self.roughly = kind_of_result(name), name.startswith("v_s_")
        text = corrected(name, text_of(family, name))
        kinds, literals = (split(one.partition(" ")[2])[0] for one in (shape, example))
        results = not name.startswith(("s_cmp", "s_bitcmp"))
        target = {"s": "s26", "s2": "s[26:27]"}.get(kinds[0], kinds[0])
        words = 2 if kinds[0] in ("s2", "vcc", "exec") else 1
        before = "s[22:23]" if words == 2 else "s22"
        saves = "saveexec" in name
        self.setup = ["s_bitcmp1_b32 s20, 0"]  # the condition code
        if results and kinds[0][0] == "s":
            self.setup.append(f"s_mov_b{32 * words} {target}, {before}")
        held = {"D0": rows[3], "SCC": [row & 1 for row in rows[2]], "EXEC": rows[3] if saves else [1] * WAVES_RUN}  # else one lane is on
        texts, places = [target] * results, iter(("S0", "S1", "SIMM32") if "fmamk" not in name else ("S0", "SIMM32", "S1"))
        names = literals[results:]
        for kind, literal in zip(kinds[results:], names, strict=True):
            operand, values = self._operand(kind, literal, names.index(literal), rows)
            texts.append(operand)
            held[next(places)] = held["SIMM16"] = values
        left = []
        for row in zip(*held.values(), strict=True):
            widths = {"SCC": 1, "SIMM32": 32}
            registers = {name: Number("b", widths.get(name, 64), value) for name, value in zip(held, row, strict=True)}
            left.append(evaluated(family, name, text, registers, ieee=family != "rdna4"))
        bits = 0xFFFF if re.search(r"D0\.f16 =", text) else (1 << 32 * words) - 1  # the rest of a half's register is 0
        self.values = [each["D0"].raw & bits for each in left] if results else None
        self.codes = [each["SCC"].raw & 1 for each in left]
        exec_ = f"exec{'_lo' * (words == 1)}" if saves else "exec" if self.wave == 64 else "exec_lo"
        self.code = [*self.setup]
        if saves:
            self.code.append(f"s_mov_b{32 * words} {exec_}, {before}")
            self.values = [old | (each["EXEC"].raw & bits) << 32 * words for old, each in zip(self.values, left, strict=True)]
        self.code += [f"{mnemonic} {', '.join(texts)}", "s_cselect_b32 s28, 1, 0"]
        low, high = {"vcc": ("vcc_lo", "vcc_hi"), "vcc_lo": ("vcc_lo", ""), "m0": ("m0", "")}.get(kinds[0], ("s26", "s27"))
        self.outs = [low, high][:words] if results else []
        if saves or kinds[0].startswith("exec"):
            into = ("s[22:23]" if words == 2 else "s22") if saves else "s[26:27]" if self.wave == 64 else "s26"
            size = 32 * words if saves else self.wave
            self.code += [f"s_mov_b{size} {into}, {exec_}", f"s_mov_b{size} {exec_}, 1"]
            self.outs += ["s22", "s23"][:words] if saves else []
        self.outs.append("s28")

    def _operand(self, kind: str, literal: str, n: int, rows: list[list[int]]) -> tuple[str, list[int]]:
        if kind in ("s", "s2", "vcc", "vcc_lo", "vcc_hi", "m0"):
            both = kind in ("s2", "vcc")
            register = f"s[{16 + 2 * n}:{17 + 2 * n}]" if both else f"s{16 + 2 * n}"
            if kind[0] != "s":
                self.setup.insert(0, f"s_mov_b{64 if both else 32} {kind}, {register}")
            return register if kind[0] == "s" else kind, [row & (MASK64 if both else MASK32) for row in rows[n]]
        if kind in ("exec", "exec_lo"):
            return kind, [1] * WAVES_RUN
        if kind == "ttmp":
            return "ttmp9", list(range(WAVES_RUN))
        if re.fullmatch(r"-?\d+\.\d+", kind):
            width = 2 if self.kind == "f16" else 4
            return kind, [int.from_bytes(struct.pack({2: "<e", 4: "<f"}[width], float(kind)), "little")] * WAVES_RUN
        number = int(literal, 0)
        if re.match(r"s_(mov|add|mul|cmp|cmov)k_", self.shape):
            unsigned = self.shape.startswith("s_cmpk") and "_u32" in self.shape
            number = number & 0xFFFF if unsigned else signed(number, 16)
            return str(number), [number & MASK32] * WAVES_RUN
        return literal, [number & (MASK64 if -16 <= number <= 64 else MASK32)] * WAVES_RUN


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
