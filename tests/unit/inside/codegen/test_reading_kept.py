"""What a row keeps of a compiled launch: what its binary says, and what it asked of the compiler."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warpwave.inside.codegen import recorder
from warpwave.inside.codegen.binary import Reading


def test_a_reading_without_registers_is_read_again(tmp_path, monkeypatch):
    """A tool that is missing once may be there the next time; a whole reading is read once."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    readings = [Reading(), Reading(registers=34), Reading(registers=99)]
    monkeypatch.setattr(recorder, "read", lambda asm: readings.pop(0))
    compiled = SimpleNamespace(kernel=b"binary", asm={})

    assert [recorder.read_once(compiled).registers for _ in range(3)] == [None, 34, 34]


def test_a_row_names_what_a_launch_asks_of_the_compiler(monkeypatch):
    """Two launches that differ in it alone are two binaries. What the compiler does anyway is left out."""
    compiler = pytest.importorskip("triton.backends.compiler", reason="`nox -s tests` installs Triton")
    target = compiler.GPUTarget("hip", "gfx942", 64)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # as the stages do: Triton 3.9 warns otherwise
    make_backend = pytest.importorskip("triton.compiler.compiler").make_backend
    usual = vars(make_backend(target).parse_options({"num_warps": 8, "waves_per_eu": 2}))

    assert recorder._asked(target, usual) == {"waves_per_eu": 2}
    assert recorder._asked(None, {"num_warps": 8, "maxnreg": 64}) == {"maxnreg": 64}
