"""Find places at which a wave publishes data before its cache has written the data back.

Cards with several L2 caches (gfx942, gfx950) release memory in three steps: write the cache back, wait for that, then store or execute the
atomic that tells others. Without the wait, a program on another part of the card sees the atomic first, and reads old data.
llvm/llvm-project#178316 is such a fault: the compiler removed the wait if no store of the same wave was in flight.

The scan is linear: a compiler puts the three steps next to each other. A branch that always leaves ends what it follows.
"""

from __future__ import annotations

import re

from harness.inside.codegen.assembly import Instruction, steps

# Each write-back, and what a wait for it looks like.
_WRITE_BACKS = {
    "buffer_wbl2": re.compile(r"s_waitcnt .*vmcnt\(0\)|s_waitcnt (?:0|0x0)\s*$"),
    "global_wb": re.compile(r"s_wait_storecnt\w* 0(?:x0)?\b"),
}
_PUBLISHES = re.compile(r"(?:global|flat|buffer)_(?:atomic|store)_|s_barrier(?:_signal)?")


def published_early(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each store, atomic or barrier that comes before the wait for a write-back."""
    if not any(name in assembly for name in _WRITE_BACKS):
        return ()
    found: dict[str, None] = {}
    pending = ""
    for step in steps(assembly):
        if not isinstance(step, Instruction):
            continue
        if step.name in _WRITE_BACKS:
            pending = step.name
        elif pending and _WRITE_BACKS[pending].match(f"{step.name} {step.operands.strip()}"):
            pending = ""
        elif pending and _PUBLISHES.match(step.name):
            found[f"{step.name} of {step.place or f'line {step.line} of the assembly'} before the wait for {pending}"] = None
            pending = ""
        if step.ends_block:
            pending = ""
    return tuple(found)
