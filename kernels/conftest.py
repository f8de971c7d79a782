"""What the rooms of this package share: the device, inputs that repeat, poisoned outputs, and one measure of error."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kernels.accuracy import error_of

# More than any kernel here rounds a row or a block up by.
GUARD = 1 << 16


def pytest_configure(config: pytest.Config) -> None:
    # Infinities and NaN are test inputs; a GPU is silent about them, numpy below Triton's interpreter is not.
    for what in ("overflow", "invalid value", "divide by zero"):
        config.addinivalue_line("filterwarnings", f"ignore:{what} encountered:RuntimeWarning")
    # torch's own: cuBLAS first used in a backward's thread, and what torch.compile imports.
    config.addinivalue_line("filterwarnings", "ignore:Attempting to run cuBLAS:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:.*torch.jit.script_method:DeprecationWarning")
    # Which of oneDNN's kernels PyTorch takes on a CPU goes by the processor, and with some a gelu of infinity is NaN: no measure for ours.
    torch.backends.mkldnn.enabled = False


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU that torch finds, whatever its vendor; the CPU under Triton's interpreter."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator()
    if found is None or not torch.accelerator.is_available():
        pytest.skip("there is no GPU here; set TRITON_INTERPRET=1 to run the kernels in Triton's interpreter")
    return torch.device(found.type)


@pytest.fixture
def roomy_device(device: torch.device) -> torch.device:
    """A GPU with room for tensors of more than 2**31 elements."""
    if device.type == "cpu" or torch.get_device_module(device).mem_get_info()[0] < 32 << 30:
        pytest.skip("tensors of more than 2**31 elements need a GPU with 32 GiB of free memory")
    return device


@pytest.fixture(autouse=True)
def _same_inputs_every_time(request: pytest.FixtureRequest) -> None:
    """Inputs differ from test to test, and are the same for the same test on every machine."""
    torch.manual_seed(sum(request.node.nodeid.rsplit("/", 1)[-1].encode()))


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every uninitialized tensor that an op allocates comes full of NaN, with more NaN around it.

    An element that a kernel leaves out cannot pass for a result, and a store outside of an output fails the test at its end.
    """
    guards: list[torch.Tensor] = []
    allocating = False

    def poisoned(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def allocate_poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
            nonlocal allocating
            tensor = allocate(*args, **kwargs)
            # Tensors without data are filled by Python, which allocates.
            if allocating or type(tensor) is not torch.Tensor or not tensor.is_floating_point() or not tensor.numel():
                return tensor
            extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            allocating = True
            whole = torch.full((extent + 2 * GUARD,), float("nan"), dtype=tensor.dtype, device=tensor.device)
            allocating = False
            guards.extend((whole[:GUARD], whole[-GUARD:]))
            return tensor.set_(whole.untyped_storage(), GUARD, tensor.shape, tensor.stride())

        return allocate_poisoned

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    yield
    assert all(guard.isnan().all() for guard in guards), "the kernel stored outside of its output"


@pytest.fixture
def judge(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Hold a result to a few times the error of PyTorch's own op, both against a float64 reference (`kernels.accuracy`); record the errors.

    `what` names the result where a test has several; it prefixes the properties.
    """

    def check(actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor, what: str = "") -> None:
        error, prefix = error_of(actual, pytorch, reference), f"{what}." if what else ""
        if error.worst is not None:
            record_property(f"{prefix}max_abs_err", f"{error.worst:.3e}")
            record_property(f"{prefix}rel_fro_err", f"{error.relative:.3e}")
            record_property(f"{prefix}max_ulp", f"{error.ulp:.2f}")
            record_property(f"{prefix}max_abs_err_of_torch", f"{error.pytorch:.3e}")
        assert not error.wrong, f"{what}: {error.wrong}"

    return check


@pytest.fixture
def compare(judge: Callable[..., None]) -> Callable[..., None]:
    """Judge an op and its gradients against PyTorch's own op and against that op in float64, on the same inputs.

    `compare(ours, pytorch, *inputs, gradients=True, **kwargs)`: every floating-point tensor among `inputs` gets a gradient, with a random
    one flowing in; results are named after the input's position, `grad0` and on.
    """

    def run(op: Callable[..., Any], inputs: tuple[Any, ...], gradients: bool, upstream: Any, **kwargs: Any) -> tuple[Any, Any]:
        leaves = [x.detach().requires_grad_(gradients) if _is_floating(x) else x for x in inputs]
        out = op(*leaves, **kwargs)
        if not gradients:
            return out, []
        wanted = [leaf for leaf in leaves if _is_floating(leaf)]
        return out.detach(), torch.autograd.grad(out, wanted, upstream(out), allow_unused=True)

    def check(ours: Callable[..., Any], pytorch: Callable[..., Any], *inputs: Any, gradients: bool = True, **kwargs: Any) -> None:
        drawn: list[torch.Tensor] = []

        def upstream(out: torch.Tensor) -> torch.Tensor:
            if not drawn:
                drawn.append(torch.randn(out.shape, device=out.device).to(out.dtype))
            return drawn[0].to(out.dtype)

        exactly = tuple(x.double() if _is_floating(x) else x for x in inputs)
        theirs = run(pytorch, inputs, gradients, upstream, **kwargs)
        mine = run(ours, inputs, gradients, upstream, **kwargs)
        exact = run(pytorch, exactly, gradients, upstream, **kwargs)
        judge(mine[0], theirs[0], exact[0])
        for number, (a, b, c) in enumerate(zip(mine[1], theirs[1], exact[1], strict=True)):
            judge(a, b, c, f"grad{number}")

    return check


@pytest.fixture
def registered(poison: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """An op is what torch.library promises: schema, fake and autograd registrations agree, and `torch.compile` takes it whole.

    `registered(function, op, arguments, op_arguments)`: the public function is compiled with `fullgraph=True` on the arguments and must
    give the same result and gradients; the custom op goes through `torch.library.opcheck` on its own.
    """
    monkeypatch.undo()  # poison sits at an offset in its storage, and a fake tensor does not

    def check(function: Callable[..., torch.Tensor], op: Any, arguments: tuple[Any, ...], op_arguments: tuple[Any, ...]) -> None:
        torch.library.opcheck(op.registered, op_arguments)
        torch._dynamo.reset()
        whole = torch.compile(function, fullgraph=True, backend="aot_eager")
        results = []
        for run in (function, whole):
            leaves = [x.detach().clone().requires_grad_() if _is_floating(x) else x for x in arguments]
            out = run(*leaves)
            grads = torch.autograd.grad(out.float().square().sum(), [x for x in leaves if _is_floating(x)])
            results.append((out, *grads))
        for eager, from_graph in zip(*results, strict=True):
            torch.testing.assert_close(from_graph, eager, rtol=0, atol=0)

    return check


def _is_floating(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()
