"""Cross entropy and its gradients against float64, with both ways to compute the gradient, at vocabulary sizes and awkward ones."""

import pytest
import torch
import torch.nn.functional as F

from kernels.configs import choose
from kernels.configs.cross_entropy import CROSS_ENTROPY
from kernels.cross_entropy import cross_entropy
from kernels.cross_entropy.conftest import drawn
from kernels.cross_entropy.cross_entropy import _cross_entropy, _cross_entropy_

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INF = float("inf")


@pytest.mark.parametrize("classes", [1, 130, 512, 1003])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_classes(dtype, classes, ours, device, compare):
    compare(ours, F.cross_entropy, *drawn(4, classes, device, DTYPES[dtype]))


@pytest.mark.parametrize("classes", [4096, 32768, 50257, 128256, 262144])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_vocabularies(dtype, classes, ours, device, compare):
    if device.type != "cuda":
        pytest.skip("the interpreter has smaller tiles, and smaller sizes to cross them")
    rows = min(301, 2**22 // classes)  # an emulated card has the memory of its host, and PyTorch needs a hundred bytes for each number
    compare(ours, F.cross_entropy, *drawn(rows, classes, device, DTYPES[dtype], ignored=7))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nothing_but_ignored_rows(reduction, ours, device, compare):
    x, target = torch.randn(3, 600, device=device), torch.full((3,), -100, device=device)
    compare(ours, F.cross_entropy, x, target, reduction=reduction)


@pytest.mark.parametrize("classes", [33, 1003])
def test_rows_with_infinities_and_nan_are_as_in_pytorch(classes, ours, device, compare):
    x, target = drawn(6, classes, device)
    x[0] = -INF
    x[1, : classes - 1] = -INF
    x[3, 3] = float("nan")
    x[4, 5] = INF
    x[5, ::2] = -INF
    compare(ours, F.cross_entropy, x, target, reduction="none")


@pytest.mark.parametrize("make", [lambda x: 1e4 * x, lambda x: x + 1e4, lambda x: 1e-30 * x], ids=["large", "shifted", "tiny"])
def test_magnitudes(make, ours, device, compare):
    x, target = drawn(4, 700, device)
    compare(ours, F.cross_entropy, make(x), target)


@pytest.mark.parametrize("classes", [4096, 8192, 32768, 65536])
def test_a_logit_that_outweighs_its_row(classes, ours, device):
    """Each thread adds the others' exponentials to 1, and half a unit beside 1 is lost or gained by every addition."""
    if device.type != "cuda":
        pytest.skip("NumPy adds pairwise")
    x = torch.full((2, classes), -16.63, device=device)  # exp(-16.63) is 1.006 halves of a unit of 1
    x[:, 0] = 0.0
    x.requires_grad_()
    losses = ours(x, torch.full((2,), classes - 1, device=device), reduction="none")
    (grad,) = torch.autograd.grad(losses.sum(), x)
    exact = torch.softmax(x.detach().double(), 1)[:, 0]
    assert ((grad[:, 0] - exact).abs() <= 12 * torch.finfo(torch.float32).eps * exact).all()


def test_programs_of_many_rows(ours, device, compare):
    """More rows than one program computes losses of."""
    rows = 4099 if device.type == "cuda" else 33
    compare(ours, F.cross_entropy, *drawn(rows, 5, device))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("shape", [(5,), (3, 7, 2), (2, 5, 3, 2), (0, 5), (2, 5, 0)], ids=str)
def test_shapes(shape, reduction, device, compare):
    x = torch.randn(shape, device=device)
    target = torch.randint(5, shape[:1] + shape[2:] if len(shape) > 1 else (), device=device)
    compare(cross_entropy, F.cross_entropy, x, target, reduction=reduction)


VIEWS = {
    "transposed": lambda x: x.t(),
    "every-second-class": lambda x: x[:, ::2],
    "every-second-row": lambda x: x[::2],
    "inner-block": lambda x: x[1:, 3:],
    "expanded": lambda x: x[:1].expand(9, -1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_strides_are_free(view, device, compare):
    def viewed(op):
        return lambda x, target: op(VIEWS[view](x), target)

    x = torch.randn(11, 53, device=device)
    rows, classes = VIEWS[view](x).shape
    compare(viewed(cross_entropy), viewed(F.cross_entropy), x, torch.randint(classes, (rows,), device=device))


def test_bytes_as_targets(device, compare):
    compare(cross_entropy, F.cross_entropy, torch.randn(4, 9, device=device), torch.tensor([0, 8, 3, 3], device=device, dtype=torch.uint8))


@pytest.mark.parametrize("wild", [-1, 700, 2**40], ids=str)
def test_a_target_that_is_no_class_makes_its_row_nan(wild, ours, device):
    x, target = drawn(4, 700, device, ignored=0)
    target[2] = wild
    x.requires_grad_()
    losses = ours(x, target, reduction="none")
    assert losses.isnan().tolist() == [False, False, True, False]
    (grad,) = torch.autograd.grad(losses.nan_to_num(0.0).sum(), x)
    assert grad.isfinite().all(1).tolist()[:2] == [True, True]
    assert ours(x, target).isnan()


def test_the_gradient_is_in_the_place_of_the_logits(device):
    x, target = drawn(5, 1003, device)
    expected = torch.autograd.grad(cross_entropy(x.requires_grad_(), target), x)[0]
    spent = x.detach().clone().requires_grad_()
    loss = cross_entropy(spent, target, inplace_backward=True)
    torch.testing.assert_close(spent.detach(), expected)
    loss.backward(retain_graph=True)
    assert spent.grad.data_ptr() == spent.data_ptr()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_logits_that_need_no_gradient_are_not_spent(device):
    x, target = drawn(5, 100, device)
    before = x.clone()
    cross_entropy(x, target, inplace_backward=True)
    with torch.no_grad():
        cross_entropy(x.requires_grad_(), target, inplace_backward=True)
    assert torch.equal(x, before)


def test_autocast_computes_the_loss_in_fp32(device):
    x, target = drawn(5, 100, device, torch.bfloat16)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        ours, theirs = cross_entropy(x, target), F.cross_entropy(x, target)
    assert ours.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(ours, F.cross_entropy(x.float(), target))  # on a GPU, PyTorch's own result is rounded to bf16


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_is_a_registered_op(reduction, device, registered):
    x, target = drawn(4, 64, device)
    arguments = (x.requires_grad_(), target, None, -100, reduction, 0.1, torch.float32)
    registered(lambda x: cross_entropy(x, target, reduction=reduction, label_smoothing=0.1), _cross_entropy, (x,), arguments)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch.compile
def test_in_place_is_a_registered_op(device, registered):
    x, target = drawn(4, 64, device)
    arguments = (x.clone(), target, None, -100, "mean", 0.0, torch.float32)
    registered(lambda x: cross_entropy(x * 2, target, inplace_backward=True), _cross_entropy_, (x,), arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": torch.randn(3, 5).double()}, NotImplementedError, "fp32, fp16 and bf16"),
        ({"target": torch.rand(3, 5)}, NotImplementedError, "probabilities"),
        ({"target": torch.zeros(2).long()}, ValueError, "batch_size"),
        ({"target": torch.zeros(3).int()}, RuntimeError, "Long or Byte"),
        ({"target": torch.zeros(3, 1).long()}, RuntimeError, "one for each row"),
        ({"weight": torch.ones(4)}, RuntimeError, "all 5 classes"),
        ({"label_smoothing": 2.0}, RuntimeError, "between 0.0 and 1.0"),
        ({"reduction": "median"}, ValueError, "median is not a valid"),
        ({"input": torch.randn(5, 3).t().requires_grad_(), "inplace_backward": True}, RuntimeError, "neighbours in memory"),
    ],
    ids=["dtype", "probabilities", "batch", "target-dtype", "target-shape", "weight", "smoothing", "reduction", "in-place"],
)
def test_what_does_not_fit_is_refused(change, error, message, device):
    arguments = {"input": torch.randn(3, 5), "target": torch.zeros(3).long(), **change}
    with pytest.raises(error, match=message):
        cross_entropy(**{name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()})


def test_more_elements_than_32_bits_count(ours, roomy_device):
    classes, rows = 128256, 2**31 // 128256 + 3
    x = torch.zeros(rows, classes, device=roomy_device, dtype=torch.bfloat16)
    x[-2:] = torch.randn(2, classes, device=roomy_device)
    target = torch.arange(rows, device=roomy_device)
    tail = x[-2:].clone().requires_grad_()
    expected = F.cross_entropy(tail, target[-2:], reduction="sum")
    losses = ours(x.requires_grad_(), target, reduction="none")
    torch.testing.assert_close(losses[-2:].sum(), expected)
    losses.sum().backward()
    torch.testing.assert_close(x.grad[-2:], torch.autograd.grad(expected, tail)[0])


def test_small_tests_cross_every_border():
    """The sizes above are on both sides of what a program takes, wherever they run in the interpreter."""
    config = CROSS_ENTROPY["*"]
    assert config.gradient.elements < 1003 < 2048
    assert config.held[4][-1].elements < 1003
    assert config.split_from <= 1003
    assert config.depth * config.width < 130
    assert choose(CROSS_ENTROPY) in CROSS_ENTROPY.values()
