"""Atomics of less than a word, which the compiler makes of a compare-and-swap of the aligned word around them.

The word may end behind the tensor: that is the code of a right kernel, and no allocation of a card ends within a word. So these
accesses need one byte of the word in a buffer, and all others need all of their bytes there.
"""

from __future__ import annotations

from harness.emulator.decode.instruction import ROW, WIDENED, Instruction

_SWAPS = frozenset(f"{form}_atomic_cmpswap{bits}" for form in ("global", "flat", "buffer") for bits in ("", "_b32"))
_LOADS = frozenset(f"{form}_load_{size}" for form in ("global", "flat", "buffer") for size in ("dword", "b32"))
_FARTHEST = 64  # instructions between the load of the first value and the swap


def mark_widened(instructions: list[Instruction]) -> None:
    """Mark each compare-and-swap of a word, and the load before it that reads the same address."""
    for n, one in enumerate(instructions):
        if one.name not in _SWAPS:
            continue
        one.flags |= WIDENED
        for before in reversed(instructions[max(0, n - _FARTHEST) : n]):
            if before.name in _LOADS and _place(before) == _place(one):
                before.flags |= WIDENED
                break
            if _writes_address(before, one):
                break


def _place(one: Instruction) -> tuple[object, ...]:
    return one.name.split("_")[0], one.imm, one.s[0], one.s[2:]


def _writes_address(before: Instruction, one: Instruction) -> bool:
    address, d = one.s[0], before.d
    return d.kind == ROW and address.kind == ROW and d.index < address.index + address.words and address.index < d.index + d.words
