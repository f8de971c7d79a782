"""The memory of each wave, as bytes of arrays: an input, an output and LDS, which cases change in turn; and how cases read it back."""

from __future__ import annotations

import re

import numpy as np
from cases import COUNT, STAGE, Case, Machine
from exact import MASK32

# ruff: noqa: E501 - a statement is a line

SIZES = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32,
}  # fmt: skip
LIMIT = 1008  # bytes that a buffer has


class Memory:
    """The bytes of each wave: `given` is what was loaded into the rows, `lds` starts as the same, `stage` as zeros."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.groups = machine, COUNT // machine.wave
        words = [half for row in machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        given = np.stack(words).astype(np.uint32).reshape(len(words), self.groups, machine.wave).transpose(1, 0, 2)
        self.given = np.ascontiguousarray(given).reshape(self.groups, -1).view(np.uint8)
        self.lds = self.given.copy()
        self.stage = np.zeros((self.groups, STAGE), np.uint8)
        self.wide = machine.cdna
        self.begin = (
            ["v_mov_b32 v2, v1"]
            + [
                line
                for n in range(10)
                for line in (
                    f"ds_write_b32 v2, v{10 + n}" if self.wide else f"ds_store_b32 v2, v{10 + n}",
                    f"{self.add} v2, {machine.wave * 4}, v2",
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

    def slots(self) -> tuple[list[str], np.ndarray]:
        """Return code that puts a place of 16 bytes of its own for each lane into v30."""
        lanes = np.arange(self.machine.wave) ^ 5
        return ["v_xor_b32 v30, 5, v0", "v_lshlrev_b32 v30, 4, v30"], np.broadcast_to(lanes * 16, (self.groups, self.machine.wave))

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
    """Read back the places that a store wrote, from LDS."""
    machine = memory.machine
    load16 = "ds_read_b64" if machine.cdna else "ds_load_b64"
    made = Case(shape, [*code, machine.wait])
    for n, offset in enumerate(offsets):
        made.code += [f"{load16} v[{40 + 2 * n}:{41 + 2 * n}], v30 offset:{offset}", machine.wait]
        low, high = memory.read(where, at + offset, 8)
        made.expected.append((f"v{40 + 2 * n}", "u64", low | high << np.uint64(32)))
    return made


def staged(memory: Memory, shape: str, code: list[str], at: np.ndarray, offset: int, size: int) -> Case:
    """Read back 16 bytes of each place of the output."""
    machine = memory.machine
    load = "global_load_dwordx4" if machine.cdna else "global_load_b128"
    words = memory.read(memory.stage, at + offset, 16 if offset == 0 else 4 * ((size + 3) // 4))
    count = len(words)
    load = {1: load.replace("x4", "").replace("128", "32"), 2: load.replace("x4", "x2").replace("128", "64"), 4: load}[count]
    made = Case(
        shape,
        [
            *code,
            machine.wait,
            *memory.slots()[0],
            f"{load} {registers(count)}, v30, s[10:11]" + (f" offset:{offset}" if offset else ""),
            machine.wait,
        ],
    )
    made.expected = [(f"v{40 + n}", "u32", word) for n, word in enumerate(words)]
    return made
