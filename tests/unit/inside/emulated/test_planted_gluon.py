"""Faults planted in Gluon kernels, which no interpreter runs: the emulator's checks find each, and blame no twin."""

import re
import struct
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")
ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "planted"), str(ROOT / "unit" / "emulator")]

import gluon_kernels
import triton
from machine_code import linked
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

from warpwave.emulator import (
    Check,
    Launch,
    execute,
    load,
)

FOUND = {
    "no_wait": Check.LDS_USED_EARLY,
    "one_wait_too_few": Check.LDS_USED_EARLY,
    "never_written": Check.LDS_UNWRITTEN,
    "two_lanes": Check.GLOBAL_RACE,
}


def compiled(function, fault):
    attributes = {(n,): [["tt.divisibility", 16], ["tt.pointer_range", 32]] for n in (0, 1)}
    source = GluonASTSource(function, {"x": "*fp32", "out": "*fp32", "FAULT": "constexpr"}, {(2,): fault}, attributes)
    return triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 4})


def found(binary, shared):
    """Execute one program; return what is found, and the result."""
    kernel, findings, x, out = load(binary), [], torch.arange(512, dtype=torch.float32), torch.zeros(512)
    packed = bytearray(kernel.kernarg_bytes)
    struct.pack_into("<QQ", packed, 0, x.data_ptr(), out.data_ptr())
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in (x, out)]
    execute(kernel, Launch((1, 1, 1), 256, bytes(packed), shared, buffers), findings=findings)
    return findings, out


@pytest.mark.parametrize("function", gluon_kernels.KERNELS, ids=lambda function: function.__name__)
def test_a_fault_is_found_and_its_twin_is_not_blamed(function):
    wrong, right = (compiled(function, fault) for fault in (True, False))
    findings, _ = found(wrong.asm["hsaco"], wrong.metadata.shared)

    assert {one.check for one in findings} == {FOUND[function.__name__]}
    assert all(one.place.line.startswith("gluon_kernels.py:") for one in findings)
    assert found(right.asm["hsaco"], right.metadata.shared)[0] == []


def test_each_barrier_that_is_missing_is_found():
    """Two waves that exchange rows through LDS: what Gluon puts there is needed, and without it there is a race."""
    made = compiled(gluon_kernels.exchanged, False)
    text = made.asm["amdgcn"]
    barriers = [*re.finditer(r"^\ts_barrier\b.*\n", text, re.MULTILINE)]
    findings, out = found(made.asm["hsaco"], made.metadata.shared)

    assert findings == []
    assert torch.equal(out[:256], torch.arange(256) * 2.0 + 256)
    assert len(barriers) >= 3
    for barrier in barriers:
        findings, _ = found(linked(text[: barrier.start()] + text[barrier.end() :], "gfx950"), made.metadata.shared)
        assert Check.LDS_RACE in {one.check for one in findings}


@pytest.mark.parametrize(("pattern", "few"), [(r"^\ts_barrier\b.*\n", 4), (r"^\ts_waitcnt\b.*\n", 9)], ids=["barrier", "wait"])
def test_each_barrier_and_wait_of_two_buffers_that_is_missing_is_found(pattern, few):
    """One buffer is filled while the other is read: each barrier and each wait that the compiler puts there is needed."""
    made = compiled(gluon_kernels.two_buffers, False)
    text = made.asm["amdgcn"]
    findings, out = found(made.asm["hsaco"], made.metadata.shared)
    rows = torch.arange(512.0).view(2, 256)

    assert findings == []
    assert torch.equal(out[:256], rows[0] * 3 + rows[1] + 3)
    places = [*re.finditer(pattern, text, re.MULTILINE)]
    assert len(places) >= few
    for place in places:
        findings, _ = found(linked(text[: place.start()] + text[place.end() :], "gfx950"), made.metadata.shared)
        assert {one.check for one in findings} & {Check.LDS_RACE, Check.USED_EARLY}


def test_allocations_that_overlap_are_found():
    made = compiled(gluon_kernels.two_allocations, False)
    text = made.asm["amdgcn"]
    assert found(made.asm["hsaco"], made.metadata.shared)[0] == []
    moved = re.sub(r"(ds_read\w+ .*offset:)1024\b", r"\g<1>512", re.sub(r"(ds_write2st64_b32 .*offset1:)4\b", r"\g<1>2", text))
    assert moved.count("offset1:2") == moved.count("offset:512") == 1
    findings, _ = found(linked(moved, "gfx950"), made.metadata.shared)

    assert Check.LDS_RACE in {one.check for one in findings}
