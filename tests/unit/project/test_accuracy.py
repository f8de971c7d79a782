"""What the kernels' tests and the fuzz call wrong in results that are no numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from kernels.accuracy import error_of

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ours", "pytorch", "exact", "wrong"),
    [
        (1.0, 1.0 + 2**-23, NAN, ""),  # float64 took another path: there is nothing to compare with
        (INF, INF, INF, ""),
        (INF, -INF, -INF, "infinities"),
        (INF, 1.0, NAN, "infinities"),
        (NAN, 1.0, NAN, "NaN"),
        (1.0, NAN, NAN, "NaN"),
        (3e38, INF, 4e38, "infinities"),
        (INF, 1.0, 1.0, "infinities"),
        (2.0, 1.0, 1.0, "worst error"),
    ],
)
def test_what_is_no_number_is_held_to_pytorch(ours, pytorch, exact, wrong):
    found = error_of(torch.tensor([ours]), torch.tensor([pytorch]), torch.tensor([exact], dtype=torch.float64)).wrong
    assert (wrong in found) if wrong else not found, found
