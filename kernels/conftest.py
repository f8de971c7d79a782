"""What every room of the kernel package shares: the device, and one way of judging an error."""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU (torch calls it `cuda` whatever its vendor), or the CPU under Triton's interpreter."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is no GPU here; set TRITON_INTERPRET=1 to run the kernels in Triton's interpreter")
    return torch.device("cpu")


@pytest.fixture(autouse=True)
def _fresh_randomness(request: pytest.FixtureRequest) -> None:
    """Inputs differ from test to test, and are the same for the same test everywhere."""
    torch.manual_seed(sum(request.node.nodeid.encode()))


@pytest.fixture
def judge(record_property):
    """Hold a result to twice the error of PyTorch's own op, both against a float64 reference, and put the errors on record."""

    def check(actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor) -> None:
        assert actual.shape == reference.shape
        assert actual.dtype == pytorch.dtype
        assert torch.equal(actual.isnan(), reference.isnan()), "NaN appears where it should not, or is missing where it should be"
        finite = reference.isfinite()
        infinite = ~finite & ~reference.isnan()
        assert torch.equal(actual.double()[infinite], reference[infinite])
        reference, ours, theirs = (tensor[finite].double() for tensor in (reference, actual, pytorch))
        if reference.numel() == 0:
            return
        # One unit in the last place at each value: what rounding the exact result to this dtype may cost.
        tiny, eps = torch.finfo(actual.dtype).tiny, torch.finfo(actual.dtype).eps
        ulp = reference.abs().clamp_min(tiny) * eps
        error, allowed = (ours - reference).abs(), 2 * (theirs - reference).abs().max() + ulp
        record_property("max_abs_err", f"{error.max().item():.3e}")
        record_property("max_ulp", f"{(error / ulp).max().item():.1f}")
        record_property("rel_frobenius", f"{(error.norm() / reference.norm().clamp_min(tiny)).item():.3e}")
        assert (error <= allowed).all(), f"worst error {error.max().item():.3e}, PyTorch's {(theirs - reference).abs().max().item():.3e}"

    return check


def poisoned_like(tensor: torch.Tensor) -> torch.Tensor:
    """An output full of NaN: an element that the kernel leaves out cannot pass for a result."""
    return torch.full_like(tensor, float("nan"), memory_format=torch.contiguous_format)


@pytest.fixture
def poisoned():
    """`poisoned_like`, for tests that hand an output in."""
    return poisoned_like
