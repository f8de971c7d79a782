"""The text of inline PTX: its registers and its instructions, in order.

Source: the PTX ISA 8.7, sections 4 (syntax) and 5 (state spaces and types).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.inside.process.exceptions import NotPretended

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.+)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z]\w*)((?:\.\w+(?:::\w+)*)*)(?:\s+(.*))?", re.DOTALL)
_SEVERAL = re.compile(r"(\S+)<(\d+)>")

Operand = str | tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """`@p cvt.rn.bf16x2.f32 d, a, b;` A vector operand, `{a, b}`, is a tuple. `guard` is the predicate; `unless`: it is negated."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str = ""
    unless: bool = False

    def __str__(self) -> str:
        return ".".join((self.name, *self.modifiers))


def parse(text: str) -> tuple[dict[str, str], list[Instruction]]:
    """Return the declared registers with their types, and the instructions.

    Raises:
        NotPretended: a label, a branch's target, a directive other than `.reg`, or what is no PTX.
    """
    registers: dict[str, str] = {}
    instructions: list[Instruction] = []
    for statement in _COMMENTS.sub(" ", text).replace("$$", "$").split(";"):
        words = statement.strip().lstrip("{}").strip()  # a scope; the braces of a vector follow an instruction's name
        if not words:
            continue
        if declared := _DECLARATION.fullmatch(words):
            registers |= dict.fromkeys(_names(declared[2]), declared[1])
        elif found := _INSTRUCTION.fullmatch(words):
            unless, guard, name, modifiers, operands = found.groups(default="")
            parts = tuple(modifiers.split(".")[1:])
            instructions.append(Instruction(name, parts, tuple(_operands(operands)), guard, bool(unless)))
        else:
            raise refused(words)
    return registers, instructions


def refused(what: object) -> NotPretended:
    """Return the error for a statement that this interpreter does not run."""
    return NotPretended(f"tl.inline_asm_elementwise: the interpreter does not run `{' '.join(str(what).split())[:80]}` of inline assembly")


def _names(declared: str) -> list[str]:
    names: list[str] = []
    for name in (part.strip() for part in declared.split(",")):
        several = _SEVERAL.fullmatch(name)
        names += [f"{several[1]}{n}" for n in range(int(several[2]))] if several else [name]
    return names


def _operands(text: str) -> list[Operand]:
    """Split at the commas that are not within braces."""
    found: list[Operand] = []
    for vector, single in re.findall(r"\{([^}]*)\}|([^,{}]+)", text):
        if vector:
            found.append(tuple(part.strip() for part in vector.split(",")))
        elif single.strip():
            found.append(single.strip())
    return found
