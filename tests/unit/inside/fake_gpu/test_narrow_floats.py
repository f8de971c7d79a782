"""bf16 and fp8 in Triton's interpreter, against torch."""

from __future__ import annotations

import json
import os

import command
import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

KERNELS = """
import contextlib, json, torch, triton, triton.language as tl
from warpwave.inside.fake_gpu.arithmetic import narrow_floats
from warpwave.inside.fake_gpu.torch_device import apply
apply(narrow_floats(), contextlib.ExitStack())

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
