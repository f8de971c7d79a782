"""torch's operations on halves, which tests compare kernels with: as exact as a card's, in value and gradient."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
if not hasattr(torch.library, "get_kernel"):
    pytest.skip("this torch cannot hand out the kernels that are replaced", allow_module_level=True)

from torch.nn import functional

from warpwave.inside.fake_gpu.torch_ops import sum_in_fp32

ROWS, CLASSES = 4096, 256
_DRAW = torch.Generator().manual_seed(0)
TARGETS = torch.randint(0, CLASSES, (ROWS,), generator=_DRAW)
TARGETS[::2] = -100
PIXELS = torch.randint(0, 16, (4, 32, 32), generator=_DRAW)
PIXELS[:, ::2] = -100
PLACES = torch.randint(0, 64, (ROWS,), generator=_DRAW)


def drawn(*shape: int):
    return torch.randn(*shape, generator=_DRAW)


def norm(x, weight, bias):
    return functional.layer_norm(x, (CLASSES,), weight, bias)


def groups(x, weight, bias):
    return functional.group_norm(x.reshape(4, CLASSES, -1), 8, weight, bias)


CASES = {
    "cross entropy": (lambda x: functional.cross_entropy(x, TARGETS), [drawn(ROWS, CLASSES)]),
    "of pictures": (lambda x: functional.cross_entropy(x, PIXELS), [drawn(4, 16, 32, 32)]),
    "layer norm": (norm, [drawn(ROWS, CLASSES), drawn(CLASSES), drawn(CLASSES)]),
    "group norm": (groups, [drawn(4, CLASSES, 512), drawn(CLASSES), drawn(CLASSES)]),
    "embedding": (lambda table: functional.embedding(PLACES, table), [drawn(64, CLASSES)]),
    "product": (lambda x: x.prod(-1), [1 + 0.01 * drawn(64, 512)]),
    "of all": (lambda x: x.prod(), [1 + 0.01 * drawn(512)]),
}


@pytest.fixture
def replaced():
    undo = sum_in_fp32()
    yield
    undo()


def errors(function, arguments, dtype) -> list[float]:
    """The relative error of a result and of each gradient, in units of the dtype."""
    given = [each.to(dtype).requires_grad_() for each in arguments]
    exact = [each.detach().double().requires_grad_() for each in given]
    found, expected = function(*given), function(*exact)
    weights = torch.rand(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (found * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    pairs = [(found.detach(), expected.detach()), *((one.grad, other.grad) for one, other in zip(given, exact, strict=True))]
    assert all(one.dtype is dtype for one, _ in pairs)
    return [((one.double() - other).norm() / other.norm()).item() / torch.finfo(dtype).eps for one, other in pairs]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_halves_are_summed_in_fp32(function, arguments, dtype, replaced):
    assert max(errors(function, arguments, dtype)) < 1.5


@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_other_types_are_torchs_own(function, arguments):
    def results():
        given = [each.clone().requires_grad_() for each in arguments]
        found = function(*given)
        found.sum().backward()
        return [found.detach(), *(each.grad for each in given)]

    before = results()
    undo = sum_in_fp32()
    after = results()
    undo()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_type_that_is_asked_for_stays(replaced):
    x = torch.ones(4, 8, dtype=torch.float16)
    assert x.prod(-1, dtype=torch.float32).dtype is torch.float32
    assert x.log_softmax(-1, dtype=torch.float32).dtype is torch.float32
    assert functional.layer_norm(x.requires_grad_(), (8,), torch.ones(8).half()).dtype is torch.float16


def test_parameters_in_fp32_have_gradients_in_fp32(replaced):
    x, weight = torch.randn(64, 8, dtype=torch.bfloat16, requires_grad=True), torch.ones(8, requires_grad=True)
    functional.layer_norm(x, (8,), weight).sum().backward()
    assert (x.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)
