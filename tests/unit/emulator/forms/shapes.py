"""Shapes of instructions: mnemonic with encoding, kinds of operands, and modifiers, as LLVM's assembly text has them.

Registers are written by kind and width (`v`, `v2`, `s4`, `a16`), literals as `lit`, small whole
numbers as `int`, offsets without their number.
So `v_fma_f32 v5, -v1, s2, 1.0` has the shape `v_fma_f32 v, -v, s, 1.0`. A form is the mnemonic alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ARCHITECTURE = re.compile(r"\.amdgcn_target \"[^\"]*(gfx\w+)\"")
_REGISTER = re.compile(r"\b([vsa]|ttmp)(?:(\d+)|\[(\d+):(\d+)\])")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
_FLOAT = re.compile(r"-?\d+\.\d+$|-?0\.15915494\d*$")
_COUNTED = re.compile(r"\b(offset\d?|abid|index_key|byte_sel):(?:0x[0-9a-f]+|-?\d+)$")
# What has no operands worth telling apart: where a branch goes, what is waited for, hints.
_BY_NAME = re.compile(
    r"s_(waitcnt|wait_|cbranch|branch|delay_alu|nop|clause|sleep|sendmsg|setprio|barrier|endpgm|inst_prefetch|set_inst|code_end|trap|icache|dcache|ttrace|sethalt|version|round|denorm|sched)"
)


def instructions(assembly: str) -> Iterator[str]:
    """Yield the instructions of a kernel's assembly, without comments."""
    for line in assembly.split(".Lfunc_end0")[0].splitlines():
        text = line.split(";")[0].split("//")[0].strip()
        if re.match(r"[a-z]\w*_\w+(\s|$)", text):
            yield text


def shape(text: str) -> str:
    """Return the shape of one instruction."""
    if " :: " in text:
        return " :: ".join(shape(half) for half in text.split(" :: "))
    mnemonic, _, rest = text.partition(" ")
    if _BY_NAME.match(mnemonic) or not rest.strip():
        return mnemonic
    operands, modifiers = split(rest.strip())
    return " ".join([mnemonic, ", ".join(map(kind, operands)), *(_COUNTED.sub(r"\1", one) for one in modifiers)]).strip()


def split(rest: str) -> tuple[list[str], list[str]]:
    """Return operands and modifiers: commas part the one, spaces the other, neither in brackets."""
    operands, depth, at = [], 0, 0
    for n, letter in enumerate(rest):
        depth += letter in "[(" or -(letter in "])")
        if letter == "," and depth == 0:
            operands.append(rest[at:n].strip())
            at = n + 1
    last, *modifiers = re.findall(r"(?:\[[^\]]*\]|\([^)]*\)|\S)+", rest[at:].strip()) or [""]
    return [*operands, last], modifiers


def kind(operand: str) -> str:
    """Return the kind of an operand."""
    if _REGISTER.search(operand):
        return _REGISTER.sub(lambda found: found[1] + ("" if found[2] else str(int(found[4]) - int(found[3]) + 1)), operand)
    if _FLOAT.match(operand):
        return operand
    if _NUMBER.match(operand):
        return "int" if -16 <= int(operand, 0) <= 64 else "lit"
    return operand
