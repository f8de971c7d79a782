"""Products with `out_dtype`, which torch has for cards alone, on a pretended card with data."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.card import _with_out_dtype


@pytest.fixture
def operands():
    torch.manual_seed(0)
    return torch.randn(3, 4, 64).bfloat16(), torch.randn(3, 64, 5).bfloat16(), torch.randn(4, 5)


def test_sums_are_not_rounded_to_the_operands_type(operands):
    a, b, c = operands
    exact = a.double() @ b.double()
    for name, given, expected in [
        ("mm", (a[0], b[0]), exact[0]),
        ("bmm", (a, b), exact),
        ("addmm", (c, a[0], b[0]), exact[0] + c),
        ("baddbmm", (c.expand(3, 4, 5), a, b), exact + c),
    ]:
        product = _with_out_dtype(getattr(torch, name))
        made = product(*given, out_dtype=torch.float32)
        assert made.dtype == torch.float32
        torch.testing.assert_close(made.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(product(*given, torch.float32), made)
        out = torch.empty_like(made)
        assert product(*given, out_dtype=torch.float32, out=out) is out
        torch.testing.assert_close(out, made)


def test_without_it_a_product_is_torchs_own(operands):
    a, b, _ = operands
    product = _with_out_dtype(torch.bmm)
    out = torch.empty(3, 4, 5, dtype=torch.bfloat16)
    assert torch.equal(product(a, b), torch.bmm(a, b))
    assert torch.equal(product(a, b, out=out), torch.bmm(a, b))


def test_other_options_stay(operands):
    a, b, c = operands
    made = _with_out_dtype(torch.addmm)(c, a[0], b[0], out_dtype=torch.float32, beta=2.0, alpha=-1.0)
    torch.testing.assert_close(made, 2 * c - a[0].float() @ b[0].float(), rtol=1e-5, atol=1e-5)
