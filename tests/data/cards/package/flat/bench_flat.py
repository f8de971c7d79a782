"""Seven sizes, two providers. Each process holds its card for as long as it lives: a second one on the same card fails every point."""

import fcntl
import os
from pathlib import Path

import triton

held = []


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(7)],
        line_arg="provider",
        line_vals=["mine", "theirs"],
        line_names=["mine", "theirs"],
        ylabel="GB/s",
        plot_name="flat",
        args={},
    )
)
def benchmark(N, provider):
    state, card = Path(os.environ["STUB_STATE"]), os.environ["STUB_VISIBLE_DEVICES"]
    if not held:
        held.append(open(state / f"held-{card}", "w"))
        fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
    if provider == "theirs" and f"{N}@{card}" == os.environ.get("STUB_LOSE"):
        (state / f"lost-{card}").touch()
        raise RuntimeError("the card has fallen off the bus")
    ms = triton.testing.do_bench(lambda: None, return_mode="median")
    return N / ms * 1e-3
