"""What cases of memory share: what a load leaves in registers, and how a case reads back what a store wrote."""

from __future__ import annotations

import re

import numpy as np
from accesses.wave_memory import SIZES, Memory
from statements.exact import MASK32
from units.cases import Case, Machine

LIMIT = 1008  # bytes that a buffer has


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


def loaded(memory: Memory, shape: str, code: list[str], values: list[np.ndarray]) -> Case:
    """Make a load into v40 on, or a40 on; in lanes that are off, what the registers held stays there."""
    machine, name = memory.machine, shape.split()[0]
    inits, kind = [f"v_mov_b32 v{40 + n}, v18" for n in range(len(values))], "v"
    if shape.split()[1].startswith("a"):
        inits, kind = [f"v_accvgpr_write_b32 a{40 + n}, v18" for n in range(len(values))], "a"
        code = [line.replace("v[40", "a[40").replace("v40,", "a40,") if line.startswith(name) else line for line in code]
    values = [np.where(memory.on.reshape(-1), value, machine.rows[4] & np.uint64(MASK32)) for value in values]
    return Case(shape, [*inits, *code, machine.wait], [(f"{kind}{40 + n}", "u32", value) for n, value in enumerate(values)])


def passed(memory: Memory, shape: str, code: list[str], start: int, size: int, values: list[np.ndarray]) -> Case:
    """Make a load to LDS, and read back what it puts there: a lane's words behind those of the lane before."""
    machine = memory.machine
    at = np.broadcast_to(np.arange(machine.wave) * size + start, (memory.groups, machine.wave))
    memory.write(memory.lds, at, values, size)
    code = [*code, machine.wait, f"v_mul_u32_u24 v30, {size}, v0"]
    code += [f"ds_read_b32 v{40 + n}, v30 offset:{start + 4 * n}" for n in range(len(values))]
    found = memory.read(memory.lds, at, size)
    return Case(shape, [*code, machine.wait], [(f"v{40 + n}", "u32", value) for n, value in enumerate(found)])


def registers(count: int, start: int = 40) -> str:
    return f"v{start}" if count == 1 else f"v[{start}:{start + count - 1}]"


def dumped(memory: Memory, shape: str, code: list[str], where: np.ndarray, at: np.ndarray, offsets: list[int]) -> Case:
    """Read back 16 bytes of the places that a store wrote, from LDS."""
    made = Case(shape, [*code, memory.machine.wait])
    for n, offset in enumerate(offsets):
        made.code += memory.get("lds", "v30", 40 + 4 * n, offset)
        made.expected += [(f"v{40 + 4 * n + word}", "u32", value) for word, value in enumerate(memory.read(where, at + offset, 16))]
    return made


def staged(memory: Memory, shape: str, code: list[str], place: tuple[list[str], np.ndarray], offset: int) -> Case:
    """Read back 16 bytes of each place of the output."""
    again, at = place
    made = Case(shape, [*code, memory.machine.wait, *again, *memory.get("stage", "v30", 40, offset)])
    made.expected = [(f"v{40 + n}", "u32", word) for n, word in enumerate(memory.read(memory.stage, at + offset, 16))]
    return made
