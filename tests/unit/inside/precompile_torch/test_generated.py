"""What `torch.compile` makes before the card is taken: where it is kept, under which key, and that nothing runs."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpwave.config.targets import load_targets
from warpwave.inside.benchmarks import Point
from warpwave.inside.precompile import torch_ahead
from warpwave.records import Job, Stage, dump

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

CARD = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
BENCH = """
import torch, triton

def normed(x, w):
    return torch.nn.functional.rms_norm(x, w.shape, w, 1e-6)

compiled = torch.compile(normed, dynamic=False)

@triton.testing.perf_report(triton.testing.Benchmark(x_names=["N"], x_vals=[32768], line_arg="provider", line_vals=["torch", "compile"],
    line_names=["torch", "compile"], ylabel="GB/s", plot_name="norm", args={}))
def benchmark(provider, N):
    x, w = (torch.empty(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((16384, N), (N,)))
    run = compiled if provider == "compile" else normed
    return triton.testing.do_bench(lambda: run(x, w))
"""
# A torch without support for a card cannot trace the patterns that it looks for in graphs of that card.
GENERATE = """
import sys
from pathlib import Path
from warpwave.config.targets import load_targets
from warpwave.inside.precompile import torch_ahead as generated
from warpwave.records import Job
from torch._inductor.fx_passes import joint_graph, post_grad
joint_graph.lazy_init = post_grad.lazy_init = lambda *args, **kwargs: None
job = Job.load(Path(sys.argv[1]))
generated.generate(job, job.architectures[0], 0, 1)
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "kernels" / "norm").mkdir(parents=True)
    (tmp_path / "kernels" / "norm" / "bench_norm.py").write_text(BENCH)
    (tmp_path / "bench").mkdir()
    (tmp_path / "facts.json").write_text(json.dumps({"devices": [{"name": "a card"}]}))
    stages = (Stage.BENCH,)
    folders = str(tmp_path / "kernels"), str(tmp_path)
    return Job("r", "t", stages, *folders, architectures=(CARD,), peers=("torch", "compile"))


@pytest.mark.slow
def test_graphs_and_all_candidates_are_there_before_a_card_is(job, tmp_path):
    """Also the one that torch adds for a loop with many registers, which it reads from the binary."""
    dump(job, tmp_path / "job.json")
    others = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TRITON_LIBCUDA_PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", GENERATE, str(tmp_path / "job.json")], env=others | caches, check=True)

    found = tmp_path / "cache"
    assert len(list(found.glob("fxgraph/*/*/*"))) == 1
    assert len(list(found.glob("triton/0/*/*.cubin"))) == 3
    assert not list(found.rglob("*.best_config"))
    assert not list((tmp_path / "bench").glob(".home-*"))


def test_a_package_that_does_not_name_torchs_compiler_starts_nothing(job, tmp_path, monkeypatch):
    """Nor does a run without a sweep, or one that was told not to; on a card whose entry does not say so, the user has to ask."""
    monkeypatch.setattr(torch_ahead, "forked", lambda *words: lambda journal, log: words)
    assert torch_ahead.names_any(job, "torch.compile")
    assert torch_ahead.started(dataclasses.replace(job, torch_compile_ahead=False), CARD, tmp_path / "log") == ([], {})
    amd = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    assert torch_ahead.started(job, amd, tmp_path / "log") == ([], {})
    assert torch_ahead.started(dataclasses.replace(job, torch_compile_ahead=True), amd, tmp_path / "log")[0]
    assert torch_ahead.started(dataclasses.replace(job, stages=(Stage.TEST,)), CARD, tmp_path / "log") == ([], {})
    (tmp_path / "kernels" / "norm" / "bench_norm.py").write_text(BENCH.replace("torch.compile(normed, dynamic=False)", "normed"))
    assert not torch_ahead.names_any(job, "torch.compile")
    assert torch_ahead.started(job, CARD, tmp_path / "log") == ([], {})


def test_the_bench_stage_takes_and_deletes_the_runs_own_cache_and_leaves_the_users(job, tmp_path, monkeypatch):
    """Without a note of what was made ahead, it changes nothing."""
    monkeypatch.setattr(torch_ahead, "forked", lambda *words: lambda journal, log: words)
    for own in (None, str(tmp_path / "users")):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", own or "")
        workers, told = torch_ahead.started(job, CARD, tmp_path / "bench" / "ahead.json")
        assert len(workers) == 3
        folder = Path(told["generated"])
        folder.mkdir(exist_ok=True)
        assert own is None or str(folder) == own
        assert own or folder.stat().st_mode & 0o077 == 0
        (tmp_path / "bench" / "ahead.json").write_text(json.dumps(told))
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
        torch_ahead.name_folder(job)
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
        torch_ahead.remove(job)
        assert folder.exists() == bool(own)
    (tmp_path / "bench" / "ahead.json").unlink()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    torch_ahead.name_folder(job)
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_points_that_may_share_a_graph_stay_in_one_process_in_their_order():
    """Whichever comes first decides what its backward graph may overwrite."""
    points = [Point(f"{plot}/{n}", "k", "p", "", {"N": n}, None, {}) for plot in ("loss", "gradient") for n in range(5)]
    shares = [torch_ahead.share_of(points, share, 3) for share in range(3)]
    assert sorted(point.id for share in shares for point in share) == sorted(point.id for point in points)
    for share in shares:
        sizes = [point.params["N"] for point in share]
        assert sizes == sorted(sizes)
        assert [point.case.split("/")[0] for point in share] == ["loss", "gradient"] * (len(share) // 2)


@pytest.mark.slow
def test_the_key_of_a_graph_says_what_it_may_overwrite(monkeypatch):
    """torch 2.11 and 2.13 leave it out: a backward graph for one use would be found for `retain_graph=True`, too."""
    from torch import fx
    from torch._inductor import codecache, utils

    def key():
        return codecache.compiled_fx_graph_hash(fx.symbolic_trace(lambda x: x + 1), [], {}, [])[0]

    may_overwrite = [[]]
    monkeypatch.setattr(utils, "get_donated_idxs", lambda: may_overwrite[0])
    monkeypatch.setattr(codecache.FxGraphHashDetails, "__init__", codecache.FxGraphHashDetails.__init__)
    without = key()
    may_overwrite[0] = [2]
    assert key() == without, "torch does it itself: `tell_apart` can go"
    torch_ahead.tell_apart()
    with_two = key()
    may_overwrite[0] = [3]
    assert len({without, with_two, key()}) == 3
