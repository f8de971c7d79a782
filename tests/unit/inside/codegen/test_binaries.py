"""Occupancy against what the vendors publish, and against what their compilers say of the same figures."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.errors import PTXASError

from warpwave.config.targets import load_targets
from warpwave.inside.codegen import recorder
from warpwave.inside.codegen.binary import Occupancy, Reading, left_out, occupancy
from warpwave.inside.codegen.recorder import describe_refusal, written_so_far

KIB = 1024
CARDS = load_targets()["cpu"].architectures
HAS = {card.name: card.multiprocessor for card in CARDS}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_architecture_has_limits_that_agree_with_its_properties(card):
    """The slots are the threads that Triton is told of, and the largest program that a card allows does fit."""
    has = card.multiprocessor

    assert has.schedulers * has.warps * card.warp_size == card.properties["max_threads_per_sm"]
    assert occupancy(has, 1, 1, card.properties["max_shared_mem"]).programs == (2 if card.name.startswith("gfx1") else 1)
    assert occupancy(has, 1, 1, has.shared_bytes + 1).programs == 0


# CUDA C++ Best Practices Guide, "Calculating Occupancy", whose device has the registers, warps and blocks of these: all warps fit with up
# to 32 registers; with 37, blocks of 128 threads reach 75% with 12 of them, and blocks of 320 threads 63% with 4.
# The others by the rules of the occupancy calculator in Nsight Compute and of cuda_occupancy.h.
SM_REGISTERS = [
    (32, 8, 8, 1.0, ("registers", "warps")),
    (33, 8, 6, 0.75, ("registers",)),
    (37, 4, 12, 0.75, ("registers",)),
    (37, 10, 4, 0.625, ("registers",)),
    (64, 8, 4, 0.5, ("registers",)),
    (128, 8, 2, 0.25, ("registers",)),
    (255, 8, 1, 0.125, ("registers",)),
    (255, 16, 0, 0.0, ("registers",)),
    (16, 1, 32, 0.5, ("programs",)),
    # 21 warps have room in the register file, but a quarter of it has room for 5.
    (96, 1, 20, 20 / 64, ("registers",)),
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("registers", "warps", "programs", "share", "limited_by"), SM_REGISTERS)
def test_an_sm_holds_what_its_vendor_says(arch, registers, warps, programs, share, limited_by):
    assert occupancy(HAS[arch], warps, registers) == Occupancy(programs, programs * warps, share, limited_by)


@pytest.mark.parametrize(
    ("arch", "shared", "programs"),
    [
        # Tuning guides: 164 or 228 KiB an SM, of which the system takes 1 KiB a block, so that one block may have 163 or 227.
        *[("sm_80", 163 * KIB, 1), ("sm_80", 163 * KIB + 1, 0), ("sm_80", 40 * KIB, 4), ("sm_80", 41 * KIB, 3), ("sm_80", 81 * KIB, 2)],
        *[("sm_90", 227 * KIB, 1), ("sm_90", 227 * KIB + 1, 0), ("sm_100", 113 * KIB, 2), ("sm_100", 113 * KIB + 1, 1)],
        # In portions of 128 bytes: 3 x 55936 are 128 bytes less than the 167936 there are.
        *[("sm_80", 54912, 3), ("sm_80", 54913, 2)],
    ],
)
def test_shared_memory_of_an_sm_pays_for_the_system_and_in_portions(arch, shared, programs):
    assert occupancy(HAS[arch], 4, 32, shared) == Occupancy(programs, 4 * programs, 4 * programs / 64, ("shared",))


# LLVM, llvm/test/CodeGen/AMDGPU/occupancy-levels.ll: VGPRs → waves a SIMD (`used_*_vgprs`).
CDNA_VGPRS = {24: 8, 64: 8, 72: 7, 80: 6, 84: 5, 96: 5, 100: 4, 112: 4, 128: 4, 144: 3, 168: 3, 200: 2, 256: 2}
RDNA_VGPRS = {24: 16, 56: 16, 84: 16, 96: 16, 100: 12, 112: 12, 128: 10, 144: 10, 168: 9, 200: 7, 256: 5}


@pytest.mark.parametrize(
    ("arch", "registers", "waves"),
    [
        *[(arch, *figures) for arch in ("gfx90a", "gfx942", "gfx950") for figures in {**CDNA_VGPRS, 257: 1, 512: 1}.items()],
        *[(arch, *figures) for arch in ("gfx1100", "gfx1201") for figures in RDNA_VGPRS.items()],
    ],
)
def test_a_simd_holds_the_waves_of_the_published_table(arch, registers, waves):
    """Four SIMDs, a program on each: what is left of the file after whole portions."""
    assert occupancy(HAS[arch], 4, registers).warps == 4 * waves


# The same file, amdhsa, whose trap handler takes 16 of a wave's: SGPRs with VCC and the like → waves a SIMD.
@pytest.mark.parametrize(("scalars", "waves"), [(67, 8), (80, 8), (86, 7), (94, 7), (100, 6), (106, 6)])
def test_scalar_registers_limit_where_they_come_from_a_file(scalars, waves):
    found = occupancy(HAS["gfx942"], 4, 8, scalars=scalars)

    assert (found.warps, found.limited_by == ("scalars",)) == (4 * waves, waves < 8)
    assert occupancy(HAS["gfx1100"], 4, 8, scalars=scalars).share == 1


@pytest.mark.parametrize(
    ("arch", "shared", "programs"),
    [
        *[("gfx942", 0, 8), ("gfx942", 8 * KIB, 8), ("gfx942", 8 * KIB + 1, 7), ("gfx942", 32 * KIB, 2), ("gfx942", 32 * KIB + 1, 1)],
        # 160 KiB in portions of 1280 bytes: 64 of them are exactly half.
        *[("gfx950", 80 * KIB, 2), ("gfx950", 80 * KIB + 1, 1), ("gfx950", 52480, 3), ("gfx950", 53760, 3), ("gfx950", 53761, 2)],
        # A WGP has the 64 KiB of two CUs. LLVM, which rounds 43009 bytes to 43520 where the hardware takes 44032, thinks that 3 fit.
        *[("gfx1100", 64 * KIB, 2), ("gfx1100", 32 * KIB, 4), ("gfx1100", 43009, 2), ("gfx1201", 43008, 3), ("gfx1201", 43009, 2)],
    ],
)
def test_lds_is_given_in_portions(arch, shared, programs):
    assert occupancy(HAS[arch], 4, 8, shared).programs == programs


# What LLVM wrote behind kernels that Triton 3.9.0 compiled (an addition, a softmax and a product, of several sizes):
# warps, `.vgpr_count`, `.sgpr_count`, `; Occupancy:`. It says how many waves of that kind a SIMD has the registers and slots for.
COMPILED = {
    "gfx90a": [(1, 380, 100, 1), (4, 97, 44, 4), (4, 140, 24, 3), (8, 110, 26, 4), (8, 214, 24, 2), (16, 60, 28, 8), (4, 210, 54, 2)],
    "gfx942": [(1, 380, 106, 1), (4, 96, 44, 5), (4, 66, 25, 7), (8, 128, 26, 4), (8, 222, 25, 2), (4, 208, 24, 2), (1, 20, 19, 8)],
    "gfx950": [(4, 96, 44, 5), (4, 50, 28, 8), (4, 134, 28, 3), (8, 102, 27, 4), (8, 256, 27, 2), (16, 60, 30, 8), (4, 59, 30, 8)],
    "gfx1100": [(1, 255, 107, 5), (4, 190, 40, 8), (4, 120, 52, 12), (16, 121, 52, 10), (4, 143, 28, 10), (8, 174, 18, 8), (8, 256, 18, 5)],
    "gfx1201": [(4, 132, 38, 10), (4, 119, 56, 12), (16, 120, 60, 12), (4, 95, 21, 16), (8, 158, 15, 9), (8, 58, 20, 16), (1, 36, 12, 16)],
}


@pytest.mark.parametrize(("arch", "figures"), [(arch, figures) for arch, rows in COMPILED.items() for figures in rows])
def test_the_compiler_says_the_same_of_its_own_kernels(arch, figures):
    """As many whole programs as there is room for by the waves of the comment, on four SIMDs."""
    warps, registers, scalars, waves = figures

    assert occupancy(HAS[arch], warps, registers, scalars=scalars).programs == 4 * waves // warps


def test_only_whole_programs_count():
    """Nine waves a SIMD are 36, of which programs of eight take 32; what is left is of no use to them."""
    assert occupancy(HAS["gfx1201"], 8, 158) == Occupancy(4, 32, 0.5, ("registers",))


def test_all_that_limits_is_named():
    assert occupancy(HAS["sm_90"], 8, 97, 112 * KIB).limited_by == ("registers", "shared")


# Why a compiler refused a kernel, where its exception does not say.

SAID = {
    "/a b/pack age/ops.py:705:27: error: Result has an invalid layout\n  x = load()\n": ": Result has an invalid layout (ops.py:705)",
    'loc("/k/ops.py":7:1): error: operation destroyed\n': ": operation destroyed (ops.py:7)",
    ".triton-amdgpu-assembler:39:2: error: invalid instruction\n        nothing s2;\n        ^\n": ": invalid instruction (nothing s2;)",
    "error: no place\n": ": no place",
    "a warning\n": "",
}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Standard error goes to a file, which an earlier kernel has written to, and nobody reads what pytest captures."""
    path = tmp_path / "log.txt"
    path.write_text("ops.py:1:1: error: of another kernel\n")
    before = os.dup(2)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 2)
    yield path
    os.dup2(before, 2)
    os.close(handle)
    os.close(before)


@pytest.mark.parametrize(("said", "told"), SAID.items())
def test_the_reason_is_read_from_what_was_written_meanwhile(said, told, log):
    since = written_so_far()
    os.write(2, said.encode())
    assert describe_refusal(RuntimeError("PassManager::run failed"), since) == f"RuntimeError: PassManager::run failed{told}"


def test_nothing_is_read_from_a_pipe(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(recorder, "_STDERR", writing)
    os.write(writing, b"error: in a pipe\n")
    assert written_so_far() == -1
    assert describe_refusal(RuntimeError("PassManager::run failed"), -1) == "RuntimeError: PassManager::run failed"
    os.close(reading)
    os.close(writing)


@gluon.jit
def copy_kernel(x_ptr, layout: gl.constexpr):
    places = x_ptr + gl.arange(0, 128, layout=layout)
    gl.store(places, gl.load(places))


def test_a_layout_of_another_warp(log):
    layout = gl.BlockedLayout([1], [32], [4], [0])
    source = GluonASTSource(copy_kernel, {"x_ptr": "*fp32", "layout": "constexpr"}, {(1,): layout})
    since = written_so_far()
    with pytest.raises(RuntimeError) as raised:
        triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4, "enable_fp_fusion": True})

    assert "invalid layout" in describe_refusal(raised.value, since)


@triton.jit
def assembled(x, CODE: tl.constexpr, CONSTRAINTS: tl.constexpr):
    value = tl.load(x)
    tl.store(x, tl.inline_asm_elementwise(CODE, CONSTRAINTS, [value], dtype=tl.int32, is_pure=False, pack=1))  # what is refused


@pytest.mark.parametrize(
    ("card", "code", "constraints"),
    [
        (("cuda", 75, 32), "redux.sync.add.s32 $0, $1, 0xffffffff;", "=r,r"),
        (("hip", "gfx942", 64), "v_unknown $0, $1", "=v,v"),
    ],
    ids=["ptxas", "llvm"],
)
def test_what_an_assembler_refuses_has_the_line_of_the_kernel(card, code, constraints, log):
    source = ASTSource(
        assembled, {"x": "*i32", "CODE": "constexpr", "CONSTRAINTS": "constexpr"}, {"CODE": code, "CONSTRAINTS": constraints}
    )
    since = written_so_far()
    with pytest.raises((RuntimeError, PTXASError)) as raised:
        triton.compile(source, target=GPUTarget(*card), options={"enable_fp_fusion": True})

    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# what is refused"))
    assert f"(test_binaries.py:{line})" in describe_refusal(raised.value, since)


def test_inline_assembly_that_the_compiler_leaves_out_is_named_with_its_line():
    """LLVM prints an error about a constraint of another vendor, and Triton compiles the rest."""
    source = ASTSource(
        assembled, {"x": "*i32", "CODE": "constexpr", "CONSTRAINTS": "constexpr"}, {"CODE": "v_not_b32 $0, $1", "CONSTRAINTS": "=v,v"}
    )
    found = [
        left_out(triton.compile(source, target=GPUTarget(*card), options={"enable_fp_fusion": True}).asm)
        for card in (("cuda", 80, 32), ("hip", "gfx942", 64))
    ]
    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# what is refused"))

    assert found == [f"`v_not_b32 $0, $1` (test_binaries.py:{line})", ""]


# What a row keeps of a compiled launch: what its binary says, and what it asked of the compiler.


def test_a_reading_without_registers_is_read_again(tmp_path, monkeypatch):
    """A tool that is missing once may be there the next time; a whole reading is read once."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    readings = [Reading(), Reading(registers=34), Reading(registers=99)]
    monkeypatch.setattr(recorder, "read", lambda asm: readings.pop(0))
    compiled = SimpleNamespace(kernel=b"binary", asm={})

    assert [recorder.read_once(compiled).registers for _ in range(3)] == [None, 34, 34]


def test_a_row_names_what_a_launch_asks_of_the_compiler(monkeypatch):
    """Two launches that differ in it alone are two binaries. What the compiler does anyway is left out."""
    compiler = pytest.importorskip("triton.backends.compiler", reason="`nox -s tests` installs Triton")
    target = compiler.GPUTarget("hip", "gfx942", 64)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # as the stages do: Triton 3.9 warns otherwise
    make_backend = pytest.importorskip("triton.compiler.compiler").make_backend
    usual = vars(make_backend(target).parse_options({"num_warps": 8, "waves_per_eu": 2}))

    assert recorder._asked(target, usual) == {"waves_per_eu": 2}
    assert recorder._asked(None, {"num_warps": 8, "maxnreg": 64}) == {"maxnreg": 64}
