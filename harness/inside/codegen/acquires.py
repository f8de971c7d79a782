"""Find loads of RDNA code that may read old data, because another wave of the program has acquired memory in their place.

An atomic of one number is executed by one wave. It acquires for all: the wave empties its own first cache (`buffer_gl1_inv` and
`buffer_gl0_inv`, `global_inv scope:SCOPE_DEV`), hands the result on in LDS, and the others go on behind a barrier. On RDNA, waves of one
program are on two compute units with a first cache each (L0), so each of the others has to empty its own behind the barrier. Triton 3.8.0
leaves that out (triton-lang/triton#11289). On CDNA all waves of a program share the cache.

The scan follows the control flow. On each path it remembers how far the acquired memory has come.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto

from harness.inside.codegen.assembly import Instruction, on_paths

# What empties the first cache; what the acquiring wave does for the whole card, as an atomic's default order asks; what bypasses the cache.
_EMPTIES = re.compile(r"buffer_gl0_inv|global_inv")
_ACQUIRES = re.compile(r"buffer_gl1_inv|global_inv .*scope:SCOPE_(?:DEV|SYS)")
_LOAD = re.compile(r"(?:global|flat|buffer)_load_(?!lds)")
_BYPASS = re.compile(r"\bglc\b|scope:SCOPE_(?:SE|DEV|SYS)")
_HANDS_ON = re.compile(r"ds_(?:store|write)_")
_BARRIERS = ("s_barrier", "s_barrier_wait")


class Stage(IntEnum):
    """What has happened on a path since a wave acquired memory."""

    NOTHING = auto()
    ACQUIRED = auto()
    HANDED_ON = auto()
    BEHIND_BARRIER = auto()


def acquired_alone(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each load behind a barrier that waves reach without having emptied their cache."""
    if "_inv" not in assembly or not any(name in assembly for name in ("buffer_gl1_inv", "global_inv")):
        return ()
    found: dict[int, str] = {}
    for step, stage in on_paths(assembly, Stage.NOTHING, _after):
        if stage is Stage.BEHIND_BARRIER and _reads_cache(step):
            where = step.place or f"line {step.line} of the assembly"
            found[step.line] = f"{step.name} of {where} behind a barrier, without {_emptying(assembly)}: another wave acquired"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _reads_cache(step: Instruction) -> bool:
    return bool(_LOAD.match(step.name)) and not _BYPASS.search(step.operands)


def _emptying(assembly: str) -> str:
    return "buffer_gl0_inv" if "buffer_gl1_inv" in assembly else "global_inv"


def _after(step: Instruction, stage: Stage) -> Stage:
    if _ACQUIRES.match(f"{step.name} {step.operands}"):
        return Stage.ACQUIRED
    if _EMPTIES.match(step.name):
        return Stage.NOTHING if stage is Stage.BEHIND_BARRIER else stage
    if _HANDS_ON.match(step.name) and stage is Stage.ACQUIRED:
        return Stage.HANDED_ON
    if step.name in _BARRIERS and stage is Stage.HANDED_ON:
        return Stage.BEHIND_BARRIER
    return Stage.NOTHING if stage is Stage.BEHIND_BARRIER and _reads_cache(step) else stage
