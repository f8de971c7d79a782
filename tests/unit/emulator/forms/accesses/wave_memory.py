"""The memory of each wave, as bytes of arrays: an input, an output and LDS, which cases change in turn; and how cases read it back."""

from __future__ import annotations

import numpy as np
from statements.exact import MASK32
from units.cases import COUNT, PRIVATE, STAGE, Case, Machine

# ruff: noqa: E501 - a statement is a line

SIZES = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64, "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64,
}  # fmt: skip
LDS = 2560  # bytes of it that hold something
REACH = 64  # addresses of private memory are below it


WAYS = ("scattered", "side by side", "some lanes")
SOME = 0x0FF0A55A5A3C96F1  # the lanes that are on


class Memory:
    """The bytes of each wave: `given` is what was loaded into the rows, `lds` starts as the same, over and over, `stage` as zeros.

    `private` has PRIVATE bytes for each lane, one lane after the other; they start as the rows.
    `way` says how cases reach memory: at random addresses, lane after lane, or at random ones from some lanes only.
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
        self.reach("scattered")
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

    def reach(self, way: str) -> None:
        lane = np.arange(self.machine.wave, dtype=np.uint64)
        self.way, on = way, np.uint64(SOME) >> lane & np.uint64(1) != 0
        self.on = np.broadcast_to(on | (way != "some lanes"), (self.groups, self.machine.wave))

    def only(self, name: str, case: Case) -> Case:
        """Let an instruction of a case run in some lanes only, if that is the way."""
        if self.way != "some lanes":
            return case
        low, high = f"{SOME & MASK32:#x}", f"{SOME >> 32:#x}"
        before = [f"s_mov_b32 exec_lo, {low}"] + ([f"s_mov_b32 exec_hi, {high}"] if self.wide else [])
        after = f"s_mov_b{self.machine.wave} {'exec' if self.wide else 'exec_lo'}, -1"
        number = next(n for n, line in enumerate(case.code) if line.split(" ")[0] == name)
        case.code[number : number + 1] = [*before, case.code[number], after]
        return case

    def near(self, size: int, most: int = 256) -> tuple[list[str], np.ndarray]:
        """Return code that puts an address below `most` into v30, and the addresses by group and lane; aligned."""
        if self.way == "side by side" and most > REACH:
            return self.beside(size)
        mask = (most - 1) & ~(min(size, 16 if size % 3 else 4) - 1)
        return [f"v_and_b32 v30, {mask:#x}, v16"], (self.machine.rows[3] & np.uint64(mask)).astype(np.int64).reshape(self.groups, -1)

    def beside(self, size: int) -> tuple[list[str], np.ndarray]:
        at = np.broadcast_to(np.arange(self.machine.wave) * size, (self.groups, self.machine.wave))
        return [f"v_mul_u32_u24 v30, {size}, v0"], at

    def slots(self, into: str = "v30", spread: int = 1, size: int = 16) -> tuple[list[str], np.ndarray]:
        """Return code that puts a place of 16 bytes of its own for each lane into a register; `spread` 2: every second one."""
        if self.way == "side by side":
            return self.beside(size)
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
        on = self.on if on is None else on
        for n in range(size):
            byte = (values[n // 4].reshape(at.shape) >> np.uint64(8 * (n % 4)) & np.uint64(0xFF)).astype(np.uint8)
            memory[group[on], (at + n)[on]] = byte[on]

    def source(self, n: int, words: int) -> tuple[str, list[np.ndarray]]:
        """Return registers to store from: v10 on, and what they hold."""
        rows = [half for row in self.machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        return (f"v{10 + n}" if words == 1 else f"v[{10 + n}:{9 + n + words}]"), rows[n : n + words]
