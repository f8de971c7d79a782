"""Every way in which authors compare what a kernel wrote with what it should have."""

import numpy as np
import pytest
import torch
import triton
from small_kernels import add, row_sum, scale


def test_assert_close(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1], rtol=1e-5, atol=1e-6)


def test_tritons_assert_close(pair):
    triton.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_allclose_in_an_assert(pair):
    assert torch.allclose(add(*pair), pair[0] + pair[1], atol=1e-5), "they differ"


def test_allclose_then_fail(pair):
    if not torch.allclose(add(*pair), pair[0] + pair[1]):
        pytest.fail("they differ")


def test_allclose_then_raise(pair):
    correct = torch.allclose(add(*pair), pair[0] + pair[1])
    if not correct:
        raise AssertionError("they differ")


def test_equal(pair):
    assert torch.equal(add(*pair), pair[0] + pair[1])


def test_all_of_a_comparison(pair):
    assert (add(*pair) == pair[0] + pair[1]).all()
    assert torch.all(torch.isclose(scale(pair[0], 2.0), 2 * pair[0])).item()


def test_the_largest_difference(pair):
    difference = (add(*pair) - (pair[0] + pair[1])).abs().max()
    assert difference < 1e-5
    assert difference.item() <= 1e-5, f"differs by {difference.item()}"


def test_the_number_of_mismatches(pair):
    out, expected = add(*pair), pair[0] + pair[1]
    mismatches = torch.sum(out != expected).item()
    assert mismatches == 0
    assert int((out != expected).sum()) == 0
    assert not torch.isnan(out).any()
    assert torch.isfinite(out).all()


def test_a_relative_error(pair):
    out, expected = add(*pair), pair[0] + pair[1]
    error = float((out - expected).norm() / expected.norm())
    assert error < 1e-5
    assert error == pytest.approx(0, abs=1e-5)


def assert_close(ours, theirs, tolerance):
    """A helper of the author's own."""
    error = (ours - theirs).abs().max().item()
    if error > tolerance:
        raise AssertionError(f"differs by {error}")


def test_a_helper_that_raises(pair):
    assert_close(add(*pair), pair[0] + pair[1], 1e-5)
    assert_close(scale(pair[0], 2.0), 2 * pair[0], 1e-5)


def test_numpys_comparison(pair):
    np.testing.assert_allclose(add(*pair).cpu().numpy(), (pair[0] + pair[1]).cpu().numpy(), rtol=1e-5)
    np.testing.assert_array_equal(scale(pair[0], 2.0).detach().cpu().numpy(), 2 * pair[0].cpu().numpy())


def test_single_numbers_of_numpys_arrays():
    found = scale(torch.full((3,), 2.0, device="cuda"), 3.0).cpu().numpy()
    assert found[0] == 6
    assert all(number == 6 for number in found)
    assert found[-1].item() == found.max() == 6
    np.testing.assert_equal(found[1], np.float32(6))
    assert (scale(torch.ones(300, device="cuda"), found[0].item()) == 6).all()


def test_data_from_numpy():
    host = np.linspace(0, 1, 300, dtype=np.float32)
    x = torch.from_numpy(host).cuda()
    assert np.allclose(scale(x, 2.0).cpu().numpy(), 2 * host)


def test_a_reference_computed_on_the_host():
    x = torch.randn(8, 100, device="cuda")
    torch.testing.assert_close(row_sum(x).cpu(), x.cpu().double().sum(1).float(), rtol=1e-4, atol=1e-4)


def test_a_list_of_the_results():
    assert scale(torch.ones(4, device="cuda"), 2.0).tolist() == [2.0] * 4


def test_one_element():
    out = scale(torch.ones(300, device="cuda"), 2.0)
    assert out[0] == 2
    assert out[-1].item() == 2.0


def test_the_error_of_a_wrong_argument(pair):
    def checked(x, y):
        assert x.shape == y.shape, "shapes differ"
        return add(x, y)

    with pytest.raises(AssertionError, match="shapes differ"):
        checked(pair[0], pair[1][:10])
    torch.testing.assert_close(checked(*pair), pair[0] + pair[1])


def test_a_truth_that_is_kept_and_asserted(pair):
    out = add(*pair)
    bad = bool(out.isnan().any())
    assert not bad
    assert (scale(out, 2.0) == 2 * out).all()


def close(x, y, share=0.01):
    """As packages have it that allow some elements to differ."""
    same = torch.isclose(x, y, rtol=5e-2)
    wrong = (same.numel() - same.sum()) / same.numel()
    if wrong > share:
        print(f"{wrong:.2%} of the values are not close")
        return False
    return True


def differs(x, y):
    return bool((x - y).abs().max() > 1e-3)


def test_a_helper_that_returns_its_verdict(pair):
    out = add(*pair)
    assert close(out, pair[0] + pair[1])
    assert close(scale(out, 2.0), 2 * out)


def test_a_helper_that_must_not_hold(pair):
    out = add(*pair)
    assert not differs(out, pair[0] + pair[1])
    right = close(out, pair[0] + pair[1])
    assert right
    assert not differs(scale(out, 2.0), 2 * out)


def test_two_that_must_differ(pair):
    doubled, tripled = scale(pair[0], 2.0), scale(pair[0], 3.0)
    assert torch.equal(doubled, scale(pair[0], 2.0)) and not torch.equal(doubled, tripled)  # noqa: PT018 - the idiom
    assert not torch.allclose(doubled, tripled), "they are the same"
    assert not doubled.equal(tripled)
    assert not scale(doubled, 2.0).isnan().any()
    add(doubled, tripled)
