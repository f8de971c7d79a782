"""Atomics of less than a word, which the compiler makes of a compare-and-swap of the aligned word around them.

The word may end behind the tensor: that is the code of a right kernel, and no allocation of a card ends within a word. So these
accesses need one byte of the word in a buffer, and all others need all of their bytes there.
"""

from __future__ import annotations

from harness.emulator.decode.instruction import NO_OPERAND, ROW, SGPR, WIDENED, Instruction, Operand

_SWAPS = frozenset(f"{form}_atomic_cmpswap{bits}" for form in ("global", "flat", "buffer") for bits in ("", "_b32"))
_LOADS = frozenset(f"{form}_load_{size}" for form in ("global", "flat", "buffer") for size in ("dword", "b32"))
_SCALAR_LOADS = frozenset(("s_load_dword", "s_load_b32"))  # of an address that all lanes share
_FARTHEST = 64  # instructions between the load of the first value and the swap


def mark_widened(instructions: list[Instruction]) -> None:
    """Mark each compare-and-swap of a word, and the load before it that reads the same address."""
    for n, one in enumerate(instructions):
        if one.name not in _SWAPS:
            continue
        one.flags |= WIDENED
        by_lane, for_all = True, True  # whether a load of this kind would still read the swap's address
        for before in reversed(instructions[max(0, n - _FARTHEST) : n]):
            if (by_lane and before.name in _LOADS and _place(before) == _place(one)) or (for_all and _loads_for_all(before, one)):
                before.flags |= WIDENED
                break
            for_all = for_all and not _overlap(before.d, one.s[2])
            by_lane = by_lane and for_all and not _overlap(before.d, one.s[0])


def _place(one: Instruction) -> tuple[object, ...]:
    return one.name.split("_")[0], one.imm, one.s[0], one.s[2:]


def _loads_for_all(before: Instruction, one: Instruction) -> bool:
    if before.name not in _SCALAR_LOADS or before.imm != one.imm or before.s[1].kind != NO_OPERAND or one.s[2].kind != SGPR:
        return False
    return before.s[0].kind == SGPR and before.s[0].index == one.s[2].index


def _overlap(one: Operand, other: Operand) -> bool:
    same = one.kind == other.kind and one.kind in (ROW, SGPR)
    return same and one.index < other.index + other.words and other.index < one.index + one.words
