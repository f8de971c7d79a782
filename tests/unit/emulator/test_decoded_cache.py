"""What is kept of decoded code, on the disk and in memory, has a limit: what was used least recently goes first."""

from __future__ import annotations

import os

from machine_code import assembled

from harness.emulator import decoded_cache, load, program
from harness.emulator.decoded_cache import Decoded


def test_the_least_recently_used_goes_first(tmp_path, monkeypatch):
    codes = [load(assembled("gfx942", f"\tv_mov_b32 v0, {n}")) for n in range(8)]
    decoded = Decoded(1, os.urandom(1000), b"", (1, 1))  # does not compress
    monkeypatch.setattr(decoded_cache, "_MOST_BYTES", 6000)
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
