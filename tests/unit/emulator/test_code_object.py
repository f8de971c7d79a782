"""What is read of a code object: descriptor, metadata, text, lines; and that what cannot be read is refused with a sentence."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
from machine_code import assembled, compiled
from test_kernels import add

from warpwave.emulator import EmulatorError, InvalidCodeObject, Kernel, Launch, execute, load
from warpwave.emulator.code_object import describe, source
from warpwave.emulator.program import program

X = torch.zeros(1024)


@pytest.fixture(scope="module")
def made():
    return compiled(add, "gfx942", {"x": X, "y": X, "o": X, "n": 1000}, {"BLOCK": 256})


def test_metadata_names_arguments_and_sizes(made):
    kernel = load(made.asm["hsaco"])

    assert (kernel.name, kernel.architecture, kernel.wavefront, kernel.lds, kernel.scratch) == ("add", "gfx942", 64, 0, 0)
    assert [(a.offset, a.size) for a in kernel.arguments[:4]] == [(0, 8), (8, 8), (16, 8), (24, 4)]
    assert kernel.arguments[0].kind == "global_buffer"
    assert kernel.kernarg_bytes == 48


def test_the_descriptor_says_where_registers_are_set_up(made):
    """Against the directives of the assembly, which LLVM wrote the descriptor from."""
    text, setup = made.asm["amdgcn"], describe(load(made.asm["hsaco"]))

    def directive(name: str) -> int:
        return int(text.split(f".amdhsa_{name} ")[1].split()[0])

    assert setup.user == {"kernarg_segment_ptr": 0}
    assert setup.workgroup_ids == (directive("user_sgpr_count"), 0xFFFFFFFF, 0xFFFFFFFF)
    assert setup.mode == directive("float_denorm_mode_32") << 4 | directive("float_denorm_mode_16_64") << 6
    assert setup.rows == directive("accum_offset")
    assert setup.preload == (2, directive("user_sgpr_kernarg_preload_length"))


def test_lines_are_those_of_the_python_file(made):
    kernel = load(made.asm["hsaco"])
    stores = [one for one in program(kernel).instructions if "store" in one.name]

    assert source(kernel.elf, stores[0].pc) == (add.fn.__code__.co_filename, add.fn.__code__.co_firstlineno + 3)


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"not a code object" * 20, "cut", "host"])
def test_what_is_no_code_object_is_refused(made, damage):
    data = {"cut": made.asm["hsaco"][:900], "host": Path(sys.executable).read_bytes()[:100_000]}.get(damage, damage)
    with pytest.raises(InvalidCodeObject):
        load(data)


def test_a_launch_that_makes_no_sense_is_refused(made):
    kernel = load(made.asm["hsaco"])
    with pytest.raises(EmulatorError, match="bytes of arguments"):
        execute(kernel, Launch((1, 1, 1), 256, b"\0" * 8))
    with pytest.raises(EmulatorError, match="2048 threads"):
        execute(kernel, Launch((1, 1, 1), 2048, b"\0" * 48))


def test_an_empty_grid_runs_nothing(made):
    assert execute(load(made.asm["hsaco"]), Launch((0, 1, 1), 256, b"\0" * 48)).instructions == 0


def test_no_damaged_code_ends_in_a_crash_of_the_process():
    """Random words instead of code: every one is executed or refused, and nothing is touched outside."""
    drawn, original = random.Random(5), assembled("gfx942", "\n".join(["\ts_nop 0"] * 40))
    kernel = load(original)
    start = original.index(b"\x00\x00\x80\xbf" * 40)
    refused = 0
    for _ in range(100):
        words = b"".join(drawn.randrange(2**32).to_bytes(4, "little") for _ in range(40))
        broken = load(original[:start] + words + original[start + 160 :])
        try:
            execute(broken, Launch((1, 1, 1), 64, b"\0" * 16, 4096), limit_instructions=10_000)
        except EmulatorError:
            refused += 1
    assert kernel.name == "k"
    assert refused > 66


@pytest.mark.parametrize(
    ("field", "value"),
    [("wavefront", 1), ("wavefront", "x"), ("scratch", 1 << 40), ("scratch", -1), ("lds", 1 << 31), ("kernarg_bytes", 1.5)],
)
def test_a_field_that_no_compiler_writes_is_refused(made, monkeypatch, field, value):
    def damaged(**fields):
        return Kernel(**{**fields, field: value})

    monkeypatch.setattr("warpwave.emulator.code_object.Kernel", damaged)

    with pytest.raises(InvalidCodeObject):
        load(made.asm["hsaco"])
