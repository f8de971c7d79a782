"""torch.autograd.Function over kernels: mixed precision, gradients, and modules around it."""

import pytest
import torch
import torch.utils.checkpoint
from small_kernels import add, scale


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scale(x, factor)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad.contiguous(), ctx.factor), None


class Square(torch.autograd.Function):
    """Its backward reads what its forward saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * scale(x, 1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return add(x, x) * grad if ctx.needs_input_grad[0] else None


def test_backward_of_a_sum():
    x = torch.randn(300, device="cuda", requires_grad=True)
    Scale.apply(x, 3.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


def test_backward_of_a_given_gradient():
    x = torch.randn(300, device="cuda", requires_grad=True)
    grad = torch.randn_like(x)
    Square.apply(x).backward(grad)
    ours, x.grad = x.grad.clone(), None
    (x * x).backward(grad)
    torch.testing.assert_close(ours, x.grad)


def test_gradients_without_accumulation():
    x = torch.randn(300, device="cuda").requires_grad_()
    (grad,) = torch.autograd.grad(Square.apply(x).mean(), x)
    assert torch.allclose(grad, 2 * x / 300, atol=1e-6)


def test_leaves_detached_for_a_reference():
    x = torch.randn(300, device="cuda")
    ours, theirs = x.clone().requires_grad_(), x.detach().clone().requires_grad_(True)
    Scale.apply(ours, 2.0).pow(2).sum().backward()
    (2.0 * theirs).pow(2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_loss_printed_before_backward():
    x = torch.randn(300, device="cuda", requires_grad=True)
    loss = Square.apply(x).mean()
    print(f"loss: {loss.item():.4f}, largest: {x.detach().abs().max().item()}")
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() / 300)


def test_gradcheck():
    x = torch.randn(8, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Square.apply(x), (x,))


class Half(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        return scale(x, 2.0)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return scale(grad.contiguous(), 2.0)


def test_custom_forward_below_autocast():
    x = torch.ones(300, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.float16):
        y = Half.apply(x)
    assert y.dtype == torch.float16
    y.float().sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_names_of_mixed_precision():
    class Older(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd
        def forward(ctx, x):
            return scale(x, 2.0)

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, grad):
            return scale(grad.contiguous(), 2.0)

    x = torch.ones(300, device="cuda", requires_grad=True)
    with torch.cuda.amp.autocast(dtype=torch.float16):
        Older.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


def test_the_dtype_that_autocast_uses():
    a, b = torch.randn(16, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        product = a @ b
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(scale(product, 2.0), 2 * product)


def test_no_gradients_in_inference():
    x = torch.randn(300, device="cuda", requires_grad=True)
    with torch.no_grad():
        assert not Scale.apply(x, 2.0).requires_grad
    with torch.inference_mode():
        assert Scale.apply(x, 2.0).is_inference()


def test_checkpointing():
    x = torch.randn(300, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(lambda x: Scale.apply(Square.apply(x), 3.0), x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())


def test_what_autocast_computes_in_fp32():
    """A norm, a softmax and a sum; a product is in the lower precision. Packages choose a kernel's output by that."""
    x = torch.randn(16, 64, device="cuda", dtype=torch.float16)
    norm = torch.nn.LayerNorm(64).to("cuda", torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        found = [norm(x), torch.softmax(x, dim=-1), x.sum(dim=-1), torch.nn.functional.mse_loss(x, x), x.float() @ x.float().T]
        half = torch.softmax(x, dim=-1, dtype=torch.float16)
    assert [each.dtype for each in found] == [torch.float32] * 4 + [torch.float16]
    assert half.dtype == torch.float16
    torch.testing.assert_close(scale(found[0], 2.0), 2 * found[0])


@pytest.mark.parametrize("layer", [torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin])
def test_modules_that_autocast_computes_in_fp32(layer):
    """They pass `dtype=None` on, which names no dtype."""
    x = torch.randn(16, 64, device="cuda", dtype=torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        found = layer(dim=-1)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(scale(found, 2.0), 2 * layer(dim=-1)(x.float()))
