"""torch's compiler traces before the card is taken: the first real call then finds what was traced, and nothing has run before it."""

import pytest

pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

import torch

from harness.inside.bench.do_bench import Timer
from harness.inside.benchmarks import Point
from harness.inside.precompile_torch.generated import library_calls
from harness.inside.precompile_torch.traced import trace
from harness.inside.precompile_torch.without_card import at_what_is_timed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from what torch's compiler imports


def loss(x, target):
    """A function whose gradient torch traces with it."""
    return torch.nn.functional.cross_entropy(x, target)


@pytest.fixture
def counters():
    """What torch's compiler counts. Importing it takes seconds, so no other test should wait for it."""
    from torch._dynamo.utils import counters

    return counters


@pytest.fixture
def timer(counters):
    """A timer that was not begun: it has no device."""
    torch._dynamo.reset()
    counters.clear()
    yield Timer.when_used(False, None, lambda: None)
    torch._dynamo.reset()


def points(function, timer, sizes=(8, 16, 24)):
    """A sweep whose points call a function on inputs that they draw, and time its gradient."""

    def bench(n):
        x, target = torch.randn(4, n, requires_grad=True), torch.randint(n, (4,))
        return timer.do_bench(lambda: torch.autograd.grad(function(x, target), x))

    return [Point(f"loss/{n}", "loss", "compile", "", {"n": n}, bench, {"n": n}) for n in sizes]


def measured(found, timer):
    """Run the points as the sweep does: their inputs have data. Return the gradients."""
    timer.instead = lambda fn: fn()[0]
    return [point.run() for point in found]


def test_the_first_real_call_finds_what_was_traced(timer, counters):
    compiled = torch.compile(loss, dynamic=False, backend="aot_eager")
    found = points(compiled, timer)
    state = torch.get_rng_state()
    assert trace(found, [(timer, "instead", at_what_is_timed)]) == 3
    assert timer.instead is None
    assert torch.equal(torch.get_rng_state(), state)
    assert counters["stats"]["unique_graphs"] == 3
    gradients = measured(found, timer)
    assert counters["stats"]["unique_graphs"] == 3
    torch.set_rng_state(state)
    for traced, plain in zip(gradients, measured(points(loss, timer), timer), strict=True):
        torch.testing.assert_close(traced, plain)


def test_noting_library_calls_takes_no_function_from_torchs_compiler(timer, counters):
    """Its compiler leaves alone for good what it meets in another dispatch mode, and equal code of other functions with it."""
    compiled = torch.compile(loss, dynamic=False, backend="aot_eager")
    found = points(compiled, timer)
    timer.instead = at_what_is_timed
    library_calls(*points(compiled, timer, sizes=(32,)))
    counters.clear()
    assert trace(found, [(timer, "instead", at_what_is_timed)]) == 3
    assert counters["stats"]["unique_graphs"] == 3
