"""Small kernels, each with what a public report is about. They were written for this; none is the reporter's code."""

import torch
import triton
import triton.language as tl


@triton.jit
def read_back(x, wide, narrow, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(wide + at, tl.load(x + at) * 2)
    tl.store(narrow + at, tl.load(wide + at).to(tl.float16))


def test_triton_10924():
    """A store of 32 bits and its load, whose 16 bits are stored: the two may get other layouts."""
    x = torch.arange(4096, device="cuda", dtype=torch.float32) % 1000  # twice that is exact in 16 bits
    wide, narrow = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.float16)
    read_back[(1,)](x, wide, narrow, N=4096)
    torch.testing.assert_close(narrow.float(), x * 2)


@triton.jit
def cross_entropy(logits, labels, losses, n, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    x = tl.load(logits + row * n + at, mask=at < n, other=-float("inf"))
    x = x - tl.max(x, 0)
    loss = tl.log(tl.sum(tl.exp(x), 0)) - x
    tl.store(logits + row * n + at, loss, mask=at < n)
    tl.store(losses + row, tl.load(logits + row * n + tl.load(labels + row)))


def test_triton_1097():
    """All lanes store their losses, and the one of the label is loaded back without a barrier."""
    logits, labels = torch.randn(3, 1000, device="cuda"), torch.tensor([7, 300, 999], device="cuda")
    expected, losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none"), torch.zeros(3, device="cuda")
    cross_entropy[(3,)](logits, labels, losses, 1000, N=1024)
    torch.testing.assert_close(losses, expected)


@triton.jit
def softmax_backward(grad, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    g, p = tl.load(grad + at, mask=at < n), tl.load(y + at, mask=at < n)
    tl.store(out + at, g - tl.exp(p) * tl.sum(g, 0), mask=at < n)


def test_flaggems_3716():
    """What a mask leaves undefined is summed."""
    grad, y = torch.randn(2, 100, device="cuda")
    out = torch.zeros_like(y)
    softmax_backward[(1,)](grad, y, out, 100, N=128)
    torch.testing.assert_close(out, grad - y.exp() * grad.sum())


@triton.jit
def softcap(x, out, n, cap, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + at, mask=at < n) / cap
    tl.store(out + at, cap * (1 - 2 / (tl.exp(2 * value) + 1)), mask=at < n)


def test_sglang_27074():
    """Right: what is undefined is not stored."""
    x = torch.randn(100, device="cuda")
    out = torch.zeros_like(x)
    softcap[(2,)](x, out, 100, 3.0, N=64)
    torch.testing.assert_close(out, 3 * torch.tanh(x / 3), rtol=1e-4, atol=1e-4)


@triton.jit
def gather(x, index, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    where = tl.load(index + at, mask=at < n)
    tl.store(out + at, tl.load(x + where, mask=at < n), mask=at < n)


def test_triton_10448():
    """Right: undefined indices are loaded from, and stored by, nothing."""
    x, index = torch.randn(50, device="cuda"), torch.randperm(50, device="cuda")
    out = torch.zeros_like(x)
    gather[(1,)](x, index, out, 50, N=64)
    torch.testing.assert_close(out, x[index])


@triton.jit
def one_each(out, n, heads):
    at = tl.program_id(2) * heads + tl.program_id(0)
    tl.store(out + at, 1.0, mask=at < n)


def test_fla_172():
    """Batch and heads are the third axis of a grid."""
    out = torch.zeros(65538, device="cuda")
    one_each[(1, 1, 65538)](out, 65538, 1)


@triton.jit
def column(out, n):
    at = tl.program_id(1)
    tl.store(out + at, 1.0, mask=at < n)


def test_triton_580():
    """A tile of four makes the second axis of a grid too long."""
    out = torch.zeros(65536, device="cuda")
    column[(1, 65536)](out, 65536)


@triton.autotune([triton.Config({"N": n}) for n in (64, 128)], key=["n"])
@triton.jit
def scale_in_place(x, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def test_triton_6547():
    """Each run of the tuner scales again."""
    x = torch.ones(128, device="cuda")
    scale_in_place[lambda meta: (triton.cdiv(128, meta["N"]),)](x, 128)
    assert x.tolist() == [2.0] * 128


@triton.autotune([triton.Config({"START": start}) for start in (0, 64)], key=[])
@triton.jit
def half(x, out, START: tl.constexpr):
    at = START + tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at) + 1)


def test_triton_9230():
    """Each configuration writes half of the result: two runs of the tuner write all of it."""
    x = torch.randn(128, device="cuda")
    out = torch.zeros_like(x)
    half[(1,)](x, out)
    torch.testing.assert_close(out, x + 1)


@triton.jit
def wide_product(x, y, out, ROWS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.load(x + at) * tl.load(y + at) + tl.load(out + at))


def test_triton_8908():
    """A tile so large that it takes long to compile."""
    x, y = torch.randn(2, 4, 16384, device="cuda")
    out = torch.zeros_like(x)
    wide_product[(1,)](x, y, out, ROWS=4, N=16384)
    torch.testing.assert_close(out, x * y)
