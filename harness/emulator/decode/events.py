"""What an instruction is to the counters that a wave waits for: which one it adds to, and which ones a wait waits for."""

from __future__ import annotations

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import RETURNS, TO_LDS, VOLATILE, Instruction

# enum event of core/checks/checks.h
NO_EVENT, LDS, SCALAR, LOAD, STORE, FLAT, LOAD_TO_LDS, WAIT, STORE_AMONG_LOADS = range(9)
_NO_WAIT = 127


def tell(at: Context, one: Instruction) -> None:
    """Set the event of an instruction; of a wait, set `imm` to what may stay in flight: loads, LDS, stores, scalar loads, a byte each."""
    name = one.name
    if name.startswith(("s_waitcnt", "s_wait_")):
        if (waited := _waits(at.family, name, one.imm)) is not None:
            one.event, one.imm = WAIT, sum(min(n, _NO_WAIT) << 8 * place for place, n in enumerate(waited))
    elif name.startswith("ds_") and name != "ds_nop":
        one.event = LDS
    elif name.startswith(("s_load", "s_buffer_load", "s_memtime", "s_memrealtime")):
        one.event = SCALAR
    elif name.startswith(("global_load", "buffer_load", "scratch_load")):
        one.event = LOAD_TO_LDS if one.flags & TO_LDS else LOAD
        one.flags |= VOLATILE if _is_volatile(at) else 0
    elif name.startswith("flat_"):
        one.event = FLAT
    elif name.startswith(("global_store", "buffer_store", "scratch_store", "global_atomic", "buffer_atomic")):
        one.event = LOAD if one.flags & RETURNS else STORE_AMONG_LOADS if at.family == "cdna" else STORE


def _waits(family: str, name: str, imm: int) -> tuple[int, int, int, int] | None:
    """Return how many loads, LDS accesses, stores and scalar loads may be left in flight; None if it waits for none of them."""
    none = _NO_WAIT
    if name == "s_waitcnt":
        if family == "cdna":  # vmcnt 3:0 and 15:14, lgkmcnt 11:8
            loads, lds = imm & 15 | imm >> 10 & 0x30, imm >> 8 & 15
            return loads if loads < 63 else none, lds if lds < 15 else none, none, lds
        loads, lds = imm >> 10 & 63, imm >> 4 & 63  # RDNA3
        return loads if loads < 63 else none, lds if lds < 63 else none, none, lds
    return {
        "s_waitcnt_vscnt": (none, none, imm, none),
        "s_waitcnt_vmcnt": (imm, none, none, none),
        "s_waitcnt_lgkmcnt": (none, imm, none, imm),
        "s_wait_storecnt": (none, none, imm, none),
        "s_wait_loadcnt": (imm, none, none, none),
        "s_wait_dscnt": (none, imm, none, none),
        "s_wait_kmcnt": (none, none, none, imm),
        "s_wait_loadcnt_dscnt": (imm >> 8 & 63, imm & 63, none, none),
        "s_wait_storecnt_dscnt": (none, imm & 63, imm >> 8 & 63, none),
        "s_wait_idle": (0, 0, 0, 0),
    }.get(name)


def _is_volatile(at: Context) -> bool:
    """Return whether a load goes past all caches, as those do with which kernels wait for others."""
    word, is_flat = at.word, at.word >> 26 == 0b110111
    if at.family == "rdna4":
        return at.word_at(1) >> 18 & 3 == 3  # scope
    if at.family == "rdna3":
        return word >> 13 & 3 == 3  # dlc, glc
    first = word >> (16 if is_flat else 14) & 1
    if at.architecture == "gfx90a":
        return first == 1
    return first == 1 and word >> (25 if is_flat else 15) & 1 == 1
