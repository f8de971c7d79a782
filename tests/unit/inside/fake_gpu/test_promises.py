"""A promise to the compiler that is false fails a test, and so does a product that the compiler of the pretended card refuses."""

from __future__ import annotations

import json

import pytest

from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = '''
import pytest, torch, triton, triton.language as tl

@triton.jit
def rows(x, out, stride, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.program_id(0) * stride, 16)
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + start + i, mask=start + i < 99, other=0))

@triton.jit
def contiguous(x, out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.max_contiguous(tl.arange(0, BLOCK) * STEP, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + i))

@triton.jit
def constant(x, out, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.max_constancy(i // GROUP, 16)))

@triton.jit
def mask(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=tl.max_constancy(i < n, 16), other=0.0))

@triton.jit
def counted(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < tl.multiple_of(n, 16), other=0.0))

@triton.jit
def tile(x, out, M, BM: tl.constexpr, END: tl.constexpr):
    """What lies beyond the end is no promise: it is no address of the result."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    r = i % M if END == 0 else tl.where(i < M, i, 0) if END == 1 else tl.minimum(i, M - 1)
    r = tl.max_contiguous(r, BM) if END == 2 else tl.max_contiguous(tl.multiple_of(r, BM), BM)
    tl.store(out + i, tl.load(x + r), mask=i < M)

@triton.jit
def grid(x, out, stride, M: tl.constexpr, N: tl.constexpr):
    i = tl.multiple_of(tl.arange(0, M)[:, None] * stride + tl.arange(0, N)[None, :], (1, 8))
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tl.load(x + i))

@triton.jit
def pointer(x, out, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(tl.multiple_of(x + offset, 16) + i))

@triton.jit
def assumed(x, out, n, BLOCK: tl.constexpr):
    tl.assume(n > 64)
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))

@triton.jit
def dot(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    if B > 1:
        batch = tl.arange(0, B)[:, None, None]
        out = tl.dot(left[None, :, :] + tl.zeros((B, M, K), left.dtype), right[None, :, :] + tl.zeros((B, K, N), right.dtype))
        tl.store(c + batch * M * N + (m[:, None] * N + n[None, :])[None, :, :], out)
    else:
        tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right))

def new(n=256):
    return torch.zeros(n, device="cuda")

@pytest.mark.parametrize("stride", [32, 33])
def test_rows(stride): rows[(2,)](new(), new(), stride, BLOCK=32)
def test_rows_that_are_empty(): rows[(2,)](new(), new(), 1001, BLOCK=32)
@pytest.mark.parametrize("step", [1, 2])
def test_contiguous(step): contiguous[(1,)](new(), new(), STEP=step, BLOCK=32)
@pytest.mark.parametrize("group", [16, 8])
def test_constant(group): constant[(1,)](new(), new(), GROUP=group, BLOCK=64)
@pytest.mark.parametrize("n", [32, 33])
def test_mask(n): mask[(1,)](new(), new(), n, BLOCK=64)
@pytest.mark.parametrize("n", [32, 33])
def test_counted(n): counted[(1,)](new(), new(), n, BLOCK=64)
@pytest.mark.parametrize("end", [0, 1, 2])
def test_tile(end): tile[(4,)](new(), new(), 50, BM=16, END=end)
@pytest.mark.parametrize("stride", [32, 36])
def test_grid(stride): grid[(1,)](new(700), new(512), stride, M=16, N=32)
@pytest.mark.parametrize("offset", [4, 3])
def test_pointer(offset): pointer[(1,)](new(), new(), offset, BLOCK=16)
@pytest.mark.parametrize("n", [65, 64])
def test_assumed(n): assumed[(1,)](new(), new(), n, BLOCK=16)
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("dtype", "k"), [("float16", 16), ("float16", 8), ("float32", 8), ("float32", 4), ("int8", 32), ("int8", 16)])
def test_dot(dtype, k, batches):
    a, b, c = (torch.zeros(n, device="cuda", dtype=getattr(torch, dtype)) for n in (16 * k, k * 16, 512))
    dot[(1,)](a, b, c.to(torch.int32 if dtype == "int8" else torch.float32), B=batches, M=16, N=16, K=k)
'''

FALSE = {
    "rows[33]": "multiple_of at test_a.py:6 is false: 33 is not a multiple of 16, program (1, 0, 0)",
    "contiguous[2]": "max_contiguous at test_a.py:12 is false: 0 is followed by 2",
    "constant[8]": "max_constancy at test_a.py:18 is false: 0 and 1 are in one group of 16",
    "mask[33]": "max_constancy at test_a.py:23 is false",
    "counted[33]": "multiple_of at test_a.py:28 is false: 33 is not a multiple of 16",
    "grid[36]": "multiple_of at test_a.py:40 is false: 36 is not a multiple of 8",
    "pointer[3]": "multiple_of at test_a.py:46 is false",
    "assumed[64]": "assume at test_a.py:50 is false",
}
TOO_SMALL = {f"dot[{dtype}-{k}-{batches}]": 2 * k for dtype, k in (("float16", 8), ("float32", 4), ("int8", 16)) for batches in (1, 2)}


def test_false_promises_and_products_that_are_too_small(run_inside, tmp_path):
    (tmp_path / "test_a.py").write_text(TESTS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())
    failed = {
        each["id"].partition("::test_")[2]: each["message"] for each in events if each["event"] == "finish" and each["outcome"] != "passed"
    }

    assert failed.keys() == FALSE.keys() | TOO_SMALL.keys()
    for test, words in FALSE.items():
        assert f"tl.{words}" in failed[test]
    for test, smallest in TOO_SMALL.items():
        assert f"K >= {smallest}" in failed[test]
