"""Host code that cannot go on without data: a branch, a size, an index, a loop. Compiling alone ends here."""

import math

import torch
from small_kernels import add, scale


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


def test_a_number_that_python_makes_its_own():
    out = scale(torch.ones(300, device="cuda"), 2.0)
    assert float(out[7]) == 2.0


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
