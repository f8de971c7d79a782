"""A kernel written as Triton's tutorials are: one script, `device="cuda"` spelled out, occupancy asked for, the sweep run at import."""

import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
target = triton.runtime.driver.active.get_current_target()


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for start in tl.range(0, n, BLOCK * tl.num_programs(0)):
        inside = start + offsets < n
        tl.store(y_ptr + start + offsets, tl.load(x_ptr + start + offsets, mask=inside) * factor, mask=inside)


@triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def scale(x, factor):
    y = torch.empty_like(x)
    assert x.is_cuda and y.is_cuda and x.device == DEVICE
    kernel = scale_kernel.warmup(x, y, x.numel(), factor, BLOCK=128, num_warps=4, grid=(1,))
    kernel._init_handles()
    programs = min(properties["multiprocessor_count"] * max(1, properties["max_num_regs"] // (kernel.n_regs * 128)), 8)
    kernel[(programs, 1, 1)](x, y, x.numel(), factor, 128)
    return y


def double(x):
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


x = torch.rand(1000, device="cuda")
assert torch.allclose(scale(x, 3.0), x * 3.0)
print(f"the largest difference is {torch.max(torch.abs(scale(x, 3.0) - x * 3.0))}")


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(10, 16)],
        line_arg="provider",
        line_vals=["triton", "tuned", "torch", "broken"],
        line_names=["Triton", "Tuned", "Torch", "Broken"],
        ylabel="GB/s",
        plot_name="scale-performance",
        args={},
    )
)
def benchmark(N, provider):
    x = torch.rand(N, device=DEVICE, dtype=torch.float32)
    stream = getattr(torch, DEVICE.type).Stream()
    getattr(torch, DEVICE.type).set_stream(stream)
    if provider == "broken":
        raise ValueError("this provider is broken on purpose")
    fn = {"triton": lambda: scale(x, 3.0), "tuned": lambda: double(x), "torch": lambda: x[:, None] * 3.0}[provider]
    ms, min_ms, max_ms = triton.testing.do_bench(fn, quantiles=[0.5, 0.2, 0.8])
    gbps = lambda ms: 8 * N / ms * 1e-6
    return gbps(ms), gbps(max_ms), gbps(min_ms)


benchmark.run(show_plots=True, print_data=True)
