"""What orders accesses to memory in generated code: barriers, fences, waits, and what empties caches, between which accesses.

`codegen diff` compares that with an earlier compile: a barrier that is gone, with the same accesses on both sides, is a race. Some of it is
wrong by itself, and breaks the gate `lds_waits`: products and copies that run on their own, and that nothing waits for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from warpwave.inside.codegen.barriers import Code, Instruction, on_paths

Accesses = tuple[re.Pattern[str], tuple[str, ...]]  # a group for each word


def _accesses(patterns: dict[str, str]) -> Accesses:
    return re.compile("|".join(f"({pattern})" for pattern in patterns.values())), (*patterns,)


# What uses shared memory, and what orders that, by the beginning of an instruction's name. The word is what reports say.
_SHARED = _accesses(
    {
        "store": r"st\.(?:volatile\.)?shared|stmatrix|st\.async|ds_(?:write|store)",
        "load": r"ld\.(?:volatile\.)?shared|ldmatrix|ds_(?:read|load)",
        "atomic": r"(?:atom|red)\.(?:\w+\.)*shared",
        "copy-in": r"cp\.async\.c[ag]\.shared|cp\.async\.bulk\.(?:tensor\.\dd\.)?shared|(?:buffer|global)_load_\w*lds",
        "copy-out": r"cp\.(?:reduce\.)?async\.bulk\.(?:tensor\.\dd\.)?global",
        "product": r"(?:wgmma|tcgen05)\.mma",
        "tensor-memory": r"tcgen05\.(?:ld|st|cp)",
        "mbarrier": r"mbarrier\.(?:init|inval)",
    }
)
# What uses global memory. In a kernel without shared memory, a store and a load are these.
_GLOBAL = _accesses(
    {
        "store": r"st\.(?:\w+\.)*global|(?:global|buffer|flat)_store",
        "load": r"ld\.(?:\w+\.)*global|(?:global|buffer|flat)_load",
        "global-atomic": r"(?:atom|red)\.(?:\w+\.)*global|(?:global|buffer|flat)_atomic",
    }
)
_ORDERS = re.compile(
    r"bar\.|barrier\.|barrier_|mbarrier\.(?:try_wait|test_wait|arrive|expect_tx|complete_tx)|fence\.|membar\.|wgmma\.(?:fence|commit_group|wait_group)"
    r"|cp\.async\.(?:bulk\.)?(?:commit_group|wait_group|wait_all|mbarrier)|tcgen05\.(?:wait|commit|fence)|griddepcontrol\.wait|s_barrier"
    r"|buffer_(?:wbl2|inv|gl[01]_inv)\b|global_(?:wb|inv|wbinv)\b"
)
# An access of NVIDIA's that orders others has that in its name; AMD's have instructions around them.
_ORDERING_ACCESS = re.compile(r"(?:atom|red|ld|st)\.(?:\w+\.)*(acquire|release|acq_rel)\b")
# Who sees it: the threads of a program, of a cluster, of the card, or all.
_SCOPE = re.compile(
    r"(?:fence|membar|atom|red|ld|st)\b.*?\.(cta|cluster|gpu|gl|sys)\b|.*?\b(?:scope:SCOPE_(SE|DEV|SYS)|((?:sc0 )?sc1|sc0))\b"
)
_SCOPES = {"gl": "gpu", "SE": "workgroup", "DEV": "agent", "SYS": "system", "sc0": "workgroup", "sc1": "agent", "sc0 sc1": "system"}
# The part of a name that says what it does: without types, and without how many bytes or lanes.
_NAME = re.compile(
    r"^((?:cp\.async\.(?:bulk\.)?|wgmma\.|tcgen05\.|mbarrier\.|griddepcontrol\.)?[a-z_\d]+(?:\.proxy\.\w+)?(?:\.(?:sync|warp|arrive|cluster|read|expect_tx)\b)*)"
)
_SHOWN_COUNT = re.compile(r"^\s*(\d+)(?=\s*(?:,|$))")
_LONGEST = 9_900


def order_of(assembly: str) -> str:
    """Return the accesses and what orders them, as they stand in the code: `store@12 fence.gpu@12 load@14`; a line is that of the source.

    A store and a load are of shared memory, or of global memory if there is none. Accesses of one kind in a row are one: their number
    depends on the width of each. The text is cut off before 10,000 characters.
    """
    found: list[str] = []
    last, steps = "", Code(assembly).steps
    accesses = [_word(step.name, _SHARED) for step in steps]
    prefix = "global-" if any(accesses) else ""
    for step, shared in zip(steps, accesses, strict=True):
        other = _word(step.name, _GLOBAL)
        access = shared or (f"{prefix}{other}" if other in ("store", "load") else other)
        word = access or (_shown(step) if _ORDERS.match(step.name) else "")
        line = step.place.rpartition(":")[2]
        if ordering := _ORDERING_ACCESS.match(step.name):
            found.append(f"{ordering[1]}{_scope(step)}@{line}")
            last = ""
        if word and not (access and access == last):
            found.append(f"{word}@{line}")
        last = word or last
    text = " ".join(found)
    return text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0]


def _word(name: str, accesses: Accesses) -> str:
    pattern, words = accesses
    found = pattern.match(name)
    return words[found.lastindex - 1] if found and found.lastindex else ""


def _shown(step: Instruction) -> str:
    """Return the name of what orders, with the number of a barrier or of what may be left in flight."""
    found = _NAME.match(step.name)
    count = _SHOWN_COUNT.match(step.operands)
    name = f"{found[1] if found else step.name}{_scope(step)}"
    return f"{name}:{count[1]}" if count and count[1] + name != "0bar.sync" else name


def _scope(step: Instruction) -> str:
    found = _SCOPE.match(f"{step.name} {step.operands}")
    scope = found and (found[1] or found[2] or found[3])
    return f".{_SCOPES.get(scope, scope)}" if scope else ""


class _State(NamedTuple):
    """What a path has left open: products, and copies that have arrived for one thread alone."""

    issued: str = ""  # where a product was issued that is in no group
    running: str = ""  # where one was whose group is not waited for
    fenced: bool = False
    arrived: str = ""  # where copies were waited for, by this thread alone


_READS = re.compile(r"ld\.shared|ldmatrix|wgmma\.mma|ld\.volatile\.shared")
_BARRIER = re.compile(r"bar\.sync|barrier\.(?:cluster\.)?(?:sync|wait)|mbarrier\.(?:try_wait|arrive)|bar\.red|bar\.warp")


def never_waited(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each product or copy that runs on its own (`wgmma`, `cp.async`), and that a path does not wait for."""
    if "wgmma.mma_async" not in assembly and "cp.async.c" not in assembly:
        return ()
    found: dict[str, None] = {}
    copies = [step for step in Code(assembly).steps if step.name.startswith("cp.async.c") and ".shared" in step.name]
    if copies and not re.search(r"\bcp\.async\.(?:wait_|mbarrier)", assembly):
        found[f"cp.async of {copies[0].where} never waited for: there is no cp.async.wait_group"] = None
    for step, state in on_paths(assembly, _State(), _after):
        name = step.name
        if name.startswith("wgmma.mma_async") and not state.fenced:
            found[f"wgmma of {step.where} without wgmma.fence before it"] = None
        if name.startswith("wgmma.wait_group") and state.issued:
            found[f"wgmma of {state.issued} waited for at {step.where} without wgmma.commit_group"] = None
        if name == "ret" and (state.running or state.issued):
            found[f"wgmma of {state.running or state.issued} never waited for: no wgmma.wait_group 0 behind it"] = None
        if state.arrived and _READS.match(name):
            found[f"read of shared memory at {step.where} behind the cp.async.wait_group of {state.arrived} without a barrier"] = None
    return tuple(found)


def _after(step: Instruction, state: _State) -> _State:
    name = step.name
    if name.startswith("wgmma.mma_async"):
        return state._replace(issued=step.where)
    if name.startswith("wgmma.fence"):
        return state._replace(fenced=True)
    if name.startswith("wgmma.commit_group"):
        return state._replace(issued="", running=state.issued or state.running)
    if name.startswith("wgmma.wait_group"):
        return state._replace(running="" if step.operands.strip() == "0" else state.running)
    if name.startswith(("cp.async.wait_group", "cp.async.wait_all")):
        return state._replace(arrived=step.where)
    return state._replace(arrived="") if _BARRIER.match(name) else state
