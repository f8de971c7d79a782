"""Compiling ahead of the first timing: the binaries are there, under the keys under which the JIT looks for them. No GPU is needed."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_requests import having, make_job

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command

from warpwave.config.targets import load_targets
from warpwave.errors import UsageError
from warpwave.inside.benchmarks import Point, one_of_each_first
from warpwave.inside.fake_gpu.unknown import Guesses, decide
from warpwave.inside.handed_over import pack, unpack
from warpwave.inside.precompile import ahead, torch_ahead
from warpwave.inside.process.workers import UNTIL_VARIABLE
from warpwave.records import COMPILED_FOLDER, COMPILED_HERE, COMPILED_MANIFEST, Budget, DeviceFacts, Facts, Limits, Stage, dump
from warpwave.run import inputs

REPOSITORY = Path(__file__).parents[4]
CARD = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")


@pytest.fixture
def job(tmp_path):
    device = DeviceFacts(0, "Synthetic GPU", "sm_90", 1 << 36, 144)
    dump(Facts("3.12", "", "2", "3", "", "", "1", "", devices=(device,)), tmp_path / "facts.json")
    return make_job("run-1", "cuda", (Stage.BENCH,), "", str(tmp_path), architectures=(CARD,), workers=2)


def test_the_card_is_the_one_that_is_here(job, tmp_path):
    """Of the architecture in targets.yml, and of the size that the facts stage saw; without facts there is none."""
    card = ahead.card_of(job)

    assert (card.name, card.properties) == ("sm_90", {**CARD.properties, "multiprocessor_count": 144})
    assert ahead.card_of(having(job, architectures=())) is None
    (tmp_path / "facts.json").unlink()
    assert ahead.card_of(job) is None


def test_shares_are_all_there_is_each_once():
    """And neighbours stay together."""
    found = [Point(f"{n}", "k", provider, "", {}, None, {}) for n in range(5) for provider in "ab"]
    shares = [ahead.share_of(found, share, 3) for share in range(3)]

    assert sorted(point.id for share in shares for point in share) == sorted(point.id for point in found)
    assert [point.provider for share in shares for point in share] == ["a"] * 5 + ["b"] * 5

    # The providers of a case stay together: they are measured in turns.
    several = [Point(f"{plot} {n}", "k", who, "", {}, plot, {}) for plot in ("loss", "gradient") for n in range(2) for who in "ab"]

    found = [point.id for point in one_of_each_first(several)]
    assert found == [f"{plot} {n} [{who}]" for n in range(2) for plot in ("loss", "gradient") for who in "ab"]

    # Whichever comes first decides what its backward graph may overwrite.
    points = [Point(f"{plot}/{n}", "k", "p", "", {"N": n}, None, {}) for plot in ("loss", "gradient") for n in range(5)]
    shares = [torch_ahead.share_of(points, share, 3) for share in range(3)]
    assert sorted(point.id for share in shares for point in share) == sorted(point.id for point in points)
    for share in shares:
        sizes = [point.params["N"] for point in share]
        assert sizes == sorted(sizes)
        assert [point.case.split("/")[0] for point in share] == ["loss", "gradient"] * (len(share) // 2)


def _endless(job, card, share, shares):
    time.sleep(600)


def test_half_of_a_budget_is_kept_for_measuring(job, tmp_path, monkeypatch):
    """What is not compiled by then is compiled when it is launched."""
    monkeypatch.setenv(UNTIL_VARIABLE, str(time.monotonic() + 1.0))
    (tmp_path / "bench").mkdir()
    job = having(job, limits=Limits(budget=Budget(9.0)))
    ahead.run(job, CARD, ahead.marker_of(job), _endless)

    assert json.loads(ahead.marker_of(job).read_text())["exit_codes"] == [None, None]


def test_lines_without_a_kernel_of_the_package_are_not_run(job, tmp_path, monkeypatch):
    """There is nothing to compile of them."""
    (tmp_path / "bench_lines.py").write_text(KEEPING.replace('["triton"]', '["triton", "torch", "copy"]'))
    job, ran = having(job, kernels=str(tmp_path)), []
    monkeypatch.setattr(Point, "run", lambda point: ran.append(point.provider))
    for peers in ((), ("copy", "torch")):
        ahead.launch_points(having(job, peers=peers), 0, 1)
    assert ran == ["copy", "torch", "triton", "triton"]


def test_nobody_waits_where_nobody_compiles(job, monkeypatch, tmp_path):
    """A card that targets.yml does not know is told at once; a worker on its own does not wait at all."""
    (tmp_path / "bench").mkdir()
    monkeypatch.setenv(ahead.MARKER_VARIABLE, "")
    ahead.wait()
    ahead.start(having(job, architectures=()))
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
import time
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
    dump(having(job, kernels=str(tmp_path / "package")), tmp_path / "job.json")
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
import time
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
    dump(having(job, kernels=str(tmp_path / "package")), tmp_path / "job.json")
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
    dump(having(job, kernels=str(package)), tmp_path / "job.json")
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


# What tests launch is compiled before the card is taken, also behind what they decide by data; and kernels from elsewhere are checked.

PACKAGE = """
import torch, triton, triton.language as tl
@triton.jit
def first_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)
@triton.jit
def second_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) * 2)
def test_decides():
    x = torch.zeros(1, device="cuda")
    first_kernel[(1,)](x)
    error = x.max().item()
    share = error / 2 if error else 0.0
    second_kernel[(1,)](x)
    assert share <= 1
"""
KEY = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST"


@pytest.fixture
def job_of_unpack(tmp_path):
    device = DeviceFacts(0, "Synthetic GPU", "sm_90", 1 << 36, 144)
    dump(Facts("3.12", "", "2", "3", "", "", "1", "5e1f", devices=(device,)), tmp_path / "facts.json")
    (tmp_path / "compile").mkdir()
    return make_job("run-1", "cuda", (Stage.TEST,), "", str(tmp_path), architectures=(CARD,), workers=1, save_compiled=("sm_90",))


def test_what_a_test_launches_behind_a_decision_is_compiled_ahead(job_of_unpack, tmp_path):
    """The compile stage stops at the decision; here a wrong guess costs nothing."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_decides.py").write_text(PACKAGE)
    dump(having(job_of_unpack, kernels=str(tmp_path / "package")), tmp_path / "job.json")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = command.python("-m", "warpwave.inside.precompile.process", "job.json", cwd=tmp_path, env=variables, kind="compiler")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "bench" / "ahead.json").read_text())

    assert (told["workers"], told["exit_codes"], told["compiled"]) == (1, [0], 2), (tmp_path / "bench" / "log-ahead.txt").read_text()
    assert {path.stem for path in (tmp_path / "cache").rglob("*.cubin")} == {"first_kernel", "second_kernel"}


# What a run does: how many kernels it compiled ahead, and in how many workers.
RUN = """
import json, shutil, sys
from pathlib import Path
from warpwave.inside import __main__ as inside
from warpwave.inside.precompile import remembered
from warpwave.records import Job, from_json
folder = Path.cwd()
job = from_json(Job, (folder / "job.json").read_text())
cache, module = folder / "cache", folder / "package" / "test_decides.py"
def compiled():
    if remembered.is_compiled(job):
        return 0, 0
    ahead = inside._Ahead(job, folder / "job.json", 200.0)
    ahead.go()
    count, _ = ahead.end()
    ahead.remember()
    shutil.rmtree(folder / "test", ignore_errors=True)  # each run has its own
    return count, json.loads((folder / "bench" / "ahead.json").read_text())["workers"]
found = [compiled(), compiled()]
shutil.rmtree(next(cache.rglob("second_kernel.cubin")).parent)
found.append(compiled())
module.write_text(module.read_text().replace("* 2", "* 3"))
print(json.dumps([*found, compiled(), compiled()]))
"""


def test_nothing_is_started_if_an_earlier_run_compiled_the_same_sources(job_of_unpack, tmp_path):
    """Until a module of the package changes, or a kernel is gone from Triton's cache."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_decides.py").write_text(PACKAGE)
    dump(having(job_of_unpack, kernels=str(tmp_path / "package")), tmp_path / "job.json")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = command.python("-c", RUN, cwd=tmp_path, env=variables, kind="compiler")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[2, 1], [0, 0], [1, 1], [1, 1], [0, 0]]


def test_guesses_take_turns(monkeypatch):
    """So that a loop until something holds ends, and one while it holds, too."""
    monkeypatch.setattr(Guesses, "allowed", True)
    assert decide() is not decide()


@pytest.fixture
def handed(job_of_unpack, tmp_path, monkeypatch):
    """The cache of another machine with a kernel, kept; this machine's is empty. Returns the job that uses it."""
    entry = tmp_path / "theirs" / KEY
    entry.mkdir(parents=True)
    (entry / "k.cubin").write_bytes(b"machine code")
    (entry / "k.so").write_bytes(b"for the host")
    (entry / "k.json").write_text(json.dumps({"target": {"backend": CARD.backend, "arch": CARD.arch}}))
    (entry / "__grp__k.json").write_text(json.dumps({"child_paths": {"k.cubin": str(entry / "k.cubin")}}))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "theirs"))
    pack(job_of_unpack)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "ours"))
    job_of_unpack = having(job_of_unpack, compiled=inputs.digest_of(inputs.find(tmp_path)))
    inputs.copy(tmp_path / COMPILED_FOLDER, tmp_path, job_of_unpack.what.compiled)
    return job_of_unpack


def test_kernels_are_handed_over_without_what_a_processor_would_execute(handed, tmp_path):
    """Where Triton finds them: the list of an entry's files names those of this machine. The copy is gone afterwards."""
    found = tmp_path / "ours" / KEY

    assert unpack(handed, CARD) == (1, "")
    assert sorted(path.name for path in found.iterdir()) == ["__grp__k.json", "k.cubin", "k.json"]
    assert json.loads((found / "__grp__k.json").read_text())["child_paths"] == {"k.cubin": str(found / "k.cubin")}
    assert not (tmp_path / COMPILED_HERE).exists()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"triton": "another"}, "another Triton"),
        ({"kernels_hash": "another"}, "other sources"),
        ({"architectures": ["sm_80"]}, "compiled for sm_80, and this card is sm_90"),
        ({"files": {"../../escape.json": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/evil.so": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/../x.json": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/k.cubin": "0" * 64}}, "a file was changed"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(handed, tmp_path, changed, why):
    """And nothing of it is taken."""
    path = tmp_path / COMPILED_HERE / COMPILED_MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    forged = having(handed, compiled=hashlib.sha256(path.read_bytes()).hexdigest())
    kernels, refused = unpack(forged, CARD)

    assert (kernels, why in refused) == (0, True), refused
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("group", "taken"),
    [
        (json.dumps({"child_paths": {"k.cubin": "", "..": "/etc", "../k.cubin": "", "other.cubin": ""}}), {"k.cubin"}),
        ("[" * 100_000, "RecursionError"),
        ('{"child_paths": ["k.cubin"', "JSONDecodeError"),
        ('"k.cubin"', "TypeError"),
    ],
    ids=["names others", "deep", "cut off", "no list"],
)
def test_a_forged_list_of_an_entrys_files_names_no_others(handed, tmp_path, group, taken):
    """Its hash is right: who made the list made this, too. Triton would open what it names, and a traceback would end the stage."""
    folder, name = tmp_path / COMPILED_HERE, f"{KEY}/__grp__k.json"
    (folder / name).write_text(group)
    manifest = json.loads((folder / COMPILED_MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256(group.encode()).hexdigest()
    (folder / COMPILED_MANIFEST).write_text(json.dumps(manifest))
    forged = having(handed, compiled=hashlib.sha256((folder / COMPILED_MANIFEST).read_bytes()).hexdigest())
    kernels, refused = unpack(forged, CARD)

    if isinstance(taken, str):
        assert (kernels, taken in refused) == (0, True), refused
    else:
        assert set(json.loads((tmp_path / "ours" / name).read_text())["child_paths"]) == taken


def test_what_was_not_planned_is_refused_before_anything_starts(handed, tmp_path):
    """By the hash of its list; so is a file that is not the listed one, a link, and a folder without kernels."""
    theirs = tmp_path / COMPILED_FOLDER
    with pytest.raises(UsageError, match="does not hold the kernels that were planned"):
        inputs.digest_of(theirs, "0" * 64)
    with pytest.raises(UsageError, match="no compiled kernels"):
        inputs.find(tmp_path / "theirs")
    (theirs / KEY / "k.cubin").write_bytes(b"other code")
    with pytest.raises(UsageError, match="was changed after it was compiled"):
        inputs.copy(theirs, tmp_path / "raw", handed.what.compiled)
    (theirs / KEY / "k.cubin").unlink()
    (theirs / KEY / "k.cubin").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="cubin"):
        inputs.copy(theirs, tmp_path / "raw", handed.what.compiled)


def test_kernels_that_would_fill_the_disk_are_refused(handed, tmp_path, monkeypatch):
    """Each file may be within its limit, and all together may not."""
    monkeypatch.setattr(inputs, "_MOST_TOGETHER", 20)
    with pytest.raises(UsageError, match="have more than 0 GiB"):
        inputs.copy(tmp_path / COMPILED_FOLDER, tmp_path / "raw", handed.what.compiled)
    assert sum(file.stat().st_size for file in (tmp_path / "raw").rglob("*") if file.is_file()) <= 20


def test_a_list_that_changed_meanwhile_is_refused(handed, tmp_path):
    """By code of the package, which can write to the results."""
    (tmp_path / COMPILED_HERE / COMPILED_MANIFEST).write_text("{}")

    assert unpack(handed, CARD) == (0, "their list was changed after this run had begun")


# What `torch.compile` makes before the card is taken: where it is kept, under which key, and that nothing runs.

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
import time
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
def job_of_generated(tmp_path):
    (tmp_path / "kernels" / "norm").mkdir(parents=True)
    (tmp_path / "kernels" / "norm" / "bench_norm.py").write_text(BENCH)
    (tmp_path / "bench").mkdir()
    (tmp_path / "facts.json").write_text(json.dumps({"devices": [{"name": "a card"}]}))
    stages = (Stage.BENCH,)
    folders = str(tmp_path / "kernels"), str(tmp_path)
    return make_job("r", "t", stages, *folders, architectures=(CARD,), peers=("torch", "compile"))


@pytest.mark.slow
def test_graphs_and_all_candidates_are_there_before_a_card_is(job_of_generated, tmp_path):
    """Also the one that torch adds for a loop with many registers, which it reads from the binary."""
    dump(job_of_generated, tmp_path / "job.json")
    others = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TRITON_LIBCUDA_PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", GENERATE, str(tmp_path / "job.json")], env=others | caches, check=True)

    found = tmp_path / "cache"
    assert len(list(found.glob("fxgraph/*/*/*"))) == 1
    assert len(list(found.glob("triton/0/*/*.cubin"))) == 3
    assert not list(found.rglob("*.best_config"))
    assert not list((tmp_path / "bench").glob(".home-*"))


def test_a_package_that_does_not_name_torchs_compiler_starts_nothing(job_of_generated, tmp_path, monkeypatch):
    """Nor does a run without a sweep, or one that was told not to; on a card whose entry does not say so, the user has to ask."""
    monkeypatch.setattr(torch_ahead, "forked", lambda *words: lambda journal, log: words)
    assert torch_ahead.names_any(job_of_generated, "torch.compile")
    assert torch_ahead.started(job_of_generated, dataclasses.replace(CARD, torch_compile_ahead=False), tmp_path / "log") == ([], {})
    amd = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    assert torch_ahead.started(job_of_generated, amd, tmp_path / "log") == ([], {})
    assert torch_ahead.started(job_of_generated, dataclasses.replace(amd, torch_compile_ahead=True), tmp_path / "log")[0]
    assert torch_ahead.started(having(job_of_generated, stages=(Stage.TEST,)), CARD, tmp_path / "log") == ([], {})
    (tmp_path / "kernels" / "norm" / "bench_norm.py").write_text(BENCH.replace("torch.compile(normed, dynamic=False)", "normed"))
    assert not torch_ahead.names_any(job_of_generated, "torch.compile")
    assert torch_ahead.started(job_of_generated, CARD, tmp_path / "log") == ([], {})


def test_the_bench_stage_takes_and_deletes_the_runs_own_cache_and_leaves_the_users(job_of_generated, tmp_path, monkeypatch):
    """Without a note of what was made ahead, it changes nothing."""
    monkeypatch.setattr(torch_ahead, "forked", lambda *words: lambda journal, log: words)
    for own in (None, str(tmp_path / "users")):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", own or "")
        workers, told = torch_ahead.started(job_of_generated, CARD, tmp_path / "bench" / "ahead.json")
        assert len(workers) == 3
        folder = Path(told["generated"])
        folder.mkdir(exist_ok=True)
        assert own is None or str(folder) == own
        assert own or folder.stat().st_mode & 0o077 == 0
        (tmp_path / "bench" / "ahead.json").write_text(json.dumps(told))
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
        torch_ahead.name_folder(job_of_generated)
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
        torch_ahead.remove(job_of_generated)
        assert folder.exists() == bool(own)
    (tmp_path / "bench" / "ahead.json").unlink()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    torch_ahead.name_folder(job_of_generated)
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


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
