"""Few queries of many keys: parts of the keys, packed heads, and what is not finite."""

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.plain.decode import split

# NaN under a masked row is what hardware computes too; numpy below the interpreter warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "heads, kv_heads, rows, keys, widths",
    [(2, 2, 1, 300, (64, 64)), (4, 1, 1, 257, (64, 64)), (6, 2, 3, 150, (24, 40)), (1, 1, 1, 65, (192, 128)), (3, 1, 5, 40, (80, 80))],
    ids=str,
)
def test_few_queries_with_gradients(dtype, heads, kv_heads, rows, keys, widths, device, compare):
    shapes = (2, heads, rows, widths[0]), (2, kv_heads, keys, widths[0]), (2, kv_heads, keys, widths[1])
    tensors = [torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in shapes]
    compare(attention, F.scaled_dot_product_attention, *tensors, enable_gqa=True)


def test_a_cache_with_rows_before_heads_and_more_rows_than_used(device, compare):
    q = torch.randn(2, 1, 4, 64, device=device).half().transpose(1, 2)
    k, v = (torch.randn(2, 400, 2, 64, device=device).half()[:, 3:290].transpose(1, 2) for _ in range(2))
    compare(attention, F.scaled_dot_product_attention, q, k, v, enable_gqa=True)


@pytest.mark.parametrize("bad", [float("-inf"), float("inf"), float("nan")])
def test_keys_that_are_not_finite(bad, device):
    """A score of -inf weighs nothing, also if a whole part has no other; one of inf or NaN makes its query NaN."""
    q, k, v = (torch.ones(1, 1, n, 64, device=device).half() for n in (1, 300, 300))
    v[:, :, :256] = 7
    k[:, :, :256] = bad
    out = attention(q, k, v)
    exact = torch.ones_like(out) if bad == float("-inf") else torch.full_like(out, float("nan"))
    torch.testing.assert_close(out, exact, equal_nan=True)


def test_a_query_that_sees_nothing_is_nan(device):
    q, k, v = (torch.ones(1, 1, n, 64, device=device).half() for n in (1, 300, 300))
    k[:] = float("-inf")
    assert attention(q, k, v).isnan().all()


@pytest.mark.parametrize("programs, keys", [(1, 1), (1, 131072), (8, 8192), (200, 4096), (2048, 512), (133, 100)])
def test_parts_cover_the_keys_and_fill_the_card(programs, keys):
    """Parts are whole blocks; where there are enough blocks, most of the card works, and where there are enough programs, none splits."""
    part, resident = split(programs, keys, 64, 264), 264
    parts = -(-keys // part)
    assert part % 64 == 0 and (parts - 1) * part < keys <= parts * part
    waves = programs * parts / resident
    if programs * keys >= 64 * 8 * resident:
        assert waves / -(-programs * parts // resident) > 0.75
    if programs >= 8 * resident:
        assert parts == 1
