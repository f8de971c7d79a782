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
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from itertools import pairwise, zip_longest
from typing import Union

from harness.inside.codegen.assembly import Instruction, Label, steps

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
