import torch
import triton

from packaged.scale.scale import scale

tripled = torch.compile(lambda x: scale(x, 3.0, block=512))


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [4096], "provider", ["eager", "compiled"], ["eager", "compiled"], plot_name="scale", args={})
)
def benchmark(n, provider):
    x = torch.randn(n, device="cuda", requires_grad=True)
    out = tripled(x) if provider == "compiled" else scale(x, 2.0)
    out.sum().backward()
    return triton.testing.do_bench(lambda: out)
