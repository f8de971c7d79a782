"""Run shapes of the scalar unit, a wave for each row of operands, and hold what they leave to what is stated."""

from __future__ import annotations

import re
import struct
from itertools import chain

import numpy as np
from machine_code import WAVES, assembled
from shapes import split
from statements.exact import MASK32, signed
from statements.scalars import MASK64, OLDER, SAVES, SCALARS, WAVES_RUN, f, h, of
from units.cases import drawn

from warpwave.emulator import Launch, execute, load

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
        """EXEC is saved, and changed; both are looked at."""
        wave, mask, lanes = self.wave, (1 << bits) - 1, (1 << self.wave) - 1
        exec_, first, after = {64: ("exec", "s[16:17]", "s[22:23]"), 32: ("exec_lo", "s16", "s22")}[wave]
        saved, second = {64: ("s[26:27]", "s[18:19]"), 32: ("s26", "s18")}[bits]
        # A wave of 32 lanes has 32 bits of EXEC: 64 bits of it are saved with zeros above, and the condition code tells of the 32.
        before, given_ = [row & lanes for row in rows[0]], [row & mask for row in rows[1]]
        target = saved if kinds[0] in ("s", "s2") else kinds[0]
        source = second if kinds[1] in ("s", "s2") else kinds[1]
        if kinds[1] in ("vcc", "vcc_lo"):
            self.setup.insert(0, f"s_mov_b{bits} {kinds[1]}, {second}")
        if kinds[1] in ("int", "lit"):
            raise KeyError(f"{mnemonic} of a constant")
        results = [SAVES[what](one, x) & lanes for one, x in zip(given_, before, strict=True)]
        self.values = [old | new << bits for old, new in zip(before, results, strict=True)]
        self.codes = [int(one != 0) for one in results]
        self.kind, self.roughly = f"b{bits}", False
        self.code = [
            *self.setup,
            f"s_mov_b{wave} {exec_}, {first}",
            f"{mnemonic} {target}, {source}",
            "s_cselect_b32 s28, 1, 0",
            f"s_mov_b{wave} {after}, {exec_}",
            f"s_mov_b{wave} {exec_}, 1",
        ]
        self.code += [] if target == saved else [f"s_mov_b{bits} {saved}, {target}"]
        self.outs = ["s26", "s27"][: bits // 32] + ["s22", "s23"][: wave // 32] + ["s28"]


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
