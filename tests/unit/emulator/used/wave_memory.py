"""The memory of each wave, as bytes of arrays: an input, an output and LDS, which cases change in turn; and how cases read it back."""

from __future__ import annotations

import re

import numpy as np
from cases import COUNT, PRIVATE, STAGE, Case, Machine
from exact import MASK32

# ruff: noqa: E501 - a statement is a line

SIZES = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64, "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64,
}  # fmt: skip
LIMIT = 1008  # bytes that a buffer has
LDS = 2560  # bytes of it that hold something
REACH = 64  # addresses of private memory are below it


class Memory:
    """The bytes of each wave: `given` is what was loaded into the rows, `lds` starts as the same, over and over, `stage` as zeros.

    `private` has PRIVATE bytes for each lane, one lane after the other; they start as the rows.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.groups = machine, COUNT // machine.wave
        words = [half for row in machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        given = np.stack(words).astype(np.uint32).reshape(len(words), self.groups, machine.wave).transpose(1, 0, 2)
        self.given = np.ascontiguousarray(given).reshape(self.groups, -1).view(np.uint8)
        self.lds = np.tile(self.given, LDS // self.given.shape[1])
        self.stage = np.zeros((self.groups, STAGE), np.uint8)
        rows = np.stack([words[n % len(words)] for n in range(PRIVATE // 4)], -1).astype(np.uint32)
        self.private = np.ascontiguousarray(rows).view(np.uint8).reshape(self.groups, machine.wave * PRIVATE)
        self.wide = machine.cdna
        self.begin = (
            ["v_mov_b32 v2, v1"]
            + [
                line
                for n in range(LDS // machine.wave // 4)
                for line in (
                    f"ds_write_b32 v2, v{10 + n % 10}" if self.wide else f"ds_store_b32 v2, v{10 + n % 10}",
                    f"{self.add} v2, {machine.wave * 4}, v2",
                )
            ]
            + ["v_mov_b32 v2, 0"]
            + [
                line
                for n in range(PRIVATE // 4)
                for line in (
                    f"scratch_store_dword v2, v{10 + n % 10}, off" if self.wide else f"scratch_store_b32 v2, v{10 + n % 10}, off",
                    f"{self.add} v2, 4, v2",
                )
            ]
            + [machine.wait]
        )

    @property
    def add(self) -> str:
        return "v_add_u32" if self.wide else "v_add_nc_u32"

    def near(self, size: int, most: int = 256) -> tuple[list[str], np.ndarray]:
        """Return code that puts an address below `most` into v30, and the addresses by group and lane; at random, aligned."""
        mask = (most - 1) & ~(min(size, 16 if size % 3 else 4) - 1)
        return [f"v_and_b32 v30, {mask:#x}, v16"], (self.machine.rows[3] & np.uint64(mask)).astype(np.int64).reshape(self.groups, -1)

    def slots(self, into: str = "v30", spread: int = 1) -> tuple[list[str], np.ndarray]:
        """Return code that puts a place of 16 bytes of its own for each lane into a register; `spread` 2: every second one."""
        lanes = np.arange(self.machine.wave) ^ 5
        code = [f"v_xor_b32 {into}, 5, v0", f"v_lshlrev_b32 {into}, {3 + spread}, {into}"]
        return code, np.broadcast_to(lanes * 16 * spread, (self.groups, self.machine.wave))

    def address(self, space: str, offset: str) -> list[str]:
        """Return code that puts a flat address into v[30:31]: of the input, the output, LDS or private memory, and an offset a lane."""
        cdna = self.machine.cdna
        low, carry = {"given": "s4", "stage": "s10"}.get(space, "0"), "vcc" if cdna else "vcc_lo"
        code = [f"v_mov_b32 v31, {'s5' if space == 'given' else 's11'}"]
        if low == "0":
            code = [f"s_mov_b64 s[24:25], src_{'shared' if space == 'lds' else 'private'}_base", "v_mov_b32 v31, s25"]
        more = "v_addc_co_u32" if cdna else "v_add_co_ci_u32"
        return [*code, f"v_add_co_u32 v30, {carry}, {low}, {offset}", f"{more} v31, {carry}, 0, v31, {carry}"]

    def put(self, space: str, address: str, row: int, offset: int) -> list[str]:
        """Return code that stores 16 bytes of each lane."""
        if space == "stage":
            store = "global_store_dwordx4" if self.wide else "global_store_b128"
            return [f"{store} {address}, v[{row}:{row + 3}], s[10:11] offset:{offset}", self.machine.wait]
        store = "ds_write_b64" if self.wide else "ds_store_b64"
        return [f"{store} {address}, v[{row + n}:{row + n + 1}] offset:{offset + 4 * n}" for n in (0, 2)] + [self.machine.wait]

    def get(self, space: str, address: str, row: int, offset: int) -> list[str]:
        """Return code that loads 16 bytes of each lane."""
        if space == "stage":
            load = "global_load_dwordx4" if self.wide else "global_load_b128"
            return [f"{load} v[{row}:{row + 3}], {address}, s[10:11] offset:{offset}", self.machine.wait]
        if space == "private":
            load = "scratch_load_dword" if self.wide else "scratch_load_b32"
            return [f"{load} v{row + n}, {address}, off offset:{offset + 4 * n}" for n in range(4)] + [self.machine.wait]
        load = "ds_read_b64" if self.wide else "ds_load_b64"
        return [f"{load} v[{row + n}:{row + n + 1}], {address} offset:{offset + 4 * n}" for n in (0, 2)] + [self.machine.wait]

    def read(self, memory: np.ndarray, at: np.ndarray, size: int) -> list[np.ndarray]:
        """Return the words at each address, one array a word; sizes below a word give their bytes."""
        group = np.arange(self.groups)[:, None]
        bytes_ = np.stack([memory[group, at + n] for n in range(size)], -1).astype(np.uint64)
        return [
            sum(bytes_[..., 4 * word + n] << np.uint64(8 * n) for n in range(min(4, size - 4 * word))).reshape(-1)
            for word in range((size + 3) // 4)
        ]

    def write(self, memory: np.ndarray, at: np.ndarray, values: list[np.ndarray], size: int, on: np.ndarray | None = None) -> None:
        group = np.broadcast_to(np.arange(self.groups)[:, None], at.shape)
        on = np.ones(at.shape, bool) if on is None else on
        for n in range(size):
            byte = (values[n // 4].reshape(at.shape) >> np.uint64(8 * (n % 4)) & np.uint64(0xFF)).astype(np.uint8)
            memory[group[on], (at + n)[on]] = byte[on]

    def source(self, n: int, words: int) -> tuple[str, list[np.ndarray]]:
        """Return registers to store from: v10 on, and what they hold."""
        rows = [half for row in self.machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        return (f"v{10 + n}" if words == 1 else f"v[{10 + n}:{9 + n + words}]"), rows[n : n + words]


def extended(values: list[np.ndarray], name: str, size: int, old: np.ndarray) -> list[np.ndarray]:
    """Return the register after a load of less than a word: filled with the sign or zeros, or one of its halves."""
    if size >= 4:
        return values
    value, bits = values[0], np.uint64(8 * size)
    if re.search(r"sbyte|sshort|_i8|_i16", name):
        value = np.where(
            value >> (bits - np.uint64(1)) & np.uint64(1), value | (np.uint64(MASK32) ^ ((np.uint64(1) << bits) - np.uint64(1))), value
        )
    if "d16" in name:
        value = value & np.uint64(0xFFFF)
        value = old & np.uint64(0xFFFF) | value << np.uint64(16) if "d16_hi" in name else old & np.uint64(0xFFFF0000) | value
    return [value]


def words_of(row: np.ndarray) -> list[np.ndarray]:
    return [row & np.uint64(MASK32), row >> np.uint64(32)]


def resource(machine: Machine, base: int, into: int, limit: int) -> list[str]:
    """Return code that makes the description of a buffer: where it starts, and its bytes."""
    word = "0x27000" if machine.cdna else "0x31027000"
    code = [f"s_mov_b32 s{into}, s{base}", f"s_and_b32 s{into + 1}, s{base + 1}, 0xffff"]
    return [*code, f"s_mov_b32 s{into + 2}, {limit}", f"s_mov_b32 s{into + 3}, {word}"]


def size_of(name: str) -> int:
    found = [part for part in name.split("_") if part in SIZES]
    if not found:
        raise KeyError(name)
    return SIZES[found[-1]]


def loaded(memory: Memory, shape: str, code: list[str], values: list[np.ndarray], target: str = "v40") -> Case:
    machine = memory.machine
    inits = [f"v_mov_b32 v{40 + n}, v18" for n in range(len(values))]
    if shape.split()[1].startswith("a"):
        code = [line.replace("v[40", "a[40").replace("v40,", "a40,") if line.startswith(shape.split()[0]) else line for line in code]
        return Case(shape, [*code, machine.wait], [(f"a{40 + n}", "u32", value) for n, value in enumerate(values)])
    return Case(shape, [*inits, *code, machine.wait], [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)])


def registers(count: int, start: int = 40) -> str:
    return f"v{start}" if count == 1 else f"v[{start}:{start + count - 1}]"


def dumped(memory: Memory, shape: str, code: list[str], where: np.ndarray, at: np.ndarray, offsets: list[int]) -> Case:
    """Read back 16 bytes of the places that a store wrote, from LDS."""
    made = Case(shape, [*code, memory.machine.wait])
    for n, offset in enumerate(offsets):
        made.code += memory.get("lds", "v30", 40 + 4 * n, offset)
        made.expected += [(f"v{40 + 4 * n + word}", "u32", value) for word, value in enumerate(memory.read(where, at + offset, 16))]
    return made


def staged(memory: Memory, shape: str, code: list[str], at: np.ndarray, offset: int) -> Case:
    """Read back 16 bytes of each place of the output."""
    made = Case(shape, [*code, memory.machine.wait, *memory.slots()[0], *memory.get("stage", "v30", 40, offset)])
    made.expected = [(f"v{40 + n}", "u32", word) for n, word in enumerate(memory.read(memory.stage, at + offset, 16))]
    return made
