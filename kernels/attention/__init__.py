"""Scaled dot product attention that never stores its scores in memory."""

from kernels.attention.attention import scaled_dot_product_attention

__all__ = ["scaled_dot_product_attention"]
