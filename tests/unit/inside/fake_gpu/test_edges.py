"""Where torch returns other values on the CPU than on CUDA, the pretended card returns those of CUDA (seen on an H200 with torch 2.11)."""

import math

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
from harness.inside.fake_gpu.references.edges import answer_as_cuda  # noqa: E402


@pytest.fixture
def as_cuda():
    undo = answer_as_cuda()
    yield
    undo()


def test_the_sign_of_an_infinite_number(as_cuda):
    numbers = torch.tensor([complex(math.inf, 1), complex(1, math.inf), complex(3, 4), 0], dtype=torch.complex64)
    sign = torch.view_as_real(torch.sgn(numbers))
    expected = torch.tensor([[math.nan, 0], [0, math.nan], [0.6, 0.8], [0, 0]])
    torch.testing.assert_close(sign, expected, equal_nan=True)
    assert torch.sgn(torch.tensor([-2.0, 0.0])).tolist() == [-1.0, 0.0]


def test_a_smooth_loss_with_beta_0(as_cuda):
    number, target = torch.tensor([0.0, 2.0]), torch.zeros(2)
    grad = torch.ops.aten.smooth_l1_loss_backward(torch.ones(2), number, target, 0, 0.0)
    torch.testing.assert_close(grad, torch.tensor([math.nan, 1.0]), equal_nan=True)
    wide = torch.ops.aten.smooth_l1_loss_backward(torch.ones(2), number, target, 0, 4.0)
    assert wide.tolist() == [0.0, 0.5]
