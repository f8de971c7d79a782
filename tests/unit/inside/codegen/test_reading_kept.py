"""What a binary says is kept beside it, unless its tool was missing."""

from __future__ import annotations

from types import SimpleNamespace

from harness.inside.codegen import jit_recorder
from harness.inside.codegen.binary import Reading


def test_a_reading_without_registers_is_read_again(tmp_path, monkeypatch):
    """A tool that is missing once may be there the next time; a whole reading is read once."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    readings = [Reading(), Reading(registers=34), Reading(registers=99)]
    monkeypatch.setattr(jit_recorder, "read", lambda asm: readings.pop(0))
    compiled = SimpleNamespace(kernel=b"binary", asm={})

    assert [jit_recorder.read_once(compiled).registers for _ in range(3)] == [None, 34, 34]
