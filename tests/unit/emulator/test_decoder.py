"""The decoder against LLVM: every instruction of compiled kernels has the mnemonic and operands of the compiler's own assembly text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton.language as tl
from machine_code import WAVES, compiled
from slow_cases import slow_but
from test_kernels import ARCHITECTURES, add, atomics, collatz, converted, divided, matmul, ordered, row_softmax, scanned

from warpwave.emulator import load
from warpwave.emulator.decode import instruction as python_side
from warpwave.emulator.library import core
from warpwave.emulator.program import program

F = torch.zeros(512)
I = torch.zeros(512, dtype=torch.int32)  # noqa: E741
KERNELS = {
    "add": (add, {"x": F, "y": F, "o": F, "n": 500}, {"BLOCK": 256}),
    "softmax": (row_softmax, {"x": F, "o": F, "columns": 100}, {"BLOCK": 128}),
    "atomics": (atomics, {"x": F, "total": F, "largest": I, "count": I, "taken": I}, {"BLOCK": 128}),
    "scan": (scanned, {"x": F, "o": F}, {"BLOCK": 512}),
    "sort": (ordered, {"x": F, "index": I, "o": F, "g": F}, {"BLOCK": 256}),
    "loop": (collatz, {"x": I, "steps": I}, {"BLOCK": 128}),
    "division": (divided, {"x": F, "y": F, "quotient": F, "exact": F, "root": F, "rest": F, "power": F}, {"BLOCK": 512}),
    "conversions": (converted, {"x": F, "h": F.half(), "b": F.bfloat16(), "e": F.to(torch.float8_e5m2), "i32": I}, {"BLOCK": 512}),
}
for dtype in (torch.float16, torch.float32, torch.int8):
    a = torch.zeros(128, 128, dtype=dtype)
    out = tl.int32 if dtype == torch.int8 else tl.float32
    c = torch.zeros(128, 128, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    constants = {"BM": 64, "BN": 64, "BK": 32, "OUT": out, "PRECISION": "ieee"}
    KERNELS[f"matmul {dtype}"] = (matmul, {"a": a, "b": a, "c": c, "M": 128, "N": 128, "K": 128}, constants)

# Text that says nothing of the operands: caches, names of lane patterns (tested by their meaning), counters.
_DROPPED = re.compile(r"^(sc0|sc1|nt|glc|slc|scc|dlc|row_.*|bank_mask.*|bound_ctrl.*|wave_.*|dpp.*|th:.*|scope:.*|offset0:0)$")
_BY_NAME = ("s_waitcnt", "s_cbranch", "s_branch", "s_sendmsg", "s_delay_alu", "s_wait", "s_clause", "s_trap", "s_set", "s_barrier")


def parts(text: str) -> list[str]:
    """Mnemonic and operands, with numbers in one form."""
    text = re.sub(r"_(e32|e64|sdwa|dpp|dpp8|e64_dpp)\b", "", text.split(";")[0].strip())
    text = re.sub(
        r"x(4|8|16|2|1)(f32|f16|bf16)(_1k)?\b", lambda found: f"x{found[1]}_{found[2]}", text
    )  # gfx90a's names of matrix instructions
    text = re.sub(r"(_i32_\w+)x(8|16)i8\b", r"\1x\2_i8", text)
    text = re.sub(r"(quad_perm|dpp8):\[[\d, ]*\]", "", text)
    words = [word for word in re.split(r"[ ,]+", text.lower()) if word and not _DROPPED.match(word)]
    return [str(int(word, 0)) if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", word) else word for word in words]


# The newest encoding with every kernel. The emulator runs the kernels of the others, so it decodes them.
@pytest.mark.parametrize("arch", slow_but(ARCHITECTURES, ["gfx1201"]))
@pytest.mark.parametrize("name", KERNELS)
def test_each_instruction_reads_as_the_compiler_wrote_it(name, arch):
    function, arguments, constants = KERNELS[name]
    made = compiled(function, arch, arguments, constants)
    body = made.asm["amdgcn"].split(f"\n{function.__name__}:")[1].split(".Lfunc_end0")[0]
    expected = [line.strip() for line in body.splitlines() if re.match(r"\t[a-z]\w+", line)]
    decoded = program(load(made.asm["hsaco"])).instructions
    seconds = {id(one.second) for one in decoded if one.second}  # shown with the first
    decoded = [one for one in decoded if id(one) not in seconds]
    at, differences, missing = 0, [], []
    for line in expected:
        mnemonic = line.split()[0]
        while decoded[at].name == "s_nop" and mnemonic != "s_nop":  # alignment
            at += 1
        one = decoded[at]
        at += 1
        missing += [] if one.operation else [line]
        mine, theirs = parts(str(one)), parts(line)
        if mnemonic.startswith(_BY_NAME):
            mine, theirs = mine[:1], theirs[:1]
        differences += [(theirs, mine)] if mine != theirs else []

    assert len(expected) > 15
    assert (differences, missing) == ([], [])


def test_the_two_sides_number_types_and_flags_alike():
    """Python packs what C reads: the enumerations of core/machine.h are those of instruction.py."""
    header = (Path(python_side.__file__).parents[1] / "core" / "machine.h").read_text()

    def enumeration(name: str) -> list[str]:
        return re.findall(r"(\w+)(?: = [^,}]*)?[,}]", re.search(rf"enum {name} {{(.*?)}};", header, re.S)[1].split("};")[0] + "}")

    types = [name for name in enumeration("type") if name != "REGS"]
    assert [getattr(python_side, name) for name in types] == list(range(len(types)))
    for name in ("operand_flag", "instruction_flag"):
        for constant, value in re.findall(r"(\w+) = (\d+)", re.search(rf"enum {name} {{(.*?)}};", header, re.S)[1]):
            assert getattr(python_side, constant) == int(value)
    for wavefront in sorted(set(WAVES.values())):
        loaded = core(wavefront).library
        assert loaded.size_of(1) == len(python_side.Instruction("x", 4).record(0))


def test_types_of_operands_agree_with_the_makers_tables():
    """The C table says how wide each operand is; AMD's machine-readable description, made by others, says it too."""
    from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS

    from warpwave.emulator.decode.instruction import operation_name

    operations, compared, wrong = core(64).operations, 0, []
    for opcode, operands in OPERANDS.items():
        encoding = type(opcode).__name__
        name = operation_name(re.sub(r"_(e32|e64)$", "", opcode.name.lower()))
        if encoding not in ("VOP1Op", "VOP2Op", "VOP3Op", "SOP1Op", "SOP2Op", "SOPCOp") or name not in operations:
            continue
        entry = operations[name]
        places = {"src0": 0, "ssrc0": 0, "src1": 1, "vsrc1": 1, "ssrc1": 1, "src2": 2}
        for field, (_, bits, _) in operands.items():
            if field in places and entry.s[places[field]]:
                kind = entry.s[places[field]]
            elif field in ("vdst", "sdst") and entry.d:
                kind = entry.d
            else:
                continue
            compared += 1
            mine = 64 if kind == python_side.MASK else 32 * python_side.words_of(kind)
            if max(bits, 32) != mine:
                wrong.append((name, field, bits, mine))
    assert compared > 700
    assert [entry for entry in wrong if entry[0] not in KNOWN] == []


# Where the description gives a width of 64 to an operand of which 32 bits are read, or the other way round.
KNOWN: set[str] = set()
