"""The numbers that exports contain: sound ones only, because the tools that read them have no column for doubts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.compare.model import Cell, Comparison, Row
from harness.render.charts.sweeps import band
from harness.render.text import visible


@dataclass(frozen=True)
class Measured:
    """One sound number and its row. `low` and `high` are its 20 to 80% band, if it has one."""

    row: Row
    cell: Cell
    value: float
    low: float | None
    high: float | None

    @property
    def name(self) -> str:
        """`softmax/fp32/N=1024 [triton] on a, Some GPU`. The name includes the GPU, so that another GPU starts another series."""
        device = f" {self.cell.device}" if self.cell.device else ""
        return visible(f"{self.row.case} [{self.row.provider}] on {self.cell.target}, {self.cell.gpu}{device}")


def sound(comparison: Comparison) -> Iterator[Measured]:
    """Yield every sound number, each name once: the kernel's tests passed and the value is not suspect."""
    seen = set()
    for row in comparison.rows:
        for cell in row.cells:
            if cell.sound and cell.value is not None:
                found = Measured(row, cell, cell.value, *band(cell))
                if (found.name, row.kernel, cell.unit) not in seen:
                    seen.add((found.name, row.kernel, cell.unit))
                    yield found


def left_out(comparison: Comparison) -> int:
    """Return how many points are not sound, measured or not."""
    return sum(not cell.sound for row in comparison.rows for cell in row.cells)
