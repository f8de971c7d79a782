"""@triton.heuristics, alone and below a tuner."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % 128 == 0})
@triton.jit
def fill_kernel(out_ptr, n, value, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offsets, tl.full((BLOCK,), 0.0, tl.float32) + value, mask=offsets < n)
    else:
        tl.store(out_ptr + offsets, tl.zeros((BLOCK,), tl.float32) + value, mask=offsets < n)


def test_heuristics_by_size():
    for n in (100, 128):
        out = torch.zeros(n, device="cuda")
        fill_kernel[(1,)](out, n, 2.5)
        torch.testing.assert_close(out, torch.full_like(out, 2.5))


@triton.heuristics({"HAS_BIAS": lambda args: args["bias_ptr"] is not None})
@triton.jit
def bias_kernel(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if HAS_BIAS:
        x += tl.load(bias_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


def test_heuristics_by_an_argument_that_may_be_none(pair):
    x, bias = pair
    out = torch.empty_like(x)
    bias_kernel[(1,)](x, None, out, x.numel(), BLOCK=1024)
    torch.testing.assert_close(out, x)
    bias_kernel[(1,)](x, bias, out, x.numel(), BLOCK=1024)
    torch.testing.assert_close(out, x + bias)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def doubled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))
    else:
        tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def test_heuristics_below_a_tuner():
    for n in (1000, 1024):
        x = torch.randn(n, device="cuda")
        out = torch.empty_like(x)
        doubled_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, n)
        torch.testing.assert_close(out, 2 * x)
