"""Sequences of several lengths in one call, against PyTorch's attention of each alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import varlen_attn
from kernels.attention.plain.sequences import Sequences
from kernels.attention.varlen import _varlen

# NaN in a row is what hardware computes too; numpy below the interpreter warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CAUSAL = {"full": (-1, -1), "causal": (-1, 0)}


def ends(lengths, device):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def one_by_one(query, key, value, queries, keys, causal):
    """Return what PyTorch has for each sequence alone: where there are no keys, and for a query that sees none, zeros."""
    outs = []
    for q, k, v in zip(query.split(queries), key.split(keys), value.split(keys), strict=True):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1]) if causal else None
        out = F.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True) if k.shape[1] else torch.zeros_like(q[..., : v.shape[-1]])
        outs.append((out if seen is None else out.masked_fill(~seen.any(1)[:, None], 0.0)).transpose(0, 1))
    return torch.cat(outs)


def compare_with_each_alone(compare, device, dtype, queries, keys, heads, widths, window):
    shapes = (sum(queries), heads[0], widths[0]), (sum(keys), heads[1], widths[0]), (sum(keys), heads[1], widths[1])
    tensors = [torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in shapes]
    of_q = ends(queries, device)
    of_k = of_q if queries == keys else ends(keys, device)
    compare(
        lambda *x: varlen_attn(*x, of_q, of_k, max(queries), max(keys), window_size=window, enable_gqa=True),
        lambda *x: one_by_one(*x, queries, keys, window[1] == 0),
        *tensors,
    )


@pytest.mark.parametrize("window", CAUSAL.values(), ids=CAUSAL)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads, widths", [((2, 2), (64, 64)), ((4, 2), (80, 80)), ((1, 1), (192, 128))], ids=str)
def test_each_sequence_attends_to_itself(dtype, heads, widths, window, device, compare):
    lengths = [70, 0, 1, 130, 64]
    compare_with_each_alone(compare, device, dtype, lengths, lengths, heads, widths, window)


@pytest.mark.parametrize("window", CAUSAL.values(), ids=CAUSAL)
def test_other_keys_than_queries(window, device, compare):
    """The last query sees all keys. One sequence has no queries, one no keys, and one more queries than keys, some of which see none."""
    compare_with_each_alone(compare, device, "bf16", [5, 0, 33, 40, 1], [90, 20, 0, 7, 200], (2, 1), (64, 64), window)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("window", CAUSAL.values(), ids=CAUSAL)
def test_what_is_not_finite_stays_in_its_sequence(window, bad, device):
    lengths = [37, 50, 20]
    query, key, value = (torch.randn(107, 2, 64, device=device).half() for _ in range(3))
    for x in (query, key, value):
        x[37:87] = bad
    of = ends(lengths, device)
    out = varlen_attn(query, key, value, of, of, 50, 50, window_size=window)
    assert out[37:87].isnan().all()
    assert out[:37].isfinite().all() and out[87:].isfinite().all()


@pytest.mark.parametrize("of_keys", [False, True], ids=["queries", "keys"])
def test_each_tile_is_in_the_table_once_and_the_longest_come_first(of_keys, device):
    queries, keys = [100, 0, 3, 700, 64], [30, 10, 900, 700, 0]
    sequences = Sequences(ends(queries, device), ends(keys, device), 700, 900)
    table, count = sequences.table(64, sum(keys if of_keys else queries), of_keys)
    starts = zip(itertools.accumulate([0, *queries]), itertools.accumulate([0, *keys]), strict=True)
    each = [(at_q, n_q, at_k, n_k) for (at_q, at_k), n_q, n_k in zip(starts, queries, keys, strict=False)]
    mine, others = (3, 1) if of_keys else (1, 3)
    expected: list[list[int]] = []
    for sequence in sorted(each, key=lambda sequence: -sequence[others]):
        tiles = -(-sequence[mine] // 64)
        expected += [[len(expected), tiles, *sequence]] * tiles
    nothing = [[0, 1, 0, 0, 0, 0]] * (count - len(expected))
    assert table[:, :6].tolist() == expected + nothing


def test_what_it_refuses(device):
    query = torch.randn(10, 4, 64, device=device)
    of = ends([4, 6], device)
    with pytest.raises(NotImplementedError, match="windows"):
        varlen_attn(query, query, query, of, of, 6, 6, window_size=(128, 0))
    with pytest.raises(RuntimeError, match="heads of query"):
        varlen_attn(query, query[:, :2], query[:, :2], of, of, 6, 6)
    with pytest.raises(RuntimeError, match="int32"):
        varlen_attn(query, query, query, of.long(), of.long(), 6, 6)
    with pytest.raises(RuntimeError, match="as many keys as values"):
        varlen_attn(query, query[:9], query, of, of, 6, 6)


def test_the_op_is_registered(device, registered):
    query, key, value = (torch.randn(40, 2, 32, device=device) for _ in range(3))
    of = ends([15, 25], device)
    registered(
        lambda *x: varlen_attn(*x, of, of, 25, 25),
        _varlen,
        (query, key, value),
        (query.requires_grad_(), key, value, of, ends([15, 25], device), 25, 25, True, True, 0.2),
    )
