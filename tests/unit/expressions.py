"""Kernels of one expression each, over types and edge values: what two ways to execute Triton must agree on, bit for bit or nearly so."""

from pathlib import Path

WHOLE = ("int8", "uint8", "int16", "int32", "uint32", "int64")
FLOATS = ("float16", "bfloat16", "float32")
# For `a` and `b` of a type each: (types of a, types of b or the same, expressions).
EXPRESSIONS = (
    (WHOLE, (), "a + b; a - b; a * b; a // b; a % b; a & b; a | b; a ^ b; a < b; a == b; a / b; tl.minimum(a, b); tl.maximum(a, b)"),
    (("int8", "uint8", "int32", "int64", "uint32"), WHOLE, "a + b"),
    (("int8", "uint8", "int32", "int64", "uint32"), ("uint8", "int32", "uint32"), "a < b"),
    (("int32", "int8"), ("int64", "int16"), "a % b"),
    (
        WHOLE,
        (),
        "-a; ~a; a >> 1; a << 1; a * 2; a + 100; a * 1.5; a / 2; tl.abs(a); a != 0; a // 3; a % 3; 3 - a; 100 // (a | 1); a + True",
    ),
    (
        WHOLE,
        (),
        "a.to(tl.float32); a.to(tl.float16); a.to(tl.int64); a.to(tl.uint8); a.to(tl.int8); a.to(tl.int1); (a > 1).to(tl.int32) + 1",
    ),
    (WHOLE, (), "tl.where(a > 3, a, 0); not (a > 2); (a > 2) and (b > 2); (a > 2) or (b > 2); (a > 2) & (b > 2); min(a, b); max(a, 0)"),
    (WHOLE, (), "tl.max(a); tl.min(a); tl.sum(a); tl.xor_sum(a); tl.argmax(a, 0); tl.argmin(a, 0); tl.cumsum(a, 0); tl.cumprod(a, 0)"),
    (WHOLE, (), "tl.flip(a); tl.sort(a); tl.sort(a, descending=True); tl.cdiv(a, 7)"),
    (("int32", "uint32", "int64"), (), "tl.umulhi(a, b)"),
    (
        FLOATS,
        (),
        "a + b; a - b; a * b; a / b; a % b; a < b; a == b; a != b; tl.fma(a, b, a); (a > 0) and (b > 0); not (a > 0); a > 0; a == a",
    ),
    (FLOATS, (), "tl.minimum(a, b); tl.maximum(a, b); min(a, b); max(a, b); tl.clamp(a, -1.0, 1.0); tl.where(a > 0, a, 0.0)"),
    (FLOATS, (), "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL); tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)"),
    (FLOATS, (*FLOATS, "int32", "int8", "int64"), "a + b"),
    (FLOATS, ("int32", "uint8"), "a * b"),
    (FLOATS, (), "-a; tl.abs(a); a * 2; a * 0.1; a + 1; a / 3; 1 / a; tl.where(a > 0, a, -1)"),
    (FLOATS, (), "a.to(tl.int32); a.to(tl.float16); a.to(tl.bfloat16); a.to(tl.float64); a.to(tl.int1); a.to(tl.uint32)"),
    (FLOATS, (), "a.to(tl.float8e5).to(tl.float32)"),
    (
        FLOATS,
        (),
        "tl.max(a); tl.min(a); tl.argmax(a, 0); tl.argmin(a, 0); tl.sum(a); tl.cumsum(a, 0); tl.sort(a); tl.topk(a, 4); tl.flip(a)",
    ),
    (FLOATS, (), "tl.sort(a, descending=True); tl.max(a, 0, return_indices=True)[0]; tl.max(a, 0, return_indices=True)[1]"),
    (("float32",), (), "tl.exp(a); tl.exp2(a); tl.log(tl.abs(a) + 1); tl.log2(tl.abs(a) + 1); tl.sqrt(tl.abs(a)); tl.rsqrt(tl.abs(a))"),
    (
        ("float32",),
        (),
        "tl.sin(a); tl.cos(a); tl.erf(a); tl.floor(a); tl.ceil(a); tl.sigmoid(a); tl.softmax(a); tl.div_rn(a, b); tl.sqrt_rn(tl.abs(a))",
    ),
    (("float32",), (), "a.to(tl.float16, fp_downcast_rounding='rtz'); a.to(tl.int32, bitcast=True); a.to(tl.uint32, bitcast=True) >> 3"),
    (("float32",), (), "tl.rand(7, at); tl.randn(7, at); tl.randint(7, at); tl.randint4x(7, at)[2]; tl.rand(7, at, n_rounds=5)"),
    (("float32", "int32"), (), "tl.join(a, b); tl.interleave(a, b); tl.trans(tl.reshape(a, (8, 8))); tl.split(tl.reshape(a, (32, 2)))[1]"),
    (("float32", "int32"), (), "tl.permute(tl.reshape(a, (4, 16)), (1, 0)); tl.gather(a, (at * 7) % 64, 0); tl.expand_dims(a, 0)"),
    (("int32",), (), "tl.histogram(tl.abs(a) % 8, 8); tl.swizzle2d(at // 8, at % 8, 8, 8, 4)[1]; tl.full((64,), 7, tl.uint8)"),
    (
        ("int32",),
        (),
        "at // -3; (at - 32) // 5; (at - 32) % 5; (at - 32) >> 2; (at - 32).to(tl.uint32) >> 28; (at - 32).to(tl.uint32) // 3",
    ),
    (
        ("int32",),
        (),
        "(at * 300).to(tl.int16); at * 1.0; at / 7; n // 3; n % 3 - at; -n // 3 + at; (-n) % 7 + at; n / 3 + at; n * 0.1 + at; n << 2",
    ),
    (
        ("float32",),
        (),
        "s * at; s + a; (s * 3).to(tl.int32) + at; (n > 5 and s > 0.1) or at > 3; at if n > 5 else at + 1; tl.minimum(n, 7) + at",
    ),
    (("int32",), (), "(at > 3) + (at > 5); (at > 3) | (at < 2); (at > 3) ^ (at < 6); True + at; ~at; max(n, at); min(n, 3) + at; n == 77"),
)
_HEAD = '''import json
from pathlib import Path

import torch
import triton
import triton.language as tl

KERNELS = []


@triton.jit
def put(value, out):
    """Store a value's numbers, and behind them what type it has."""
    if len(value.shape) == 0:
        value = tl.zeros((1,), tl.int32) + value.to(tl.int32) if value.dtype == tl.int1 else tl.full((1,), 0, value.dtype) + value
    flat = tl.reshape(value, (value.numel,))
    if flat.dtype == tl.int1:
        kind = 1
    elif flat.dtype.is_floating():
        kind = 1000 + flat.dtype.primitive_bitwidth
    else:
        kind = (2000 if flat.dtype.is_int_signed() else 3000) + flat.dtype.primitive_bitwidth
    tl.store(out + tl.arange(0, flat.numel), flat.to(tl.float64))
    tl.store(out + 255, kind)
'''
_KERNEL = """
@triton.jit
def kernel_{number}(x, y, out, kind, n, s, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    put({expression}, out)
KERNELS.append((kernel_{number}, {expression!r}, {left!r}, {right!r}))
"""
_TAIL = '''

def drawn(name, which):
    """64 numbers: edges first, then random ones; `b` divides, so it is neither 0 nor -1 where it is whole."""
    generator, dtype = torch.Generator().manual_seed(5 + which), getattr(torch, name)
    if dtype.is_floating_point:
        inf, nan = float("inf"), float("nan")
        edges = [[nan, 0.0, -0.0, inf, -inf, 1.0, 300.0, -7.5], [1.0, nan, 0.0, 2.0, 4.0, -0.0, 0.3, 2.0]][which]
        return torch.cat([torch.tensor(edges), torch.randn(56, generator=generator) * 3]).to(dtype)
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**31)), min(info.max, 2**31 - 1)
    few = torch.randint(1 if which else (-9 if low else 0), 10, (32,), generator=generator)
    numbers = torch.cat([few, torch.randint(low, high, (32,), generator=generator)])
    return (torch.where((numbers == 0) | (numbers == -1), 3, numbers) if which else numbers).to(dtype)


def test_all():
    found = {}
    for kernel, expression, left, right in KERNELS:
        out = torch.full((256,), -12345.0, dtype=torch.float64, device="cuda")
        kernel[(1,)](drawn(left, 0).cuda(), drawn(right, 1).cuda(), out, 0, 77, 0.37, N=64)
        found[f"{expression} of {left}, {right}"] = out.cpu().tolist()
    Path(__file__).with_name("found.json").write_text(json.dumps(found))
'''


def cases() -> list[tuple[str, str, str]]:
    """Return each expression with the types of `a` and `b`, once."""
    found = {}
    for lefts, rights, expressions in EXPRESSIONS:
        for expression in expressions.split("; "):
            found |= {(expression, left, right): None for left in lefts for right in (rights or (left,))}
    return list(found)


def write(package: Path) -> None:
    """Write a package with a kernel for each, and a test that launches them all and leaves `found.json`."""
    kernels = [_KERNEL.format(number=n, expression=one[0], left=one[1], right=one[2]) for n, one in enumerate(cases())]
    package.mkdir(parents=True)
    (package / "test_expressions.py").write_text("".join([_HEAD, *kernels, _TAIL]))
