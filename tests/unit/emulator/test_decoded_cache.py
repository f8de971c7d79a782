"""What is kept of decoded code, on the disk and in memory, has a limit: what was used least recently goes first."""

from __future__ import annotations

import ctypes
import os

import pytest
from machine_code import assembled

from warpwave.emulator import library, load, program
from warpwave.emulator import program as decoded_cache
from warpwave.emulator.decode import decoder
from warpwave.emulator.decode.instruction import Instruction
from warpwave.emulator.errors import NoCompiler
from warpwave.emulator.program import Decoded


def test_the_least_recently_used_goes_first(tmp_path, monkeypatch):
    codes = [load(assembled("gfx942", f"\tv_mov_b32 v0, {n}")) for n in range(8)]
    decoded = Decoded(1, os.urandom(1000), b"", (1, 1))  # does not compress
    monkeypatch.setattr(decoded_cache, "_MOST_CACHED_BYTES", 6000)
    made = []

    def ask(n: int) -> None:
        decoded_cache.kept(codes[n], tmp_path / "core.so", lambda: made.append(n) or decoded)
        for age, file in enumerate(sorted((tmp_path / "decoded").iterdir(), key=lambda file: -file.stat().st_mtime_ns)):
            os.utime(file, (1e9 - age, 1e9 - age))  # older at each question, whatever the clock of the disk resolves

    for n in range(5):
        ask(n)
    ask(0)  # is there, and is the youngest now
    ask(5)  # too much: the oldest go

    assert made == [0, 1, 2, 3, 4, 5]
    assert sum(file.stat().st_size for file in (tmp_path / "decoded").iterdir()) <= 4500
    ask(0)
    ask(1)
    assert made == [0, 1, 2, 3, 4, 5, 1]


def test_only_the_programs_that_were_launched_last_stay_in_memory(monkeypatch):
    """One always does, however large."""
    codes = [load(assembled("gfx942", f"\tv_mov_b32 v0, {n}")) for n in range(3)]
    size = len(program.program(codes[0]).records) + len(program.program(codes[0]).index_of)
    monkeypatch.setattr(program, "_PROGRAMS", {})
    monkeypatch.setattr(program, "_MOST_BYTES", 2 * size)
    for n in (0, 1, 0, 2):
        program.program(codes[n])
    assert list(program._PROGRAMS) == [codes[0], codes[2]]

    monkeypatch.setattr(program, "_MOST_BYTES", 0)
    program.program(codes[1])
    assert list(program._PROGRAMS) == [codes[1]]


def test_instructions_that_were_not_needed_for_long_are_forgotten(monkeypatch):
    """A suite decodes hundreds of kernels in one process. Neither is more kept than twice the limit, nor lost what is needed again."""
    known = decoder._Known()
    monkeypatch.setattr(decoder, "_MOST_KNOWN", 4)

    def words(n: int) -> tuple[str, int, bytes]:
        return "gfx942", 64, n.to_bytes(4, "little")

    for n in range(40):
        known.keep(words(n), Instruction(f"v_{n}", 4))
        assert known.get(words(0)).name == "v_0"
        assert len(known.young) + len(known.old) <= 8

    kept = {*known.young, *known.old}
    assert {words(n) for n in (0, 37, 38, 39)} <= kept
    assert not kept & {words(n) for n in range(1, 32)}


def test_each_source_of_the_core_is_compiled_and_all_are_linked(tmp_path):
    """They are compiled at the same time. An error in one names its line."""
    (tmp_path / "one.c").write_text("int two(void);\nint four(void) { return 2 * two(); }\n")
    (tmp_path / "two.c").write_text("int two(void) { return LANES / 16; }\n")
    sources, made = [tmp_path / "one.c", tmp_path / "two.c"], tmp_path / "core.so"

    library._compile(["cc"], sources, 32, made)

    assert ctypes.CDLL(str(made)).four() == 4
    (tmp_path / "two.c").write_text("int two(void) { return }\n")
    with pytest.raises(NoCompiler, match=r"two\.c:1"):
        library._compile(["cc"], sources, 32, made)
