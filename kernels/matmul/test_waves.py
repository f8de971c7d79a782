"""Tiles that are left over, when all others are dealt out, are shared; operands with rows on no line are copied where that is worth it."""

import pytest
import torch

from kernels.configs import Card, card, choose
from kernels.configs.matmul import MATMUL
from kernels.matmul import launch, matmul
from kernels.matmul.layout import Layout
from kernels.matmul.split import shared

HOPPER = Card("sm_90", 32, 132, 232448)
WIDE = MATMUL["sm_90"].specialized[0]


@pytest.mark.parametrize(
    ("tiles", "k", "most"), [(132, 4096, 1), (120, 4096, 1), (800, 512, 1), (800, 5000, 16), (561, 4100, 4), (48, 4096, 2)]
)
def test_what_is_left_over_is_shared(tiles, k, most):
    """Of 800 tiles, eight are left over; every share has some steps, and together they are the sum."""
    count, cost = shared(WIDE, HOPPER, tiles, k)
    assert 1 <= count <= most and (count > 1) == (most > 1)
    steps = -(-k // WIDE.k)
    if count > 1:
        assert count * (tiles % HOPPER.processors) <= HOPPER.processors
        assert steps - (count - 1) * -(-steps // count) >= 8
        assert cost < shared(WIDE, HOPPER, -(-tiles // HOPPER.processors) * HOPPER.processors, k)[1]


@pytest.mark.parametrize("tile", MATMUL["sm_90"].specialized, ids=lambda tile: f"{tile.m}x{tile.n}")
def test_pieces_are_blocks_of_triton_and_fit(tile):
    assert sum(tile.pieces) == tile.n and all(piece & piece - 1 == 0 and piece % tile.part_n == 0 for piece in tile.pieces)
    assert (tile.m, len(tile.pieces)) in ((128, 1), (128, 2), (64, 2))
    staged = 2 * 2 * 64 * tile.part_n * 2
    assert tile.stages * (tile.m + tile.n) * tile.k * 2 + staged + 2 * 8 * tile.stages <= HOPPER.shared_bytes


@pytest.mark.parametrize("tile", MATMUL["sm_90"].specialized, ids=lambda tile: f"{tile.m}x{tile.n}")
@pytest.mark.parametrize(
    ("shape", "activation"), [((300, 1000, 520), "gelu"), ((200, 999, 1096), None), ((1100, 3000, 264), "relu")], ids=str
)
def test_each_tile_multiplies_alike(tile, shape, activation, device, judge):
    """Of one tile, of several for each program, and of an output whose rows start on no boundary; with a bias, in both layouts."""
    on = card() if device.type == "cuda" else None
    if not on or not choose(MATMUL, on).specialized:
        pytest.skip("its kernel is for Hopper")
    from kernels.matmul.specialized import product

    (m, n, k), act = shape, {"gelu": torch.nn.functional.gelu, "relu": torch.relu, None: lambda x: x}[activation]
    for transposed in (True, False) if n % 8 == 0 else (True,):
        a, bias = torch.randn(m, k, device=device).bfloat16(), torch.randn(n, device=device).bfloat16()
        b = torch.randn(n, k, device=device).bfloat16().t() if transposed else torch.randn(k, n, device=device).bfloat16()
        out, saved = (torch.full((m, n), torch.nan, device=device, dtype=a.dtype) for _ in range(2))
        epilogue = {"BIAS": True, "ACTIVATION": activation, "SAVE": True}
        product(tile, on, a.dtype, Layout.of(a), Layout.of(b), epilogue)(a, b, out, saved, bias)
        exact, expected = a.double() @ b.double() + bias, a.float() @ b.float() + bias
        judge(saved, expected.bfloat16(), exact)
        judge(out, act(expected).bfloat16(), act(exact))
        # Alone, an output may be stored in an odd number of parts, through two buffers.
        alone = torch.full_like(out, torch.nan)
        product(tile, on, a.dtype, Layout.of(a), Layout.of(b), epilogue | {"SAVE": False})(a, b, alone, alone, bias)
        assert alone.equal(out)


@pytest.mark.parametrize("shape", [(200, 1032, 1024), (900, 800, 1030), (900, 803, 1024), (1100, 2056, 520), (8200, 4104, 1100)], ids=str)
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_rows_on_no_boundary_and_shares(shape, activation, device, judge):
    """Sizes off the tiles; rows of operands and output on no boundary, or on no line; on a card the last also has tiles left over."""
    m, n, k = shape if device.type == "cuda" else [size // 40 for size in shape]
    a, b = torch.randn(m, k, device=device).bfloat16(), torch.randn(n, k, device=device).bfloat16()
    bias = torch.randn(n, device=device).bfloat16()
    act = torch.nn.functional.gelu if activation else lambda x: x
    out, saved = launch.multiply(a, b.t(), bias, activation, save=True)
    exact = a.double() @ b.double().t() + bias
    expected = a.float() @ b.float().t() + bias
    judge(saved, expected.bfloat16(), exact)
    judge(out, act(expected).bfloat16(), act(exact))


@pytest.mark.parametrize("transposed", [False, True])
def test_a_copy_has_the_same_numbers(transposed, device):
    for size in (1000, 1004, 1001):
        x = torch.randn(300, size, device=device).bfloat16()
        x = x.t() if transposed else x
        copy = launch._on_lines(x)
        assert copy.equal(x) and {step * 2 % 128 for step in copy.stride() if step != 1} == {0}


@pytest.mark.parametrize(
    ("m", "n", "k", "copied"),
    [
        (4096, 4096, 4096, (False, False)),  # rows start on sectors
        (500, 5000, 5000, (True, False)),  # the copy of the second takes longer than the product
        (5000, 5000, 5000, (False, True)),  # the products take as long as fetching then does
        (1000, 4096, 4093, (True, True)),  # out of TMA's reach
    ],
)
def test_what_is_slow_to_fetch_is_copied_where_that_pays(m, n, k, copied):
    operands = Layout((m, k), (k, 1)), Layout((k, n), (1, k))
    assert launch._copied(HOPPER, (True, True), *operands) == copied
    assert launch._copied(HOPPER, (False, True), *operands)[0]  # memory that starts on no boundary


def test_a_batch_is_copied_too(device, compare):
    m, n, k = (600, 515, 1030) if device.type == "cuda" else (20, 15, 30)
    compare(matmul, torch.matmul, *(torch.randn(3, *size, device=device).bfloat16() for size in ((m, k), (k, n))), gradients=False)
