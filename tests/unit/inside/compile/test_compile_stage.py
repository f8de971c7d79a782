"""The compile stage: every launch of an unmodified package, for every architecture, without a GPU."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.config.targets import load_targets
from warpwave.inside import environment
from warpwave.inside.codegen import recorder
from warpwave.inside.codegen.binary import occupancy, read
from warpwave.inside.compile import launches
from warpwave.inside.compile.launches import finish
from warpwave.inside.compile.stage import Cases, with_its_fault
from warpwave.inside.fake_gpu.unknown import Asked
from warpwave.inside.process.outcomes import Pretended
from warpwave.records import BY_TORCH, HOST_CODE, CompiledKernel, NotRun, Stage, Verdict

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@pytest.fixture(scope="module")
def rows(run_inside, data):
    output = run_inside(data / "scripted", Stage.COMPILE)
    return [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]


def test_every_launch_is_compiled_for_every_architecture_and_read(rows):
    """The plain kernel, and both configurations of the autotuned one, exist for all eight."""
    compiled = {(row["architecture"], row["function"], row["constants"].get("BLOCK")) for row in rows if row["verdict"] == "passed"}
    wanted = {("scale_kernel", 128), ("tuned_kernel", 256), ("tuned_kernel", 512)}

    assert compiled == {(architecture, *kernel) for architecture in ARCHITECTURES for kernel in wanted}

    for row in rows:
        if row["verdict"] == "passed":
            assert row["registers"] > 0, row
            assert (row["spills"], row["stack_bytes"], row["shared_bytes"]) == (0, 0, 0), row
            assert row["load_bits"] in (32, 64, 128), row

    # VGPRs and SGPRs are counted on every wave machine, AGPRs where there are some; elsewhere none of them.
    for row in (row for row in rows if row["verdict"] == "passed"):
        name = row["architecture"]
        known = {kind for kind in ("vgprs", "agprs", "sgprs") if row[kind] is not None}
        assert known == (
            {"vgprs", "agprs", "sgprs"} if name.startswith("gfx9") else {"vgprs", "sgprs"} if name.startswith("gfx") else set()
        )
        assert row["vgprs"] in (None, row["registers"])
        assert (row["spill_store_bytes"], row["spill_load_bytes"]) == (0, 0)
        assert row["load_widths"][-1] == row["load_bits"]

    # Aligned pointers and sizes divisible by 16 give each thread one load of all its elements: four of them, or two in a wave of 64.
    tuned = {row["architecture"]: row["load_bits"] for row in rows if row["constants"].get("BLOCK") == 512}

    assert tuned == {name: 64 if name.startswith("gfx9") else 128 for name in ARCHITECTURES}

    # A provider that raises is `failed` with its reason, once a point and architecture.
    broken = [row for row in rows if row["verdict"] == "failed"]

    assert len(broken) == 6 * len(ARCHITECTURES)
    assert {row["reason"] for row in broken} == {
        "it raises ValueError on every architecture: this provider is broken on purpose (01-scale.py:66)"
    }


def test_what_compiling_costs_is_measured(rows):
    """CPU time, and memory where the system says how much a process took at most."""
    measured = [row for row in rows if row["verdict"] == "passed"]

    assert all(0.01 < row["seconds"] < 600 for row in measured)
    assert {row["peak_bytes"] is None for row in measured} == {not os.access("/proc/self/clear_refs", os.W_OK)}


def test_what_comes_from_a_cache_has_the_cost_of_its_compilation(tmp_path, monkeypatch):
    """Nothing is known of what another program compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    binary = tmp_path / "kernel.hsaco"

    def spent(name, compiled_earlier):
        cost = recorder._Cost()
        memory = bytearray(os.urandom(1 << 20) * 8)
        binary.write_bytes(memory[:1])
        if compiled_earlier:
            os.utime(binary, (0, 0))
        return cost.spent(SimpleNamespace(hash=name, metadata_group={"kernel.hsaco": str(binary)}))

    made = spent("ours", compiled_earlier=False)
    assert made["peak_bytes"] is None or made["peak_bytes"] >= 8 << 20
    assert spent("ours", compiled_earlier=True) == made
    assert spent("another's", compiled_earlier=True) == {"seconds": 0.0, "peak_bytes": None}


def test_lines_without_a_kernel_of_the_package_are_not_run(run_inside, data):
    """Such lines are not compiled, and their errors are not reported. The other lines have their kernels."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(data / "scripted", Stage.COMPILE, architectures=(card,), peers=("broken", "tuned"))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    assert {(row["function"], row["verdict"]) for row in rows} == {("scale_kernel", "passed")}


@pytest.fixture(scope="module")
def limits(run_inside, data):
    """Rows of kernels past the limits of a card, by architecture and provider."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(data / "limits", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    report = json.loads((output / "compile" / "report.json").read_text())
    return {(row["architecture"], row["origin"].split("[")[1].rstrip("]")): row for row in rows}, report


def test_what_compiles_and_cannot_be_launched_has_failed(limits):
    """The compiler checks neither the threads of a block nor its shared memory; a wave of 64 and 64 KiB make the difference."""
    rows, _ = limits

    assert rows["sm_90", "32 warps"]["verdict"] == "passed"
    assert (rows["gfx942", "32 warps"]["verdict"], "2048 threads" in rows["gfx942", "32 warps"]["reason"]) == ("failed", True)
    assert rows["sm_90", "shared memory"]["verdict"] == "passed"
    assert rows["gfx942", "shared memory"]["verdict"] == "failed"
    assert "gfx942 has 65536" in rows["gfx942", "shared memory"]["reason"]

    # On both architectures, with the compiler's first line, and without a second row for the point.
    rows, report = limits

    for architecture in ("sm_90", "gfx942"):
        assert rows[architecture, "broken"]["verdict"] == "failed"
        assert "power of 2" in rows[architecture, "broken"]["reason"], rows[architecture, "broken"]
        assert rows[architecture, "after"]["verdict"] == "passed"
    assert report["verdict"] == "failed"
    assert report["counts"] == {"passed": 4, "failed": 4}

    # 192 KiB leave room for one program on an SM; what cannot be launched has no occupancy.
    rows, _ = limits

    fits = rows["sm_90", "shared memory"]
    assert (fits["programs"], fits["resident_warps"], fits["occupancy"], fits["limited_by"]) == (1, 8, 0.125, ["shared"])
    assert (rows["gfx942", "shared memory"]["programs"], rows["gfx942", "32 warps"]["occupancy"]) == (None, None)

    # The matrix instructions of `matrix`, and the copies that go past the registers.

    for card in ("sm_90", "gfx942"):
        row = rows[card, "shared memory"]
        assert set(row["matrix"]) <= set(row["instructions"])
        assert all(count > 0 for count in row["instructions"].values())
    assert rows["sm_90", "shared memory"]["instructions"]["cp.async.cg"] > 1
    assert rows["sm_90", "after"]["instructions"] == {}
    assert (rows["sm_90", "after"]["load_widths"], rows["sm_90", "32 warps"]["store_widths"]) == ([128], [64])


WIDE = """
import torch, triton, triton.language as tl
@triton.jit
def wide_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, BLOCK), x - tl.max(x, 0))
@triton.testing.perf_report(triton.testing.Benchmark(["N"], [16384], "provider", ["triton"], ["triton"], "wide", {}))
def benchmark(N, provider):
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    return triton.testing.do_bench(lambda: wide_kernel[(1,)](x, y, N, num_warps=1))
"""


NEITHER = """
import torch, triton, triton.language as tl
@triton.jit
def threads_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
def undecided(x):
    return x.sum().item()
def wide(x):
    threads_kernel[(1,)](x, BLOCK=4096, num_warps=64)
@triton.testing.perf_report(triton.testing.Benchmark(["N"], [4096], line_arg="provider", line_vals=["undecided", "wide"],
    line_names=["a", "b"], ylabel="ms", plot_name="both", args={}))
def benchmark(N, provider):
    return triton.testing.do_bench(lambda: globals()[provider](torch.empty(N, device="cuda")))
"""


KEEPING = """
import os, time
from pathlib import Path
import torch, triton
@triton.testing.perf_report(triton.testing.Benchmark(["N"], [64], line_arg="provider", line_vals=["a"], line_names=["a"],
    ylabel="ms", plot_name="tuned", args={}))
def benchmark(N, provider):
    ms = triton.testing.do_bench(lambda: None)
    (Path.home() / f"tuned{os.getpid()}.db").write_text(str(ms))
    end = time.monotonic() + 2
    while len(list(Path.home().glob("tuned*.db"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    raise NotImplementedError(f"databases: {len(list(Path.home().glob('tuned*.db')))}")
"""


TYPED = """
import torch, triton
def copy(x, stream: torch.cuda.Stream | None = None, device: torch.cuda.device | None = None):
    with torch.cuda.device(0):
        return x if isinstance(torch.cuda.current_stream(), torch.cuda.Stream) else None
@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["N"], x_vals=[8], line_arg="provider", line_vals=["a"], line_names=["a"], ylabel="ms", plot_name="typed", args={}))
def benchmark(N, provider):
    assert copy(N, torch.cuda.Stream()) == N
    raise NotImplementedError("as far as it goes")
"""


@pytest.fixture(scope="module")
def small(run_inside, tmp_path_factory):
    """The results of one run over bench files of a few lines each, the home of the user who started it, and its rows by file."""
    folder = tmp_path_factory.mktemp("small")
    for name, text in {"both": NEITHER, "tuned": KEEPING, "typed": TYPED, "wide": WIDE}.items():
        (folder / "package" / name).mkdir(parents=True)
        (folder / "package" / name / f"bench_{name}.py").write_text(text)
    (folder / "home").mkdir()
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_80", "gfx90a"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        output = run_inside(folder / "package", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    return output, folder / "home", {name: [row for row in rows if row["kernel"] == name] for name in ("both", "tuned", "typed", "wide")}


def test_what_does_not_fit_into_registers_is_counted(small):
    """512 values a thread go to the stack on one machine; 256 on the other need both kinds of registers and leave one wave a SIMD."""
    rows = {row["architecture"]: row for row in small[2]["wide"]}
    thread, wave = rows["sm_80"], rows["gfx90a"]
    # A slot of the stack is written once at least, and nothing is read that was not written; each is 4 bytes or more.
    assert thread["spills"] * 4 == thread["stack_bytes"] > 0
    assert thread["spill_store_bytes"] >= thread["stack_bytes"]
    assert thread["spill_load_bytes"] >= thread["stack_bytes"]
    assert (wave["spill_store_bytes"], wave["spills"], wave["compiler_waves"], wave["programs"]) == (0, 0, 1, 4)
    assert wave["registers"] == wave["vgprs"] + wave["agprs"] > wave["vgprs"] == 256


ASSEMBLY = """
	global_load_dwordx4 v[2:5], v[0:1], off
	buffer_load_ushort v7, v8, s[4:7], 0 offen
	global_load_d16_hi_b16 v9, v[0:1], off
	buffer_load_dword v1, s[4:7], 0 offen lds
	global_load_lds_dwordx4 v[0:1], off
	buffer_store_dword v6, off, s[88:91], 0 offset:100 ; 4-byte Folded Spill
	buffer_load_dword v6, off, s[88:91], 0 offset:100 ; 4-byte Folded Reload
	s_clause 0x1                            ; 32-byte Folded Reload
	scratch_load_b128 v[1:4], off, off
	scratch_load_dwordx3 v[1:3], off, off offset:16
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	flat_store_byte v[0:1], v2
	global_store_b64 v[0:1], v[2:3], off
; TotalNumSgprs: 30
; NumVgprs: 97
; NumAgprs: 16
; Occupancy: 4
amdhsa.kernels:
  - .agpr_count:     16
    .private_segment_fixed_size: 44
    .sgpr_count:     30
    .sgpr_spill_count: 5
    .vgpr_count:     116
    .vgpr_spill_count: 11
"""


def test_widths_and_spills_of_wave_assembly():
    """A spill through a buffer is no access of the kernel's, and every spelling of a width is known."""
    found = read({"amdgcn": ASSEMBLY})

    assert (found.load_widths, found.load_bits, found.store_widths) == ((16, 32, 128), 128, (8, 64))
    assert (found.spill_store_bytes, found.spill_load_bytes, found.spills, found.stack_bytes) == (4, 32, 11, 44)
    assert (found.registers, found.vgprs, found.agprs, found.sgprs, found.compiler_waves) == (116, 97, 16, 30, 4)
    assert found.instructions == {"buffer_load_dword lds": 1, "global_load_lds_dwordx4": 1, "v_mfma_f32_32x32x8_f16": 2}
    gfx942 = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    assert occupancy(gfx942.multiprocessor, 4, 116, scalars=30).warps == 4 * 4


PTX = """
	@%p1 cp.async.cg.shared.global [ %r20 + 0 ], [ %rd24 + 0 ], 0x10, %r21;
	cp.async.ca.shared.global [ %r20 + 0 ], [ %rd24 + 0 ], 0x4, %r21;
	cp.async.commit_group;
	ld.global.L1::evict_last.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;
	st.global.b16 [ %rd1 + 0 ], { %rs1 };
"""
TENSOR_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"
TENSOR_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r1];"


def test_widths_and_copies_of_ptx():
    """Asynchronous copies are loads of the width that they name; what the binary's tools do not tell stays unknown."""
    found = read({"cubin": b"", "ptx": PTX})

    assert (found.load_widths, found.load_bits, found.store_widths) == ((32, 64, 128), 128, (16,))
    matrix = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    assert (found.matrix, found.instructions) == ((matrix,), {"cp.async.ca": 1, "cp.async.cg": 1, matrix: 1})
    assert (found.registers, found.stack_bytes, found.spill_store_bytes, found.spill_load_bytes) == (None, None, None, None)

    # Into shared memory it is a load, into global memory a store; 16 bytes are the least that it moves.
    load, store = (read({"cubin": b"", "ptx": text}) for text in (TENSOR_LOAD, TENSOR_STORE))

    assert (load.load_widths, load.store_widths, load.instructions) == ((128,), (), {"cp.async.bulk.tensor.2d.shared": 1})
    assert (store.load_widths, store.store_widths, store.instructions) == ((), (128,), {"cp.async.bulk.tensor.2d.global": 1})


def test_launches_behind_registered_ops_are_seen(run_inside, data):
    """A custom op's forward, its registered backward, and what `torch.compile` is given, in a package that imports itself by name."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(data / "packaged", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    seen = {(row["origin"], row["constants"].get("BLOCK")) for row in rows if row["verdict"] == "passed"}
    assert seen == {
        *(("scale/n=4096 [eager]", 128), ("scale/n=4096 [eager]", 256), ("scale/n=4096 [compiled]", 512)),
        ("scale/n=4096 [compiled]", 1024),
    }


def test_the_stage_names_what_failed_and_keeps_what_was_tuned_out_of_the_users_home(small):
    output, _, _ = small
    report = json.loads((output / "compile" / "report.json").read_text())

    assert report["verdict"] == "failed"
    assert report["reason"].startswith("threads_kernel for ")

    # FlagGems has a database of tuned configurations there; timings on a pretended card are made up.
    output, home, _ = small

    assert list(home.rglob("tuned*.db")) == []
    assert list(output.rglob("tuned*.db")) == []
    assert {row["reason"].partition("databases: ")[2][:1] for row in small[2]["tuned"]} == {"1"}  # not that of the other architecture
    assert "tuned" in (output / "compile" / "journal-sm_80.jsonl").read_text()

    # transformers does, which Liger-Kernel imports where it is installed: what stands in for a class has to be one.
    _, _, rows = small

    assert {row["architecture"] for row in rows["typed"] if "as far as it goes" in row["reason"]} == {"sm_80", "gfx90a"}


@pytest.mark.parametrize(
    ("installed", "users", "preloaded"), [("libm.so.6", "", ["libm.so.6"]), ("libm.so.6", "libdl.so.2", ["libdl.so.2"]), (None, "", [])]
)
def test_workers_take_a_quicker_malloc_where_there_is_one(installed, users, preloaded, monkeypatch):
    """What the user preloads stays alone."""
    monkeypatch.setattr(environment, "find_library", lambda name: installed)
    monkeypatch.setenv("LD_PRELOAD", users)
    variables = {**os.environ, **environment.for_compiling()}
    maps = subprocess.run(["cat", "/proc/self/maps"], env=variables, capture_output=True, text=True, check=True).stdout

    assert [name for name in ("libm.so.6", "libdl.so.2") if name in maps] == preloaded


def test_a_temporary_home_keeps_what_has_nothing_to_do_with_timings(tmp_path, monkeypatch):
    """Downloads, and the compiled emulator, are where they were; a place that the user chose stays his."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", "elsewhere")
    monkeypatch.delenv("WARPWAVE_CACHE", raising=False)
    with environment.temporary_home(tmp_path):
        inside = {name: os.environ.get(name) for name in ("WARPWAVE_CACHE", "TORCH_HOME", "XDG_CACHE_HOME")}
        home = Path(os.environ["HOME"])

    assert inside == {"WARPWAVE_CACHE": str(tmp_path / "cache" / "warpwave"), "TORCH_HOME": "elsewhere", "XDG_CACHE_HOME": None}
    assert home.parent == tmp_path
    assert not home.exists()
    assert "WARPWAVE_CACHE" not in os.environ


# The compile stage after its worker died: the next one goes on, and nothing that both of them compiled is told twice.

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


# A file that cannot be loaded without a card's data, or its vendor's libraries, has a row that says so, and has not failed.

# What stands at the top of a file → its verdict and why it did not run, as a bench and as a file of tests.
FILES = {
    "by_data": ("if torch.ones(4, device='cuda').sum().item() > 3:\n    SIZE = 4\n", "not-run", "decided-by-data", "decided-by-data"),
    "library": (
        "raise RuntimeError('Could not find `libcublas.so`. Make sure it is in your LD_LIBRARY_PATH.')\n",
        *("not-run", "not-pretended", "not-pretended"),
    ),
    "own": ("raise ValueError('no such size')\n", "error", None, "import-failed"),
}


def test_a_file_that_needs_a_card_to_load_has_not_failed(run_inside, tmp_path):
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    (tmp_path / "package").mkdir()
    for name, (text, *_) in FILES.items():
        for kind in ("bench", "test"):
            (tmp_path / "package" / f"{kind}_{name}.py").write_text(f"import torch\n\n{text}")
    output = run_inside(tmp_path / "package", Stage.COMPILE, architectures=(card,), benches=("bench_*.py",))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    found = {row["origin"]: (row["verdict"], row["not_run"]) for row in rows}
    assert found == {
        origin: (verdict, why)
        for name, (_, verdict, of_bench, of_tests) in FILES.items()
        for origin, why in ((f"{name} [loading bench_{name}.py]", of_bench), (f"test_{name}.py", of_tests))
    }


@pytest.mark.parametrize(
    ("text", "how", "verdict"), [("pytest.exit('enough')", {}, "error"), ("pass", {"pytest_args": ("-k", "a and (")}, "not-run")]
)
def test_what_ends_pytest_early_is_said(run_inside, tmp_path, text, how, verdict):
    """It is no forged result. A package that ends it fails; a wrong option of the user is no failure of the package."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_a.py").write_text(f"import pytest\ndef test_a(): {text}\ndef test_b(): pass\n")
    output = run_inside(tmp_path / "package", Stage.COMPILE, architectures=(card,), **how)
    report = json.loads((output / "compile" / "report.json").read_text())

    assert (report["verdict"], report["doubts"]) == (verdict, [])
    assert "pytest ended early" in (output / "compile" / "kernels.jsonl").read_text()


# What runs on one architecture and raises, or ends its process, on another is a failure; what raises everywhere is not.


def test_what_host_code_raised_has_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(Pretended, "asked", set())  # as at the start of a case
    monkeypatch.setattr(Pretended, "refused", False)
    monkeypatch.setattr(Asked, "since_begin", False)
    (tmp_path / "tiles.py").write_text("def choose(card):\n    return {'a': 1}[card]\n")
    rows: list[dict[str, object]] = []
    told = SimpleNamespace(root=tmp_path, failure=None, origin=TEST, kernel="a")
    with pytest.raises(KeyError) as raised:
        runpy.run_path(str(tmp_path / "tiles.py"))["choose"]("b")
    finish(SimpleNamespace(write=lambda _, **row: rows.append(row)), told, raised.value)

    assert [(row["reason"], row["not_run"], row["by_package"]) for row in rows] == [("KeyError: 'b' (tiles.py:2)", NotRun.RAISED, True)]


@pytest.mark.parametrize(("code", "why"), [(None, NotRun.SKIPPED), (0, NotRun.SKIPPED), (1, NotRun.RAISED), ("no card", NotRun.RAISED)])
def test_a_point_that_exits_ends_alone(code, why, tmp_path):
    """`if device_count() < 2: sys.exit()` ended the process, and all other points of it were crashed."""
    rows: list[dict[str, object]] = []
    told = SimpleNamespace(root=tmp_path, failure=None, origin="", kernel="a")
    launches._launch_once(SimpleNamespace(write=lambda _, **row: rows.append(row)), told, POINT, "a", lambda: sys.exit(code))

    assert (rows[-1]["not_run"], rows[-1]["by_package"]) == (why, False)


TEST = "test_a.py::test_a"


@pytest.mark.parametrize(
    ("elsewhere", "more", "verdict"),
    [
        *((None, "", Verdict.FAILED), (NotRun.EMPTY, "", Verdict.FAILED), (NotRun.RAISED, "", Verdict.NOT_RUN)),
        *((NotRun.SKIPPED, "", Verdict.NOT_RUN), (None, BY_TORCH, Verdict.NOT_RUN)),
    ],
)
def test_only_what_runs_elsewhere_fails(elsewhere, more, verdict):
    """An exception on all architectures may be a gap of what is pretended, and so may what torch refuses."""
    cases = {"sm_90": Cases(), "gfx942": Cases()}
    cases["sm_90"].ended[TEST], cases["gfx942"].ended[TEST] = NotRun.RAISED, elsewhere
    row = CompiledKernel("a", HOST_CODE, "sm_90", Verdict.NOT_RUN, origin=TEST, reason=f"KeyError: 'x'{more}", not_run=NotRun.RAISED)
    found = with_its_fault(row, cases)

    assert found.verdict is verdict
    assert ("runs on gfx942 and raises KeyError on sm_90: 'x'" in found.reason) == (verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("by_package", "is_test", "verdict"),
    [
        (("sm_90", "gfx942"), False, Verdict.FAILED),
        (("sm_90",), False, Verdict.NOT_RUN),
        (("sm_90", "gfx942"), True, Verdict.NOT_RUN),
    ],
)
def test_a_benchmark_that_its_own_code_ends_everywhere_fails(by_package, is_test, verdict):
    """The test stage judges a test. No stage without a card measures a benchmark."""
    cases = {"sm_90": Cases(), "gfx942": Cases()}
    for name, each in cases.items():
        if is_test:
            each.note({"event": "collected", "ids": [POINT]})
        each.note({"event": "finish", "id": POINT, "reason": "-", "not_run": "raised", "by_package": name in by_package})
    row = CompiledKernel("a", HOST_CODE, "sm_90", Verdict.NOT_RUN, origin=POINT, reason="ValueError: no size", not_run=NotRun.RAISED)
    found = with_its_fault(row, cases)

    assert found.verdict is verdict
    assert (found.reason == "it raises ValueError on sm_90 and gfx942: no size") == (verdict is Verdict.FAILED)


POINT = "a/N=1024 [triton]"


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("KeyError: 'hip'", Verdict.FAILED),
        ("NameError: name 'block' is not defined", Verdict.FAILED),
        ("KeyError: 3", Verdict.NOT_RUN),
        ("ValueError: no such size", Verdict.NOT_RUN),
    ],
)
def test_an_error_of_the_package_counts_where_data_decides_elsewhere(reason, verdict):
    """No data decides what a dict with names has. Of another error, that is not known."""
    cases = {"sm_90": Cases(), "gfx942": Cases()}
    cases["sm_90"].ended[TEST], cases["gfx942"].ended[TEST] = NotRun.DATA, NotRun.RAISED
    row = CompiledKernel("a", HOST_CODE, "gfx942", Verdict.NOT_RUN, origin=TEST, reason=reason, not_run=NotRun.RAISED)

    assert with_its_fault(row, cases).verdict is verdict


def test_a_process_that_ends_on_one_architecture_is_named_with_both():
    """`os._exit(1)` raises nothing. Where a process died, its test has not run."""
    cases = {"sm_90": Cases(), "gfx942": Cases(), "gfx1100": Cases()}
    cases["sm_90"].note({"event": "finish", "id": TEST, "reason": "", "not_run": None})
    for name in ("gfx942", "gfx1100"):
        cases[name].note({"event": "death", "id": TEST, "verdict": "crashed", "reason": "its process exited with 1 before its end"})
    row = CompiledKernel("a", HOST_CODE, "gfx942", Verdict.CRASHED, origin=TEST, reason="its process exited with 1 before its end")
    found = with_its_fault(row, cases)

    assert found.verdict is Verdict.CRASHED
    assert found.reason == "it runs on sm_90 and on gfx942 its process exited with 1 before its end"


# Kernels that compile and that no driver launches: a row for each in the compile stage, and none for what is launched rightly.

TESTS = """\
import pytest
import torch
import triton
import triton.language as tl
@triton.jit
def tall(out):
    tl.store(out + tl.program_id(1), 1.0)
@triton.jit
def wrapped(out):
    tl.store(out + tl.program_id(1), 2.0)
@triton.jit
def right(out):
    tl.store(out + tl.program_id(1), 3.0)
@triton.jit
def early(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]))
@triton.jit
def odd(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 2)
@triton.jit
def given(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 1)
@triton.jit
def none(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 3)
@triton.jit
def little(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 4)
@triton.jit
def host(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 5)
@triton.jit
def several(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 6)
@pytest.fixture
def out():
    return torch.zeros(64, device="cuda")
@pytest.fixture
def allocator():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    yield
    triton.set_allocator(triton.runtime._allocation.NullAllocator())
def test_good_and_tall(out):
    tall[(1, 65535)](out)
@pytest.mark.parametrize("rows", [70000, 80000])
def test_tall(out, rows):
    tall[(1, rows)](out)
def test_wrapped(out):
    try:
        wrapped[(1, 70000)](out)
    except RuntimeError as error:
        raise ValueError("no launch") from error
def test_right(out):
    right[(0, 70000)](out)
    right[lambda meta: (1, 2)](out)
    try:
        right[(1, 70000)](out)
    except RuntimeError:
        right[(70000, 1)](out)
def test_expected(out):
    if torch.version.cuda:
        with pytest.raises(RuntimeError, match="limit of y"):
            right[(1, 70000)](out)
def test_early(out):
    early.warmup(out, out, 64, BLOCK=64, grid=(1,))
def test_late(out, allocator):
    early[(1,)](out, out, 64, BLOCK=64)
def test_without(out):
    early[(1,)](out, out, 64, BLOCK=64)
def test_odd(out, allocator):
    triton.set_allocator(lambda size: torch.empty(size, device="cuda", dtype=torch.int8))
    odd[(1,)](out, out, 64, BLOCK=64)
def test_none(out, allocator):
    triton.set_allocator(lambda size, alignment, stream: None)
    none[(2,)](out, out, 64, BLOCK=64)
def test_little(out, allocator):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size // 2, device="cuda", dtype=torch.int8))
    little[(2,)](out, out, 64, BLOCK=64)
def test_host(out, allocator):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    host[(2,)](out, out, 64, BLOCK=64)
@pytest.mark.parametrize("grid", [2, 3])
@pytest.mark.parametrize("memory", [None, 2, 4, "cpu"])
def test_several(out, allocator, memory, grid):
    device, size = (memory, 9999) if memory == "cpu" else ("cuda", memory)
    triton.set_allocator(lambda *_: memory and torch.empty(size, dtype=torch.int8, device=device))
    several[(grid,)](out, out, 64, BLOCK=64)
def test_given(out, allocator):
    given.warmup(out, out, 64, BLOCK=64, grid=(1,))
    given[(1,)](out, out, 64, BLOCK=64)
"""


def test_a_kernel_that_no_driver_launches_has_a_row(run_inside, tmp_path):
    """One row for each reason, with the first launch that is refused, in place of that of the compilation.

    What the package catches is no fault.
    """
    (tmp_path / "test_launches.py").write_text(TESTS)
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(tmp_path, Stage.COMPILE, architectures=cards, benches=("bench_*.py",))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    found = {(row["architecture"], row["function"], row["verdict"], row["origin"].rpartition("::")[2]) for row in rows}

    assert len(found) == len(rows)
    assert found == {
        *(("sm_90", "tall", "failed", "test_tall[70000]"), ("sm_90", "wrapped", "failed", "test_wrapped")),
        *(("sm_90", "right", "passed", "test_right"), ("sm_90", "early", "failed", "test_without")),
        *(("sm_90", "given", "passed", "test_given"), ("gfx942", "tall", "passed", "test_good_and_tall")),
        *(("gfx942", "wrapped", "passed", "test_wrapped"), ("gfx942", "right", "passed", "test_right")),
        *(("gfx942", "early", "passed", "test_early"), ("gfx942", "given", "passed", "test_given")),
        *(("sm_90", "odd", "failed", "test_odd"), ("gfx942", "odd", "passed", "test_odd")),
        *(("sm_90", name, "failed", f"test_{name}") for name in ("none", "little", "host")),
        *(("gfx942", name, "passed", f"test_{name}") for name in ("none", "little", "host")),
        *(("sm_90", "several", "failed", f"test_several[{memory}-2]") for memory in (None, 2, "cpu")),
        ("gfx942", "several", "passed", "test_several[None-2]"),
    }
    said = {row["function"]: row["reason"] for row in rows if row["verdict"] == "failed"}
    assert said["tall"] == "`tall` cannot be launched on sm_90: its grid is (1, 70000, 1), the limit of y is 65535"
    assert "no allocator was set; call triton.set_allocator" in said["early"]
    assert "and the allocator does not take a size, an alignment and a stream" in said["odd"]
    assert "256 bytes of scratch memory, and the allocator returned None: a card reads and writes at address 0" in said["none"]
    assert "256 bytes of scratch memory, and the allocator returned 128 bytes" in said["little"]
    assert "the allocator returned memory of the host: Triton's launcher raises ValueError" in said["host"]
    assert all("return torch.empty(size" in said[name] for name in ("none", "little", "host"))


REGISTERS = """\
import torch
import triton
import triton.language as tl
@triton.jit
def center(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    d = tl.where(i < n, v - tl.sum(v) / n, 0.0)
    tl.store(y + i, d * tl.rsqrt(tl.sum(d * d) / n + 1e-5), mask=i < n)
def test_center():
    x = torch.zeros(65536, device="cuda")
    center[(1,)](x, x, 65536, 65536, num_warps=16, maxnreg=255)
"""
TENSOR_MEMORY = """\
import torch
import triton
import triton.language as tl
@triton.jit
def three(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x, y, z = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for k in range(0, K, STEP):
        r = k + tl.arange(0, STEP)
        left = tl.load(a + m[:, None] * K + r[None, :])
        at = r[:, None] * N + n[None, :]
        x = tl.dot(left, tl.load(b + at), x)
        y = tl.dot(left, tl.load(b + K * N + at), y)
        z = tl.dot(left, tl.load(b + 2 * K * N + at), z)
    tl.store(c + m[:, None] * N + n[None, :], x * y + z)
def test_three():
    a, b = (torch.zeros(size, device="cuda", dtype=torch.float16) for size in ((128, 64), (3, 64, 256)))
    three[(1,)](a, b, torch.zeros(128, 256, device="cuda"), 64, 128, 256, 32, num_warps=8, num_stages=1)
"""


@pytest.mark.parametrize(
    ("name", "tests", "reason"),
    [
        ("sm_90", REGISTERS, "registers of each of 512 threads are more than a multiprocessor of sm_90 has"),
        ("sm_100", TENSOR_MEMORY, "needs 768 columns of tensor memory, sm_100 has 512"),
    ],
)
def test_what_triton_asks_at_the_launch_is_asked_without_a_card(run_inside, tmp_path, name, tests, reason):
    """The compiler keeps to a limit of each thread's registers, and does not multiply it by their number."""
    (tmp_path / "test_resources.py").write_text(tests)
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == name)
    output = run_inside(tmp_path, Stage.COMPILE, architectures=cards, benches=())
    (row,) = map(json.loads, (output / "compile" / "kernels.jsonl").read_text().splitlines())

    assert row["verdict"] == "failed"
    assert row["reason"].endswith(reason)
