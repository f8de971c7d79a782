"""What the options of cross entropy do to it and its gradients: reductions, weights of classes, smoothing."""

import pytest
import torch
import torch.nn.functional as F

from kernels.cross_entropy import cross_entropy
from kernels.cross_entropy.conftest import drawn

OPTIONS = {
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smoothed": {"label_smoothing": 0.1},
    "smoothed-none": {"label_smoothing": 1.0, "reduction": "none"},
    "weighted": {"weight": True},
    "weighted-smoothed": {"weight": True, "label_smoothing": 0.3},
    "weighted-smoothed-sum": {"weight": True, "label_smoothing": 0.3, "reduction": "sum"},
    "a-class-ignored": {"ignore_index": 0},
    "deprecated": {"size_average": False},
}


@pytest.mark.filterwarnings("ignore:size_average and reduce args:UserWarning")
@pytest.mark.parametrize("classes", [64, 1003])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, classes, ours, device, compare):
    options = dict(OPTIONS[name])
    weight = torch.rand(classes, device=device) if options.pop("weight", None) else None

    def weighted(op):
        return lambda x, t: op(x, t, None if weight is None else weight.to(x.dtype), **options)

    compare(weighted(ours), weighted(F.cross_entropy), *drawn(4, classes, device, ignored="ignore_index" not in options))


def test_class_weights_of_zero_are_no_ignored_rows(ours, device, compare):
    weight = torch.tensor([0.0, 1.0, 2.0], device=device)
    x, target = torch.randn(4, 3, device=device), torch.tensor([0, 1, -100, 2], device=device)
    compare(
        lambda x, t: ours(x, t, weight.to(x.dtype), label_smoothing=0.2),
        lambda x, t: F.cross_entropy(x, t, weight.to(x.dtype), label_smoothing=0.2),
        x,
        target,
    )


def test_smoothing_of_large_logits_keeps_its_digits(device, compare):
    """Found by `nox -s fuzz_kernels`: the largest logit was added to a logarithm, and subtracted again."""
    x = torch.full((3, 8), 3e4, device=device)
    target = torch.tensor([1, 0, 7], device=device)
    for reduction in ("none", "mean"):
        options = {"label_smoothing": 0.1, "reduction": reduction}
        compare(cross_entropy, F.cross_entropy, x, target, **options)
