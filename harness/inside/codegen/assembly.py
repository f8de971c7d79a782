"""Read vendor assembly as a compiler writes it: labels and instructions in order, with the line of the kernel that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, Union

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
