"""Scaled dot product attention that never stores its scores in memory."""

from kernels.attention.attention import scaled_dot_product_attention
from kernels.attention.varlen import varlen_attn

__all__ = ["scaled_dot_product_attention", "varlen_attn"]
