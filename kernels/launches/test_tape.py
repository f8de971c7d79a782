"""Calls that are played: bit for bit what the call in full gives, in all that may differ from the call that was noted."""

import pytest
import torch
from triton import knobs
from triton.runtime.jit import JITFunction

from kernels.attention import scaled_dot_product_attention
from kernels.gelu import gelu
from kernels.gelu.gelu import _gelu_backward
from kernels.launches import note, tape
from kernels.layer_norm import layer_norm
from kernels.matmul import linear, matmul
from kernels.rms_norm import rms_norm
from kernels.softmax import log_softmax, softmax

CALLS = {
    "gelu": (lambda x: gelu(x, approximate="tanh"), [(64, 1024)]),
    "softmax": (lambda x: softmax(x, -1), [(64, 1024)]),
    "log_softmax": (lambda x: log_softmax(x, dim=2), [(4, 16, 1024)]),
    "softmax of parts": (lambda x: softmax(x, -1), [(4, 1 << 18)]),
    "layer_norm": (lambda x, w, b: layer_norm(x, [1024], w, b), [(3, 64, 1024), (1024,), (1024,)]),
    "rms_norm": (lambda x, w: rms_norm(x, (1024,), w), [(64, 1024), (1024,)]),
    "matmul of few rows": (matmul, [(64, 1024), (1024, 1024)]),
    "matmul of parts": (matmul, [(256, 8192), (8192, 256)]),
    "matmul": (matmul, [(1024, 512), (512, 1024)]),
    "linear": (linear, [(2, 256, 512), (1024, 512), (1024,)]),
    "attention": (scaled_dot_product_attention, [(2, 8, 256, 128)] * 3),
}


@pytest.fixture
def played(device, monkeypatch):
    """How many calls were played. Poisoned tensors are not, because they are filled."""
    monkeypatch.undo()
    if not (tape.possible and device.type == "cuda" and torch.cuda.get_device_capability()[0] >= 9):
        pytest.skip("launches are bound on NVIDIA's cards, and all of these from Hopper on")
    if knobs.compilation.instrumentation_mode:
        pytest.skip("launches of kernels that Triton's sanitizers check are not bound")
    tape.forget()
    counted = []

    class Counting(note.Tape):
        def __init__(self, *args):
            super().__init__(*args)
            own = self.play

            def play(*args):
                result = own(*args)
                counted.append(result is not None)
                return result

            self.play = play

    for module in (note, tape):
        monkeypatch.setattr(module, "Tape", Counting)
    yield counted
    tape.forget()


@pytest.fixture
def in_full(monkeypatch):
    """A way to make a call in full."""

    def call(function, *args):
        with monkeypatch.context() as patched:
            patched.setattr(tape, "possible", False)
            return function(*args)

    return call


def draw(shapes, device, start=0):
    return [torch.randn(start + torch.Size(s).numel(), device=device).bfloat16()[start:].view(s) for s in shapes]


@pytest.mark.parametrize("op", CALLS)
def test_a_played_call_is_the_same(op, device, played, in_full):
    function, shapes = CALLS[op]
    for _ in range(3):
        function(*draw(shapes, device))
    assert played[-1:] == [True]
    # One element further on, another binary is needed; eight further, the same.
    for start in (0, 1, 8, 0, 1, 1, 1):
        inputs = draw(shapes, device, start)
        assert torch.equal(function(*inputs), in_full(function, *inputs))
    assert all(played) and len(played) >= 4


def test_one_tensor_twice_and_then_two(device, played, in_full):
    x, w, b = draw([(64, 1024), (1024,), (1024,)], device)
    for _ in range(3):
        layer_norm(x, (1024,), w, w)
    assert played == [True]
    assert torch.equal(layer_norm(x, (1024,), w, b), in_full(layer_norm, x, (1024,), w, b))
    assert torch.equal(layer_norm(x, (1024,), b, b), in_full(layer_norm, x, (1024,), b, b))
    assert played == [True, False, True]


def test_two_leaves_of_one_memory_have_gradients_of_their_own(device, played):
    x, w = (x.requires_grad_() for x in draw([(64, 1024), (1024,)], device))
    for _ in range(3):
        torch.autograd.grad(layer_norm(x, (1024,), w, w).sum(), w)
    assert played[0]
    bias = w.detach().requires_grad_()
    ours, theirs = (torch.autograd.grad(f(x, (1024,), w, bias).sum(), (w, bias)) for f in (layer_norm, torch.nn.functional.layer_norm))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=0.5, rtol=0.05)


def test_a_number_that_is_whole_at_first(device, played):
    x, w = draw([(64, 1024), (1024,)], device)
    for eps in (1, 1, 1, 1e-5, 1.0):
        torch.testing.assert_close(rms_norm(x, (1024,), w, eps), torch.nn.functional.rms_norm(x, (1024,), w, float(eps)))
    assert played == [True, True]


def test_gradients_are_those_of_a_full_call(device, played, in_full):
    x = torch.randn(64, 1024, device=device, dtype=torch.bfloat16, requires_grad=True)
    upstream = torch.randn_like(x)
    for _ in range(3):
        out = gelu(x)
        (grad,) = torch.autograd.grad(out, x, upstream)
    assert played == [True, True]  # forward and backward
    assert out.requires_grad and torch.equal(grad, in_full(_gelu_backward, upstream, x.detach(), False))
    with torch.no_grad():
        assert [gelu(x).requires_grad for _ in range(4)] == [False] * 4
    assert gelu(x).requires_grad


def test_a_graph_is_captured_from_another_stream(device, played, in_full):
    x, w = draw([(1024, 512), (512, 1024)], device)
    for _ in range(3):
        softmax(matmul(x, w), -1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = softmax(matmul(x, w), -1)
    assert played == [True] * 4
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(out, in_full(softmax, matmul(x, w), -1))


def test_who_watches_launches_sees_them(device, played, monkeypatch):
    (x,) = draw([(64, 1024)], device)
    for _ in range(3):
        gelu(x)
    seen, hook = [], knobs.runtime.launch_enter_hook
    watch = seen.append
    hook.add(watch)
    try:
        gelu(x)
    finally:
        hook.remove(watch)
    own = JITFunction.run
    with monkeypatch.context() as patched:
        patched.setattr(JITFunction, "run", lambda *args, **kwargs: seen.append(args) or own(*args, **kwargs))
        gelu(x)
    assert len(seen) == 2 and played == [True, False, False]
    gelu(x)
    assert played[-1]


def test_other_results_come_from_a_full_call(device, played):
    (x,) = draw([(64, 1024)], device)
    for _ in range(3):
        softmax(x, -1)
    with torch.autocast("cuda"):
        assert softmax(x, -1).dtype == torch.float32
    assert softmax(x, -1, torch.float32).dtype == torch.float32
    with pytest.raises(IndexError):
        softmax(x, 2)
    a = x.float()
    for allowed in (False, True, False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            matmul(a, a.t())
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
    assert played == [True, False]


@pytest.mark.parametrize("op", ["gelu", "softmax", "layer_norm", "rms_norm", "matmul", "attention"])
def test_gradients_are_played(op, device, played):
    function, shapes = CALLS[op]
    inputs = [x.requires_grad_() for x in draw(shapes, device)]
    grad = torch.randn_like(function(*inputs))
    calls = [torch.autograd.grad(function(*inputs), inputs, grad) for _ in range(4)]
    assert len(played) >= 4 and all(played)  # the last two, forward and backward
    for gradients in calls[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients, calls[0], strict=True))
