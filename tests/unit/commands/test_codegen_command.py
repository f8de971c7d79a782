"""`warpwave codegen diff`, as a user starts it: over rows that are made up, and over a package that is compiled here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import command
import pytest
from codegen_rows import row
from synthetic import run, write_raw


def warpwave(*arguments, cwd: Path, **more):
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parents[3]), **more}
    return command.warpwave(*arguments, cwd=cwd, env=environment)


def test_the_command_writes_what_it_prints(tmp_path):
    """The terminal, Markdown, HTML and JSON say the same, and the exit code is in the JSON, too."""
    for name, kernel in (("base", row()), ("head", row(spills=4))):
        write_raw(tmp_path / name / "raw" / "alpha", run(compiled=(kernel,)))
    done = warpwave("codegen", "diff", "base", "head", "--markdown", "out.md", "--html", "out.html", "--json", "out.json", cwd=tmp_path)
    told = json.loads((tmp_path / "out.json").read_text())

    assert (done.returncode, told["exit_code"], told["ok"]) == (1, 1, False), done.stderr
    assert "1 regression (1 spills)" in done.stdout
    assert "❌ spilled registers 0 → 4" in (tmp_path / "out.md").read_text()
    assert '<b class="v-failed">spilled registers 0 → 4</b>' in (tmp_path / "out.html").read_text()
    assert told["diff"]["changes"][0]["deltas"][0] == {
        "concern": "spills",
        "trend": "worse",
        "what": "spilled registers",
        "before": "0",
        "after": "4",
        "weight": 16.0,
    }
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "nothing", cwd=tmp_path).returncode == 0
    assert warpwave("codegen", "diff", "base", "elsewhere", cwd=tmp_path).returncode == 4
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "x", cwd=tmp_path).returncode == 2


PACKAGE = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({{"BLOCK": 1024}}, num_warps=warps) for warps in {warps}], key=["n"])
@triton.jit
def normalise_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0) * n + columns, row / tl.sum(row), mask=columns < n)


@triton.jit
def held_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + columns)
    tl.store(y_ptr + columns, row / tl.sum(row))


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [{n}], line_arg="p", line_vals=["triton"], line_names=["triton"], plot_name="rows", args={{}})
)
def bench(n, p):
    x = torch.empty((64, n), device="cuda")
    normalise_kernel[(64,)](x, torch.empty_like(x), n)
    held_kernel[(64,)](x, torch.empty_like(x), BLOCK={block}, num_warps=1)
"""


@pytest.mark.slow
def test_two_versions_of_a_real_package_are_kept_apart(tmp_path):
    """Compiled here: a row of 16384 is too much for one warp, and 32 warps of 64 lanes are more than a block may have."""
    pytest.importorskip("triton", reason="compiling needs torch and triton; `nox -s tests` installs them")
    (tmp_path / "two.yml").write_text("schema_version: 1\ntargets:\n  cpu:\n    architectures: [sm_90, gfx942]\n")
    for name, values in (("base", {"warps": "(4, 8)", "block": 256, "n": 1000}), ("head", {"warps": "(4, 32)", "block": 16384, "n": 1000})):
        (tmp_path / name / "rows").mkdir(parents=True)
        (tmp_path / name / "rows" / "bench_rows.py").write_text(PACKAGE.format(**values))
        # By default a configuration that a tuner would discard is no finding.
        (tmp_path / name / "pyproject.toml").write_text('[tool.warpwave.gates]\ncandidates = "all"\n')
        arguments = ("run", "cpu", "--engine", "local", "--stage", "compile", "--kernels", name, "--targets", "two.yml", "--no-report")
        done = warpwave(*arguments, "--out", f"run-{name}", cwd=tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache"))
        assert (tmp_path / f"run-{name}/raw/cpu/compile/kernels.jsonl").is_file(), done.stdout + done.stderr
    done = warpwave("codegen", "diff", "run-base", "run-head", "--json", "out.json", cwd=tmp_path)
    changes = json.loads((tmp_path / "out.json").read_text())["diff"]["changes"]
    told = {(change["function"], change["architecture"]): change for change in changes}

    assert done.returncode == 1
    # The default gates ask for no spill, so that a spill is a verdict, too.
    assert {change["architecture"] for change in changes if change["deltas"][0]["concern"] == "verdict"} == {"sm_90", "gfx942"}
    died = told["normalise_kernel", "gfx942"]
    assert (died["deltas"][0]["concern"], died["moved"], died["survivors"]) == ("verdict", ["8 → 32 warps"], 1)
    assert told["normalise_kernel", "sm_90"]["moved"] == ["8 → 32 warps"]
    worse = {
        name: {delta["concern"] for delta in told["held_kernel", name]["deltas"] if delta["trend"] == "worse"}
        for name in ("sm_90", "gfx942")
    }
    assert worse == {"sm_90": {"verdict", "spills", "registers", "size"}, "gfx942": {"occupancy", "registers", "size"}}
    assert {change["moved"][0] for key, change in told.items() if key[0] == "held_kernel"} == {"BLOCK 256 → 16384"}
    assert "Compiles on one vendor only, new in HEAD" in done.stdout
    assert "  fails on gfx942: failed: 32 warps of 64 are 2048 threads" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
