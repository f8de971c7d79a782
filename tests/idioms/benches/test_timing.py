"""Tests that time what they launch."""

import time

import pytest
import torch
import triton
from small_kernels import add, scale


@pytest.mark.parametrize("provider", ["triton", "torch"])
def test_do_bench(provider, pair):
    function = {"triton": add, "torch": torch.add}[provider]
    ms = triton.testing.do_bench(lambda: function(*pair), warmup=1, rep=5)
    print(f"{12 * pair[0].numel() / ms * 1e-6:.1f} GB/s")
    assert ms > 0
    ms, low, high = triton.testing.do_bench(lambda: function(*pair), warmup=1, rep=5, quantiles=[0.5, 0.2, 0.8])
    assert low <= ms <= high
    assert triton.testing.do_bench(lambda: function(*pair), warmup=1, rep=5, return_mode="median") > 0
    assert len(triton.testing.do_bench(lambda: function(*pair), warmup=1, rep=5, return_mode="all")) >= 1
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_do_bench_of_a_backward():
    x = torch.randn(300, device="cuda", requires_grad=True)
    loss = (x * scale(x.detach(), 2.0)).sum()
    ms = triton.testing.do_bench(lambda: loss.backward(retain_graph=True), warmup=1, rep=5, grad_to_none=[x])
    assert ms > 0


def test_do_bench_in_a_graph(pair):
    add(*pair)
    with torch.cuda.stream(torch.cuda.Stream()):
        ms = triton.testing.do_bench_cudagraph(lambda: add(*pair), rep=5)
    assert ms > 0


def test_a_clock_around_synchronize(pair):
    add(*pair)
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = add(*pair)
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - start) * 1e3:.3f} ms")
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_torchs_own_timer(pair):
    from torch.utils import benchmark

    measured = benchmark.Timer(stmt="add(x, y)", globals={"add": add, "x": pair[0], "y": pair[1]}).timeit(2)
    assert measured.median > 0


def test_the_bandwidth_of_the_card(pair):
    gbps = triton.testing.get_dram_gbps()
    assert gbps >= 0
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_the_profiler(pair):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out = add(*pair)
    assert profile.key_averages() is not None
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_a_card_that_is_kept_busy(pair):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1000)
    start.record()
    add(*pair)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
