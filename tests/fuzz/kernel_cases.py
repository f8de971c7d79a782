"""Random calls of the bundled kernels: an op, its tensors in some dtype and memory layout, a few odd rows, and PyTorch's own op.

`draw(seed)` gives the same case on every machine; `big` allows the lengths that only a card computes in time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.add import add
from kernels.attention import scaled_dot_product_attention
from kernels.cross_entropy import cross_entropy
from kernels.gelu import gelu
from kernels.layer_norm import layer_norm
from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.matmul import linear, matmul
from kernels.rms_norm import rms_norm
from kernels.softmax import log_softmax, softmax

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INF, NAN = float("inf"), float("nan")
# What may stand in a row, and what a whole row may be.
ODD = {"nan": NAN, "inf": INF, "-inf": -INF, "zero": 0.0, "large": 3e4, "tiny": 1e-7}


@dataclass
class Case:
    op: str
    ours: Callable[..., torch.Tensor]
    pytorch: Callable[..., torch.Tensor]
    tensors: list[torch.Tensor]
    said: dict[str, Any] = field(default_factory=dict)
    gradients: bool = True

    def __str__(self) -> str:
        shapes = ", ".join(f"{tuple(x.shape)} by {tuple(x.stride())} {str(x.dtype)[6:]}" for x in self.tensors)
        return f"{self.op}({shapes}) {self.said}"


class Draw:
    """A source of random sizes, layouts and numbers; all follow from one seed."""

    def __init__(self, seed: int, device: torch.device, big: bool, again: int) -> None:
        self.choose, self.device, self.big = random.Random(seed), device, big
        self.numbers = torch.Generator().manual_seed(seed + 1_000_003 * again)  # torch keeps 32 bits of it
        self.dtype = self.choose.choice(DTYPES)

    def length(self, longest: int, on_a_card: int) -> int:
        """Return a length: small, any, or beside a multiple of 8 or a power of two, where kernels change their way."""
        longest = on_a_card if self.big else longest
        kind = self.choose.randrange(4)
        if kind == 0:
            return self.choose.randint(1, 9)
        at = int(longest ** self.choose.random())  # as many short ones as long ones
        if kind == 1:
            at = 1 << max(at, 1).bit_length() - 1
        if kind == 2:
            at = at // 8 * 8
        return min(longest, max(1, at + self.choose.choice((-1, 0, 0, 1))))

    def tensor(self, *shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return normally distributed numbers in a random layout: dense, transposed, with steps or gaps, off any boundary, or broadcast."""
        kind = self.choose.choice(("dense", "dense", "dense", "transposed", "steps", "gaps", "offset", "broadcast"))
        whole = list(shape)
        if kind == "transposed" and len(shape) > 1:
            whole[-1], whole[-2] = whole[-2], whole[-1]
        elif kind == "steps" and shape:
            whole[self.choose.randrange(len(shape))] *= 2
        elif kind == "gaps" and shape:
            whole[-1] += self.choose.choice((1, 3, 8))
        elif kind == "broadcast" and len(shape) > 1:
            whole[0] = 1
        count = 1
        for size in whole:
            count *= size
        ahead = self.choose.randint(1, 7) if kind == "offset" else 0
        flat = torch.randn(ahead + count, generator=self.numbers) * scale + shift
        x = flat.to(self.device, dtype or self.dtype)[ahead:].view(whole)
        if kind == "transposed" and len(shape) > 1:
            return x.transpose(-1, -2)
        if kind == "broadcast" and len(shape) > 1:
            return x.expand(shape)
        for at, (size, got) in enumerate(zip(shape, x.shape, strict=True)):
            if got == 2 * size:
                x = x[(slice(None),) * at + (slice(None, None, 2),)]
            elif got > size:
                x = x.narrow(at, self.choose.randint(0, got - size), size)
        return x

    def with_odd_rows(self, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        """Return the tensor, sometimes with a row or an element that is no usual number, and its name."""
        if not x.numel() or not x.dim() or self.choose.random() < 0.6:
            return x, ""
        name = self.choose.choice(list(ODD))
        layout, x = x.stride(), x.clone() if 0 in x.stride() else x
        row = tuple(self.choose.randrange(size) for size in x.shape[:-1])
        if self.choose.random() < 0.5:
            x[row] = ODD[name]
            return x, f"a row of {name}"
        x[(*row, self.choose.randrange(x.shape[-1]))] = ODD[name]
        return x, f"one {name}" + (" in a copy" if x.stride() != layout else "")

    def rows(self, longest: int, on_a_card: int) -> tuple[int, int]:
        """Return rows and columns, with fewer rows where they are long."""
        columns = self.length(longest, on_a_card)
        most = max(1, (1 << 22 if self.big else 1 << 12) // columns)
        return self.choose.randint(1, min(most, 400 if self.big else 12)), columns


def _softmax(draw: Draw) -> Case:
    ours, pytorch = draw.choose.choice(((softmax, torch.softmax), (log_softmax, torch.log_softmax)))
    rows, columns = draw.rows(1500, 300000)
    shape = (rows, columns) if draw.choose.random() < 0.7 else (draw.choose.randint(1, 3), columns, draw.choose.randint(1, 9))
    dim = 1 if len(shape) == 3 or draw.choose.random() < 0.9 else 0
    x, odd = draw.with_odd_rows(draw.tensor(*shape, scale=draw.choose.choice((0.1, 1.0, 8.0)), shift=draw.choose.choice((0.0, 30.0))))
    return Case(ours.__name__, lambda x: ours(x, dim), lambda x: pytorch(x, dim), [x], {"dim": dim, "odd": odd})


def _norm(draw: Draw) -> Case:
    ours, pytorch = draw.choose.choice(((layer_norm, F.layer_norm), (rms_norm, F.rms_norm)))
    rows, columns = draw.rows(1500, 140000)
    x, odd = draw.with_odd_rows(draw.tensor(rows, columns, shift=draw.choose.choice((0.0, 0.0, 5.0))))
    n = draw.choose.randint(0, 2 if ours is layer_norm else 1)
    parameters = [draw.tensor(columns) for _ in range(n)]
    eps = draw.choose.choice((1e-5, 1e-6, 1e-3))

    def of(op: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, *given: op(x, (columns,), *given, eps=eps)

    case = Case(ours.__name__, of(ours), of(pytorch), [x, *parameters], {"eps": eps, "odd": odd})
    if ours is rms_norm and "inf" in odd:
        # PyTorch has two kernels on a card. If columns are no multiple of 4, or a tensor starts off 16 bytes, one infinity turns its whole
        # row into NaN, and so it does in float64. By the definition, the other elements of the row are 0.
        case.pytorch = of(_rms_norm_as_defined)
    return case


def _rms_norm_as_defined(x: torch.Tensor, shape: tuple[int], weight: torch.Tensor | None = None, *, eps: float) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide if weight is None else wide * weight).to(x.dtype)


def _gelu(draw: Draw) -> Case:
    form = draw.choose.choice(("none", "tanh"))
    x, odd = draw.with_odd_rows(draw.tensor(*draw.rows(2000, 40000), scale=draw.choose.choice((0.01, 1.0, 4.0))))
    case = Case("gelu", lambda x: gelu(x, approximate=form), lambda x: F.gelu(x, approximate=form), [x], {"approximate": form, "odd": odd})
    case.gradients = "inf" not in odd  # PyTorch's gradient there is NaN; ours is its limit, 0 or 1
    return case


def _add(draw: Draw) -> Case:
    rows, columns = draw.rows(2000, 60000)
    x, odd = draw.with_odd_rows(draw.tensor(rows, columns))
    return Case("add", add, torch.add, [x, draw.tensor(rows, columns)], {"odd": odd})


def _cross_entropy(draw: Draw) -> Case:
    rows, classes = draw.rows(1500, 270000)
    x, odd = draw.with_odd_rows(draw.tensor(rows, classes, scale=draw.choose.choice((0.5, 2.0))))
    target = torch.randint(classes, (rows,), generator=draw.numbers).to(draw.device)
    target[torch.rand(rows, generator=draw.numbers).to(draw.device) < 0.2] = -100
    # The sum for smoothing rounds with the mean of the logits: 6e-8 of it, which is more than PyTorch's error if that is 30000.
    # PyTorch's sum overflows in fp16.
    smoothings = (0.0,) if "large" in odd or draw.dtype == torch.float16 else (0.0, 0.0, 0.1)
    said = {"reduction": draw.choose.choice(("mean", "sum", "none")), "label_smoothing": draw.choose.choice(smoothings)}

    def of(op: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x: op(x, target, **said)

    return Case("cross_entropy", of(cross_entropy), of(F.cross_entropy), [x], {**said, "odd": odd})


def _linear_cross_entropy(draw: Draw) -> Case:
    rows, hidden, classes = draw.choose.randint(1, 40), draw.length(40, 500), draw.length(200, 9000)
    x, weight = draw.tensor(rows, hidden), draw.tensor(classes, hidden, scale=hidden**-0.5)
    target = torch.randint(classes, (rows,), generator=draw.numbers).to(draw.device)
    reduction = draw.choose.choice(("mean", "sum", "none"))
    return Case(
        "linear_cross_entropy",
        lambda x, w: linear_cross_entropy(x, w, target, reduction=reduction),
        lambda x, w: F.cross_entropy(F.linear(x, w), target, reduction=reduction),
        [x, weight],
        {"reduction": reduction},
    )


def _matmul(draw: Draw) -> Case:
    m, n, k = (draw.length(130, 1100) for _ in range(3))
    batch = draw.choose.choice(((), (), (2,), (3, 2)))
    a, odd = draw.with_odd_rows(draw.tensor(*batch, m, k))
    b = draw.tensor(*(batch if draw.choose.random() < 0.5 else ()), k, n)
    return Case("matmul", matmul, torch.matmul, [a, b], {"odd": odd})


ACTIVATIONS: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def _linear(draw: Draw) -> Case:
    m, n, k = (draw.length(130, 1100) for _ in range(3))
    name = draw.choose.choice(list(ACTIVATIONS))
    tensors = [draw.tensor(m, k), draw.tensor(n, k, scale=k**-0.5)] + ([draw.tensor(n)] if draw.choose.random() < 0.5 else [])
    return Case("linear", lambda *x: linear(*x, activation=name), lambda *x: ACTIVATIONS[name](F.linear(*x)), tensors, {"activation": name})


def _plain_attention(*tensors: torch.Tensor, **said: Any) -> torch.Tensor:
    """Call PyTorch without its fused kernels, and on dense tensors: those refuse many strides, each in its own way."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*(x.contiguous() for x in tensors), **said)


def _attention(draw: Draw) -> Case:
    groups, each = draw.choose.choice((1, 1, 2)), draw.choose.choice((1, 1, 2, 4))
    width, value_width = draw.choose.choice(((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256), (24, 40), (17, 17), (1, 3)))
    if not draw.big and width > 128:
        width = value_width = 32
    queries, keys = draw.length(90, 700), draw.length(90, 700)
    batch, causal = draw.choose.randint(1, 2), draw.choose.random() < 0.5
    query = draw.tensor(batch, groups * each, queries, width)
    key, value = draw.tensor(batch, groups, keys, width), draw.tensor(batch, groups, keys, value_width)
    said = {"is_causal": causal, "enable_gqa": each > 1}
    kind = "none" if causal else draw.choose.choice(("none", "none", "bool", "numbers"))
    masks = {}
    if kind != "none":
        numbers = torch.randn(draw.choose.choice((1, batch)), draw.choose.choice((1, groups * each)), queries, keys, generator=draw.numbers)
        numbers[..., 0] = 1.0  # each query sees a key
        said["attn_mask"] = f"{kind}, {tuple(numbers.shape)}"
        masks = {x: (numbers > 0 if kind == "bool" else numbers.to(x)).to(draw.device) for x in (draw.dtype, torch.float64)}

    def of(op: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        options = {"is_causal": causal, "enable_gqa": each > 1}
        return lambda *x: op(*x, **options, **({"attn_mask": masks[x[0].dtype]} if masks else {}))

    tensors = [query, key, value]
    return Case("attention", of(scaled_dot_product_attention), of(_plain_attention), tensors, said)


OPS = {
    "softmax": _softmax,
    "norm": _norm,
    "gelu": _gelu,
    "add": _add,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "matmul": _matmul,
    "linear": _linear,
    "attention": _attention,
}


def draw(seed: int, device: torch.device, ops: list[str], big: bool, again: int = 0) -> Case:
    """Return the case of a seed; with `again`, the same call with other numbers."""
    source = Draw(seed, device, big, again)
    case = OPS[source.choose.choice(ops)](source)
    case.gradients = case.gradients and source.choose.random() < 0.7
    return case
