"""CUDA graphs, as authors guard them: launched before, so that nothing compiles during the capture."""

import pytest
import torch
from small_kernels import add, scale

needs_graphs = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA graphs")


def warm_up(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)


@needs_graphs
def test_capture_and_replay(pair):
    x, y = pair
    warm_up(lambda: add(x, y))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = add(x, y)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, x + y)


@needs_graphs
def test_replay_on_new_data(pair):
    x, y = pair
    warm_up(lambda: add(x, y))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = add(x, y)
    x.copy_(torch.ones_like(x))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, 1 + y)


@needs_graphs
def test_a_pool_of_memory_and_a_stream(pair):
    x, _ = pair
    warm_up(lambda: scale(x, 2.0))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle(), stream=stream):
        out = scale(x, 2.0)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, 2 * x)


def test_asking_whether_a_capture_is_under_way(pair):
    x, _ = pair
    if torch.cuda.is_current_stream_capturing():
        pytest.fail("nothing captures here")
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_captured_update_happens_when_it_is_replayed():
    weight, step = torch.ones(300, device="cuda"), torch.full((300,), 2.0, device="cuda")
    out = torch.zeros_like(weight)
    weight.mul_(step)  # warms up what the graph contains
    scale(weight, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weight.mul_(step)
        out.copy_(scale(weight, 3.0))
    assert (weight == 2).all()
    assert (out == 0).all()
    for expected in (4, 8):
        graph.replay()
        assert (weight == expected).all()
        assert (out == 3 * expected).all()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scale(x, 3.0)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad, 3.0)


@needs_graphs
def test_a_backward_is_captured_with_its_forward():
    x = torch.ones(300, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        (Scaled.apply(x) * x).sum().backward()

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for value in (1.0, 2.0):
        with torch.no_grad():
            x.fill_(value)
        graph.replay()
        torch.testing.assert_close(x.grad, torch.full_like(x, 6 * value))


@torch.library.custom_op("idioms::advance", mutates_args={"state"}, device_types="cuda")
def advance(state: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    state.copy_(add(state, step))
    return scale(state, 2.0)


@needs_graphs
def test_an_op_that_advances_a_state_does_it_once_a_replay():
    state, step = torch.zeros(300, device="cuda"), torch.ones(300, device="cuda")
    warm_up(lambda: advance(state, step))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = advance(state, step)
    state.zero_()
    for expected in (1, 2):
        graph.replay()
        assert (state == expected).all()
        assert (out == 2 * expected).all()
