"""Matrix product and linear layer, with an activation fused into the latter."""

from kernels.matmul.matmul import linear, matmul

__all__ = ["linear", "matmul"]
