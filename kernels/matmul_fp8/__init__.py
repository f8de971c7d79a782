"""Matrix products of fp8 numbers with scales, by row or by block."""

from kernels.matmul_fp8.scaled_mm import scaled_mm

__all__ = ["scaled_mm"]
