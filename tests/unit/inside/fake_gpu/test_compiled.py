"""What `torch.compile` believes of a package's ops, where it is replaced by the function itself."""

from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from synthetic import run

from warpwave.compare import compare
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.terminal import render_terminal

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from torch._subclasses.fake_tensor import FakeTensorMode

from warpwave.inside.fake_gpu.card import keep_in_backward
from warpwave.inside.fake_gpu.compiled import UndeclaredWriteError, followed
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.process.outcomes import Pretended
from warpwave.inside.test.notes import COMPILED, notes_of


def bump(x, *rest):
    x.add_(1)


def bump_each(many):
    for each in many:
        bump(each)


@pytest.fixture(scope="module")
def ops():
    """Ops that write to their first argument. `declared` ones say so; the compiler takes `parts` apart and sees it."""
    library = torch.library.Library("warpwave_compiled", "DEF")
    for schema, function, key in [
        ("declared(Tensor(a!) x, Tensor other) -> ()", bump, "CPU"),
        ("undeclared(Tensor x) -> ()", bump, "CPU"),
        ("other(Tensor(a!) x, Tensor other) -> ()", lambda x, other: bump(other), "CPU"),
        ("declared_list(Tensor(a!)[] many) -> ()", bump_each, "CPU"),
        ("undeclared_list(Tensor[] many) -> ()", bump_each, "CPU"),
        ("reads(Tensor x, Tensor? none, int n) -> Tensor", lambda x, none, n: x * n, "CPU"),
        ("several.one(Tensor x, int n) -> ()", bump, "CPU"),
        ("several.two(Tensor x, Tensor other) -> ()", bump, "CPU"),
        ("parts(Tensor x) -> ()", bump, "CompositeImplicitAutograd"),
    ]:
        library.define(schema)
        library.impl(schema.partition("(")[0], function, key)
    torch.library.register_fake("warpwave_compiled::reads", lambda x, none, n: torch.empty_like(x), lib=library)
    named = torch.library.custom_op("warpwave_compiled::custom", lambda x: bump(x), mutates_args=(), schema="(Tensor x) -> ()")
    yield SimpleNamespace(ops=torch.ops.warpwave_compiled, custom=named)
    library._destroy()


@pytest.fixture(autouse=True)
def card():
    """A pretended card, and a test that has called nothing yet."""
    Pretended.ran_compiled = False
    with contextlib.ExitStack() as undo:
        keep_in_backward(undo.enter_context(Redirect(torch.device("cpu"), ["cuda"], torch.device("cuda", 0))), undo)
        yield
    Pretended.ran_compiled = False


class Applied(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Backward(torch.autograd.Function):
    """Calls an op in its backward."""

    @staticmethod
    def forward(ctx, x, op):
        ctx.op, ctx.x = op, x.detach()
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.op(ctx.x)
        return grad, None


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda all_, x: all_.ops.undeclared(x), "`warpwave_compiled::undeclared` writes to `x`,"),
        (lambda all_, x: all_.ops.undeclared.default(x=x[::2]), "`warpwave_compiled::undeclared` writes to `x`,"),
        (lambda all_, x: all_.custom(x), "`warpwave_compiled::custom` writes to `x`,"),
        (lambda all_, x: all_.ops.other(x, x.clone()), "`warpwave_compiled::other` writes to `other`,"),
        (lambda all_, x: all_.ops.several(x, 3), "`warpwave_compiled::several` writes to `x`,"),
        (lambda all_, x: all_.ops.undeclared_list([x.clone(), x]), "`warpwave_compiled::undeclared_list` writes to `many`,"),
    ],
    ids=["packet", "overload of a view", "custom_op", "another argument", "overloads", "list"],
)
@pytest.mark.parametrize("wrap", [lambda function: function, Applied], ids=["function", "module"])
def test_a_write_that_an_op_does_not_declare_is_refused(ops, call, named, wrap):
    with pytest.raises(UndeclaredWriteError) as raised:
        followed(wrap(lambda x: call(ops, x)))(torch.zeros(6, device="cuda"))

    assert named in str(raised.value)
    assert "mutates_args" in str(raised.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda ops, x: ops.declared(x, x.clone()),
        lambda ops, x: ops.declared(x, x[1:]),
        lambda ops, x: ops.declared_list([x, x.clone()]),
        lambda ops, x: (ops.reads(x, None, 3), bump(x)),
        lambda ops, x: ops.parts(x),
    ],
    ids=["declared", "shared memory", "declared list", "only read", "taken apart"],
)
def test_what_an_op_declares_it_may_write(ops, call):
    x = torch.zeros(6, device="cuda")
    followed(lambda x: call(ops.ops, x))(x)

    assert x.tolist() == [1.0] * 6
    assert Pretended.ran_compiled


def test_outside_of_the_compiler_nothing_believes_an_op(ops):
    """Such a test passes on a card, too."""
    x = torch.zeros(6, device="cuda")
    wrapped = followed(lambda x: x * 2)
    ops.ops.undeclared(x)
    assert not Pretended.ran_compiled
    wrapped(x)
    ops.ops.undeclared(x)

    assert x.tolist() == [2.0] * 6


def test_the_backward_of_a_compiled_function_is_compiled(ops):
    x = torch.zeros(6, device="cuda", requires_grad=True)
    Backward.apply(x, ops.ops.undeclared).sum().backward()
    loss = followed(lambda x: Backward.apply(x, ops.ops.undeclared))(x).sum()

    with pytest.raises(UndeclaredWriteError):
        loss.backward()


def test_what_torch_only_traces_holds_nothing(ops):
    """As flex_attention does with ops of torch's own: their tensors have no memory to compare."""
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.zeros(6))
        assert followed(lambda x: ops.ops.reads(x, None, 3))(x).shape == (6,)


def test_a_module_stays_itself(ops):
    """It is saved, copied and asked for its parameters as before."""
    import copy

    module = Applied(torch.nn.Linear(2, 2))
    assert followed(module) is module
    assert copy.deepcopy(module)._compiled_call_impl is None
    assert set(module.state_dict()) == {"function.weight", "function.bias"}


def test_the_report_counts_what_ran_as_plain_python():
    """On the first screen: it limits what a green report says."""
    cases = [SimpleNamespace(properties=properties) for properties in ({COMPILED: "replaced"}, {}, {COMPILED: "replaced"})]
    job = SimpleNamespace(emulate=None)
    assert [*notes_of(job, cases[1:2], 0)] == []
    notes = tuple(notes_of(job, cases, 0))
    whole = run(stages=(StageReport(Stage.TEST, Verdict.PASSED, 1.0, notes=notes),))
    screen = Console(file=io.StringIO(), width=200)
    screen.print(render_terminal(compare([whole])))
    assert "torch.compile was replaced by the function itself in 2 tests" in screen.file.getvalue()
