"""Several `perf_report`s in one file: each is a benchmark of its own, and a line of dtypes is no provider."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

BENCH = """
import torch
from triton.testing import Benchmark, perf_report


def plot(arg, values, name="relu"):
    return Benchmark(x_names=["N"], x_vals=[8, 16], line_arg=arg, line_vals=values, line_names=list(map(str, values)), plot_name=name,
                     ylabel="GB/s", args={})


@perf_report(plot("provider", ["mine", "torch"]))
def forward(N, provider):
    return 1.0


@perf_report(plot("kind", [torch.float32, torch.bfloat16]))
def by_dtype(N, kind):
    return 1.0


@perf_report(plot("provider", ["mine", "torch"]))
def backward(N, provider):
    return 1.0
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    from warpwave.inside.benchmarks import load_module, points
    from warpwave.records import Job

    folder = tmp_path_factory.mktemp("package")
    (folder / "bench_relu.py").write_text(BENCH)
    job = Job("r", "t", (), str(folder), str(folder))
    return list(points(load_module(folder / "bench_relu.py", folder), folder / "bench_relu.py", job))


def test_a_line_of_dtypes_is_a_parameter_of_the_kernels_own_provider(found):
    """The function still gets what its author wrote."""
    import torch

    typed = [point for point in found if point.function.__name__ == "by_dtype"]

    assert {point.provider for point in found} == {"mine", "torch"}
    assert {(point.case, point.provider, point.params["dtype"]) for point in typed} == {
        (f"relu/by_dtype/{dtype}/N={size}", "mine", dtype) for dtype in ("fp32", "bf16") for size in (8, 16)
    }
    assert {point.arguments["kind"] for point in typed} == {torch.float32, torch.bfloat16}


def test_benchmarks_with_the_same_plot_name_are_several(found):
    """No point is there twice."""
    assert len({(point.case, point.provider) for point in found}) == len(found) == 12
    assert {point.case for point in found if point.function.__name__ == "backward"} == {"relu/backward/N=8", "relu/backward/N=16"}
