"""What the rooms of this package share: the device, inputs that repeat, poisoned outputs, and one measure of error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch

# More than any kernel here rounds a row or a block up by.
GUARD = 1 << 16


def pytest_configure(config: pytest.Config) -> None:
    # Infinities and NaN are test inputs; a GPU is silent about them, numpy below Triton's interpreter is not.
    for what in ("overflow", "invalid value", "divide by zero"):
        config.addinivalue_line("filterwarnings", f"ignore:{what} encountered:RuntimeWarning")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU (torch calls it `cuda` whatever its vendor), or the CPU under Triton's interpreter."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is no GPU here; set TRITON_INTERPRET=1 to run the kernels in Triton's interpreter")
    return torch.device("cpu")


@pytest.fixture
def roomy_device(device: torch.device) -> torch.device:
    """A GPU with room for tensors of more than 2**31 elements."""
    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("tensors of more than 2**31 elements need a GPU with 16 GiB of free memory")
    return device


@pytest.fixture(autouse=True)
def _same_inputs_every_time(request: pytest.FixtureRequest) -> None:
    """Inputs differ from test to test, and are the same for the same test on every machine."""
    torch.manual_seed(sum(request.node.nodeid.rsplit("/", 1)[-1].encode()))


@pytest.fixture
def poisoned() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Contiguous outputs full of NaN, with more NaN around them.

    An element that the kernel leaves out cannot pass for a result, and a store outside of the output fails the test
    at its end.
    """
    guards: list[torch.Tensor] = []

    def allocate(like: torch.Tensor) -> torch.Tensor:
        whole = torch.full((like.numel() + 2 * GUARD,), float("nan"), dtype=like.dtype, device=like.device)
        guards.extend((whole[:GUARD], whole[-GUARD:]))
        return whole[GUARD:-GUARD].view(like.shape)

    yield allocate
    assert all(guard.isnan().all() for guard in guards), "the kernel stored outside of its output"


@pytest.fixture
def judge(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Hold a result to twice the error of PyTorch's own op, both against a float64 reference; record the errors."""

    def check(actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor) -> None:
        assert actual.shape == reference.shape
        assert actual.dtype == pytorch.dtype
        # Where PyTorch overflows or has no number, neither may we; these are no errors to measure.
        finite = pytorch.isfinite() & reference.isfinite()
        odd, expected = actual[~finite], pytorch[~finite]
        assert torch.equal(odd.isnan(), expected.isnan()), "NaN is missing, or is where PyTorch has none"
        assert torch.equal(odd.nan_to_num(0.0), expected.nan_to_num(0.0)), "infinities differ from PyTorch's"
        exact, ours, theirs = (tensor[finite].double() for tensor in (reference, actual, pytorch))
        assert ours.isfinite().all(), "a NaN or an infinity where PyTorch has a number: perhaps never written"
        if not exact.numel():
            return
        kind = torch.finfo(actual.dtype)
        # The spacing of this dtype at the exact value, or a little more: rounding alone may cost half of it.
        ulp = exact.abs().clamp_min(kind.tiny) * kind.eps
        error, bar = (ours - exact).abs(), (theirs - exact).abs().max()
        worst = error.max().item()
        record_property("max_abs_err", f"{worst:.3e}")
        record_property("max_ulp", f"{(error / ulp).max().item():.2f}")
        record_property("max_abs_err_of_torch", f"{bar.item():.3e}")
        assert (error <= 2 * bar + ulp).all(), f"the worst error is {worst:.3e}, PyTorch's is {bar.item():.3e}"

    return check
