"""A kernel that needs scratch memory cannot be launched before somebody has set an allocator."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
import triton

from harness.inside.codegen import jit_recorder


@dataclasses.dataclass
class Row:
    verdict: str = "passed"
    reason: str = ""
    num_warps: int = 0
    num_stages: int | None = None
    binary_hash: str = ""
    binary_bytes: int = 0
    shared_bytes: int = 0
    unnamed_precision: tuple = ()
    registers: int | None = None
    spills: int | None = None


@dataclasses.dataclass
class Reading:
    registers: int | None = None
    spills: int | None = None


@pytest.mark.parametrize(("scratch", "is_set", "verdict"), [(256, False, "failed"), (256, True, "passed"), (0, False, "passed")])
def test_scratch_memory_needs_an_allocator(monkeypatch, scratch, is_set, verdict):
    from triton.runtime import _allocation

    monkeypatch.setattr(jit_recorder, "read_once", lambda compiled: Reading())
    card = SimpleNamespace(name="sm_90", properties={"max_shared_mem": 1}, warp_size=32, program_threads=1024, multiprocessor=None)
    metadata = SimpleNamespace(num_warps=4, num_stages=1, shared=0, global_scratch_size=scratch)
    recorder = SimpleNamespace(card=card, _loaded={})
    before = _allocation._allocator.get()
    triton.set_allocator((lambda size, align, stream: None) if is_set else _allocation.NullAllocator())
    try:
        row = jit_recorder.Recorder._read(recorder, Row(), SimpleNamespace(metadata=metadata, kernel=b"code", asm={}))
    finally:
        triton.set_allocator(before)
    assert row.verdict == verdict
    assert ("256 bytes of scratch memory" in row.reason) == (verdict == "failed")
