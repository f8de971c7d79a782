"""Kernels as operators of torch's dispatcher."""

import copy
import inspect

import pytest
import torch
import triton
from small_kernels import add, add_kernel, scale, scale_kernel
from torch._subclasses.functional_tensor import FunctionalTensorMode


@torch.library.custom_op("idioms::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 2.0)


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("idioms::tripled", mutates_args=(), device_types="cuda")
def tripled(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 3.0)


@torch.library.register_fake("idioms::tripled")
def tripled_fake(x):
    return torch.empty_like(x)


def test_an_op_and_its_name_in_torch_ops():
    x = torch.randn(300, device="cuda")
    for two, three in ((doubled, tripled), (torch.ops.idioms.doubled, torch.ops.idioms.tripled.default)):
        torch.testing.assert_close(two(x), 2 * x)
        torch.testing.assert_close(three(x), 3 * x)


@torch.library.custom_op("idioms::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return scale(x, factor)


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.factor = inputs[1]


def _backward(ctx, grad):
    return scaled(grad.contiguous(), ctx.factor), None


scaled.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("idioms::filled", mutates_args=())
def filled(size: int) -> torch.Tensor:
    return scale(torch.ones(size, device="cuda"), 2.0)


def test_an_op_without_tensors():
    x = filled(300)
    torch.testing.assert_close(scale(x, 2.0), torch.full((300,), 4.0, device="cuda"))


@torch.library.custom_op("idioms::quadrupled", mutates_args=())
def quadrupled(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 4.0)


def _quadrupled_backward(ctx, grad):
    return quadrupled(grad.contiguous())


torch.library.register_autograd("idioms::quadrupled", _quadrupled_backward)


@pytest.mark.parametrize(("op", "factor"), [(lambda x: scaled(x, 3.0), 3.0), (quadrupled, 4.0)], ids=["of an op", "by its name"])
def test_gradients_of_an_op(op, factor):
    x = torch.randn(300, device="cuda", requires_grad=True)
    op(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, factor))


@torch.library.custom_op("idioms::scale_", mutates_args={"x"})
def scale_in_place(x: torch.Tensor, factor: float) -> None:
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, x, x.numel(), factor, BLOCK=256)


def test_an_op_that_changes_its_argument():
    x = torch.ones(300, device="cuda")
    scale_in_place(x, 5.0)
    assert (x == 5).all()


@torch.library.triton_op("idioms::added", mutates_args={})
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    torch.library.wrap_triton(add_kernel)[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def test_triton_op_and_wrap_triton(pair):
    torch.testing.assert_close(added(*pair), pair[0] + pair[1])


@torch.library.custom_op("idioms::decomposed", mutates_args=(), schema="(Tensor x, float factor=2.0) -> Tensor")
def decomposed(*args, **kwargs):
    return scale(*args, **kwargs)


@decomposed.register_fake
def _(x, factor=2.0):
    return torch.empty_like(x)


def _decompose(mode, op, types, args, kwargs):
    with mode:
        return scale(*args, **kwargs)


decomposed.register_torch_dispatch(FunctionalTensorMode, _decompose)


def test_an_op_that_a_tracing_mode_takes_apart(pair):
    torch.testing.assert_close(decomposed(pair[0], factor=3.0), pair[0] * 3)


def test_an_op_without_its_implementation_for_the_card(pair):
    @torch.library.custom_op("idioms::switched", mutates_args=())
    def switched(x: torch.Tensor) -> torch.Tensor:
        return scale(x, 2.0)

    @switched.register_kernel("cuda")
    def _(x):
        return scale(x, 3.0)

    torch.testing.assert_close(switched(pair[0]), pair[0] * 3)
    with switched.set_kernel_enabled("cuda", enabled=False):
        torch.testing.assert_close(switched(pair[0]), pair[0] * 2)
    torch.testing.assert_close(switched(pair[0]), pair[0] * 3)


def test_the_schema_of_an_op():
    assert [argument.name for argument in torch.ops.idioms.scaled.default._schema.arguments] == ["x", "factor"]


# Of the module: the ops of a library end with it, and torch 2.11 then stumbles over their names.
library = torch.library.Library("idioms_library", "DEF")
library.define("halved(Tensor x) -> Tensor")
library.impl("halved", lambda x: scale(x, 0.5), "CUDA")


@torch.library.custom_op("idioms::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 0.5)


@halved.register_kernel("cpu")
def _(x):
    raise NotImplementedError("there is no kernel for the CPU")


def test_an_op_with_another_kernel_for_the_cpu():
    x = torch.randn(300, device="cuda")
    torch.testing.assert_close(halved(x), x / 2)
    with pytest.raises(NotImplementedError, match="for the CPU"):
        halved(torch.ones(3))


both = torch.library.Library("idioms_both", "DEF")
both.define("halved(Tensor x) -> Tensor")
both.impl("halved", lambda x: torch.full_like(x, -1.0), "CPU")
both.impl("halved", lambda x: scale(x, 0.5), "CUDA")


def test_an_op_of_a_library_object_with_another_kernel_for_the_cpu(pair):
    torch.testing.assert_close(torch.ops.idioms_library.halved(pair[0]), pair[0] / 2)
    torch.testing.assert_close(torch.ops.idioms_both.halved(pair[0]), pair[0] / 2)
    assert (torch.ops.idioms_both.halved(torch.ones(3)) == -1).all()


shaped = torch.library.Library("idioms_shaped", "FRAGMENT")
shaped.define("halved(Tensor x) -> Tensor")
shaped.impl("halved", lambda x: scale(x, 0.5), "CUDA")
shaped.impl("halved", lambda x: x / 2, "CPU")
shaped._register_fake("halved", lambda x: torch.empty_like(x))
shaped.define("doubled(Tensor x) -> Tensor")
torch.library.register_fake("idioms_shaped::doubled", lambda x: torch.empty_like(x), lib=shaped)
shaped.impl("doubled", lambda x: add(x, x), "CUDA")


@pytest.mark.parametrize(("op", "factor"), [("halved", 0.5), ("doubled", 2.0)])
def test_an_op_of_a_library_object_with_shapes(op, factor, pair):
    torch.testing.assert_close(getattr(torch.ops.idioms_shaped, op)(pair[0]), factor * pair[0])


torch.library.define("idioms_shaped::offsets", "(Tensor ends, SymInt tokens) -> Tensor")


def _offsets(ends, tokens):
    offsets = torch.empty_like(ends)
    scale_kernel[(1,)](ends, offsets, ends.numel(), 2, BLOCK=16)
    return offsets


torch.library.impl("idioms_shaped::offsets", "CUDA", _offsets)


@torch.library.register_fake("idioms_shaped::offsets")
def _(ends, tokens):
    return torch.empty_like(ends)


@pytest.mark.parametrize("op", [torch.ops.idioms_shaped.offsets, torch.ops.idioms_shaped.offsets.default], ids=["packet", "overload"])
def test_an_op_of_lengths_that_the_host_knows(op):
    ends = torch.tensor([0, 3, 9], device="cuda", dtype=torch.int32)
    torch.testing.assert_close(op(ends, tokens=9), 2 * ends)


def test_opcheck():
    torch.library.opcheck(doubled, (torch.randn(300, device="cuda"),), test_utils=("test_schema", "test_faketensor"))


@torch.compile
def reference(x, y):
    return x + y


def test_a_compiled_reference(pair):
    torch.testing.assert_close(added(*pair), reference(*pair))


def test_a_compiled_wrapper():
    x = torch.randn(300, device="cuda")
    wrapper = torch.compile(lambda x: doubled(x) + 1, fullgraph=True)
    torch.testing.assert_close(wrapper(x), 2 * x + 1)


def test_shapes_on_the_meta_device(pair):
    x, y = pair
    shape = torch.empty(1000, device="meta")
    assert shape.is_meta
    assert not shape.is_cuda
    assert not shape.is_cpu
    assert x.to("meta").device == shape.device != x.device
    assert x.cpu().device != x.cpu().to("meta").device
    torch.testing.assert_close(add(x, y), x + y)


def test_what_is_made_of_a_shape_is_one():
    """As a package plans its layouts: nothing is computed, and the result is where its source is."""
    shape = torch.empty(4, 6, dtype=torch.uint8, device="meta")
    padded = torch.nn.functional.pad(shape, (0, 2)).transpose(0, 1).contiguous().view(2, 16)
    made = [padded, shape.T, shape.data, shape[1], shape & 3, torch.empty_like(shape), shape.new_empty(3), shape + torch.tensor(1)]
    made += [torch.empty(3, device=shape.device), *shape.split(2), torch.nn.Parameter(shape, requires_grad=False), copy.deepcopy(shape)]
    assert [each.device.type for each in made] == ["meta"] * len(made)
    assert all(each.is_meta and not each.is_cuda for each in made)
    shape.copy_(torch.ones(4, 6, dtype=torch.uint8, device="cuda"))
    assert shape.is_meta


def test_the_parameters_of_an_op(pair):
    x, _ = pair
    names = list(inspect.signature(doubled).parameters)
    if names == ["args", "kwargs"]:
        names = [argument.name for argument in doubled._opoverload._schema.arguments]
    assert names == ["x"]
    torch.testing.assert_close(doubled(x), 2 * x)


@torch.library.custom_op("idioms::fivefold", mutates_args=())
def fivefold(x: torch.Tensor, more: float = 0.0) -> torch.Tensor:
    return scale(x, 5.0 + more)


fivefold.register_fake(lambda x, more=0.0: torch.empty_like(x))


@torch.library.register_vmap("idioms::fivefold")
def _(info, in_dims, x, more=0.0):
    return fivefold(x.contiguous(), more), in_dims[0]


def test_a_batch_of_an_op():
    x = torch.randn(3, 100, device="cuda")
    torch.testing.assert_close(torch.vmap(fivefold)(x), 5 * x)


def test_torchs_compiler_is_reset():
    torch._dynamo.reset()
    x = torch.randn(300, device="cuda")
    torch.testing.assert_close(torch.compile(lambda v: doubled(v) - v)(x), x)


@torch.library.triton_op("idioms::traceable", mutates_args=())
def traceable(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 2.0, BLOCK=256)
    return out


traceable.register_autograd(lambda ctx, grad: traceable(grad.contiguous()))


def test_every_check_of_an_op():
    torch.library.opcheck(traceable, (torch.randn(300, device="cuda", requires_grad=True),))


class Traceable(torch.nn.Module):
    def forward(self, x):
        return traceable(x) + 1


def test_an_exported_module():
    x = torch.randn(300, device="cuda")
    exported = torch.export.export(Traceable(), (x,))
    assert any(node.op == "call_function" for node in exported.graph.nodes)
    torch.testing.assert_close(Traceable()(x), 2 * x + 1)


def test_shapes_by_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert fivefold(torch.empty(4, device="cuda")).shape == (4,)


@torch.library.custom_op("idioms::backed", mutates_args=())
def backed(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 7.0)


@torch.library.custom_op("idioms::backed_gradient", mutates_args=())
def backed_gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return scale(grad.contiguous(), 7.0)


@backed.register_fake
def _(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@backed_gradient.register_fake
def _(grad, y):
    return torch.empty(y.shape, dtype=y.dtype, device=y.device)


backed.register_autograd(
    lambda ctx, grad: backed_gradient(grad, *ctx.saved_tensors), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output)
)


def test_every_check_of_an_op_whose_gradient_is_an_op():
    torch.library.opcheck(backed, (torch.randn(5, 12, device="cuda", requires_grad=True),))
