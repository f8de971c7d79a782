"""Triton's handles of the vendors' products, on cards of two vendors."""

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton._C.libtriton import amd, nvidia

from warpwave.config.targets import load_targets
from warpwave.inside.fake_gpu.card import vendor_blas
from warpwave.inside.process.outcomes import NotPretended

CARDS = {card.name: card for card in load_targets()["cpu"].architectures}
WORKSPACE = torch.empty(16)


def handle(card: str, module, name: str):
    return next(made for owner, known, made in vendor_blas(CARDS[card]) if (owner, known) == (module, name))


@pytest.mark.parametrize(("card", "module", "name"), [("sm_90", nvidia.cublas, "CublasLt"), ("gfx942", amd.hipblas, "HipblasLt")])
def test_a_card_has_that_of_its_vendor(card, module, name):
    a, b, c = torch.randn(4, 8).half(), torch.randn(6, 8).half(), torch.randn(4, 6).half()
    d, blas = torch.empty(4, 6).half(), handle(card, module, name)(WORKSPACE)
    blas.gemm(a, b, c, d, 2.0, 0.5)
    torch.testing.assert_close(d, (2 * (a.double() @ b.double().T) + c / 2).half())
    blas.matmul(a, b, d)
    torch.testing.assert_close(d, (a.double() @ b.double().T).half())


@pytest.mark.parametrize(("card", "module", "name"), [("gfx942", nvidia.cublas, "CublasLt"), ("sm_90", amd.hipblas, "HipblasLt")])
def test_it_has_not_that_of_another_one(card, module, name):
    with pytest.raises(RuntimeError, match=f"{name}: a machine with {card} does not have"):
        handle(card, module, name)(WORKSPACE)


def test_what_is_not_computed_here_is_refused():
    scaled = [name for name in vars(nvidia.cublas.CublasLt) if name.startswith("block_scaled")]
    for name in scaled:
        with pytest.raises(NotPretended, match=rf"CublasLt\.{name}"):
            getattr(handle("sm_90", nvidia.cublas, "CublasLt")(WORKSPACE), name)(WORKSPACE)
