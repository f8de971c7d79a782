"""The numbers that leave the house: sound ones only, for whoever keeps them has no column for a doubt. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.compare.comparison import Cell, Comparison, Row
from harness.render.charts.sweeps import band
from harness.render.text import visible


@dataclass(frozen=True)
class Measured:
    """One sound number with the row that it stands in. `low` and `high` are its 20 to 80 % band, where there is one."""

    row: Row
    cell: Cell
    value: float
    low: float | None
    high: float | None

    @property
    def name(self) -> str:
        """`softmax/fp32/N=1024 [triton] on a, Some GPU`: with the GPU, so that another card begins a line of its own."""
        device = f" {self.cell.device}" if self.cell.device else ""
        return visible(f"{self.row.case} [{self.row.provider}] on {self.cell.target}, {self.cell.gpu}{device}")


def sound(comparison: Comparison) -> Iterator[Measured]:
    """Every number whose kernel's tests passed and that a memory can have given, each name once."""
    seen = set()
    for row in comparison.rows:
        for cell in row.cells:
            if cell.sound and cell.value is not None:
                found = Measured(row, cell, cell.value, *band(cell))
                if (found.name, row.kernel, cell.unit) not in seen:
                    seen.add((found.name, row.kernel, cell.unit))
                    yield found


def left_out(comparison: Comparison) -> int:
    """How many points are measured or tried, and not sound."""
    return sum(not cell.sound for row in comparison.rows for cell in row.cells)
