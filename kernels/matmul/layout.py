"""The types of a launch: its key, its function, and what follows the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

# Bytes that memory moves at once.
SECTOR = 32

# Takes the operands, the output, the saved tensor, and the bias; where one of these two is not used, the output.
Launch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]

# What a kernel does with a finished sum, as its options; here, nothing.
Epilogue = dict[str, Any]
PLAIN: Epilogue = {"BIAS": False, "ACTIVATION": None, "SAVE": False}


class Layout(NamedTuple):
    """Shape and strides of an operand; hashable, so that launches can be cached by them."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, x: torch.Tensor) -> Layout:
        return cls(x.shape, x.stride())

    @property
    def matrices(self) -> int:
        """The number of matrices in the batch; 1 without a batch."""
        return self.shape[0] if len(self.shape) > 2 else 1

    @property
    def row(self) -> int:
        """The elements from one row to the next, where rows are along the dense dimension."""
        return self.stride[-2] if self.stride[-1] == 1 else self.stride[-1]

    @property
    def fetching(self) -> int:
        """How many times as long TMA takes for rows of 16-bit elements: for those that start within a sector, twice."""
        return 2 if self.row * 2 % SECTOR else 1

    def in_reach_of_tma(self) -> bool:
        """Whether a TMA descriptor of 16-bit elements can describe it: rows aligned to 16 bytes, no overlapping rows or matrices."""
        dense_last = self.stride[-1] == 1
        outer, inner = self.shape[-2:] if dense_last else self.shape[:-3:-1]
        strides = (self.row, *self.stride[:-2])
        return 0 not in self.shape and all(step > 0 and step % 8 == 0 for step in strides) and (self.row >= inner or outer == 1)
