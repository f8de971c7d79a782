"""Programs of many cases: what their operands hold, how they run, and where they leave something else than is stated."""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
from machine_code import WAVES, assembled
from statements.exact import WIDE, brains, typed

from warpwave.emulator import Launch, execute, load

COUNT = 2048
STAGE = 4096  # bytes of output that stores of a wave may write
PRIVATE = 192  # bytes of private memory of a lane
ROWS = 5  # of 64 bits: four operands, and what the destination held
D = 4
_EDGES = {
    "u": [0, 1, 2, 31, 32, 63, 127, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF],
    "f32": [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1.1754944e-38, 3.4028235e38, 1.0, -0.5, 2.0**31, -(2.0**33)],
    "f16": [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-5, 65504.0, 1.0, 0.5],
    "f64": [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.5, 1e308, -(2.0**31), 1e-45],
}


def drawn(kind: str, seed: str, count: int = COUNT) -> np.ndarray:
    """Return random numbers of a kind as 64 bits a lane, a sixth of them edges.

    Kinds are u, f32, f16, f64 and bf16; floats come in twos, halves and bf16 in fours.
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    if kind == "u":
        small = random.integers(0, 64, count, np.uint64) | random.integers(0, 64, count, np.uint64) << np.uint64(32)
        wide = random.integers(0, 2**64, count, np.uint64)
        edges = random.choice(np.array(_EDGES["u"], np.uint64), (2, count))
        which = random.random(count)
        return np.where(which < 1 / 6, edges[0] | edges[1] << np.uint64(32), np.where(which < 0.35, small, wide))
    if kind == "bf16":
        low, high = (drawn("f32", f"{seed} {n}", count) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF) for n in range(2))
        return low | high << np.uint64(16)
    each = {"f32": 2, "f16": 4, "f64": 1}[kind]
    spread = {"f32": 30, "f16": 6, "f64": 60}[kind]
    dtype = {"f32": np.float32, "f16": np.float16, "f64": np.float64}[kind]
    values = random.standard_normal((count, each)) * 2.0 ** random.uniform(-spread, spread, (count, each))
    values = np.where(random.random((count, each)) < 1 / 6, random.choice(_EDGES[kind], (count, each)), values)
    with np.errstate(over="ignore"):
        return values.astype(dtype).view(np.uint64).reshape(-1)


@dataclass
class Case:
    """A shape made into code: instructions, and the rows of results with the types they should have."""

    shape: str
    code: list[str] = field(default_factory=list)
    expected: list[tuple[str, str, np.ndarray]] = field(default_factory=list)  # register, kind, and what it holds: 64 bits a lane
    roughly: bool = False  # an approximation, whose last bit is not known


class Machine:
    """What the operands of a program hold: rows of 64 bits, drawn for one kind of numbers."""

    def __init__(self, arch: str, kinds: tuple[str, ...]) -> None:
        self.arch, self.wave = arch, WAVES[arch]
        self.cdna = self.wave == 64
        self.rows = [drawn(kind, f"{arch} {n} {kind}") for n, kind in enumerate(kinds)]
        self.lane = np.arange(COUNT) % self.wave
        gfx12 = arch.startswith("gfx12")
        self.wait = "s_wait_loadcnt_dscnt 0x0\ns_wait_storecnt 0x0" if gfx12 else "s_waitcnt 0"
        self.scalar_wait = "s_wait_kmcnt 0x0" if gfx12 else "s_waitcnt 0"

    def first(self, values: np.ndarray) -> np.ndarray:
        return np.repeat(values[:: self.wave], self.wave)

    def mask_row(self) -> np.ndarray:
        return (self.rows[3] >> np.uint64(5) & np.uint64(1)).astype(bool)


def execute_cases(
    machine: Machine, cases: list[Case], begin: tuple[str, ...] | list[str] = (), findings: list | None = None
) -> list[tuple[str, str]]:
    """Run cases in one program; return the shapes that leave something else, and what. With a list of findings, each access is checked."""
    arch, wave, cdna = machine.arch, machine.wave, machine.cdna
    groups = COUNT // wave
    rows = [
        half for row in machine.rows for half in ((row & np.uint64(0xFFFFFFFF)).astype(np.uint32), (row >> np.uint64(32)).astype(np.uint32))
    ]
    into = np.ascontiguousarray(np.stack(rows).reshape(len(rows), groups, wave).transpose(1, 0, 2))
    add = "v_add_u32" if cdna else "v_add_nc_u32"
    store = "global_store_dword" if cdna else "global_store_b32"
    load4, loads = ("global_load_dword", "s_load_dwordx4") if cdna else ("global_load_b32", "s_load_b128")
    group = "ttmp9" if arch.startswith("gfx12") else "s2"
    code, places = [], []
    for one in cases:
        code += one.code
        code += ["s_nop 7"] if cdna else []
        for register, kind, _ in one.expected:
            places.append(kind)
            count = 2 if kind in WIDE else 1
            if kind == "m":
                whole_on = f"s_mov_b{wave} {'exec' if cdna else 'exec_lo'}, -1"
                name = register if register[0] != "e" else "s[28:29]" if cdna else "s28"
                code += [f"s_mov_b{wave} {name}, {register}", whole_on] if register[0] == "e" else []
                code += [
                    f"v_cndmask_b32 v48, 0, 1, {name}",
                    f"{store} v4, v48, s[6:7]",
                    f"{add} v4, {wave * 4}, v4",
                ]
                continue
            number = int(re.search(r"\d+", register)[0])
            for n in range(count):
                name = f"v{number + n}"
                if register[0] == "a":
                    code += [f"v_accvgpr_read_b32 v48, a{number + n}"]
                    name = "v48"
                code += [f"{store} v4, {name}, s[6:7]", f"{add} v4, {wave * 4}, v4"]
    results = sum(2 if kind in WIDE else 1 for kind in places)
    spare = STAGE // 4 // wave
    out = np.zeros((groups, results + spare, wave), np.uint32)
    body = [
        f"{loads} s[4:7], s[0:1], 0x0",
        machine.scalar_wait,
        f"s_mul_i32 s8, {group}, {into.shape[1] * wave * 4}",
        "v_lshlrev_b32 v1, 2, v0",
    ]
    body += ["v_mov_b32 v4, v1", f"s_mul_i32 s9, {group}, {(results + spare) * wave * 4}"]
    body += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0"]
    body += [f"s_add_u32 s10, s6, {results * wave * 4}", "s_addc_u32 s11, s7, 0"]
    body += [f"{load4} v{10 + n}, v1, s[4:5] offset:{n * wave * 4}" for n in range(len(rows))]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in "\n".join([*body, machine.wait, *begin, *code]).splitlines()), PRIVATE))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    buffers = [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)]
    execute(kernel, Launch((groups, 1, 1), wave, arguments, 4096, buffers), findings=findings)
    wrong, at = [], 0
    for one in cases:
        for _, kind, expected in one.expected:
            found = out[:, at].reshape(-1).astype(np.uint64)
            at += 1
            if kind in WIDE:
                found |= out[:, at].reshape(-1).astype(np.uint64) << np.uint64(32)
                at += 1
            if (text := difference(kind, found, expected, one.roughly)) is not None:
                wrong.append((f"{one.shape}    as {one.code[-1]}", text))
    return wrong


def difference(kind: str, found: np.ndarray, expected: np.ndarray, roughly: bool) -> str | None:
    """Return the first lane that differs, or None. NaN is NaN; approximations may differ in the last bit."""
    if kind == "half":
        return difference("f16", found & np.uint64(0xFFFF), expected, roughly)
    if kind == "bf16":  # the other half as it is
        nan = np.isnan(typed(found, "bf16")) & np.isnan(typed(expected, "bf16"))
        found = np.where(nan, found & ~np.uint64(0xFFFF) | expected & np.uint64(0xFFFF), found)
    if kind == "low":
        found = found & np.uint64(0xFFFF)
    if kind == "2bf16":
        return difference("2f32", brains(found), brains(expected), False)
    same = found == expected
    if kind.lstrip("2").startswith("f") and kind != "bf16":
        a, b = (typed(x, kind) for x in (found, expected))
        pair = (np.isnan(a) & np.isnan(b)) | (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}"))
        if roughly:
            pair |= np.abs(a.view(f"i{a.itemsize}").astype(np.int64) - b.view(f"i{b.itemsize}")) <= 1
        same = pair.reshape(len(found), -1).all(1)
        if kind == "f16":  # the result may be the higher half
            same &= found >> np.uint64(16) == expected >> np.uint64(16)
            high = [typed(x >> np.uint64(16), "f16") for x in (found, expected)]
            same |= np.isnan(high).all(0) & (found & np.uint64(0xFFFF) == expected & np.uint64(0xFFFF))
    if same.all():
        return None
    at = int(np.argmin(same))
    return f"{(~same).sum()} of {len(same)} lanes; lane {at}: {found[at]:#x}, not {expected[at]:#x}"
