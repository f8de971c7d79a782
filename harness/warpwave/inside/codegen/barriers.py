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
from itertools import pairwise, zip_longest
from typing import TypeVar, Union

# Read vendor assembly as a compiler writes it: labels and instructions in order, with the line of the kernel that each belongs to.

_LABEL = re.compile(r"^([.\w$]+):")
_INSTRUCTION = re.compile(r"^\s+([a-z]\w+)(?:\s+([^;]*))?")
_FILE = re.compile(r'^\s+\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"^\s+\.loc\s+(\d+)\s+(\d+)")
_State = TypeVar("_State")
_ENDS = ("s_branch", "s_endpgm", "s_setpc_b64")


@dataclass(frozen=True)
class Label:
    """The beginning of a block."""

    name: str


@dataclass(frozen=True)
class Instruction:
    """One instruction: `line` is that of the assembly, `place` the kernel's (`file.py:12`, or empty)."""

    name: str
    operands: str
    line: int
    place: str

    @property
    def ends_block(self) -> bool:
        """Whether control never goes on to the next instruction."""
        return self.name in _ENDS


def steps(assembly: str) -> Iterator[Union[Label, Instruction]]:
    """Yield labels and instructions, in order."""
    files: dict[str, str] = {}
    place = ""
    for number, line in enumerate(assembly.splitlines(), 1):
        if label := _LABEL.match(line):
            yield Label(label[1])
        elif found := _FILE.match(line):
            files[found[1]] = found[2].rpartition("/")[2]
        elif found := _LOC.match(line):
            place = f"{files.get(found[1], '?')}:{found[2]}" if found[2] != "0" else place
        elif found := _INSTRUCTION.match(line):
            yield Instruction(found[1], found[2] or "", number, place)


def on_paths(assembly: str, first: _State, after: Callable[[Instruction, _State], _State]) -> Iterator[tuple[Instruction, _State]]:
    """Follow the control flow; yield each instruction with each state that a path reaches it in. `after` gives the state behind it."""
    code = list(steps(assembly))
    labels = {step.name: position for position, step in enumerate(code) if isinstance(step, Label)}
    waiting, seen = [(0, first)], set[tuple[int, _State]]()
    while waiting:
        position, state = waiting.pop()
        while position < len(code) and (position, state) not in seen:
            seen.add((position, state))
            step = code[position]
            position += 1
            if isinstance(step, Label):
                continue
            yield step, state
            if step.name.startswith(("s_branch", "s_cbranch")) and step.operands.strip() in labels:
                waiting.append((labels[step.operands.strip()], state))
            if step.ends_block:
                break
            state = after(step, state)


_MOST = 128  # accesses that are remembered as in flight
_COUNT = re.compile(r"lgkmcnt\((\d+)\)")
_NOT_MEMORY = re.compile(r"ds_(?:bpermute|permute|swizzle|nop|gws)")
_READ = re.compile(r"ds_(?:read|load)")
_TO_LDS = re.compile(r"\w+_load_(?:async_to_)?lds_|(?:buffer|global)_load_\w+(?=.*\blds\b)")
_BARRIERS = ("s_barrier", "s_barrier_signal", "s_barrier_signal_isfirst")


class Kind(Flag):
    """What an access does to LDS; nothing, if it only passes through the queue."""

    NOTHING = 0
    READ = auto()
    WRITE = auto()


@dataclass(frozen=True)
class Access:
    """One LDS instruction: `line` is that of the assembly, `place` the kernel's (`file.py:12`, or empty). Not all are `queued`."""

    kind: Kind
    line: int
    place: str
    queued: bool = True


@dataclass(frozen=True)
class Wait:
    """A wait until at most `count` accesses are in flight."""

    count: int


@dataclass(frozen=True)
class Barrier:
    """A barrier, or the half of one with which a wave lets others pass."""

    line: int
    place: str


@dataclass(frozen=True)
class Branch:
    """A branch. `by_lane`: waves may part there, because what a wave's lanes hold decides."""

    target: str
    conditional: bool
    by_lane: bool


Step = Union[Access, Wait, Barrier, Branch]
# For each position from the end of the queue, the accesses that may be there: paths that meet are joined position by position.
State = tuple[frozenset[Access], ...]


def lds_in_flight(assembly: str) -> tuple[str, ...]:
    """Return a sentence for each barrier at which LDS accesses are in flight that another wave can overtake."""
    if "s_barrier" not in assembly or "\tds_" not in assembly:
        return ()
    code = Code(assembly)
    found: dict[Barrier, set[Access]] = {}
    for name, state in code.states().items():
        for barrier, there in code.barriers(name, state):
            overtaken = {access for accesses in there for access in accesses if code.can_be_overtaken(access, barrier)}
            if overtaken:
                found.setdefault(barrier, set()).update(overtaken)
    ordered = sorted(found.items(), key=lambda entry: entry[0].line)
    return tuple(dict.fromkeys(_sentence(barrier, accesses) for barrier, accesses in ordered))


def _sentence(barrier: Barrier, accesses: set[Access]) -> str:
    counts = []
    for kind, noun in ((Kind.READ, "read"), (Kind.WRITE, "write")):
        if number := sum(access.kind == kind for access in accesses):
            counts.append(f"{number} LDS {noun}{'' if number == 1 else 's'}")
    places = sorted({access.place for access in accesses if access.place})
    where = f" of {', '.join(places)}" if places else ""
    return f"{' and '.join(counts)}{where} in flight at the barrier of {barrier.place or f'line {barrier.line} of the assembly'}"


class Code:
    """The steps of a kernel's assembly that matter, by the label that they follow, in order."""

    def __init__(self, assembly: str) -> None:
        self.blocks: dict[str, list[Step]] = {"": []}
        self._falls_through: dict[str, bool] = {}
        self._read(assembly)
        names = list(self.blocks)
        self._next = dict(pairwise(names))
        self._waves_part = self._do_waves_part()

    def states(self) -> dict[str, State]:
        """Return what may be in flight at the entry of each block that is reached."""
        entries: dict[str, State] = {"": ()}
        waiting = [""]
        while waiting:
            name = waiting.pop()
            for target, state in self._leaving(name, entries[name]):
                joined = _joined(entries[target], state) if target in entries else state
                if target in self.blocks and joined != entries.get(target):
                    entries[target] = joined
                    waiting.append(target)
        return entries

    def barriers(self, name: str, state: State) -> Iterator[tuple[Barrier, State]]:
        """Yield each barrier of a block that is entered with `state`, with what may be in flight there."""
        for step in self.blocks[name]:
            if isinstance(step, Barrier):
                yield step, state
            state = _after(step, state)

    def can_be_overtaken(self, access: Access, barrier: Barrier) -> bool:
        """Return whether another wave may touch what an access in flight touches, before it meets the next barrier.

        Where waves part, some are a barrier ahead of others, and may be anywhere.
        """
        rivals = Kind.READ | Kind.WRITE if access.kind is Kind.WRITE else Kind.WRITE if access.kind is Kind.READ else Kind.NOTHING
        return bool(rivals) and (self._waves_part or bool(self._behind(barrier) & rivals))

    def _read(self, assembly: str) -> None:
        name, runs = "", True
        for read in steps(assembly):
            if isinstance(read, Label):
                self._falls_through[name], name, runs = runs, read.name, True
                self.blocks.setdefault(name, [])
            elif runs:
                if step := _step(read):
                    self.blocks[name].append(step)
                runs = not read.ends_block
        self._falls_through[name] = False

    def _leaving(self, name: str, state: State) -> Iterator[tuple[str, State]]:
        """Yield where control goes from a block, with the state that it has there: at a branch, not at the end of the block."""
        for step in self.blocks[name]:
            if isinstance(step, Branch):
                yield step.target, state
            state = _after(step, state)
        if self._falls_through[name] and name in self._next:
            yield self._next[name], state

    def _behind(self, barrier: Barrier) -> Kind:
        """Return what is done to LDS behind a barrier, on all paths to the next one."""
        found, seen = Kind.NOTHING, set[str]()
        starts = [(name, steps.index(barrier) + 1) for name, steps in self.blocks.items() if barrier in steps]
        while starts:
            name, position = starts.pop()
            for step in self.blocks.get(name, ())[position:]:
                if isinstance(step, Access):
                    found |= step.kind
                elif isinstance(step, Branch) and step.target not in seen:
                    seen.add(step.target)
                    starts.append((step.target, 0))
                if isinstance(step, Barrier):
                    break
            else:
                if self._falls_through.get(name) and (following := self._next.get(name)) is not None and following not in seen:
                    seen.add(following)
                    starts.append((following, 0))
        return found

    def _do_waves_part(self) -> bool:
        """Return whether some waves jump over a barrier that others meet, as schedules do that let two halves take turns."""
        for name, block in self.blocks.items():
            for position, step in enumerate(block):
                if isinstance(step, Branch) and step.by_lane and any(isinstance(left, Barrier) for left in self._skipped(name, position)):
                    return True
        return False

    def _skipped(self, name: str, position: int) -> Iterator[Step]:
        """Yield the steps between a branch and its target, if that is further down."""
        branch = self.blocks[name][position]
        names = list(self.blocks)
        assert isinstance(branch, Branch)
        if branch.target not in self.blocks or names.index(branch.target) <= names.index(name):
            return
        yield from self.blocks[name][position + 1 :]
        for between in names[names.index(name) + 1 : names.index(branch.target)]:
            yield from self.blocks[between]


def _step(read: Instruction) -> Step | None:
    name, operands, line, place = read.name, read.operands, read.line, read.place
    if name.startswith("ds_"):
        kind = Kind.NOTHING if _NOT_MEMORY.match(name) else Kind.READ if _READ.match(name) else Kind.WRITE
        return Access(kind, line, place)
    if name in _BARRIERS:
        return Barrier(line, place)
    if name.startswith(("s_cbranch", "s_branch")):
        return Branch(operands.strip(), name != "s_branch", "exec" in name)
    if _TO_LDS.match(f"{name} {operands}"):
        return Access(Kind.WRITE, line, place, queued=False)
    count = _waited(name, operands)
    return None if count is None else Wait(count)


def _waited(name: str, operands: str) -> int | None:
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


def _after(step: Step, state: State) -> State:
    if isinstance(step, Access) and step.queued:
        return (frozenset((step,)), *state[: _MOST - 1])
    return state[: step.count] if isinstance(step, Wait) else state


def _joined(one: State, other: State) -> State:
    nothing: frozenset[Access] = frozenset()
    return tuple(mine | theirs for mine, theirs in zip_longest(one, other, fillvalue=nothing))


# Find loads of RDNA code that may read old data, because another wave of the program has acquired memory in their place.
#
# An atomic of one number is executed by one wave. It acquires for all: the wave empties its own first cache (`buffer_gl1_inv` and
# `buffer_gl0_inv`, `global_inv scope:SCOPE_DEV`), hands the result on in LDS, and the others go on behind a barrier. On RDNA, waves of
# one
# program are on two compute units with a first cache each (L0), so each of the others has to empty its own behind the barrier. Triton
# 3.8.0
# leaves that out (triton-lang/triton#11289). On CDNA all waves of a program share the cache.
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
    for step, stage in on_paths(assembly, Stage.NOTHING, _acquired_after):
        if stage is Stage.BEHIND_BARRIER and _reads_cache(step):
            where = step.place or f"line {step.line} of the assembly"
            found[step.line] = f"{step.name} of {where} behind a barrier, without {_emptying(assembly)}: another wave acquired"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _reads_cache(step: Instruction) -> bool:
    return bool(_LOAD.match(step.name)) and not _BYPASS.search(step.operands)


def _emptying(assembly: str) -> str:
    return "buffer_gl0_inv" if "buffer_gl1_inv" in assembly else "global_inv"


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
# the
# atomic that tells others. Without the wait, a program on another part of the card sees the atomic first, and reads old data.
# llvm/llvm-project#178316 is such a fault: the compiler removed the wait if no store of the same wave was in flight.
#
# A program that has stored nothing has nothing to write back: its loads and atomics need no wait. So the scan follows the control flow,
# and
# asks for a store on a path to the write-back. All waves run the same code, so a store of another wave is on such a path, too. What a
# program
# acquired was written back by the one that stored it.

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
            found[step.line] = f"{step.name} of {step.place or f'line {step.line} of the assembly'} before the wait for {pending}"
    return tuple(dict.fromkeys(found[line] for line in sorted(found)))


def _written_back_after(step: Instruction, state: tuple[bool, str]) -> tuple[bool, str]:
    """Return whether the program has stored what is not written back, and the write-back of it that it has not waited for."""
    stored, pending = state
    if step.name in _WRITE_BACKS:
        return stored, step.name if stored else ""
    if pending and _WRITE_BACKS[pending].match(f"{step.name} {step.operands.strip()}"):
        return False, ""
    return stored or bool(_STORES.match(step.name)), "" if _PUBLISHES.match(step.name) else pending
