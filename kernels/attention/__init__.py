"""Scaled dot product attention, whose scores are never in memory."""

from kernels.attention.attention import scaled_dot_product_attention

__all__ = ["scaled_dot_product_attention"]
