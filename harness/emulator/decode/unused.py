"""Results of which half is not known: executed if nothing reads that half, and refused otherwise.

The compiler packs two additions into one instruction, of which the second may be of values that it does not need. No source says what
the high half of an inline constant is there (`v_pk_add_f32 v[6:7], v[20:21], 1.0` without op_sel_hi:[1,0]).
"""

from __future__ import annotations

from harness.emulator.decode.instruction import EXEC, KEEP_OTHER_HALF, LANE_SHUFFLE, ROW, SGPR, SUBWORD, Instruction, Operand

_FARTHEST = 256


def refuse_unknown(instructions: list[Instruction]) -> None:
    """Take the operation from each instruction whose unknown half may be read."""
    for n, one in enumerate(instructions):
        if one.unknown_high and not _is_overwritten(one.d.index + 1, instructions[n + 1 : n + 1 + _FARTHEST]):
            one.operation = None


def _is_overwritten(index: int, behind: list[Instruction]) -> bool:
    """Return whether a register is written before it is read, on all lanes and without a branch between."""
    for one in behind:
        if any(_has(operand, index) for operand in (one.e, *one.s)):
            return False
        if one.name == "s_endpgm":
            return True
        if one.target is not None or one.name.startswith(("s_setpc", "s_swappc", "s_call")) or _sets_exec(one):
            return False
        if _has(one.d, index) and one.d.select == 6 and not one.flags & (SUBWORD | LANE_SHUFFLE | KEEP_OTHER_HALF):
            return one.name.startswith("v_")
    return False


def _has(operand: Operand, index: int) -> bool:
    return operand.kind == ROW and operand.index <= index < operand.index + operand.words


def _sets_exec(one: Instruction) -> bool:
    d = one.d
    return "saveexec" in one.name or "wrexec" in one.name or "cmpx" in one.name or (d.kind == SGPR and d.index + d.words - 1 >= EXEC)
