"""A decoded instruction, as text for people and as a record for the C core (`struct instruction` of core/machine.h)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Union

# enum operand_kind, operand_flag, instruction_flag and type of core/machine.h; a test holds them against the header.
NO_OPERAND, SGPR, ROW, CONSTANT, VCCZ, EXECZ, SCC = range(7)
NEGATE, ABSOLUTE, HIGH, NEGATE_HIGH, LOW_FROM_HIGH, HIGH_FROM_HIGH, SIGN_EXTEND = (1 << n for n in range(7))
CLAMP, LANE_SHUFFLE, SUBWORD, BOUND_ZERO, RETURNS, TO_LDS, OFFSET_LANE, INDEX_LANE, KEEP_OTHER_HALF, FETCH_INACTIVE, VOLATILE, FLUSHES = (
    1 << n for n in range(12)
)
WIDENED = 1 << 12
NONE, B16, I16, F16, B32, I32, F32, B64, I64, F64, MASK, PKH, PKI, PKF, MIX, BF16 = range(16)
REGS = 32
HALF_TYPES = frozenset({B16, I16, F16, BF16})
WIDE_TYPES = frozenset({B64, I64, F64, PKF})
VCC, TTMP, NULL, M0, EXEC, ACC = 106, 108, 124, 125, 126, 256

_HEAD, _OPERANDS = struct.Struct("<Q8xIiHHBBBBB7x"), struct.Struct("<" + "HBBBB2xQ" * 6)


def words_of(kind: int, wavefront: int = 64) -> int:
    """Return how many registers an operand of this type takes."""
    if kind >= REGS:
        return kind - REGS
    return 2 if kind in WIDE_TYPES or (kind == MASK and wavefront == 64) else 1


@dataclass(frozen=True)
class Operand:
    """One operand: `index` of its first register (`ROW`s from 256 on are accumulation registers), or the bits of a constant."""

    kind: int = NO_OPERAND
    index: int = 0
    value: int = 0
    flags: int = 0
    select: int = 6
    words: int = 1
    text: str = ""


ABSENT = Operand()


@dataclass
class Instruction:
    """One instruction; fields have the names of `struct instruction`. `size` is in bytes, `operation` the index in the C table."""

    name: str
    size: int
    operation: Union[int, None] = None
    pc: int = 0
    imm: int = 0
    flags: int = 0
    shuffle: int = 0
    write_banks: int = 15
    write_rows: int = 15
    keep: int = 0
    scale: int = 0
    event: int = 0
    d: Operand = ABSENT
    e: Operand = ABSENT
    s: list[Operand] = field(default_factory=list)
    target: Union[int, None] = None  # of a branch: a pc
    second: Union[Instruction, None] = None  # the other half of a dual instruction; executed before this one if `swapped`
    swapped: bool = False
    shown: Union[list[str], None] = None  # operands in the assembler's order, where that is not the order of the fields
    modifiers: list[str] = field(default_factory=list)
    packed: bytes = b""  # the operands as C reads them, where many instructions are the same

    def record(self, operation: int) -> bytes:
        """Pack for the C core, with the number of the operation in its table."""
        head = (self.pc, self.imm, self.flags, self.shuffle, self.write_banks, self.write_rows, self.keep, self.scale, self.event)
        return _HEAD.pack(operation, *head) + (self.packed or self.packed_operands())

    def packed_operands(self) -> bytes:
        """Pack `d`, `e` and `s`."""
        operands = [self.d, self.e, *self.s, ABSENT, ABSENT, ABSENT, ABSENT][:6]
        return _OPERANDS.pack(*(value for o in operands for value in (o.index, o.kind, o.flags, o.select, o.words, o.value)))

    def __str__(self) -> str:
        operands = self.shown if self.shown is not None else [o.text for o in (self.d, self.e, *self.s) if o.text]
        text = " ".join(filter(None, [self.name, ", ".join(operands), *self.modifiers]))
        return f"{text} :: {self.second}" if self.second else text
