"""The compile stage after its worker died: the next one goes on, and nothing that both of them compiled is told twice."""

from __future__ import annotations

import json

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

DYING = """
import os
import torch, triton, triton.language as tl

@triton.jit
def fill_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

@triton.testing.perf_report(triton.testing.Benchmark(["N"], [64], line_arg="provider", line_vals=["before", "dies", "behind"],
    line_names=["before", "dies", "behind"], ylabel="ms", plot_name="dying", args={}))
def benchmark(N, provider):
    if provider == "dies":
        os._exit(3)
    fill_kernel[(1,)](torch.empty(N, device="cuda"), BLOCK=64)
    if provider == "behind":
        fill_kernel[(1,)](torch.empty(N, device="cuda"), BLOCK=128)
"""


def test_what_two_workers_compile_is_one_row(run_inside, tmp_path):
    """The case that ended the first is a row; the kernel of the case behind it is known already, and its new one is told."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "bench_dying.py").write_text(DYING)
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(tmp_path / "package", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    assert [(row["function"], row["constants"].get("BLOCK"), row["verdict"]) for row in rows] == [
        ("fill_kernel", 64, "passed"),
        ("(host code)", None, "crashed"),
        ("fill_kernel", 128, "passed"),
    ]
