"""What the interpreter replaces of Triton's language, with the names kept: the same as what it finds by looking through everything."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
import triton.language as tl
from triton.runtime import interpreter

from warpwave.collect.cases import read_cases
from warpwave.config.targets import load_architectures
from warpwave.inside.fake_gpu.language import Modules
from warpwave.inside.fake_gpu.torch_ops import with_out_dtype
from warpwave.records import Stage, Verdict

_OWNERS = (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.condition, tl.core.tensor_descriptor_base)


def members():
    return {(owner, name): value for owner in _OWNERS for name, value in vars(owner).items()}


def test_a_later_launch_replaces_the_same_and_restores_it():
    """The interpreter itself replaces it the first time, and our memory of that does so the second time."""
    replace = partial(Modules().forwarding, interpreter._patch_lang)
    replace(launch := lambda: None).restore()
    before, replaced = members(), []
    for again in (interpreter._patch_lang, replace):
        scope = again(launch)
        replaced.append({key for key, value in members().items() if value is not before.get(key)})
        scope.restore()

        assert members() == before
    assert replaced[0] == replaced[1] != set()


@pytest.mark.parametrize("name", ["load", "is_new"])
def test_what_is_new_or_was_replaced_meanwhile_is_noticed(monkeypatch, name):
    replace = partial(Modules().forwarding, interpreter._patch_lang)
    replace(launch := lambda: None).restore()
    monkeypatch.setattr(tl, name, tl.core.builtin(lambda _semantic: "theirs"), raising=False)
    scope = replace(launch)
    try:
        assert getattr(tl, name)() == "theirs"
    finally:
        scope.restore()


def test_a_launch_within_a_launch_leaves_the_outer_ones_language():
    replace, before = partial(Modules().forwarding, interpreter._patch_lang), members()
    outer = replace(launch := lambda: None)
    inside = members()
    replace(launch).restore()
    assert members() == inside
    outer.restore()
    assert {key: value for key, value in members().items() if key in before} == before


# bf16 and fp8 in Triton's interpreter, against torch.

KERNELS = """
import contextlib, json, torch, triton, triton.language as tl
from warpwave.inside.fake_gpu.answers import arithmetic, changes
from warpwave.inside.fake_gpu.torch_device import apply
apply(changes(arithmetic()), contextlib.ExitStack())

@triton.jit
def compute(x, y, out, whole, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    if OP == "mul": r = a * b
    elif OP == "add": r = a + b
    elif OP == "sub": r = a - b
    elif OP == "div": r = a / b
    elif OP == "neg": r = -a
    elif OP == "maximum": r = tl.maximum(a, b)
    elif OP == "where": r = tl.where(a >= b, a, b)
    elif OP == "sum": r = tl.broadcast_to(tl.sum(a, 0), (N,))
    elif OP == "rowsum": r = tl.reshape(tl.broadcast_to(tl.sum(tl.reshape(a, (8, N // 8)), 1, keep_dims=True), (8, N // 8)), (N,))
    elif OP == "max": r = tl.broadcast_to(tl.max(a, 0), (N,))
    elif OP == "argmax": r = tl.broadcast_to(tl.argmax(a, 0), (N,)).to(tl.float32)
    elif OP == "abs": r = tl.abs(a)
    elif OP == "fma": r = tl.fma(a, b, a)
    elif OP == "scalar": r = a * 2.5
    elif OP == "sort": r = tl.sort(a)
    elif OP == "cumsum": r = tl.cumsum(a, 0)
    elif OP == "clamp": r = tl.clamp(a, -0.5, 0.5)
    elif OP == "from_whole": r = tl.load(whole + i).to(tl.bfloat16)
    elif OP == "to_whole": r = (a * 100.0).to(tl.int32).to(tl.float32)
    elif OP == "from_fp64": r = a.to(tl.float64).to(tl.bfloat16)
    elif OP == "dot": r = tl.reshape(tl.dot(tl.reshape(a, (16, N // 16)), tl.reshape(b, (N // 16, 16))), (256,))
    tl.store(out + tl.arange(0, r.shape[0]), r)

@triton.jit
def round_to(x, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)).to(out.dtype.element_ty))

@triton.jit
def total(x, out, before, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(before + i, tl.atomic_add(out + i % 2, tl.load(x + i), mask=i < N - 1))

N = 256
torch.manual_seed(0)
worst = {}
x, y = (torch.randn(N, dtype=torch.bfloat16) for _ in range(2))
whole = torch.randint(-100000, 100000, (N,), dtype=torch.int32)
right = {
    "mul": x * y, "add": x + y, "sub": x - y, "div": x.float() / y.float(), "neg": -x,
    "maximum": torch.maximum(x, y), "where": torch.maximum(x, y),
    "sum": x.float().sum().expand(N), "max": x.max().expand(N), "argmax": x.argmax().expand(N), "abs": x.abs(), "sort": x.sort().values,
    "rowsum": x.float().reshape(8, -1).sum(1, keepdim=True).expand(8, N // 8).flatten(),
    "fma": (x.double() * y.double() + x.double()).bfloat16(), "scalar": (x.float() * 2.5).bfloat16(), "cumsum": x.float().cumsum(0),
    "clamp": x.clamp(-0.5, 0.5), "from_whole": whole.bfloat16(), "to_whole": (x.float() * 100).bfloat16().int(), "from_fp64": x,
    "dot": (x.double().reshape(16, -1) @ y.double().reshape(-1, 16)).flatten(),
}
for op, expected in right.items():
    out = torch.empty(N, dtype=torch.float32)
    compute[(1,)](x, y, out, whole, op, N)
    worst[op] = ((out.double() - expected.double()).abs() / (1 + expected.double().abs())).max().item()

edges = torch.tensor([0.0, -0.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1e-40, 3.4e38, float("inf"), float("nan")])
for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
    values = torch.cat([edges, torch.randn(N - 8) * 10])
    out = torch.empty(N, dtype=dtype)
    round_to[(1,)](values, out, N)
    most = torch.finfo(dtype).max
    expected = values.to(dtype) if dtype is torch.bfloat16 else values.clamp(-most, most).to(dtype)
    worst[f"round {dtype}"] = 0.0 if torch.equal(out.float().nan_to_num(7e9), expected.float().nan_to_num(7e9)) else 1.0

ones = torch.ones(N, dtype=torch.bfloat16)
sums, before = torch.zeros(2, dtype=torch.bfloat16), torch.empty(N, dtype=torch.bfloat16)
total[(1,)](ones, sums, before, N)
worst["atomic"] = float(sums.tolist() != [128.0, 127.0] or sorted(before[:-1].tolist()) != sorted([*range(128), *range(127)]))
print(json.dumps(worst))
"""


def test_arithmetic_agrees_with_torch(tmp_path):
    """Each result is rounded once; sums are in fp32."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = command.python(tmp_path / "kernels.py", env=environment)

    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout.splitlines()[-1])
    within = {"sum": 0.01, "rowsum": 0.01, "cumsum": 0.01, "dot": 1e-5}
    assert {op: error for op, error in worst.items() if error > within.get(op, 0)} == {}
    assert len(worst) == 25


# What Triton's interpreter runs nothing of: a test that launches it must not pass.

TESTS = """
import unittest

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def store_one(x, N: gl.constexpr):
    at = gl.arange(0, N, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(x + at, 1.0)


def test_a_launch_that_nothing_is_asked_of():
    store_one[(1,)](torch.zeros(128, device="cuda"), N=128)


def test_one_whose_result_is_wrong_without_it():
    x = torch.zeros(128, device="cuda")
    store_one[(1,)](x, N=128)
    assert x.sum() == 128


def test_no_launch():
    assert isinstance(store_one, triton.JITFunction) and store_one.is_gluon()


class Written(unittest.TestCase):
    def test_a_launch_of_unittest(self):
        store_one[(1,)](torch.zeros(128, device="cuda"), N=128)

    def test_its_own_failure(self):
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_one_that_is_expected(self):
        self.assertEqual(1, 2)
"""


def test_a_gluon_kernel_is_not_interpreted(run_inside, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_gluon.py").write_text(TESTS)
    output = run_inside(tmp_path / "package", Stage.TEST, benches=())
    cases = {case.id.rpartition("::")[2]: case for case in read_cases(output, "test/junit.xml")}

    assert {name: case.not_run and case.not_run.value for name, case in cases.items()} == {
        "test_a_launch_that_nothing_is_asked_of": "not-pretended",
        "test_one_whose_result_is_wrong_without_it": "not-pretended",
        "test_no_launch": None,
        "test_a_launch_of_unittest": "not-pretended",
        "test_its_own_failure": None,
        "test_one_that_is_expected": None,
    }
    assert cases["test_its_own_failure"].verdict is Verdict.FAILED
    assert cases["test_one_that_is_expected"].verdict is Verdict.XFAILED
    assert "store_one is a Gluon kernel" in cases["test_a_launch_that_nothing_is_asked_of"].message


# Products with `out_dtype`, which torch has for cards alone, on a pretended card with data.


def test_sums_are_not_rounded_to_the_operands_type():
    """Without the argument, a product is torch's own; other options stay."""
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 4, 64).bfloat16(), torch.randn(3, 64, 5).bfloat16(), torch.randn(4, 5)
    exact = a.double() @ b.double()
    for name, given, expected in [
        ("mm", (a[0], b[0]), exact[0]),
        ("bmm", (a, b), exact),
        ("addmm", (c, a[0], b[0]), exact[0] + c),
        ("baddbmm", (c.expand(3, 4, 5), a, b), exact + c),
    ]:
        product, out = partial(with_out_dtype, getattr(torch, name)), torch.empty(expected.shape)
        made = product(*given, out_dtype=torch.float32)
        torch.testing.assert_close(made, expected.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(product(*given, torch.float32), made)
        assert product(*given, out_dtype=torch.float32, out=out) is out
        torch.testing.assert_close(out, made)
    assert torch.equal(with_out_dtype(torch.bmm, a, b), torch.bmm(a, b))
    made = with_out_dtype(torch.addmm, c, a[0], b[0], out_dtype=torch.float32, beta=2.0, alpha=-1.0)
    torch.testing.assert_close(made, 2 * c - a[0].float() @ b[0].float(), rtol=1e-5, atol=1e-5)


# A promise to the compiler that is false fails a test, and so does a product that the compiler of the pretended card refuses.

TESTS_PROMISES = '''
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
    r = i % M if END % 3 == 0 else tl.where(i < M, i, 0) if END == 1 else tl.minimum(i, M - 1)
    r = tl.max_contiguous(r, BM) if END >= 2 else tl.max_contiguous(tl.multiple_of(r, BM), BM)
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
@pytest.mark.parametrize(("end", "m"), [(0, 50), (1, 50), (2, 50), (3, 5)])
def test_tile(end, m): tile[(4,)](new(), new(), m, BM=16, END=end)
@pytest.mark.parametrize("stride", [32, 36])
def test_grid(stride): grid[(1,)](new(700), new(512), stride, M=16, N=32)
@pytest.mark.parametrize("offset", [4, 3])
def test_pointer(offset): pointer[(1,)](new(), new(), offset, BLOCK=16)
@pytest.mark.parametrize("n", [65, 64])
def test_assumed(n): assumed[(1,)](new(), new(), n, BLOCK=16)
@pytest.mark.parametrize("option", [{"num_warps": 2, "num_stages": 1}, {"BLOK": 16}])
def test_option(option): pointer[(1,)](new(), new(), 4, BLOCK=16, **option)
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


def test_what_the_compiler_of_a_card_refuses(run_inside, tmp_path):
    (tmp_path / "test_a.py").write_text(TESTS_PROMISES)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())
    failed = {
        each["id"].partition("::test_")[2]: each["message"] for each in events if each["event"] == "finish" and each["outcome"] == "failed"
    }

    assert "BLOK was specified but unrecognised" in failed.pop("option[option1]")
    assert failed.keys() == FALSE.keys() | TOO_SMALL.keys()
    for test, words in FALSE.items():
        assert f"tl.{words}" in failed[test]
    for test, smallest in TOO_SMALL.items():
        assert f"K >= {smallest}" in failed[test]


TESTS_CALLS = """
import pytest, torch, triton, triton.language as tl
from triton.language import store
@triton.jit
def double(x):
    return x * 2
@triton.jit
def outer(x):
    return double(x) + 1
@triton.jit
def kernel(x):
    tl.store(x, outer(tl.load(x)))
@triton.jit
def by_name(x):
    store(x, 1.0)
@pytest.mark.parametrize("function", [double, outer, kernel, by_name, tl.cdiv], ids=lambda function: function.__name__)
def test_call(function):
    with pytest.raises(RuntimeError, match="Cannot call @triton.jit'd outside of the scope of a kernel") as caught:
        function(torch.ones(1, device="cuda"))
    assert type(caught.value) is RuntimeError
def test_not_expected():
    kernel(torch.ones(1, device="cuda"))
def test_launch():
    x = torch.ones(1, device="cuda")
    kernel[(1,)](x)
    assert x.item() == 3
"""


def test_the_host_cannot_call_a_kernel_without_a_grid_nor_a_part_of_one(run_inside, tmp_path):
    (tmp_path / "test_a.py").write_text(TESTS_CALLS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    cases = {case.id.partition("::")[2]: case for case in read_cases(output, "test/junit.xml")}

    assert [name for name, case in cases.items() if case.verdict is not Verdict.PASSED] == ["test_not_expected"]
    assert cases["test_not_expected"].verdict is Verdict.FAILED
    assert "outside of the scope of a kernel" in cases["test_not_expected"].message


TESTS_ARGUMENTS = """
import fractions, pytest, torch, triton, triton.language as tl
@triton.jit
def kernel(x, by, SIZES: tl.constexpr):
    tl.store(x, 1.0)
TAKEN, REFUSED = (1, 2.5, True, None, 2**63, (1, (2.0, None)), tl.constexpr(3)), ("a", fractions.Fraction(1, 2), 2**64)
@pytest.mark.parametrize("by", [*TAKEN, *REFUSED], ids=repr)
def test_argument(by):
    kernel[(1,)](torch.zeros(1, device="cuda"), by, 1)
@pytest.mark.parametrize("sizes", [(1, 2), "a", [1, 2], ([1],)], ids=repr)
def test_constant(sizes):
    kernel[(1,)](torch.zeros(1, device="cuda"), 1, sizes)
@pytest.mark.parametrize("grid", [(1,), [1], (0,), ()], ids=repr)
def test_grid(grid):
    kernel[grid](torch.zeros(1, device="cuda"), 1, 1)
"""


def test_arguments_that_triton_refuses_at_every_launch(run_inside, tmp_path):
    """Its interpreter would take them."""
    (tmp_path / "test_a.py").write_text(TESTS_ARGUMENTS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())
    failed = {
        each["id"].partition("::test_")[2]: each["message"] for each in events if each["event"] == "finish" and each["outcome"] == "failed"
    }

    assert failed == {
        "argument['a']": "TypeError: failed to specialize argument of type: str",
        "argument[Fraction(1, 2)]": "TypeError: failed to specialize argument of type: Fraction",
        "argument[18446744073709551616]": "OverflowError: integer to be specialized too large to represent",
        "constant[[1, 2]]": "TypeError: unhashable type: 'list'",
        "constant[([1],)]": "TypeError: unhashable type: 'list'",
        "grid[()]": "IndexError: tuple index out of range",
    }


TESTS_CONSTANTS = """
import pytest, torch, triton, triton.language as tl
C: tl.constexpr = tl.constexpr(0.5)
N = tl.constexpr(3)

@triton.jit
def half(x):
    return C * x

@triton.jit
def compute(X, Y, OP: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(X + i)
    if OP == "exp": y = tl.exp(C * x)
    elif OP == "half": y = tl.exp(half(x))
    elif OP == "chain": y = 1.0 + C * (x - C * C * x)
    elif OP == "less": y = tl.where(C < x, 1.0, 0.0)
    elif OP == "from": y = tl.exp(C - x)
    elif OP == "over": y = tl.exp(C / x)
    elif OP == "bits": y = tl.where((N & i) == N, 1.0, 0.0)
    elif OP == "shift": y = (N << i % 4).to(tl.float32)
    tl.store(Y + i, y)

I = torch.arange(16)
OPS = {
    "exp": lambda x: (x / 2).exp(), "half": lambda x: (x / 2).exp(), "chain": lambda x: 1 + 0.375 * x, "less": lambda x: (x > 0.5).float(),
    "from": lambda x: (0.5 - x).exp(), "over": lambda x: (0.5 / x).exp(), "bits": lambda x: ((I & 3) == 3).float(),
    "shift": lambda x: (3 << I % 4).float(),
}

@pytest.mark.parametrize("op", OPS)
def test_it(op):
    x = torch.rand(16, device="cuda") + 0.1
    y = torch.empty_like(x)
    compute[(1,)](x, y, OP=op)
    torch.testing.assert_close(y.cpu(), OPS[op](x.cpu()))
"""


def test_a_constant_of_a_module_may_stand_left_of_a_tensor(run_inside, tmp_path):
    (tmp_path / "test_a.py").write_text(TESTS_CONSTANTS)
    cases = read_cases(run_inside(tmp_path, Stage.TEST, benches=()), "test/junit.xml")

    assert {case.id.partition("::")[2]: case.message for case in cases if case.verdict is not Verdict.PASSED} == {}
    assert len(cases) == 8


# Products of fp32, which matrix units compute in TF32 unless they are asked not to.

TESTS_TF32 = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def dot(a, b, c, HOW: tl.constexpr, M: tl.constexpr = 16):
    i = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    left, right = tl.load(a + i), tl.load(b + i)
    if HOW == "": out = tl.dot(left, right)
    elif HOW == "denied": out = tl.dot(left, right, allow_tf32=False)
    elif HOW == "narrow": out = tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16))
    else: out = tl.dot(left, right, input_precision=HOW)
    tl.store(c + i, out)

def product(a, b, how):
    c = torch.empty_like(a)
    dot[(1,)](a, b, c, HOW=how)
    return c

@pytest.mark.parametrize("how", ["", "tf32", "denied", "ieee", "tf32x3", "bf16x3"])
def test_random(how):
    torch.manual_seed(0)
    a, b = torch.rand(16, 16, device="cuda"), torch.rand(16, 16, device="cuda")
    torch.testing.assert_close(product(a, b, how), a @ b, rtol=1e-4, atol=0)

@pytest.mark.parametrize("how", ["", "narrow"])
def test_short(how):
    a, b = torch.full((16, 16), 1.5, device="cuda"), torch.full((16, 16), 1.25, device="cuda")
    assert (product(a, b, how) == 16 * 1.5 * 1.25).all()

def test_bits():
    # As on an H200: the low 13 bits are left out, and nothing is rounded up.
    a = torch.zeros(16, 16, device="cuda")
    a.fill_diagonal_(1 + 2**-10 + 2**-11 + 2**-23)
    assert (product(a, torch.eye(16, device="cuda"), "").diagonal() == 1 + 2**-10).all()

def test_of_another_cause():
    product(torch.rand(16, 16, device="cuda"), torch.rand(16, 16, device="cuda"), "")
    raise RuntimeError("no product")
"""


# A card without such units, and one whose compiler multiplies in full unless it is asked.
@pytest.mark.parametrize(
    ("card", "cut"), [("sm_90", {"", "tf32"}), pytest.param("sm_75", set(), marks=pytest.mark.slow), ("gfx942", set())]
)
def test_products_of_fp32_are_cut_as_on_the_card(run_inside, tmp_path, card, cut):
    (tmp_path / "test_a.py").write_text(TESTS_TF32)
    cases = read_cases(run_inside(tmp_path, Stage.TEST, benches=(), interpret_as=load_architectures()[card]), "test/junit.xml")
    failed = {case.id.partition("::test_")[2]: case.message for case in cases if case.verdict is not Verdict.PASSED}

    assert "TF32" not in failed.pop("of_another_cause")
    if card == "gfx942":
        assert "input_precision must be one of" in failed.pop("random[tf32x3]")
    if not cut:
        failed.pop("bits")
    assert failed.keys() == {f"random[{how}]" for how in cut}
    for message in failed.values():
        assert 'cuts its operands to TF32, which has 10 of their 23 bits. input_precision="ieee"' in message.splitlines()[0]


# Programs that wait for later ones: what is reported while they take turns. tests/idioms/kernels/test_kernels_language.py has more of them.

TESTS_WAITING = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def handed_over(x, flag, out, SEM: tl.constexpr, INDEX: tl.constexpr):
    if tl.program_id(0) == 0:
        while tl.atomic_cas(flag, 1, 1, sem=SEM) != 1:
            pass
        tl.store(out, tl.load(x))
    else:
        tl.store(x + INDEX, 7.0)
        tl.atomic_xchg(flag, 1)

def launch(sem, index=0):
    x, out, flag = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    handed_over[(2,)](x, flag, out, SEM=sem, INDEX=index)
    return out.item()

def test_ordered(): assert launch("acq_rel") == 7
def test_relaxed(): launch("relaxed")
def test_out_of_bounds(): launch("acq_rel", 4)

@triton.jit
def both(x, flags, out):
    pid = tl.program_id(0)
    if pid == 0:
        while tl.atomic_cas(flags + 1, 1, 1, sem="acquire") != 1:
            pass
        tl.atomic_xchg(flags, 1, sem="relaxed")
        while tl.atomic_cas(flags + 2, 1, 1, sem="acquire") != 1:
            pass
        tl.store(out, tl.load(x + 1) + tl.load(x + 2))
    else:
        while (pid == 2) & (tl.atomic_cas(flags, 1, 1, sem="relaxed") != 1):
            pass
        tl.store(x + pid, 7.0)
        tl.atomic_xchg(flags + pid, 1)

def test_two_waits():
    x, out, flags = torch.zeros(3, device="cuda"), torch.zeros(1, device="cuda"), torch.zeros(3, dtype=torch.int32, device="cuda")
    both[(3,)](x, flags, out)
    assert out.item() == 14

@triton.jit
def broken(flag, out):
    if tl.program_id(0) == 0:
        while tl.atomic_cas(flag, 1, 1) != 1:
            pass
    else:
        tl.store(out, no_such_name)

def test_broken():
    with pytest.raises(Exception, match="no_such_name"):
        broken[(4,)](torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(4, dtype=torch.int32, device="cuda"))
    assert launch("acq_rel") == 7

@triton.jit
def added_up(x, out):
    tl.atomic_add(out, tl.load(x + tl.program_id(0)))

def sums(x):
    result = [torch.zeros(1, device="cuda", dtype=x.dtype) for _ in range(3)]
    for out in result:
        added_up[(x.numel(),)](x, out)
    return result

def floats(): return torch.randn(200, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).exp()

def test_bits_of_first_launches():
    first, second, _ = sums(floats())
    assert torch.equal(first, second)

def test_bits_of_later_launches():
    _, second, third = sums(floats())
    assert torch.equal(second, third)

def test_close():
    first, *rest = sums(floats())
    for other in rest:
        torch.testing.assert_close(first, other)

def test_integers():
    first, *rest = sums((100 * floats()).int())
    assert all(torch.equal(first, other) for other in rest)
"""


def test_findings_and_failures_while_programs_take_turns(run_inside, tmp_path):
    """An atomic that orders nothing leaves a race, later programs are checked, too, and a failure in one ends the launch."""
    (tmp_path / "test_a.py").write_text(TESTS_WAITING)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    outcomes = {}
    for line in (output / "test" / "journal.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "finish":
            outcomes[event["id"].partition("::test_")[2]] = (event["outcome"], event.get("message", ""))

    assert [outcomes[name][0] for name in ("ordered", "two_waits", "broken")] == ["passed"] * 3, outcomes
    assert [outcomes[name][0] for name in ("close", "integers")] == ["passed"] * 2, outcomes
    for name in ("bits_of_first_launches", "bits_of_later_launches"):  # programs that add floats by atomics run in another order each time
        assert outcomes[name][0] == "failed"
        assert "added_up (test_a.py:59)" in outcomes[name][1].splitlines()[0]
    assert "race in handed_over" in outcomes["relaxed"][1]
    assert "tl.load(x)" in outcomes["relaxed"][1]
    assert "out-of-bounds in handed_over" in outcomes["out_of_bounds"][1]
