"""What the tests of cross entropy share."""

import pytest
import torch

from kernels.cross_entropy import cross_entropy


@pytest.fixture(params=[False, True], ids=["kept", "in-place"])
def ours(request):
    """The op, which keeps its logits, or overwrites a copy of them."""
    if not request.param:
        return cross_entropy

    return lambda input, *args, **kwargs: cross_entropy(input.clone(), *args, inplace_backward=True, **kwargs)


def drawn(rows, classes, device, dtype=torch.float32, ignored=1):
    """Random logits, with targets that include the first and last class and, if there are rows for it, ignored ones."""
    target = torch.randint(classes, (rows,), device=device)
    target[:1], target[1:2], target[2 : 2 + ignored] = 0, classes - 1, -100
    return (3 * torch.randn(rows, classes, device=device)).to(dtype), target
