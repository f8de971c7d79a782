"""What the emulator counts, against counts that follow from the algorithm, worked out by hand in the formulas below."""

import math
import re
import struct
from collections import Counter

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.unit.emulator.machine_code import WAVES, assembled, compiled, pack
from warpwave.emulator import Launch, execute, load
from warpwave.emulator.counts import Counts, bounds, kind_of, matrix_cycles, products

CARDS = tuple(WAVES)


def counted(function, arch, grid, arguments, constants, **options) -> tuple[Counts, Counter]:
    made = compiled(function, arch, arguments, constants, **options)
    kernel = load(made.asm["hsaco"])
    buffers = [(value.data_ptr(), value.nbytes) for value in arguments.values() if isinstance(value, torch.Tensor)]
    launch = Launch(
        (grid, 1, 1), made.metadata.num_warps * WAVES[arch], pack(kernel, list(arguments.values())), made.metadata.shared, buffers
    )
    return _counted(kernel, launch)


def _counted(kernel, launch) -> tuple[Counts, Counter]:
    counts = Counts(kernel)
    execute(kernel, launch, counts=counts)
    return counts, sum(counts.by_line().values(), Counter())


@triton.jit
def copy(x, y, n, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + FIRST + i, mask=i < n), mask=i < n)


@triton.jit
def strided(x, y, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i * STEP))


@triton.jit
def transposed(x, y, N: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i % N * N + i // N, tl.load(x + i))


@triton.jit
def total(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0))


@triton.jit
def collected(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(y + i % 16, tl.load(x + i), sem="relaxed")


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    found = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], found)


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.int8], ids=str)
def test_a_copy_touches_each_line_once(arch, kind):
    """A copy of n elements asks for 2 n elements, in as many lines as they fill; each comes from memory once, and goes there once."""
    n = 4096
    x, y = torch.zeros(n, dtype=kind), torch.zeros(n, dtype=kind)
    counts, found = counted(copy, arch, 4, {"x": x, "y": y, "n": n}, {"FIRST": 0, "BLOCK": 1024})
    asked = 2 * x.nbytes

    assert (found["asked_bytes"], counts.read_bytes, counts.written_bytes) == (asked, x.nbytes, x.nbytes)
    assert found["lines64"] == found["least64"] == asked // 64
    assert (counts.groups, counts.waves) == (4, 16)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_copy_from_the_middle_of_a_line_touches_one_line_more(arch):
    """Each load of a wave begins in the middle of a line of 64 bytes, and ends in one."""
    n = 4096
    x, y = torch.zeros(n + 8), torch.zeros(n)
    _, aligned = counted(copy, arch, 4, {"x": x, "y": y, "n": n}, {"FIRST": 0, "BLOCK": 1024})
    _, found = counted(copy, arch, 4, {"x": x, "y": y, "n": n}, {"FIRST": 8, "BLOCK": 1024})

    assert found["lines64"] - aligned["lines64"] == aligned["memory"] // 2
    assert found["least64"] == aligned["least64"] == 2 * n * 4 // 64


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("step", [2, 4, 8, 16, 32, 64])
def test_a_strided_load_touches_the_lines_that_it_skips_over(arch, step):
    """A lane has four neighbouring elements, one a load: lanes of a load are 16 * STEP bytes apart, and share lines only up to STEP 4."""
    n = 1024
    x, y = torch.zeros(n * step), torch.zeros(n)
    counts, found = counted(strided, arch, 1, {"x": x, "y": y}, {"STEP": step, "BLOCK": n})
    stores = n * 4

    assert found["lines64"] - stores // 64 == n * min(4, step) // 4
    assert found["lines128"] - stores // 128 == n * min(8, step) // 8
    assert (found["least64"], found["asked_bytes"]) == (2 * stores // 64, 2 * stores)
    assert counts.read_bytes == 32 * (n // max(1, 8 // step))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_a_naive_transpose_touches_a_line_for_each_element(arch):
    """Neighbouring lanes store to different rows, of 256 bytes each: every element of a store is in a line of its own."""
    n = 64
    x, y = torch.arange(n * n).float(), torch.zeros(n * n)
    counts, found = counted(transposed, arch, 4, {"x": x, "y": y}, {"N": n, "BLOCK": 1024})
    loads = x.nbytes // 64

    assert torch.equal(y.reshape(n, n), x.reshape(n, n).T)
    assert found["least64"] == 2 * loads
    assert found["lines64"] - loads == n * n
    assert (counts.read_bytes, counts.written_bytes) == (x.nbytes, y.nbytes)


@pytest.mark.parametrize("arch", CARDS)
def test_a_sum_reads_its_block_once_and_stores_one_number(arch):
    """A program loads 1024 floats and stores one: one line, of which four bytes are asked for."""
    x, y = torch.ones(4 * 1024), torch.zeros(4)
    counts, found = counted(total, arch, 4, {"x": x, "y": y}, {"BLOCK": 1024})

    assert y.tolist() == [1024.0] * 4
    assert found["lines64"] == 4 * (4096 // 64 + 1)
    assert (counts.read_bytes, counts.written_bytes) == (x.nbytes, 32)  # the smallest piece of a line


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])  # gfx90a has a loop instead
def test_atomics_to_few_words_touch_few_lines(arch):
    """16 sums of 4 bytes are one line of each wave's atomic."""
    x, y = torch.ones(1024), torch.zeros(16)
    _, found = counted(collected, arch, 1, {"x": x, "y": y}, {"BLOCK": 1024})

    assert y.tolist() == [64.0] * 16
    assert found["atomics"] >= 1
    assert found["lines64"] == 1024 * 4 // 64 + found["atomics"]


# rows, columns and k of the instruction that the compiler takes, and its cycles
_DOTS = [
    *(("gfx90a", torch.float16, 32, 32, 8, 64), ("gfx90a", torch.float32, 32, 32, 2, 64), ("gfx942", torch.float16, 32, 32, 8, 32)),
    *(("gfx942", torch.bfloat16, 32, 32, 8, 32), ("gfx942", torch.float32, 32, 32, 4, 32)),
    *(("gfx942", torch.float8_e4m3fnuz, 32, 32, 16, 32), ("gfx942", torch.int8, 32, 32, 16, 32)),
    *(("gfx950", torch.float16, 32, 32, 16, 32), ("gfx950", torch.bfloat16, 32, 32, 16, 32), ("gfx1100", torch.float16, 16, 16, 16, 32)),
    *(("gfx1100", torch.bfloat16, 16, 16, 16, 32), ("gfx1201", torch.float16, 16, 16, 16, 16), ("gfx1201", torch.int8, 16, 16, 16, 8)),
]


@pytest.mark.parametrize(("arch", "kind", "rows", "columns", "depth", "cycles"), _DOTS, ids=str)
def test_a_product_needs_as_many_matrix_instructions_as_fit_into_it(arch, kind, rows, columns, depth, cycles):
    """A product of 64 by 64 by 64 has 2 * 64^3 operations; each instruction has those of its own shape."""
    a, b = torch.ones(64, 64).to(kind), torch.ones(64, 64).to(kind)
    c = torch.zeros(64, 64, dtype=torch.int32 if kind == torch.int8 else torch.float32)
    counts, found = counted(product, arch, 1, {"a": a, "b": b, "c": c}, {"M": 64, "N": 64, "K": 64})
    (name,) = counts.matrix()

    assert (c == 64).all()
    assert f"{rows}x{columns}x{depth}" in name
    assert found["matrix"] == 64**3 // (rows * columns * depth)
    assert found["matrix_cycles"] == found["matrix"] * cycles
    assert found["matrix"] * products(name) == 2 * 64**3


# Cards' published rates of dense products in TFLOP/s (data sheets), their SIMDs, and the clock in GHz that the rate is for.
_RATES = [
    ("gfx90a", "v_mfma_f32_32x32x8_f16", 440, 1.7, 191.5),  # MI250X, one die: half of 383
    ("gfx90a", "v_mfma_f64_16x16x4_f64", 440, 1.7, 47.9),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 1216, 2.1, 1307.4),
    ("gfx942", "v_mfma_f32_16x16x16_bf16", 1216, 2.1, 1307.4),
    ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", 1216, 2.1, 2614.9),
    ("gfx942", "v_mfma_f32_16x16x8_xf32", 1216, 2.1, 653.7),
    ("gfx942", "v_mfma_f32_32x32x2_f32", 1216, 2.1, 163.4),
    ("gfx942", "v_mfma_f64_16x16x4_f64", 1216, 2.1, 163.4),
    ("gfx950", "v_mfma_f32_16x16x32_f16", 1024, 2.4, 2516.6),  # MI355X
    ("gfx950", "v_mfma_f64_16x16x4_f64", 1024, 2.4, 78.6),
    ("gfx950", "v_mfma_f32_16x16x128_f8f6f4", 1024, 2.4, 5033.2),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", 192, 2.5, 122.8),  # RX 7900 XTX
    ("gfx1201", "v_wmma_f32_16x16x16_f16", 128, 2.97, 194.6),  # RX 9070 XT
]


@pytest.mark.parametrize(("arch", "name", "simds", "clock", "published"), _RATES, ids=str)
def test_cycles_of_matrix_instructions_give_the_published_rate(arch, name, simds, clock, published):
    """Operations of one instruction over its cycles, on all SIMDs at the clock, are what the data sheet says."""
    rate = products(name) / matrix_cycles(name, arch) * simds * clock * 1e-3

    assert rate == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("arch", "name", "formats", "cycles"),
    [  # RDNA: AMD's matrix instruction calculator. gfx950: LLVM, SIDPGFX950FullSpeedModel, whose 8 bits are formats 0 and 1.
        ("gfx1201", "v_wmma_i32_16x16x16_iu4", 0, 8), ("gfx1201", "v_wmma_i32_16x16x32_iu4", 0, 8),
        ("gfx1201", "v_swmmac_i32_16x16x32_iu4", 0, 8), ("gfx1201", "v_swmmac_f32_16x16x32_f16", 0, 16),
        ("gfx1100", "v_wmma_i32_16x16x16_iu4", 0, 16), ("gfx1100", "v_wmma_i32_16x16x16_iu8", 0, 32),
        ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", 0, 64), ("gfx90a", "v_mfma_f64_4x4x4f64", 0, 16),
        ("gfx950", "v_mfma_f32_32x32x4_2b_f16", 0, 64), ("gfx950", "v_mfma_i32_16x16x64_i8", 0, 16),
        ("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", 4 | 4 << 7, 32), ("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", 4, 64),
    ],
)  # fmt: skip
def test_cycles_of_matrix_instructions_are_those_that_are_published(arch, name, formats, cycles):
    """Also where a narrower type is no faster."""
    assert matrix_cycles(name, arch, formats) == cycles


def _lds(arch: str, access: str, stride: int) -> Counter:
    """Count one access to LDS in which each lane is `stride` bytes behind the one before it, of one wave."""
    body = [f"v_mul_u32_u24 v1, {stride}, v0", "v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "v_mov_b32 v4, 0", "v_mov_b32 v5, 0", access]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in body)))
    out = np.zeros(4, np.uint32)
    launch = Launch((1, 1, 1), WAVES[arch], struct.pack("<QQ", out.ctypes.data, 0), 65536, [(out.ctypes.data, out.nbytes)])
    return _counted(kernel, launch)[1]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("words", [0, 1, 2, 3, 4, 8, 16, 32, 33])
def test_a_stride_of_words_meets_in_banks(arch, words):
    """32 lanes that are s words apart have gcd(s, 32) words in each bank that they use; lanes with the same word share it."""
    found = _lds(arch, "ds_read_b32 v6, v1" if arch == "gfx942" else "ds_load_b32 v6, v1", 4 * words)
    phases = WAVES[arch] // 32

    assert found["least_lds_cycles"] == phases
    assert found["lds_cycles"] == phases * (math.gcd(words, 32) if words else 1)
    assert found["lds_bytes"] == 4 * WAVES[arch]


@pytest.mark.parametrize(
    ("access", "stride", "cycles", "least"),
    [
        ("ds_write_b64 v1, v[2:3]", 8, 4, 4),
        ("ds_write_b128 v1, v[2:5]", 16, 8, 8),
        ("ds_read_b128 v[2:5], v1", 16, 8, 8),
        ("ds_write_b128 v1, v[2:5]", 128, 64, 8),  # 8 lanes with 4 words each in the same 4 banks
        ("ds_write_b128 v1, v[2:5]", 144, 8, 8),  # padded by 16 bytes
        ("ds_read2_b32 v[2:3], v1 offset1:1", 128, 128, 4),  # two addresses, each 64 lanes in one bank
        ("ds_read2_b32 v[2:3], v1 offset1:1", 132, 4, 4),
        ("ds_add_u32 v1, v2", 4, 2, 2),
    ],
    ids=str,
)
def test_wide_accesses_go_in_phases(access, stride, cycles, least):
    """As many lanes go at a time as fill all banks once."""
    found = _lds("gfx942", access, stride)

    assert (found["lds_cycles"], found["least_lds_cycles"]) == (cycles, least)


# Posted counts of SQ_LDS_BANK_CONFLICT, a wave's access: nod-ai/amd-shark-ai, docs/empirical-lds/cdna3info.md, an MI300X, by the bytes
# between lanes. Those of a block of 64 reads are divided by 64.
_POSTED = [
    *(("ds_read_b32 v2, v1", 4 << n, count / 64) for n, count in enumerate((0, 128, 384, 896, 1920, 3968, 3968))),
    *(("ds_read_b64 v[2:3], v1", 8 << n, count / 64) for n, count in enumerate((0, 256, 768, 1792, 3840, 3840, 3840))),
    *(("ds_read_b128 v[2:5], v1", 16 << n, count / 64) for n, count in enumerate((0, 512, 1536, 3584, 3584, 3584))),
]


@pytest.mark.parametrize(("access", "stride", "posted"), _POSTED, ids=str)
def test_bank_conflicts_are_those_that_a_card_counted(access, stride, posted):
    """AMD's counter has the cycles beyond the fewest."""
    found = _lds("gfx942", access, stride)

    assert found["lds_cycles"] - found["least_lds_cycles"] == posted


@pytest.mark.parametrize("lanes", [1, 2, 20, 32])
def test_lanes_that_are_off_take_a_cycle_of_lds_as_well(lanes):
    """ROCm Compute Profiler, "LDS examples": on an MI250, n lanes of one bank take n + 1 cycles, n - 1 of them for conflicts."""
    body = ["v_lshlrev_b32 v1, 7, v0", f"s_mov_b64 exec, {(1 << lanes) - 1:#x}", "ds_read_b32 v2, v1"]
    kernel = load(assembled("gfx90a", "\n".join(f"\t{line}" for line in body)))
    out = np.zeros(4, np.uint32)
    _, found = _counted(kernel, Launch((1, 1, 1), 64, struct.pack("<QQ", out.ctypes.data, 0), 65536, [(out.ctypes.data, out.nbytes)]))

    assert (found["lds_cycles"], found["lds_cycles"] - found["least_lds_cycles"]) == (lanes + 1, lanes - 1)


def test_the_conflicts_of_a_posted_transpose():
    """AMDResearch/intelliperf, #45: 229,376 on an MI200 for tiles of 16 by 16 floats, which is 1024 by 1024 elements, 64 a wave."""
    body = [
        *("v_and_b32 v1, 15, v0", "v_lshrrev_b32 v2, 4, v0", "v_lshl_add_u32 v1, v1, 4, v2", "v_lshlrev_b32 v1, 2, v1"),
        "ds_read_b32 v3, v1",
    ]
    kernel = load(assembled("gfx90a", "\n".join(f"\t{line}" for line in body)))
    out = np.zeros(4, np.uint32)
    _, found = _counted(kernel, Launch((1, 1, 1), 256, struct.pack("<QQ", out.ctypes.data, 0), 65536, [(out.ctypes.data, out.nbytes)]))

    assert (found["lds_cycles"] - found["least_lds_cycles"]) * 1024 * 1024 // 256 == 229_376


_QUADS = {  # of the first 32 lanes: which quads of ds_read_b128 a card serves together (docs/empirical-lds)
    "gfx942": ((0, 5), (1, 4), (2, 7), (3, 6)),
    "gfx950": ((0, 3, 5, 6), (1, 2, 4, 7)),
    "gfx1100": ((0, 5), (1, 4), (2, 7), (3, 6)),
    "gfx1201": ((0, 1), (2, 3), (4, 5), (6, 7)),
}


@pytest.mark.parametrize("arch", _QUADS)
def test_quads_of_a_wide_read_go_together_as_a_card_was_seen_to(arch):
    """Lane 0 of two quads meet in a bank, and so take a cycle more, only if both are served together."""
    read = "ds_read_b128 v[2:5], v1" if arch in ("gfx942", "gfx950") else "ds_load_b128 v[2:5], v1"
    mask, together = ("s_mov_b64 exec" if WAVES[arch] == 64 else "s_mov_b32 exec_lo"), []
    for first in range(8):
        for second in range(first + 1, 8):
            body = ["v_lshlrev_b32 v1, 8, v0", f"{mask}, {1 << 4 * first | 1 << 4 * second:#x}", read]
            kernel = load(assembled(arch, "\n".join(f"\t{line}" for line in body)))
            out = np.zeros(4, np.uint32)
            launch = Launch((1, 1, 1), WAVES[arch], struct.pack("<QQ", out.ctypes.data, 0), 65536, [(out.ctypes.data, out.nbytes)])
            found = _counted(kernel, launch)[1]
            together += [(first, second)] * (found["lds_cycles"] - found["least_lds_cycles"])

    assert together == sorted((one, other) for group in _QUADS[arch] for one in group for other in group if one < other)


def test_bounds_follow_from_the_published_rates():
    """A microsecond of MI300X: 2,100 cycles of each of 304 CUs with four SIMDs, and 5.3 MB of memory; fewer units for a small launch."""
    kernel = load(assembled("gfx942", "\ts_nop 0"))
    card = {"multiprocessor_count": 304, "sm_clock_rate": 2_100_000, "mem_clock_rate": 2_600_000, "mem_bus_width": 8192}
    counts = Counts(kernel)
    counts.most_groups, counts.most_waves, counts.read_bytes = 10_000, 40_000, 5_324_800
    simds = 2100 * 304 * 4
    has = Counter(lds_cycles=2100 * 304, matrix_cycles=2 * simds, vector_cycles=3 * simds, transcendental=simds // 16, salu=5 * 2100 * 304)
    found = bounds(counts, has, card, 4)
    counts.most_groups, counts.most_waves = 1, 1

    assert found == pytest.approx({"memory": 1, "LDS": 1, "matrix": 2, "vector": 3, "transcendental": 1, "issue": 5})
    assert bounds(counts, has, card, 4)["LDS"] == pytest.approx(304)
    assert bounds(counts, has, {}, 4) == {}


def test_a_spill_is_counted_each_time():
    """A store of four bytes a lane, and a load of eight."""
    body = ["v_mov_b32 v2, 0", "scratch_store_dword off, v2, off offset:4", "s_waitcnt 0", "scratch_load_dwordx2 v[2:3], off, off"]
    kernel = load(assembled("gfx942", "\n".join(f"\t{line}" for line in body), 16))
    out = np.zeros(4, np.uint32)
    _, found = _counted(kernel, Launch((1, 1, 1), 64, struct.pack("<QQ", out.ctypes.data, 0), 0, [(out.ctypes.data, out.nbytes)]))

    assert (found["scratch"], found["scratch_bytes"]) == (2, 64 * (4 + 8))


@triton.jit
def crowded(x, y, BLOCK: tl.constexpr):
    """Need three blocks until the end."""
    i = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(x + BLOCK + i), tl.load(x + 2 * BLOCK + i)
    tl.store(y + i, a * tl.sum(b * c, 0) + b * tl.sum(a * c, 0) + c * tl.sum(a * b, 0))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_spills_of_a_kernel_are_counted_as_they_execute(arch):
    """With registers for eight waves a SIMD, it spills: each spill and reload is an instruction of the text, which has no loop."""
    x, y = torch.randn(3 * 2048), torch.zeros(2048)
    arguments, options = {"x": x, "y": y}, {"num_warps": 1, "waves_per_eu": 8}
    text = compiled(crowded, arch, arguments, {"BLOCK": 2048}, **options).asm["amdgcn"]
    _, found = counted(crowded, arch, 1, arguments, {"BLOCK": 2048}, **options)
    words = [int(word or 1) for word in re.findall(r"^\t(?:buffer|scratch)_(?:load|store)_dword(?:x(\d))? .*Folded", text, re.MULTILINE)]
    a, b, c = x.double().split(2048)

    assert torch.allclose(y.double(), a * (b * c).sum() + b * (a * c).sum() + c * (a * b).sum(), atol=0.01)
    assert (found["scratch"], found["scratch_bytes"]) == (len(words), 64 * 4 * sum(words))
    assert found["asked_bytes"] == 4 * 4 * 2048
    assert words


def test_placement_of_a_tensor_does_not_change_its_lines():
    """The host puts a tensor where it likes; lines are counted from its start."""
    room = torch.zeros(4096 + 64)
    found = []
    for first in (0, 1, 5, 16, 31):
        x, y = room[first : first + 2048].clone(), torch.zeros(2048)
        found.append(counted(copy, "gfx942", 2, {"x": x, "y": y, "n": 2048}, {"FIRST": 0, "BLOCK": 1024})[1])

    assert all(one == found[0] for one in found)


def test_counting_changes_nothing():
    """The result, and the number of instructions, are the same with counts and without, also where accesses are checked."""
    made = compiled(total, "gfx942", {"x": torch.ones(1024), "y": torch.zeros(1)}, {"BLOCK": 1024})
    kernel = load(made.asm["hsaco"])
    results = []
    for extra in ({}, {"counts": Counts(kernel)}, {"counts": Counts(kernel), "findings": []}):
        x, y = torch.arange(1024.0), torch.zeros(1)
        launch = Launch((1, 1, 1), 256, pack(kernel, [x, y]), made.metadata.shared, [(x.data_ptr(), x.nbytes), (y.data_ptr(), y.nbytes)])
        results.append((execute(kernel, launch, **extra), y.item()))

    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v_exp_f32", "transcendental"), ("v_add_f32", "valu"), ("v_mfma_f32_32x32x8_f16", "matrix"), ("s_waitcnt", "waits"),
        ("s_load_dwordx4", "scalar_memory"), ("s_and_b64", "salu"), ("ds_read_b32", "lds"), ("s_barrier", "barriers"),
        ("scratch_store_dword", "scratch"), ("buffer_load_dwordx4", "memory"), ("s_cbranch_scc1", "branches"), ("v_expand", "valu"),
    ],
)  # fmt: skip
def test_each_instruction_has_a_kind(name, kind):
    """What counts an instruction is its name."""
    assert kind_of(name) == kind
