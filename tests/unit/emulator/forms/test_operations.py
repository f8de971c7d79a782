"""The lists in `cards/` name every operation of the C core: what none of them names, no test here holds to a second statement."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from held import CARDS, WAVES, unused, used
from machine_code import assembled, compiled, lanes
from shapes import instructions, shape
from slow_cases import slow_but
from statements.scalars import SCALARS
from units.on_scalars import Scalar, given, kind_of_result, name_of, run

from kernels.add.add import add_kernel
from kernels.dropout.dropout import dropout_kernel
from kernels.gelu.gelu import gelu_kernel
from warpwave.emulator import Unimplemented, load
from warpwave.emulator.decode.decoder import context, decode
from warpwave.emulator.decode.instruction import Instruction
from warpwave.emulator.library import core

# Operations that no list names, and why.
EXCEPTIONS: dict[str, str] = {
    "unimplemented": "what the decoder knows no operation for; it ends a launch with an error, as test_unused_control.py has it",
    "flat_atomic_csub": "AMD's table for gfx1100 has it, and LLVM's assembler refuses it; those of global memory and buffers are listed",
}


def decoded(arch: str) -> list[tuple[str, Instruction]]:
    """Return each line of a card's lists, and what the decoder makes of it; a dual instruction is two."""
    family = "cdna" if WAVES[arch] == 64 else "rdna"
    paths = [CARDS / f"{arch}.txt", CARDS / "unused" / f"{family}.txt", CARDS / "unused" / f"{arch}.txt"]
    lines = [line for path in paths for line in path.read_text().splitlines()]
    code = re.sub(r"\.LBB\w+", "0", "\n".join(f"\t{line}" for line in lines))
    kernel = load(assembled(arch, code))
    found = decode(context(kernel.image, arch, WAVES[arch], core(WAVES[arch]).operations), *kernel.text)
    twice = [line for line in lines for _ in range(1 + (" :: " in line))]
    assert found[len(twice)].name == "s_endpgm"
    return list(zip(twice, found, strict=False))


@pytest.mark.parametrize("arch", WAVES)
def test_every_line_has_an_operation(arch):
    assert [line for line, one in decoded(arch) if one.operation is None] == []


def test_every_operation_is_on_a_list():
    listed, have = set(), set()
    for wave in set(WAVES.values()):
        names = {one.address: name for name, one in core(wave).operations.items()}
        have |= set(names.values())
        listed |= {names[one.operation] for arch in WAVES if WAVES[arch] == wave for _, one in decoded(arch) if one.operation}

    assert sorted(have - listed - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() & listed) == []


# The lists of used forms are those of today's kernels and compiler: what a few kernels compile to must be on them.

N = 4096


def kernels(dtype):
    """Yield three of the bundled kernels, with arguments and constants as their packages launch them."""
    x, out, seed = torch.zeros(N, dtype=dtype), torch.zeros(N, dtype=dtype), torch.zeros(1, dtype=torch.int64)
    yield add_kernel, {"x_ptr": x, "y_ptr": x, "out_ptr": out, "n_elements": N, "alpha": 1.5}, {"BLOCK_SIZE": 1024}
    yield gelu_kernel, {"x_ptr": x, "out_ptr": out, "n_elements": N}, {"TANH": False, "BLOCK_SIZE": 1024}
    random = {"x_ptr": x, "out_ptr": out, "seed_ptr": seed, "n_elements": N, "threshold": 12345, "scale": 2.0}
    yield dropout_kernel, random, {"QUARTER": 256}


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", torch.bfloat16), ("gfx1201", torch.float16)], ids=["gfx942", "gfx1201"])
def test_what_kernels_compile_to_is_on_the_list(arch, dtype):
    """If this fails, kernels or Triton have changed: make the lists anew as `inventory.py` says, and state the new forms."""
    found = {
        shape(line.replace("\t", " "))
        for function, arguments, constants in kernels(dtype)
        for line in instructions(compiled(function, arch, arguments, constants).asm["amdgcn"])
    }

    assert len(found) > 50
    assert found - used(arch).keys() == set()


# Floats of the scalar unit where MODE flushes denormals, of operands, results or both, for float and for half; and other directions.

# ruff: noqa: E501 - an instruction is a line


ARCH = "gfx1201"  # the only card that has them
KEEPS_SOURCES, KEEPS_RESULTS = 1, 2


def floats() -> dict[str, str]:
    """Return the card's scalar instructions that read or write floats, but those that take no part of MODE: they flush always."""
    both = used(ARCH) | unused(ARCH)
    return {one: text for one, text in both.items() if re.match(r"s_\w+_f(16|32)", one) and name_of(one.split()[0]) in SCALARS}


def flushed(words: list[int], width: int, count: int) -> list[int]:
    """Return `count` floats of `width` bits side by side, with zeros of the same sign where there were denormals."""
    exponent = 0x7C00 if width == 16 else 0x7F800000
    made = []
    for word in words:
        parts = [word >> width * n & (1 << width) - 1 for n in range(count)]
        parts = [part if part & exponent else part & 1 << width - 1 for part in parts]
        made.append(sum(part << width * n for n, part in enumerate(parts)))
    return made


def kind_of_operands(name: str) -> str:
    """Return the kind of numbers that an instruction reads: of a conversion, the last one that its name has."""
    return re.findall(r"_([iuf]\d+)", name)[-1]


def denormals(rows: list[list[int]]) -> list[list[int]]:
    """Make more denormals: a third of the words lose the exponents of their floats, a third those of their halves."""
    clear = (2**64 - 1, 0x807FFFFF_807FFFFF, 0x83FF83FF_83FF83FF)
    return [[word & clear[(n + at) % 3] for n, word in enumerate(row)] for at, row in enumerate(rows)]


@pytest.mark.parametrize("mode", slow_but(range(4), [0]))
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_denormals_of_scalars(kind, mode):
    """MODE of a kind changes what reads or writes that kind; where it flushes everything, the other kind's instructions run as well."""
    rows, width = denormals(given(ARCH)), int(kind[1:])
    sources = rows if mode & KEEPS_SOURCES else [flushed(row, width, 64 // width) for row in rows]
    set_ = mode | 0b1100 if kind == "f32" else mode << 2 | 0b11
    cases = []
    for one, example in floats().items():
        mnemonic = one.split()[0]
        if kind not in mnemonic and mode:
            continue
        name = name_of(mnemonic)
        case = Scalar(ARCH, one, example, sources if kind_of_operands(name) == kind else rows)
        made = kind_of_result(name) if case.values else ""
        if made.removeprefix("2") == kind and not mode & KEEPS_RESULTS:
            case.values = flushed(case.values, width, 2 if made[0] == "2" else 1)
        if case.values:
            case.codes = [row & 1 for row in rows[2]]  # they leave the condition code as it was
        at = next(n for n, line in enumerate(case.code) if line.startswith(mnemonic))
        case.code[at : at + 1] = [f"s_denorm_mode {set_}", case.code[at], "s_denorm_mode 15"]
        cases.append(case)

    assert len(cases) >= (30 if mode else 60)
    assert run(ARCH, cases, rows) == []


@pytest.mark.parametrize("text", ["s_add_f32 s12, s16, s17", "s_fmac_f16 s12, s16, s17", "s_fmaak_f32 s12, s16, s17, 0x41200000", "s_cvt_f16_f32 s12, s16"])  # fmt: skip
def test_a_direction_that_scalars_lack_is_refused(text):
    with pytest.raises(Unimplemented, match=text.split()[0]):
        lanes(ARCH, f"s_mov_b32 s16, 1.0\n s_mov_b32 s17, 0.5\n s_round_mode 5\n {text}", [np.zeros(32, np.uint32)], 1)


def test_what_rounds_to_zero_always_does_so_in_each_direction():
    code = "s_mov_b32 s16, 0x3f8fffff\n s_mov_b32 s17, 0xbf8fffff\n s_round_mode 5\n"
    code += " s_cvt_pk_rtz_f16_f32 s12, s16, s17\n v_mov_b32 v40, s12"

    assert (lanes(ARCH, code, [np.zeros(32, np.uint32)], 1)[0] == 0xBC7F3C7F).all()
