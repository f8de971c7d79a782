"""@triton.autotune with each of its options, one a test."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8, num_stages=2)]


def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def run(kernel, n=1000):
    x = torch.randn(n, device="cuda")
    out = torch.zeros_like(x)
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    torch.testing.assert_close(out, x)
    return kernel


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def keyed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def test_the_best_configuration_is_read():
    run(keyed, 2000)
    best = run(keyed, 1000).best_config
    assert best.kwargs["BLOCK"] in (128, 256)
    assert best.num_warps in (4, 8)


PRODUCT = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128) for warps in (2, 4)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("configs", "options"),
    [([triton.Config({"BLOCK": 256})], {}), (PRODUCT, {}), (CONFIGS, {"use_cuda_graph": True}), (CONFIGS, {"warmup": 1, "rep": 5})],
    ids=["one", "a product", "a graph", "warm-up"],
)
def test_configurations(configs, options):
    run(triton.autotune(configs=configs, key=["n"], **options)(triton.jit(copy)))


def test_early_config_prune():
    def prune(configs, named_args, **kwargs):
        return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n"]]

    kernel = triton.autotune(configs=CONFIGS, key=["n"], prune_configs_by={"early_config_prune": prune})(triton.jit(copy))
    assert run(kernel, 200).best_config.kwargs["BLOCK"] == 128


@triton.autotune([triton.Config({"BLOCK": size}) for size in (512, 128, 64)], key=["n"])
@triton.jit
def at_most_kernel(x, out, n, MOST: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= MOST)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def test_a_configuration_that_the_kernel_refuses():
    x = torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    at_most_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]), 1, 1, 1)](x, out, 1000, MOST=256)
    torch.testing.assert_close(out, x * 2)


def test_a_performance_model_and_top_k():
    def model(BLOCK, num_warps, **kwargs):
        return abs(BLOCK - 256) + num_warps

    pruning = {"perf_model": model, "top_k": 1}
    kernel = triton.autotune(configs=CONFIGS, key=["n"], prune_configs_by=pruning)(triton.jit(copy))
    assert run(kernel).best_config.kwargs["BLOCK"] == 256


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["total_ptr"])
@triton.jit
def total_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.atomic_add(total_ptr, tl.sum(x, axis=0))


def test_reset_to_zero():
    x = torch.ones(1000, device="cuda")
    total = torch.zeros(1, device="cuda")
    total_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, total, 1000)
    torch.testing.assert_close(total, torch.full((1,), 1000.0, device="cuda"))


@triton.autotune(configs=CONFIGS, key=["n"], restore_value=["x_ptr"])
@triton.jit
def increment_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def test_restore_value():
    x = torch.zeros(1000, device="cuda")
    increment_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, 1000)
    assert (x == 1).all()


def test_pre_hook_of_a_configuration():
    seen = []
    configs = [triton.Config({"BLOCK": block}, pre_hook=lambda args: seen.append(args["n"])) for block in (128, 256)]
    run(triton.autotune(configs=configs, key=["n"])(triton.jit(copy)))
    assert seen
    assert set(seen) == {1000}


def test_pre_and_post_hook_of_the_tuner():
    calls = {"before": 0, "after": 0}

    def before(args, reset_only=False):
        calls["before"] += 1
        args["out_ptr"].zero_()

    def after(args, exception):
        calls["after"] += 1

    run(triton.autotune(configs=CONFIGS, key=["n"], pre_hook=before, post_hook=after)(triton.jit(copy)))


def test_do_bench_of_ones_own():
    def quick(kernel_call, quantiles):
        return triton.testing.do_bench(kernel_call, warmup=1, rep=5, quantiles=quantiles)

    run(triton.autotune(configs=CONFIGS, key=["n"], do_bench=quick)(triton.jit(copy)))


def test_results_cached_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    run(triton.autotune(configs=CONFIGS, key=["n"], cache_results=True)(triton.jit(copy)))


# @triton.heuristics, alone and below a tuner.


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
