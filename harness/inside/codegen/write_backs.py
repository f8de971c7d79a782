"""Find places at which a wave publishes data before its cache has written the data back.

Cards with several L2 caches (gfx942, gfx950) release memory in three steps: write the cache back, wait for that, then store or execute the
atomic that tells others. Without the wait, a program on another part of the card sees the atomic first, and reads old data.
llvm/llvm-project#178316 is such a fault: the compiler removed the wait if no store of the same wave was in flight.

A program that has stored nothing has nothing to write back: its loads and atomics need no wait. So the scan follows the control flow, and
asks for a store on a path to the write-back. All waves run the same code, so a store of another wave is on such a path, too. What a program
acquired was written back by the one that stored it.
"""

from __future__ import annotations

import re

from harness.inside.codegen.assembly import Instruction, on_paths

# Each write-back, and what a wait for it looks like.
_WRITE_BACKS = {
    "buffer_wbl2": re.compile(r"s_waitcnt .*vmcnt\(0\)|s_waitcnt (?:0|0x0)\s*$"),
    "global_wb": re.compile(r"s_wait_storecnt\w* 0(?:x0)?\b"),
}
_STORES = re.compile(r"(?:global|flat|buffer)_store_|s_swappc_")  # a function that is called may store
_PUBLISHES = re.compile(r"(?:global|flat|buffer)_(?:atomic|store)_|s_barrier(?:_signal)?")


def published_early(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each store, atomic or barrier that comes before the wait for a write-back."""
    if not any(name in assembly for name in _WRITE_BACKS):
        return ()
    found: dict[int, str] = {}
    for step, (_, pending) in on_paths(assembly, (False, ""), _after):
        if pending and _PUBLISHES.match(step.name):
            found[step.line] = f"{step.name} of {step.place or f'line {step.line} of the assembly'} before the wait for {pending}"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _after(step: Instruction, state: tuple[bool, str]) -> tuple[bool, str]:
    """Return whether the program has stored what is not written back, and the write-back of it that it has not waited for."""
    stored, pending = state
    if step.name in _WRITE_BACKS:
        return stored, step.name if stored else ""
    if pending and _WRITE_BACKS[pending].match(f"{step.name} {step.operands.strip()}"):
        return False, ""
    return stored or bool(_STORES.match(step.name)), "" if _PUBLISHES.match(step.name) else pending
