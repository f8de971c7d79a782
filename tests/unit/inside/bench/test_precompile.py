"""Compiling ahead of the first timing: the binaries are there, under the keys under which the JIT looks for them. No GPU is needed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import command
import pytest

from warpwave.config.targets import load_targets
from warpwave.inside.benchmarks import Point
from warpwave.inside.precompile import ahead
from warpwave.records import DeviceFacts, Facts, Job, Stage, dump

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
CARD = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")


@pytest.fixture
def job(tmp_path):
    """A job whose facts stage has seen a card."""
    device = DeviceFacts(0, "Synthetic GPU", "sm_90", 1 << 36, 144)
    dump(Facts("3.12", "", "2", "3", "", "", "1", "", devices=(device,)), tmp_path / "facts.json")
    return Job("run-1", "cuda", (Stage.BENCH,), "", str(tmp_path), architectures=(CARD,), workers=2)


def test_the_card_is_the_one_that_is_here(job, tmp_path):
    """Of the architecture in targets.yml, and of the size that the facts stage saw; without facts there is none."""
    card = ahead.card_of(job)

    assert (card.name, card.properties) == ("sm_90", {**CARD.properties, "multiprocessor_count": 144})
    assert ahead.card_of(dataclasses.replace(job, architectures=())) is None
    (tmp_path / "facts.json").unlink()
    assert ahead.card_of(job) is None


def test_shares_are_all_there_is_each_once():
    """And neighbours stay together."""
    found = [Point(f"{n}", "k", provider, "", {}, None, {}) for n in range(5) for provider in "ab"]
    shares = [ahead.share_of(found, share, 3) for share in range(3)]

    assert sorted(point.id for share in shares for point in share) == sorted(point.id for point in found)
    assert [point.provider for share in shares for point in share] == ["a"] * 5 + ["b"] * 5


def test_lines_without_a_kernel_of_the_package_are_not_run(job, tmp_path, monkeypatch):
    """There is nothing to compile of them."""
    (tmp_path / "bench_lines.py").write_text(KEEPING.replace('["triton"]', '["triton", "torch", "copy"]'))
    job, ran = dataclasses.replace(job, kernels=str(tmp_path)), []
    monkeypatch.setattr(Point, "run", lambda point: ran.append(point.provider))
    for peers in ((), ("copy", "torch")):
        ahead.launch_points(dataclasses.replace(job, peers=peers), 0, 1)
    assert ran == ["copy", "torch", "triton", "triton"]


def test_nobody_waits_where_nobody_compiles(job, monkeypatch, tmp_path):
    """A card that targets.yml does not know is told at once; a worker on its own does not wait at all."""
    (tmp_path / "bench").mkdir()
    monkeypatch.setenv(ahead.MARKER_VARIABLE, "")
    ahead.wait()
    ahead.start(dataclasses.replace(job, architectures=()))
    ahead.wait()

    assert json.loads((tmp_path / "bench" / "ahead.json").read_text())["workers"] == 0


COMPILE = """
import json, sys
from pathlib import Path
from warpwave.inside.precompile import ahead as precompile
from warpwave.records import Job
if __name__ == "__main__":
    job = Job.load(Path(sys.argv[1]))
    precompile.start(job)
    precompile.wait()
"""
LAUNCH = """
import sys
from pathlib import Path
from warpwave.inside.precompile.ahead import points_of
from warpwave.inside.precompile import ahead as precompile
from warpwave.inside.fake_gpu import card as driver
from warpwave.records import Job
job = Job.load(Path(sys.argv[1]))
with driver.pretended_device(precompile.card_of(job), lambda binary: (32, 0, 1024)):
    for point in points_of(job):
        try:
            point.function(**point.arguments)
        except Exception as error:
            print(point.provider, type(error).__name__)
"""


TUNED = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 512)], key=["N"], cache_results=True)
@triton.jit
def copy_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < N), mask=offsets < N)

@triton.testing.perf_report(triton.testing.Benchmark(x_names=["N"], x_vals=[1024], line_arg="provider", line_vals=["triton"],
    line_names=["Triton"], plot_name="tuned", args={}))
def benchmark(N, provider):
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    return triton.testing.do_bench(lambda: copy_kernel[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, N))
"""


KEEPING = """
import pathlib, triton
@triton.testing.perf_report(triton.testing.Benchmark(x_names=["N"], x_vals=[1024], line_arg="provider", line_vals=["triton"],
    line_names=["Triton"], plot_name="kept", args={}))
def benchmark(N, provider):
    (pathlib.Path.home() / "tuned.db").write_text(str(triton.testing.do_bench(lambda: None)))
    print("kept it in", pathlib.Path.home())
    return 1.0
"""


def test_who_waits_makes_the_hash_of_triton_meanwhile(monkeypatch):
    """Half a second that the first launch of a process takes otherwise."""
    from triton.runtime.cache import triton_key

    monkeypatch.delenv(ahead.MARKER_VARIABLE, raising=False)
    triton_key.cache_clear()
    ahead.wait()

    assert triton_key.cache_info().currsize == 1


def test_what_a_package_tunes_ahead_is_not_kept_for_the_real_run(job, tmp_path):
    """FlagGems has a database of it in the user's home, and would find there what was made up, in the measurement that follows."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "bench_kept.py").write_text(KEEPING)
    dump(dataclasses.replace(job, kernels=str(tmp_path / "package")), tmp_path / "job.json")
    for name in ("bench", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "compile.py").write_text(COMPILE)
    variables = {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(REPOSITORY / "harness"),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = command.python("compile.py", "job.json", cwd=tmp_path, env=variables, kind="compiler")
    assert done.returncode == 0, done.stderr

    assert "kept it in" in (tmp_path / "bench" / "log-ahead.txt").read_text()
    assert list(tmp_path.rglob("tuned.db")) == []


@pytest.mark.slow
def test_a_workers_log_does_not_begin_with_a_warning_about_us():
    """A worker an architecture or a core: the author of a package would read it as often, and look for a fault."""
    again = "import warpwave.inside.compile.preload; from multiprocessing import spawn; "
    again += "spawn._fixup_main_from_name('warpwave.inside.bench.stage')"
    done = subprocess.run([sys.executable, "-c", again], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert "RuntimeWarning" not in done.stderr


MORE = """
import sys
from pathlib import Path
import triton.backends.nvidia.driver as driver
from warpwave.inside.precompile import ahead as precompile
from warpwave.records import Job

class Launcher:
    def __init__(self, source, metadata):
        print(metadata.name, list(source.signature.values()), metadata.num_warps)
        if metadata.name == "copy_kernel":
            raise OSError("no C compiler")

driver.CudaLauncher = Launcher
job = Job.load(Path(sys.argv[1]))
precompile.work(job, precompile.card_of(job), 0, 1)
"""


def test_what_else_a_first_launch_waits_for_is_made_beside_the_binary(job, tmp_path):
    """Triton's launcher is asked for as the launch will, and the binary is read. A launcher that cannot be made costs nothing else."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "bench_tuned.py").write_text(TUNED)
    dump(dataclasses.replace(job, kernels=str(tmp_path / "package")), tmp_path / "job.json")
    (tmp_path / "bench").mkdir()
    (tmp_path / "more.py").write_text(MORE)
    variables = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(REPOSITORY / "harness")}
    done = command.python("more.py", "job.json", cwd=tmp_path, env=variables, kind="compiler")

    assert done.stdout.splitlines() == ["copy_kernel ['*fp32', '*fp32', 'i32', 'constexpr'] 4"] * 2
    assert len(binaries(tmp_path / "cache")) == len(list(tmp_path.rglob("reading.json"))) == 2


def binaries(folder):
    """Keys in Triton's cache that hold a binary."""
    return {path.parent.name for path in folder.rglob("*.cubin")}


def test_the_jit_finds_what_was_compiled_ahead(job, data, tmp_path):
    """Two processes fill the cache; a third, which launches all of it, adds nothing. What does not compile stops neither.

    Every configuration of an autotuner is there, and not a word on which is the fastest: nothing was timed.
    """
    package = tmp_path / "package"
    shutil.copytree(data / "limits", package / "limits")
    (package / "bench_tuned.py").write_text(TUNED)
    dump(dataclasses.replace(job, kernels=str(package)), tmp_path / "job.json")
    (tmp_path / "bench").mkdir()
    cache = tmp_path / "cache"
    variables = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(REPOSITORY / "harness"), "TRITON_DEFAULT_FP_FUSION": "1"}
    (tmp_path / "compile.py").write_text(COMPILE)
    (tmp_path / "launch.py").write_text(LAUNCH)

    def run(name):
        done = command.python(name, "job.json", cwd=tmp_path, env=variables, kind="compiler")
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("compile.py")
    ahead_of_it = binaries(cache)
    said = run("launch.py")

    assert len(ahead_of_it) == 5
    assert binaries(cache) == ahead_of_it
    assert list(cache.rglob("*.autotune.json")) == []
    assert said.split() == ["broken", "CompilationError"]
    assert json.loads((tmp_path / "bench" / "ahead.json").read_text())["exit_codes"] == [0, 0]
