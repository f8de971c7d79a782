"""A package that replaces torch's own operators on the card, as FlagGems does: what a card leaves to the CPU stays torch's."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
if not hasattr(torch.library, "get_kernel"):
    pytest.skip("this torch cannot hand out the kernel that is replaced", allow_module_level=True)

from warpwave.inside.fake_gpu.card import keep_in_backward
from warpwave.inside.fake_gpu.no_data import WithoutData
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.torch_device import apply
from warpwave.inside.fake_gpu.torch_ops import (
    shared_ops,
    sum_in_fp32,
)

CARD = torch.device("cuda", 0)


@pytest.fixture
def seen():
    """Replace five operators on the card; the host's version of one is ours.

    Each call of a replacement is listed, with the device that it sees.
    """
    calls: list[tuple[str, torch.device | None]] = []

    def add(x, y, *, alpha=1):
        calls.append(("add", x.device))
        return torch.sub(x, -alpha * y)

    def convert(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
        calls.append(("convert", x.device))
        return torch.empty_like(x, dtype=dtype or x.dtype).copy_(x)

    def zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        calls.append(("zeros", device))
        return torch.full(size, 0.0, dtype=dtype, device=device)

    def lift(x):
        calls.append(("lift", x.device))
        return x.clone()

    def log_softmax(x, dim, half_to_float):
        calls.append(("log_softmax", x.device))
        return torch.full_like(x, 7.0)

    with contextlib.ExitStack() as undo:
        undo.callback(sum_in_fp32())
        apply(shared_ops(["cuda"]), undo)
        undo.enter_context(Redirect(torch.device("cpu"), ["cuda"], CARD))
        library = torch.library.Library("aten", "IMPL")
        undo.callback(library._destroy)
        for name, function in {
            "add.Tensor": add,
            "_to_copy": convert,
            "zeros": zeros,
            "lift_fresh": lift,
            "_log_softmax": log_softmax,
        }.items():
            library.impl(name, function, "CUDA")
        yield calls


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x, host: torch.add(x, 1.5, alpha=2.0), 4.0),
        (lambda x, host: x + torch.tensor(1.0), 2.0),
        (lambda x, host: torch.zeros((3,), device=x.device), 0.0),
        (lambda x, host: x.half(), 1.0),
        (lambda x, host: torch.log_softmax(x.half().reshape(3, 1), 1).flatten(), 7.0),
    ],
    ids=["number", "tensor-of-the-host", "made", "converted", "log-softmax"],
)
def test_what_a_card_would_run_is_the_packages(call, expected, seen):
    """Each replacement sees the card, and what it makes is there."""
    x, host = torch.ones(3, device="cuda"), torch.ones(3)
    seen.clear()
    made = call(x, host)

    assert made.device == CARD
    assert made.tolist() == [expected] * 3
    assert seen
    assert {device for _, device in seen} == {CARD}


@pytest.mark.parametrize(
    ("call", "expected", "dtype"),
    [
        (lambda host: host + 1.5, [2.5] * 3, torch.float32),
        (lambda host: host.int() + 1.5, [2.5] * 3, torch.float32),
        (lambda host: host.half() + 1.5, [2.5] * 3, torch.float16),
        (lambda host: torch.add(1.0, 2.0, alpha=3), 7.0, torch.float32),
        (lambda host: torch.tensor(1.0) + 2.5, 3.5, torch.float32),
        (lambda host: torch.zeros(3), [0.0] * 3, torch.float32),
        (lambda host: torch.log_softmax(host.half().reshape(3, 1), 1).flatten(), [0.0] * 3, torch.float16),
    ],
    ids=["number", "integers", "half", "numbers", "no-dimension", "made", "log-softmax"],
)
def test_what_a_card_leaves_to_the_cpu_is_torchs(call, expected, dtype, seen):
    """No replacement is called, and the type is that of torch."""
    host = torch.ones(3)
    made = call(host)

    assert (made.device.type, made.dtype, made.tolist()) == ("cpu", dtype, expected)
    assert seen == []


@pytest.mark.parametrize(
    "shapes", [((5, 8), (2, 7, 8), (2, 1, 7, 8)), ((2, 2, 5, 8), (2, 1, 7, 8), (1, 2, 7, 8))], ids=["mixed", "broadcast"]
)
def test_allocators_that_a_package_replaces_serve_torch_too(shapes, monkeypatch):
    """In a backward on tensors without data, torch's own functions call them for shapes: what they make is not the package's."""
    wrong, inner = [], []

    def replaced(allocate):
        def allocated(*args, **options):
            made = allocate(*args, **options)
            if inner:  # torch fills a tensor without data in Python, which allocates
                return made
            inner.append(made)
            beside = torch.full((3,), 1.0, device=made.device)
            inner.clear()
            if beside.untyped_storage().device != made.untyped_storage().device:
                wrong.append((args, options))
            return made

        return allocated

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, replaced(getattr(owner, name)))
    with contextlib.ExitStack() as undo:
        redirect = undo.enter_context(WithoutData(torch.device("meta"), ("cuda",), CARD))
        keep_in_backward(redirect, undo)
        leaves = [torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=True) for shape in shapes]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves)
        grads = torch.autograd.grad(out, leaves, torch.randn_like(out))
        assert [grad.device for grad in grads] == [CARD] * 3
    assert wrong == []
