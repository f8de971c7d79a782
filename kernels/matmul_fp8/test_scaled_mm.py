"""The product of fp8 matrices against float64 of the numbers that they and their scales stand for."""

import functools

import pytest
import torch

from kernels.configs import card, choose
from kernels.configs.matmul_fp8 import FNUZ, MATMUL_FP8, OCP, Config
from kernels.matmul.layout import Layout
from kernels.matmul_fp8 import scaled_mm
from kernels.matmul_fp8.scaled_mm import BLOCK, _scaled_mm

E4M3, E5M2 = OCP
INF = float("inf")


@pytest.fixture(params=[*OCP, *FNUZ], ids=lambda encoding: str(encoding).split("_")[1])
def encoding(request, device):
    """Every encoding that the card can multiply or convert."""
    if request.param not in (*choose(MATMUL_FP8).native, *choose(MATMUL_FP8).widened):
        pytest.skip(f"Triton does not know this encoding on {card().name}")
    return request.param


@pytest.fixture
def usual(device):
    """The card's own encoding of the e4m3 kind."""
    known = choose(MATMUL_FP8)
    if not known.native:
        pytest.skip(f"{card().name} does not multiply fp8")
    return known.native[0]


def drawn(shape, encoding, device):
    return torch.randn(shape, device=device).to(encoding)


def scales(m, n, k, blocks, device):
    """Positive scales that differ by up to 16 times."""
    shapes = ((m, -(-k // BLOCK)), (-(-k // BLOCK), -(-n // BLOCK))) if blocks else ((m, 1), (1, n))
    return tuple(torch.exp2(4 * torch.rand(shape, device=device) - 2) for shape in shapes)


def widened(scale, shape):
    """A scale for each element, whatever its block."""
    for dimension, size in enumerate(shape):
        step = 1 if scale.shape[dimension] == size else BLOCK if scale.shape[dimension] > 1 else size
        scale = scale.repeat_interleave(step, dimension).narrow(dimension, 0, size)
    return scale


def meant(a, b, scale_a, scale_b, dtype):
    """The product of the numbers that are meant, computed in `dtype`."""
    return (a.to(dtype) * widened(scale_a, a.shape).to(dtype)) @ (b.to(dtype) * widened(scale_b, b.shape).to(dtype))


def check(judge, a, b, scale_a, scale_b, out_dtype=torch.bfloat16):
    out = scaled_mm(a, b, scale_a, scale_b, out_dtype)
    judge(out, meant(a, b, scale_a, scale_b, torch.float32).to(out_dtype), meant(a, b, scale_a, scale_b, torch.float64))


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize(("m", "n", "k"), [(70, 40, 288), (1, 129, 128), (33, 300, 70)], ids=str)
def test_matrices(m, n, k, blocks, encoding, device, judge):
    a, b = drawn((m, k), encoding, device), drawn((n, k), encoding, device).t()
    check(judge, a, b, *scales(m, n, k, blocks, device))


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 320), (16, 130, 1024), (50, 40, 896)], ids=str)
def test_sums_of_few_rows_in_parts(m, n, k, blocks, encoding, device, judge):
    """A part may begin in the middle of a block of scales."""
    a, b = drawn((m, k), encoding, device), drawn((n, k), encoding, device).t()
    check(judge, a, b, *scales(m, n, k, blocks, device))


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
def test_encodings_and_results_are_mixed(blocks, usual, device, judge):
    other = (FNUZ if usual in FNUZ else OCP)[1]
    a, b = drawn((20, 160), usual, device), drawn((36, 160), other, device).t()
    check(judge, a, b, *scales(20, 36, 160, blocks, device), torch.float16)


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize(("m", "n", "k"), [(1040, 2064, 1056), (300, 4112, 2064), (2200, 4112, 8208), (8200, 4112, 1104)], ids=str)
def test_large_products(m, n, k, blocks, usual, device, judge):
    """Those that TMA reads on a card: blocks that cross the edge in each direction, and tiles that are left over and shared."""
    m, n, k = (m, n, k) if device.type == "cuda" else (m // 40, n // 40, k // 40)
    a, b = drawn((m, k), usual, device), drawn((n, k), usual, device).t()
    check(judge, a, b, *scales(m, n, k, blocks, device))


@pytest.mark.parametrize("tile", MATMUL_FP8["sm_90"].specialized, ids=lambda tile: f"{tile.m}x{tile.n}")
@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
def test_each_tile_multiplies_alike(tile, blocks, usual, device, judge):
    """Of one tile, and of several for each program; with columns that begin and end within a block of scales."""
    if device.type != "cuda" or not choose(MATMUL_FP8).specialized:
        pytest.skip("its kernel is for Hopper")
    from kernels.matmul_fp8.specialized import specialized

    for m, n, k in ((300, 1008, 528), (1100, 3024, 272)):
        a, b = drawn((m, k), usual, device), drawn((n, k), usual, device)
        by = scales(m, n, k, blocks, device)
        strides = tuple(0 if size == 1 else step for x in by for size, step in zip(x.shape, x.stride(), strict=True))
        out = torch.full((m, n), torch.nan, device=device, dtype=torch.bfloat16)
        specialized(tile, card(), (usual, usual, out.dtype), Layout.of(a), Layout.of(b), strides, blocks)(a, b, out, *by)
        judge(out, meant(a, b.t(), *by, torch.float32).bfloat16(), meant(a, b.t(), *by, torch.float64))


def test_tiles_of_warpgroups_fit():
    """Beside two buffers of a part for each warpgroup are barriers, and the scales of each step: of its rows, and two of its columns."""
    for tile in MATMUL_FP8["sm_90"].specialized:
        staged = 2 * 2 * 64 * tile.part_n * 2
        of_stage = (tile.m + tile.n) * tile.k + 4 * (tile.m + 2) + 2 * 8
        assert tile.stages * of_stage + staged + 512 <= 232448


def test_a_long_sum(usual, device):
    """Hopper's matrix units add fp8 products in 14 bits. A sum of 16384 that they add by themselves is wrong by a quarter."""
    a, b = (torch.rand(size, device=device).to(usual) for size in ((32, 16384), (32, 16384)))
    by = scales(32, 32, 16384, False, device)
    out, exact = scaled_mm(a, b.t(), *by, torch.float32), meant(a, b.t(), *by, torch.float64)
    assert (out - exact).norm() <= 1e-3 * exact.norm()


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
def test_strides_are_free(blocks, usual, device, judge):
    m, n, k = 24, 40, 144
    by = scales(m, n, k, blocks, device)
    check(judge, drawn((k, m), usual, device).t(), drawn((k, n), usual, device), *by)
    spread = tuple(torch.stack([scale, scale + 1], 2)[..., 0] for scale in by)
    check(judge, drawn((2 * m, k + 16), usual, device)[::2, 16:], drawn((n, 2 * k), usual, device)[:, :k].t(), *spread)
    one = torch.full((), 0.5, device=device)
    check(judge, drawn((m, k), usual, device), drawn((n, k), usual, device).t(), one.expand(m, 1), one.expand(1, n))


def test_the_largest_and_the_smallest_numbers(encoding, device, judge):
    """No number of an encoding is lost, subnormal ones included; NaN and infinities spread."""
    if device.type == "cpu":
        pytest.skip("Triton's interpreter converts NaN and subnormal fp8 to other numbers")
    every = torch.arange(256, device=device, dtype=torch.uint8).view(encoding)
    finite = every.float().isfinite()
    a, eye = every[:, None], torch.ones(1, 1, device=device).to(encoding)
    by = torch.ones(256, 1, device=device), torch.ones(1, 1, device=device)
    out = scaled_mm(a, eye, *by, torch.float32)[:, 0]
    exact = every.float()
    if card().name == "gfx90a":  # its matrix units take fp16's subnormal numbers for zeros
        exact = torch.where(exact.abs() < torch.finfo(torch.float16).smallest_normal, 0.0, exact)
    torch.testing.assert_close(out, exact, rtol=0, atol=0, equal_nan=True)
    large = every[finite].float().abs().max().expand(16, 256).to(encoding)
    check(judge, large, large.t(), *scales(16, 16, 256, True, device), torch.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 8), (4, 0, 8), (4, 5, 0)], ids=str)
def test_nothing_to_multiply(m, n, k, usual, device):
    out = scaled_mm(drawn((m, k), usual, device), drawn((n, k), usual, device).t(), *scales(m, n, k, False, device))
    assert torch.equal(out, torch.zeros(m, n, device=device, dtype=torch.bfloat16))


def test_it_is_a_registered_op(usual, device, poison, monkeypatch):
    monkeypatch.undo()  # poison sits at an offset in its storage, and a fake tensor does not
    a, b, by = drawn((8, 32), usual, device), drawn((8, 32), usual, device).t(), scales(8, 8, 32, False, device)
    # Its other checks multiply fp8 by numbers, which PyTorch cannot.
    torch.library.opcheck(_scaled_mm.registered, (a, b, *by, False, torch.bfloat16), test_utils=("test_faketensor",))
    whole = torch.compile(functools.partial(scaled_mm, out_dtype=torch.float32), fullgraph=True, backend="aot_eager")
    assert torch.equal(whole(a, b, *by), scaled_mm(a, b, *by, out_dtype=torch.float32))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": torch.zeros(4, 256)}, NotImplementedError, "one family.*matmul"),
        ({"input": torch.zeros(4, 256).to(FNUZ[0])}, NotImplementedError, "one family.*Convert"),
        ({"out_dtype": torch.float64}, NotImplementedError, "cannot write.*fp32.*convert"),
        ({"other": torch.zeros(255, 9).to(E4M3)}, RuntimeError, r"\(4, 256\) and \(255, 9\).*matrices.*transpose"),
        ({"input": torch.zeros(1, 4, 256).to(E4M3)}, RuntimeError, "matrices.*Flatten"),
        ({"scale_input": torch.ones(4)}, RuntimeError, r"\(4,\).*by row of shape \(4, 1\).*by block of 128 of shape \(4, 2\).*Expand"),
        ({"scale_other": torch.ones(2, 1)}, RuntimeError, "by row"),
        ({"scale_input": torch.ones(4, 1).half()}, RuntimeError, "fp32"),
    ],
    ids=["wide", "families", "result", "inner", "batch", "vector", "half-and-half", "half"],
)
def test_what_does_not_fit_is_refused(change, error, message, device):
    given = {
        **{"input": torch.zeros(4, 256).to(E4M3), "other": torch.zeros(256, 9).to(E4M3)},
        **{"scale_input": torch.ones(4, 1), "scale_other": torch.ones(1, 9), **change},
    }
    with pytest.raises(error, match=message):
        scaled_mm(**{name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in given.items()})


def test_a_card_without_the_encoding_refuses_it(device, monkeypatch):
    monkeypatch.setitem(choose.__globals__["_CHOSEN"], (id(MATMUL_FP8), card().name), (MATMUL_FP8, Config(())))
    a, one = torch.zeros(4, 16, device=device).to(E4M3), torch.ones(4, 1, device=device)
    with pytest.raises(NotImplementedError, match=r"on .* no instructions for the encoding, and Triton no conversion\. Convert"):
        scaled_mm(a, a.t(), one, one.t())


def test_tiles_and_steps_are_within_a_block_of_scales():
    for config in MATMUL_FP8.values():
        assert all(BLOCK % tile.n == 0 and BLOCK % tile.k == 0 for tile in (*config.tiles, *config.by_block, *config.few))
        assert not set(config.native) & set(config.widened)
