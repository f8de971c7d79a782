"""How pytest chooses: skips by hardware, parameters, marks, fixtures of a class."""

import os

import pytest
import torch
import triton
from small_kernels import add, scale

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_parameters(device, dtype):
    assert (scale(torch.ones(300, device=device, dtype=dtype), 2.0) == 2).all()


@pytest.mark.skipif(torch.version.hip is not None, reason="for NVIDIA's cards")
def test_one_vendor(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


@pytest.mark.skipif(torch.version.cuda is not None, reason="for AMD's cards")
def test_the_other_vendor(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET", "0") == "1", reason="not for the interpreter")
def test_not_for_the_interpreter(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_a_module_that_may_be_missing(pair):
    np = pytest.importorskip("numpy")
    assert np.allclose(scale(pair[0], 2.0).cpu().numpy(), 2 * pair[0].cpu().numpy())


@pytest.mark.slow
def test_marked(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


@pytest.fixture(params=[100, 1000], ids=lambda n: f"n{n}")
def sized(request):
    yield torch.randn(request.param, device="cuda")
    torch.cuda.synchronize()


def test_a_parametrized_fixture(sized):
    torch.testing.assert_close(scale(sized, 2.0), 2 * sized)


class TestOfAClass:
    @pytest.fixture(autouse=True)
    def prepared(self):
        self.x = torch.ones(300, device="cuda")

    def test_its_fixture(self):
        assert (scale(self.x, 2.0) == 2).all()

    @pytest.mark.xfail(raises=AssertionError, reason="known", strict=False)
    def test_expected_to_fail(self):
        assert triton.cdiv(scale(self.x, 2.0).numel(), 256) == 1


@pytest.mark.parametrize("n", [pytest.param(100, id="small"), pytest.param(1 << 40, marks=pytest.mark.skip(reason="too large"))])
def test_a_parameter_that_is_skipped(n):
    x = torch.ones(n, device="cuda")
    assert (scale(x, 2.0) == 2).all()
