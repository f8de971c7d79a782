"""Find barriers at which a wave still has accesses to shared memory (LDS) in flight that another wave can overtake.

An LDS access is in flight until its wave has waited for it; a barrier does not complete it. If another wave writes the same place behind
the barrier, a read may get the new value; if it reads there, it may miss what was written. triton-lang/triton#11696 is such a fault.

The scan follows the control flow. A state is the queue of LDS accesses that may be in flight, oldest first. They complete in order, so
after a wait for `n` at most the last `n` are left, whatever scalar loads share the counter. Loads that go straight to LDS are counted by
another counter, and to have some of them in flight at a barrier is how pipelines work: they are not judged, only counted as writes that can
overtake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Flag, IntEnum, auto
from itertools import zip_longest
from typing import TypeVar, Union

# Read vendor assembly as a compiler writes it: labels and instructions in order, with the line of the kernel that each belongs to.

_LABEL = re.compile(r"^([.\w$]+):")
_INSTRUCTION = re.compile(r"^\s+(@!?[%$\w]+\s+)?([a-z][\w.:]+)(?:\s+([^;]*))?")  # PTX executes some only if a register is true
_FILE = re.compile(r'^\s+\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s+\.loc\s+(?:[^/]*inlined_at\s+)?(\d+)\s+(\d+)")
_State = TypeVar("_State")
_BRANCHES = ("s_branch", "s_cbranch", "bra")
_ENDS = ("s_branch", "s_endpgm", "s_setpc_b64", "bra", "bra.uni", "ret", "exit", "trap")  # control never goes on to the next instruction


@dataclass(frozen=True)
class Instruction:
    """One instruction, or a label, which has only a name. `line` is that of the assembly, `place` the kernel's (`file.py:12`, or empty)."""

    name: str
    operands: str = ""
    line: int = 0
    place: str = ""
    conditional: bool = False

    @property
    def where(self) -> str:
        """The place, for a message."""
        return self.place or f"line {self.line} of the assembly"


class Code:
    """A kernel's assembly: its instructions and labels in order, and where control goes from each."""

    def __init__(self, assembly: str) -> None:
        self.steps: list[Instruction] = []
        self.labels: dict[str, int] = {}
        files = {number: name.rpartition("/")[2] for number, name in _FILE.findall(assembly)}  # PTX has them at its end
        place = ""
        for number, line in enumerate(assembly.splitlines(), 1):
            if label := _LABEL.match(line):
                self.labels[label[1]] = len(self.steps)
                self.steps.append(Instruction(label[1]))
            elif found := _LOC.match(line):
                place = f"{files.get(found[1], '?')}:{found[2]}" if found[2] != "0" else place
            elif found := _INSTRUCTION.match(line):
                self.steps.append(Instruction(found[2], (found[3] or "").strip(), number, place, bool(found[1])))

    def following(self, position: int) -> Iterator[int]:
        """Yield the positions to which control goes from a step."""
        step = self.steps[position]
        if step.name.startswith(_BRANCHES) and step.operands in self.labels:
            yield self.labels[step.operands]
        if (step.conditional or step.name not in _ENDS) and position + 1 < len(self.steps):
            yield position + 1


def on_paths(assembly: str, first: _State, after: Callable[[Instruction, _State], _State]) -> Iterator[tuple[Instruction, _State]]:
    """Follow the control flow; yield each instruction with each state that a path reaches it in. `after` gives the state behind it."""
    code = Code(assembly)
    waiting, seen = [(0, first)], set[tuple[int, _State]]()
    while waiting:
        position, state = waiting.pop()
        if (position, state) in seen or not code.steps:
            continue
        seen.add((position, state))
        step = code.steps[position]
        yield step, state
        state = after(step, state)
        waiting += ((following, state) for following in code.following(position))


_MOST = 128  # accesses that are remembered as in flight
_COUNT = re.compile(r"lgkmcnt\((\d+)\)")
_NOT_MEMORY = re.compile(r"ds_(?:bpermute|permute|swizzle|nop|gws)")
_READ = re.compile(r"ds_(?:read|load)")
_TO_LDS = re.compile(r"\w+_load_(?:async_to_)?lds_|(?:buffer|global)_load_\w+(?=.*\blds\b)")
# Barriers, and the halves of them with which a wave lets others pass.
_BARRIERS = ("s_barrier", "s_barrier_signal", "s_barrier_signal_isfirst")


class Kind(Flag):
    """What an instruction does to LDS."""

    NOTHING = 0
    READ = auto()
    WRITE = auto()


# What another wave may do to a place while an access to it is in flight.
_RIVALS = {Kind.NOTHING: Kind.NOTHING, Kind.READ: Kind.WRITE, Kind.WRITE: Kind.READ | Kind.WRITE}
# For each position from the end of the queue, the accesses that may be there: paths that meet are joined position by position.
InFlight = tuple[frozenset[Instruction], ...]


def lds_in_flight(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each barrier at which LDS accesses are in flight that another wave can overtake."""
    if "s_barrier" not in assembly or "\tds_" not in assembly:
        return ()
    code = Code(assembly)
    reached = _in_flight(code)
    # Where waves part, some are a barrier ahead of others, and may be anywhere.
    part = _do_waves_part(code, reached)
    found = []
    for position in sorted(reached):
        barrier = code.steps[position]
        if barrier.name in _BARRIERS and reached[position]:
            behind = Kind.READ | Kind.WRITE if part else _behind(code, position)
            overtaken = {access for accesses in reached[position] for access in accesses if _RIVALS[_kind(access)] & behind}
            found += [_sentence(barrier, overtaken)] if overtaken else []
    return tuple(dict.fromkeys(found))


def _sentence(barrier: Instruction, accesses: set[Instruction]) -> str:
    counts = []
    for kind, noun in ((Kind.READ, "read"), (Kind.WRITE, "write")):
        if number := sum(_kind(access) == kind for access in accesses):
            counts.append(f"{number} LDS {noun}{'' if number == 1 else 's'}")
    places = sorted({access.place for access in accesses if access.place})
    where = f" of {', '.join(places)}" if places else ""
    return f"{' and '.join(counts)}{where} in flight at the barrier of {barrier.where}"


def _in_flight(code: Code) -> dict[int, InFlight]:
    """Return what may be in flight at each step that is reached, by its position."""
    found: dict[int, InFlight] = {0: ()}
    waiting, nothing, meeting = [0], frozenset[Instruction](), set(code.labels.values())
    while waiting:
        position = waiting.pop()
        step, state = code.steps[position], found[position]
        if step.name.startswith("ds_"):
            state = (frozenset((step,)), *state[: _MOST - 1])
        elif (count := _waited(step.name, step.operands)) is not None:
            state = state[:count]
        for following in code.following(position):
            known, joined = found.get(following), state
            if known is not None and following in meeting:
                joined = tuple(mine | theirs for mine, theirs in zip_longest(known, state, fillvalue=nothing))
            if joined != known:
                found[following] = joined
                waiting.append(following)
    return found


def _do_waves_part(code: Code, reached: dict[int, InFlight]) -> bool:
    """Return whether some waves jump over a barrier that others meet, as schedules do that let two halves take turns."""
    for position in reached:
        step = code.steps[position]
        if step.name.startswith("s_cbranch") and "exec" in step.name:  # what a wave's lanes hold decides
            skipped = range(position + 1, code.labels.get(step.operands, 0))
            if any(code.steps[each].name in _BARRIERS for each in skipped if each in reached):
                return True
    return False


def _behind(code: Code, barrier: int) -> Kind:
    """Return what is done to LDS behind a barrier, on all paths to the next one."""
    found, seen, waiting = Kind.NOTHING, set[int](), [*code.following(barrier)]
    while waiting:
        position = waiting.pop()
        if position not in seen and code.steps[position].name not in _BARRIERS:
            found |= _kind(code.steps[position])
            waiting += code.following(position)
        seen.add(position)
    return found


def _kind(step: Instruction) -> Kind:
    if step.name.startswith("ds_"):
        return Kind.NOTHING if _NOT_MEMORY.match(step.name) else Kind.READ if _READ.match(step.name) else Kind.WRITE
    return Kind.WRITE if _TO_LDS.match(f"{step.name} {step.operands}") else Kind.NOTHING


def _waited(name: str, operands: str) -> Union[int, None]:
    """Return how many LDS accesses may be in flight behind a wait; None if it is for something else."""
    if name == "s_waitcnt":
        if found := _COUNT.search(operands):
            return int(found[1])
        return None if "cnt(" in operands else 0  # a bare number, which compilers write for a wait for all
    if name == "s_waitcnt_lgkmcnt":
        return int(operands.split(",")[-1].strip(), 0)
    if name == "s_wait_dscnt":
        return int(operands, 0)
    if name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        return int(operands, 0) & 0x3F
    return 0 if name == "s_wait_idle" else None


# Find loads of RDNA code that may read old data, because another wave of the program has acquired memory in their place.
#
# An atomic of one number is executed by one wave. It acquires for all: the wave empties its own first cache (`buffer_gl1_inv` and
# `buffer_gl0_inv`, `global_inv scope:SCOPE_DEV`), hands the result on in LDS, and the others go on behind a barrier. On RDNA, waves of
# one program are on two compute units with a first cache each (L0), so each of the others has to empty its own behind the barrier. Triton
# 3.8.0 leaves that out (triton-lang/triton#11289). On CDNA all waves of a program share the cache.
#
# The scan follows the control flow. On each path it remembers how far the acquired memory has come.

# What empties the first cache; what the acquiring wave does for the whole card, as an atomic's default order asks; what bypasses the cache.
_EMPTIES = re.compile(r"buffer_gl0_inv|global_inv")
_ACQUIRES = re.compile(r"buffer_gl1_inv|global_inv .*scope:SCOPE_(?:DEV|SYS)")
_LOAD = re.compile(r"(?:global|flat|buffer)_load_(?!lds)")
_BYPASS = re.compile(r"\bglc\b|scope:SCOPE_(?:SE|DEV|SYS)")
_HANDS_ON = re.compile(r"ds_(?:store|write)_")
_WAITING_BARRIERS = ("s_barrier", "s_barrier_wait")


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
    emptying = "buffer_gl0_inv" if "buffer_gl1_inv" in assembly else "global_inv"
    for step, stage in on_paths(assembly, Stage.NOTHING, _acquired_after):
        if stage is Stage.BEHIND_BARRIER and _reads_cache(step):
            found[step.line] = f"{step.name} of {step.where} behind a barrier, without {emptying}: another wave acquired"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _reads_cache(step: Instruction) -> bool:
    return bool(_LOAD.match(step.name)) and not _BYPASS.search(step.operands)


def _acquired_after(step: Instruction, stage: Stage) -> Stage:
    if _ACQUIRES.match(f"{step.name} {step.operands}"):
        return Stage.ACQUIRED
    if _EMPTIES.match(step.name):
        return Stage.NOTHING if stage is Stage.BEHIND_BARRIER else stage
    if _HANDS_ON.match(step.name) and stage is Stage.ACQUIRED:
        return Stage.HANDED_ON
    if step.name in _WAITING_BARRIERS and stage is Stage.HANDED_ON:
        return Stage.BEHIND_BARRIER
    return Stage.NOTHING if stage is Stage.BEHIND_BARRIER and _reads_cache(step) else stage


# Find places at which a wave publishes data before its cache has written the data back.
#
# Cards with several L2 caches (gfx942, gfx950) release memory in three steps: write the cache back, wait for that, then store or execute
# the atomic that tells others. Without the wait, a program on another part of the card sees the atomic first, and reads old data.
# llvm/llvm-project#178316 is such a fault: the compiler removed the wait if no store of the same wave was in flight.
#
# A program that has stored nothing has nothing to write back: its loads and atomics need no wait. So the scan follows the control flow,
# and asks for a store on a path to the write-back. All waves run the same code, so a store of another wave is on such a path, too. What a
# program acquired was written back by the one that stored it.

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
    for step, (_, pending) in on_paths(assembly, (False, ""), _written_back_after):
        if pending and _PUBLISHES.match(step.name):
            found[step.line] = f"{step.name} of {step.where} before the wait for {pending}"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _written_back_after(step: Instruction, state: tuple[bool, str]) -> tuple[bool, str]:
    """Return whether the program has stored what is not written back, and the write-back of it that it has not waited for."""
    stored, pending = state
    if step.name in _WRITE_BACKS:
        return stored, step.name if stored else ""
    if pending and _WRITE_BACKS[pending].match(f"{step.name} {step.operands.strip()}"):
        return False, ""
    return stored or bool(_STORES.match(step.name)), "" if _PUBLISHES.match(step.name) else pending
