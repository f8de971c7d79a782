"""The lists in `cards/` name every operation of the C core: what none of them names, no test here holds to a second statement."""

from __future__ import annotations

import re

import pytest
from held import CARDS, WAVES
from machine_code import assembled

from warpwave.emulator import load
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
