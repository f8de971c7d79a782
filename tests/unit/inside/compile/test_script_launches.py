"""Benchmark scripts without a GPU: what they launch is compiled, and each of them has a row if it has nothing else."""

from __future__ import annotations

import json

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import BenchScript, Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

SCRIPTS = (
    BenchScript("benchmarks/[blr]*.py"),
    BenchScript("benchmarks/nothing.py"),
    BenchScript("benchmarks/clicked.py", ("--size", "64")),
    BenchScript("benchmarks/loop.py", ("--dtype", "float16")),
    BenchScript("benchmarks/loop.py", ("--foo",)),
)


@pytest.fixture(scope="module")
def compiled(run_inside, data):
    """The rows and the journal of one run over scripts of every kind."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    settings = {"architectures": (card,), "benches": (), "launches": ("bench",), "bench_scripts": SCRIPTS, "peers": ("torch",)}
    output = run_inside(data / "scripts", Stage.COMPILE, **settings) / "compile"
    rows = [json.loads(line) for line in (output / "kernels.jsonl").read_text().splitlines()]
    return rows, (output / "journal-sm_90.jsonl").read_text(), (output / "log-sm_90.txt").read_text()


def of(rows, words):
    return [row for row in rows if words in row["origin"]]


def test_what_a_script_launches_is_compiled_under_the_name_of_its_point(compiled):
    """By argparse and by click, in a loop and as a statement; what stands before a measurement is the script's own."""
    rows, _, _ = compiled
    types = {row["signature"]["x_ptr"] for row in of(rows, "--dtype float16")}

    assert types == {"*fp16"}
    assert [row["function"] for row in of(rows, "loop.py:16/--dtype float16/n=1024 [relu]")] == ["relu_kernel"]
    assert {row["constants"]["BLOCK"] for row in of(rows, "[running benchmarks/loop.py --dtype float16]")} == {256, 512}
    assert {row["verdict"] for row in rows if row["function"] == "relu_kernel"} == {"passed"}


@pytest.mark.parametrize(
    ("script", "why", "reason"),
    [
        ("broken.py", "raised", "ValueError: no such size"),
        ("nothing.py", "empty", "it ended without a measurement"),
        ("loop.py --foo", "raised", "it exited with 2: loop.py: error: unrecognized arguments: --foo"),
    ],
)
def test_a_script_without_an_end_or_a_measurement_has_a_row(compiled, script, why, reason):
    """One each; a script that ran to its end has none of its own."""
    rows, _, log = compiled
    found = [row for row in of(rows, f"[running benchmarks/{script}]") if row["function"] == "(host code)"]

    assert [(row["verdict"], row["not_run"], reason in row["reason"]) for row in found] == [("not-run", why, True)]
    assert [row for row in of(rows, "[running benchmarks/report.py]") if row["function"] == "(host code)"] == []
    assert "harness/warpwave/inside/scripts" not in log


def test_a_peer_is_left_out_and_the_script_goes_on(compiled):
    """The provider `torch` of a `perf_report`; both of the modes that the script makes one for are there."""
    _, journal, _ = compiled
    started = [json.loads(line)["id"] for line in journal.splitlines() if json.loads(line)["event"] == "start"]
    points = [name.rpartition("/")[2] for name in started if "N=" in name]

    assert points == ["N=1024 [triton]", "N=2048 [triton]", "N=1024#2 [triton]", "N=2048#2 [triton]"]
