"""Every way in which authors compare what a kernel wrote with what it should have."""

from __future__ import annotations

import json
import logging
import math
import sys
import unittest
import warnings

import numpy as np
import pytest
import torch
import triton
from small_kernels import add, row_sum, scale
from torch.nn import functional


def test_assert_close(pair):
    torch.testing.assert_close(add(*pair), pair[0] + pair[1], rtol=1e-5, atol=1e-6)
    triton.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_allclose(pair):
    assert torch.allclose(add(*pair), pair[0] + pair[1], atol=1e-5), "they differ"
    assert torch.equal(add(*pair), pair[0] + pair[1])
    if not torch.allclose(add(*pair), pair[0] + pair[1]):
        pytest.fail("they differ")
    correct = torch.allclose(add(*pair), pair[0] + pair[1])
    if not correct:
        raise AssertionError("they differ")


def test_all_of_a_comparison(pair):
    out, expected = add(*pair), pair[0] + pair[1]
    assert (out == expected).all()
    assert torch.all(torch.isclose(scale(pair[0], 2.0), 2 * pair[0])).item()
    mismatches = torch.sum(out != expected).item()
    assert mismatches == 0
    assert int((out != expected).sum()) == 0
    assert not torch.isnan(out).any()
    assert torch.isfinite(out).all()
    bad = bool(out.isnan().any())
    assert not bad
    assert (scale(out, 2.0) == 2 * out).all()


def test_the_largest_difference(pair):
    difference = (add(*pair) - (pair[0] + pair[1])).abs().max()
    assert difference < 1e-5
    assert difference.item() <= 1e-5, f"differs by {difference.item()}"


def test_a_relative_error(pair):
    out, expected = add(*pair), pair[0] + pair[1]
    error = float((out - expected).norm() / expected.norm())
    assert error < 1e-5
    assert error == pytest.approx(0, abs=1e-5)


def assert_close(ours, theirs, tolerance):
    error = (ours - theirs).abs().max().item()
    if error > tolerance:
        raise AssertionError(f"differs by {error}")


def test_a_helper_that_raises(pair):
    assert_close(add(*pair), pair[0] + pair[1], 1e-5)
    assert_close(scale(pair[0], 2.0), 2 * pair[0], 1e-5)


def test_numpys_comparison(pair):
    np.testing.assert_allclose(add(*pair).cpu().numpy(), (pair[0] + pair[1]).cpu().numpy(), rtol=1e-5)
    np.testing.assert_array_equal(scale(pair[0], 2.0).detach().cpu().numpy(), 2 * pair[0].cpu().numpy())
    host = np.linspace(0, 1, 300, dtype=np.float32)
    assert np.allclose(scale(torch.from_numpy(host).cuda(), 2.0).cpu().numpy(), 2 * host)


def test_single_numbers_of_numpys_arrays():
    found = scale(torch.full((3,), 2.0, device="cuda"), 3.0).cpu().numpy()
    assert found[0] == 6
    assert all(number == 6 for number in found)
    assert found[-1].item() == found.max() == 6
    np.testing.assert_equal(found[1], np.float32(6))
    assert (scale(torch.ones(300, device="cuda"), found[0].item()) == 6).all()


def test_a_reference_computed_on_the_host():
    x = torch.randn(8, 100, device="cuda")
    torch.testing.assert_close(row_sum(x).cpu(), x.cpu().double().sum(1).float(), rtol=1e-4, atol=1e-4)


def test_one_element():
    out = scale(torch.ones(300, device="cuda"), 2.0)
    assert out[0] == 2
    assert out[-1].item() == 2.0
    assert float(out[7]) == 2.0
    assert scale(torch.ones(4, device="cuda"), 2.0).tolist() == [2.0] * 4


def test_the_error_of_a_wrong_argument(pair):
    def checked(x, y):
        assert x.shape == y.shape, "shapes differ"
        return add(x, y)

    with pytest.raises(AssertionError, match="shapes differ"):
        checked(pair[0], pair[1][:10])
    torch.testing.assert_close(checked(*pair), pair[0] + pair[1])


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


# Numbers of the host that are computed from data, and passed to a kernel: what is launched does not depend on them.


FACTORS = {
    "a power of two": lambda out: math.pow(2.0, -math.floor(math.log2(out.abs().max().item()))),
    "at least so much": lambda out: min(448.0 / max(out.abs().max().item(), 1e-12), 10_000.0),
    "the larger of two": lambda out: 1 / max(out.max().item(), -out.min().item()),
    "of the data": lambda out: 1.0 / out.abs().max().item(),
}


@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS)
def test_a_number_of_the_data_as_an_argument(factor, pair):
    out = add(*pair)
    number = factor(out)
    torch.testing.assert_close(scale(out, number), out * number)


def test_a_check_with_math(pair):
    out = add(*pair)
    assert math.isfinite(out.sum().item())
    assert math.isclose(out.sum().item(), (pair[0] + pair[1]).sum().item(), rel_tol=1e-3, abs_tol=1e-3)
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


# Host code that cannot go on without data: a branch, a size, an index, a loop. Compiling alone ends here.


def test_a_branch(pair):
    out = add(*pair)
    if out.max().item() > 0:
        out = scale(out, 2.0)
    assert out.shape == pair[0].shape


def test_a_size(pair):
    out = add(*pair)
    positive = torch.empty(int((out > 0).sum().item()), device="cuda")
    assert positive.numel() <= out.numel()


def test_a_mask(pair):
    out = add(*pair)
    assert (scale(out[out > 0], 2.0) > 0).all()


def test_an_index(pair):
    out = add(*pair)
    row = out.argmax().item()
    head = scale(out[: row + 1], 2.0)
    assert head.numel() == row + 1


def test_a_loop_over_lengths():
    lengths = scale(torch.tensor([3.0, 5.0], device="cuda"), 2.0).int()
    total = 0
    for length in lengths.tolist():
        total += scale(torch.ones(length, device="cuda"), 2.0).numel()
    assert total == 16


def test_a_loop_until_it_converges():
    x = torch.ones(300, device="cuda")
    while x.max() > 0.1:
        x = scale(x, 0.5)
    assert x.max() <= 0.1


def test_a_branch_on_a_number_that_python_makes_its_own(pair):
    out = add(*pair)
    factor = 2.0 if float(out.max()) > 0 else 3.0
    assert scale(out, factor).shape == out.shape


def is_positive(x):
    if x.min() > 0:
        return True
    print("not positive")
    return False


def test_a_helper_whose_answer_decides(pair):
    out = add(*pair)
    if is_positive(out):
        out = scale(out, 2.0)
    assert out.shape == pair[0].shape


def test_a_branch_on_a_computed_number(pair):
    out = add(*pair)
    exponent = math.floor(math.log2(out.abs().max().item()))
    if exponent > 0:
        out = scale(out, 0.5)
    assert out.shape == pair[0].shape


def test_a_branch_on_the_largest(pair):
    out = add(*pair)
    if max(out.max().item(), 0.5) > 1:
        out = scale(out, 0.5)
    assert out.shape == pair[0].shape


# Lengths and tables that a test draws on the card, and from which its host code makes sizes.


def test_lengths_of_sequences(device):
    lengths = torch.randint(4, 33, (3,), device=device, dtype=torch.int32)
    ends = functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    total, longest = ends[-1].item(), lengths.max().item()
    x = torch.randn(total, 8, device=device)
    padded = torch.zeros(3, longest, 8, device=device)
    for index, (first, last) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        padded[index, : last - first] = add(x[first:last], x[first:last])
    assert padded.shape[1] == longest


def test_a_mask_of_padding(device):
    lengths = torch.randint(4, 33, (3, 1), device=device)
    mask = torch.arange(32, device=device).repeat(3, 1) < lengths
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    x = torch.randn(96, 8, device=device)[indices]
    torch.testing.assert_close(add(x, x), 2 * x)


def test_tokens_in_the_order_of_their_experts(device):
    experts = torch.randint(0, 8, (64, 2), device=device)
    counts = torch.bincount(experts.flatten(), minlength=8)
    x = torch.randn(64, 16, device=device)[experts.flatten().argsort(stable=True) // 2]
    first = 0
    for count in counts.tolist():
        if count:
            part = x[first : first + count]
            torch.testing.assert_close(add(part, part), 2 * part)
        first += count


def test_a_permutation(device):
    order = torch.randperm(64, device=device)
    x = torch.randn(64, 8, device=device)[order[: order.argmax().item() + 1]]
    torch.testing.assert_close(add(x, x), 2 * x)


# Numbers that are printed, logged and recorded decide nothing.

log = logging.getLogger(__name__)


def test_printing(pair, capsys):
    out = add(*pair)
    print(f"{out.max().item()}", "mean %.3f" % out.mean().item(), "{:.4e}".format(out.std().item()))  # noqa: UP031, UP032
    print(out, out[:4], f"{out[:2]}")
    difference = (out - pair[0] - pair[1]).abs().max()
    print(f"largest difference: {difference:.2e}")
    mean, largest = out.mean().item(), out.abs().max().item()
    print(round(mean, 3), abs(mean) / (largest + 1e-6), 100 * mean - 1, int(largest))
    sys.stderr.write(f"{out.min().item()}\n")
    assert "largest" in capsys.readouterr().out
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_logging_and_recording(pair, caplog, record_property):
    out = add(*pair)
    with caplog.at_level(logging.INFO):
        log.info("sum %s, mean %.3f", out.sum().item(), out.mean().item())
        log.info("first %s", out[:3])
    assert len(caplog.records) == 2
    record_property("max_abs_err", (out - pair[0] - pair[1]).abs().max().item())
    record_property("mean", float(out.mean()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn(f"largest is {out.max().item()}", stacklevel=1)
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_the_text_of_a_tensor_names_its_card(pair):
    """That of a copy on the host does not."""
    x = add(*pair)
    first = x[:2]
    assert "device='cuda:0'" in repr(first)
    assert "cuda" in str(first.half())
    assert "cuda" not in repr(first.cpu())
    assert "device='cuda:0'" in str(torch.nn.Parameter(first))
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_writing_results_to_a_file(pair, tmp_path):
    out = add(*pair)
    (tmp_path / "result.json").write_text(json.dumps({"mean": out.mean().item(), "shape": list(out.shape)}))
    torch.save(out, tmp_path / "out.pt")
    assert torch.load(tmp_path / "out.pt").shape == out.shape
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


# unittest's classes, as pytest runs them.


def is_close(x, y):
    if (x - y).abs().max() > 1e-3:
        print("not close")
        return False
    return True


class AddTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = "cuda"

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(300, device=self.device)

    def tearDown(self):
        torch.cuda.empty_cache()

    def test_it_adds(self):
        self.assertTrue(torch.allclose(add(self.x, self.x), 2 * self.x))

    def test_a_helper_that_returns_its_verdict(self):
        self.assertTrue(is_close(add(self.x, self.x), 2 * self.x))
        self.assertFalse(not is_close(scale(self.x, 2.0), 2 * self.x))

    def test_sub_tests(self):
        for factor in (1.0, 2.0):
            with self.subTest(factor=factor):
                torch.testing.assert_close(scale(self.x, factor), factor * self.x)

    def test_numbers(self):
        out = scale(torch.ones_like(self.x), 2.0)
        self.assertEqual(out.shape, self.x.shape)
        self.assertEqual(out[0].item(), 2.0)
        self.assertAlmostEqual(out.mean().item(), 2.0, places=5)
        self.assertLess((out - 2).abs().max().item(), 1e-5)

    @unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
    def test_skip_unless(self):
        self.assertTrue(torch.equal(scale(self.x, 1.0), self.x))
