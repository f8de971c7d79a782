"""Why a compiler refused a kernel, where its exception does not say."""

import os

import pytest

triton = pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from warpwave.inside.codegen import recorder
from warpwave.inside.codegen.recorder import (
    describe_refusal,
    written_so_far,
)

SAID = {
    "/a b/pack age/ops.py:705:27: error: Result has an invalid layout\n  x = load()\n": ": Result has an invalid layout (ops.py:705)",
    'loc("/k/ops.py":7:1): error: operation destroyed\n': ": operation destroyed (ops.py:7)",
    ".triton-amdgpu-assembler:39:2: error: invalid instruction\n        nothing s2;\n        ^\n": ": invalid instruction (nothing s2;)",
    "error: no place\n": ": no place",
    "a warning\n": "",
}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Standard error goes to a file, which an earlier kernel has written to, and nobody reads what pytest captures."""
    path = tmp_path / "log.txt"
    path.write_text("ops.py:1:1: error: of another kernel\n")
    before = os.dup(2)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 2)
    yield path
    os.dup2(before, 2)
    os.close(handle)
    os.close(before)


@pytest.mark.parametrize(("said", "told"), SAID.items())
def test_the_reason_is_read_from_what_was_written_meanwhile(said, told, log):
    since = written_so_far()
    os.write(2, said.encode())
    assert describe_refusal(RuntimeError("PassManager::run failed"), since) == f"RuntimeError: PassManager::run failed{told}"


def test_an_exception_that_says_something_is_left_as_it_is(log):
    since = written_so_far()
    os.write(2, b"ops.py:2:1: error: something else\n")
    assert describe_refusal(ValueError("no such type"), since) == "ValueError: no such type"


def test_nothing_is_read_from_a_pipe(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(recorder, "_STDERR", writing)
    os.write(writing, b"error: in a pipe\n")
    assert written_so_far() == -1
    assert describe_refusal(RuntimeError("PassManager::run failed"), -1) == "RuntimeError: PassManager::run failed"
    os.close(reading)
    os.close(writing)


@gluon.jit
def copy_kernel(x_ptr, layout: gl.constexpr):
    places = x_ptr + gl.arange(0, 128, layout=layout)
    gl.store(places, gl.load(places))


def test_a_layout_of_another_warp(log):
    layout = gl.BlockedLayout([1], [32], [4], [0])
    source = GluonASTSource(copy_kernel, {"x_ptr": "*fp32", "layout": "constexpr"}, {(1,): layout})
    since = written_so_far()
    with pytest.raises(RuntimeError) as raised:
        triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4, "enable_fp_fusion": True})

    assert "invalid layout" in describe_refusal(raised.value, since)
