"""What changes operands and results of vector instructions: SDWA, DPP, source and output modifiers."""

from __future__ import annotations

from dataclasses import replace

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import (
    ABSOLUTE,
    BOUND_ZERO,
    CLAMP,
    FETCH_INACTIVE,
    LANE_SHUFFLE,
    MASK,
    NEGATE,
    SIGN_EXTEND,
    SUBWORD,
    Instruction,
    Operand,
)

_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


def sdwa(at: Context, one: Instruction, codes: list[int], kinds: tuple[int, int, int, int], extra: int) -> None:
    """src0 7:0; sel, sext, neg, abs of src0 in 23:16, of src1 in 31:24; dst_sel 10:8, unused 12:11, clamp 13, omod 15:14, or sdst."""
    one.flags |= SUBWORD
    first = (extra & 0xFF) + (0 if extra >> 23 & 1 else 256)
    one.s = [at.source(one, first, kinds[0])]
    if len(codes) > 1:
        one.s.append(at.source(one, codes[1] - 256 if extra >> 31 & 1 else codes[1], kinds[1]))
    for n, operand in enumerate(one.s):
        bits = extra >> (16 + 8 * n) & 0xFF
        flags = (SIGN_EXTEND if bits >> 3 & 1 else 0) | (NEGATE if bits >> 4 & 1 else 0) | (ABSOLUTE if bits >> 5 & 1 else 0)
        one.s[n] = replace(marked(operand, flags), select=bits & 7)
    if at.types(one).d == MASK:
        one.flags &= ~SUBWORD
        if extra >> 15 & 1:
            one.d = at.registers.scalar(extra >> 8 & 0x7F, MASK)
    else:
        one.d = replace(one.d, select=extra >> 8 & 7)
        one.keep = extra >> 11 & 3
        output(one, extra >> 13 & 1, extra >> 14 & 3)
        one.modifiers += [f"dst_sel:{_PARTS[extra >> 8 & 7]}", f"dst_unused:UNUSED_{('PAD', 'SEXT', 'PRESERVE', '?')[one.keep]}"]
    one.modifiers += [f"src{n}_sel:{_PARTS[operand.select]}" for n, operand in enumerate(one.s)]


def dpp(one: Instruction, extra: int) -> None:
    """src0 7:0, control 16:8, fetch inactive 18, bound control 19, neg and abs 23:20, bank mask 27:24, row mask 31:28."""
    one.flags |= LANE_SHUFFLE | (BOUND_ZERO if extra >> 19 & 1 else 0) | (FETCH_INACTIVE if extra >> 18 & 1 else 0)
    one.shuffle, one.write_banks, one.write_rows = extra >> 8 & 0x1FF, extra >> 24 & 15, extra >> 28 & 15
    for n in range(min(2, len(one.s))):
        flags = (NEGATE if extra >> (20 + 2 * n) & 1 else 0) | (ABSOLUTE if extra >> (21 + 2 * n) & 1 else 0)
        one.s[n] = marked(one.s[n], flags)
    one.modifiers += [f"dpp:{one.shuffle:#x}", f"row_mask:{one.write_rows:#x}", f"bank_mask:{one.write_banks:#x}"]


def dpp8(one: Instruction, selectors: int, fetch_inactive: bool) -> None:
    """Eight selectors of three bits, one for each lane of eight."""
    one.flags |= LANE_SHUFFLE | BOUND_ZERO | (FETCH_INACTIVE if fetch_inactive else 0)
    one.shuffle, one.imm = 0x1000, selectors
    one.modifiers += [f"dpp8:[{','.join(str(selectors >> 3 * n & 7) for n in range(8))}]"]


def output(one: Instruction, clamp: int, scale: int) -> None:
    """Add the modifiers of a result: a clamp, and a scale of 1 (times 2), 2 (times 4) or 3 (half)."""
    one.flags |= CLAMP if clamp else 0
    one.scale = scale
    one.modifiers += ["clamp"] if clamp else []
    one.modifiers += [("", "mul:2", "mul:4", "div:2")[scale]] if scale else []


def marked(operand: Operand, flags: int) -> Operand:
    """Return the operand with modifiers, also in its text."""
    text = f"|{operand.text}|" if flags & ABSOLUTE else operand.text
    return replace(operand, flags=operand.flags | flags, text=f"-{text}" if flags & NEGATE else text) if flags else operand
