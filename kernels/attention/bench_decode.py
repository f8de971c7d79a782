"""Bandwidth of one step of decoding: one query, or four, of many keys, bf16.

Bytes: keys and values are read once; queries and results are few. `copy` moves as many bytes, half of them read and half written.
"""

import torch
import triton
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention
from kernels.peers import bandwidth, sweep

PROVIDERS = {"triton": scaled_dot_product_attention, "copy": F.scaled_dot_product_attention, "torch": F.scaled_dot_product_attention}

# (batch, query heads, heads of keys and values, queries, keys, columns)
SHAPES = [
    (1, 32, 8, 1, 131072, 128),
    (8, 32, 8, 1, 4096, 128),
    (64, 32, 8, 1, 4096, 128),
    (16, 32, 8, 4, 8192, 128),
    (8, 16, 8, 1, 8192, 256),
]


@triton.testing.perf_report(sweep("decode", "GB/s", PROVIDERS, ("B", "H", "KV", "S", "T", "D"), SHAPES, dtype=torch.bfloat16))
@bandwidth
def decode(provider, B, H, KV, S, T, D, dtype):
    query = torch.randn(B, H, S, D, device="cuda", dtype=dtype)
    key, value = (torch.randn(B, KV, T, D, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * key.nbytes, lambda: PROVIDERS[provider](query, key, value, enable_gqa=H != KV)
