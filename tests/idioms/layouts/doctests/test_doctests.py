"""Examples in docstrings, which show what a kernel computed."""

import doctest

import torch
from small_kernels import scale


def doubled(x):
    """Return twice x.

    >>> doubled(torch.ones(2, 2, device="cuda")).cpu().tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    >>> print(doubled(torch.full((3,), 4.0, device="cuda")).sum().item())
    24.0
    """
    return scale(x, 2.0)


def test_examples():
    found = doctest.DocTestFinder().find(doubled, "doubled", globs={"torch": torch, "doubled": doubled})
    results = [doctest.DocTestRunner(verbose=False).run(each) for each in found]
    assert sum(result.attempted for result in results) == 2
    assert sum(result.failed for result in results) == 0
