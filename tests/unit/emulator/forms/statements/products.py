"""Products of matrices: where their elements lie, as AMD's matrix instruction calculator has it, and programs that run them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

import numpy as np
import torch
from machine_code import WAVES, assembled
from units.operands import literals_of

from warpwave.emulator import Launch, execute, load

COUNT = 2048  # lanes of a program
BITS = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4}
BITS |= {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "i32": 32}
_EIGHTS = {
    "fnuz": {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz},
    "ocp": {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2},
}
MINIFLOATS = {"fp6": (3, 1), "bf6": (2, 3), "fp4": (1, 1)}  # bits of fraction, and bias; no infinities, no NaN (OCP MX)


def value_of(codes: np.ndarray, kind: str, arch: str) -> np.ndarray:
    """Return what codes of a type stand for."""
    bits = BITS[kind]
    if kind in MINIFLOATS:
        fraction_bits, bias = MINIFLOATS[kind]
        magnitude, one = codes & (1 << bits - 1) - 1, 1 << fraction_bits
        exponent, fraction = magnitude // one, magnitude % one / one
        value = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent.astype(int) - bias), fraction * 2.0 ** (1 - bias))
        return np.where(codes >> bits - 1, -value, value)
    if kind in ("fp8", "bf8"):
        eight = torch.from_numpy(codes.astype(np.uint8)).view(_EIGHTS["fnuz" if arch == "gfx942" else "ocp"][kind])
        return eight.to(torch.float64).numpy()
    if kind == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(float)
    if kind == "xf32":  # 10 bits of fraction are left, others are cut off (triton-lang/triton#11783)
        return (codes.astype(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)
    if kind[0] == "f":
        return codes.astype(f"u{bits // 8}").view(f"f{bits // 8}").astype(float)
    half = 1 << bits - 1
    return codes.astype(float) - np.where((codes >= half) & (kind[0] == "i"), 2.0 * half, 0)


def codes_of(values: np.ndarray, kind: str, arch: str) -> np.ndarray:
    """Return codes of whole numbers that a type of floats has."""
    if kind == "bf16":
        return values.astype(np.float32).view(np.uint32).astype(np.uint64) >> np.uint64(16)
    if kind in ("fp8", "bf8"):
        eights = torch.from_numpy(values.astype(np.float32)).to(_EIGHTS["fnuz" if arch == "gfx942" else "ocp"][kind])
        return eights.view(torch.uint8).numpy().astype(np.uint64)
    width = BITS[kind] // 8
    return values.astype(f"f{width}").view(f"u{width}").astype(np.uint64)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return `[..., register]` of `[..., element]`: the elements of a lane side by side, in words."""
    if bits % 8 == 0 and bits != 24:
        return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view("<u4")
    ones = codes.astype(np.uint64)[..., None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
    words = ones.reshape(*codes.shape[:-1], -1, 32)
    return (words << np.arange(32, dtype=np.uint64)).sum(-1).astype(np.uint32)


def unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """Return `[..., element]` of `[..., register]`."""
    if bits % 8 == 0 and bits != 24:
        return np.ascontiguousarray(words.astype("<u4")).view(f"<u{bits // 8}").astype(np.uint64)
    ones = words.astype(np.uint64)[..., None] >> np.arange(32, dtype=np.uint64) & np.uint64(1)
    return (ones.reshape(*words.shape[:-1], -1, bits) << np.arange(bits, dtype=np.uint64)).sum(-1, dtype=np.uint64)


@dataclass
class Product:
    """A product: A is `m` by `k`, B `k` by `m`, the result `m` by `m`, in `blocks` of them. `kept` are elements of A that a lane has."""

    arch: str
    name: str
    example: str

    def __post_init__(self) -> None:
        pattern = r"v_(mfma|smfmac|wmma|swmmac)_(?:scale_)?(\w+?)_(\d+)x\d+x(\d+)_?(?:\d+b_)?(\w+?)(?:_1k)?"
        what, self.into, m, k, kinds = re.fullmatch(pattern, self.name).groups()
        self.m, self.k, self.lanes = int(m), int(k), WAVES[self.arch]
        self.left, self.right = kinds.split("_") if "_" in kinds else (kinds, kinds)
        self.sparse, self.integer, self.scaled = what in ("smfmac", "swmmac"), self.into == "i32", "_scale_" in self.name
        self.words = [width(one) for one in literals_of(self.example)]
        self.narrow = self.into in ("f16", "bf16")
        self.results = self.words[0] * 32 // BITS[self.into]
        if self.narrow and self.arch == "gfx1100":
            self.results //= 2  # a half of each register
        self.blocks = self.results * self.lanes // self.m**2
        self.groups = 1 if self.blocks > 1 or self.arch == "gfx1100" else self.lanes // self.m  # of lanes, each with its part of k
        self.per_lane = self.k // self.groups
        if self.name.startswith("v_mfma_f64_4x4x4"):
            self.per_lane = 1
        self.kept = self.per_lane // 2 if self.sparse else self.per_lane

    def of_operand(self, kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return block, row of A (column of B) and k, of each lane and element."""
        lane, n = np.arange(self.lanes)[:, None], np.arange(count)[None, :]
        if self.name.startswith("v_mfma_f64_4x4x4"):
            found = lane // 4 % 4, lane % 4, lane // 16
        elif self.blocks > 1:
            found = lane // self.m, lane % self.m, n
        elif "f8f6f4" in self.name and BITS[kind] == 8:  # sixteen neighbours of the first half of k, and sixteen of the second
            found = 0, lane % self.m, n // 16 * (self.k // 2) + 16 * (lane // self.m) + n % 16
        else:
            found = 0, lane % self.m, (count * (lane // self.m) if self.groups > 1 else 0) + n
        return tuple(np.broadcast_arrays(*found, lane + n)[:3])

    def of_result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return block, row and column, of each lane and element of the result."""
        lane, n, m = np.arange(self.lanes)[:, None], np.arange(self.results)[None, :], self.m
        if self.arch == "gfx1100":
            found = 0, 2 * n + lane // 16, lane % 16
        elif self.lanes == 32:
            found = 0, n + 8 * (lane // 16), lane % 16
        elif self.into == "f64":
            found = (lane // 4 % 4, lane // 16, lane % 4) if m == 4 else (0, 4 * n + lane // 16, lane % 16)
        elif m == 32:
            found = n // 16, 8 * (n % 16 // 4) + 4 * (lane // 32) + n % 4, lane % 32
        elif m == 16:
            found = n // 4, 4 * (lane // 16) + n % 4, lane % 16
        else:
            found = lane // 4, n, lane % 4
        return tuple(np.broadcast_arrays(*found, lane + n)[:3])

    def matrix(self, values: np.ndarray, kind: str) -> np.ndarray:
        """Return `[wave, block, row of A or column of B, k]` of `[wave, lane, element]`."""
        made = np.zeros((len(values), self.blocks, self.m, self.k))
        made[(slice(None), *self.of_operand(kind, values.shape[-1]))] = values
        return made

    def sparse_matrix(self, values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Return what `matrix` does; `pairs` says which two of four neighbours in k each two elements of a lane are."""
        waves, lanes, kept = values.shape
        spread = np.zeros((waves, lanes, kept // 2, 4))
        np.put_along_axis(spread, pairs, values.reshape(waves, lanes, -1, 2), axis=3)
        return self.matrix(spread.reshape(waves, lanes, -1), self.left)

    def in_lanes(self, result: np.ndarray) -> np.ndarray:
        """Return `[wave, lane, element]` of `[wave, block, row, column]`."""
        return result[(slice(None), *self.of_result())]


def width(register: str) -> int:
    found = re.search(r"\[(\d+):(\d+)\]", register)
    return int(found[2]) - int(found[1]) + 1 if found else 1


@dataclass
class Step:
    """One instruction of a program: what its registers hold before, `[wave, lane, register]` by the first one, and what it leaves."""

    text: str
    given: dict[str, np.ndarray]
    into: str
    count: int
    check: object = None
    found: np.ndarray = field(default=None)


def execute_steps(arch: str, steps: list[Step]) -> None:
    """Run steps in one program, and note what each leaves: `[wave, lane, register]`."""
    wave, cdna = WAVES[arch], WAVES[arch] == 64
    waves = COUNT // wave
    rows = np.concatenate([words.transpose(2, 0, 1) for step in steps for words in step.given.values()])
    into = np.ascontiguousarray(rows.transpose(1, 0, 2))
    results = sum(step.count for step in steps)
    out = np.zeros((waves, results, wave), np.uint32)
    load4, store4 = ("global_load_dword", "global_store_dword") if cdna else ("global_load_b32", "global_store_b32")
    loads, wait = ("s_load_dwordx4", "s_waitcnt 0") if cdna else ("s_load_b128", "s_nop 0")
    group = "ttmp9" if arch.startswith("gfx12") else "s2"
    begin = [f"{loads} s[4:7], s[0:1], 0x0", wait, f"s_mul_i32 s8, {group}, {into[0].nbytes}", "v_lshlrev_b32 v1, 2, v0"]
    begin += [f"s_mul_i32 s9, {group}, {out[0].nbytes}"]
    begin += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0"]
    code = list(begin)
    for step in steps:
        for first, words in step.given.items():
            for n in range(words.shape[2]):
                code += [f"{load4} {first[0]}{int(first[1:]) + n}, v1, s[4:5]", f"s_add_u32 s4, s4, {wave * 4}", "s_addc_u32 s5, s5, 0"]
        code += [wait, step.text, *["s_nop 7"] * (3 if cdna else 1)]
        for n in range(step.count):
            register = f"{step.into[0]}{int(step.into[1:]) + n}"
            code += [f"{store4} v1, {register}, s[6:7]", f"s_add_u32 s6, s6, {wave * 4}", "s_addc_u32 s7, s7, 0"]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in code)))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    execute(kernel, Launch((waves, 1, 1), wave, arguments, 0, [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)]))
    at = 0
    for step in steps:
        step.found = out[:, at : at + step.count].transpose(0, 2, 1)
        at += step.count
