"""Lengths and tables that a test draws on the card, and from which its host code makes sizes."""

import torch
from small_kernels import add
from torch.nn import functional


def test_lengths_of_sequences(device):
    lengths = torch.randint(4, 33, (3,), device=device, dtype=torch.int32)
    ends = functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    total, longest = ends[-1].item(), lengths.max().item()
    x = torch.randn(total, 8, device=device)
    padded = torch.zeros(3, longest, 8, device=device)
    for index, (first, last) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        padded[index, : last - first] = add(x[first:last], x[first:last])
    assert padded.shape[1] == longest


def test_a_mask_of_padding(device):
    lengths = torch.randint(4, 33, (3, 1), device=device)
    mask = torch.arange(32, device=device).repeat(3, 1) < lengths
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    x = torch.randn(96, 8, device=device)[indices]
    torch.testing.assert_close(add(x, x), 2 * x)


def test_tokens_in_the_order_of_their_experts(device):
    experts = torch.randint(0, 8, (64, 2), device=device)
    counts = torch.bincount(experts.flatten(), minlength=8)
    x = torch.randn(64, 16, device=device)[experts.flatten().argsort(stable=True) // 2]
    first = 0
    for count in counts.tolist():
        if count:
            part = x[first : first + count]
            torch.testing.assert_close(add(part, part), 2 * part)
        first += count


def test_a_permutation(device):
    order = torch.randperm(64, device=device)
    x = torch.randn(64, 8, device=device)[order[: order.argmax().item() + 1]]
    torch.testing.assert_close(add(x, x), 2 * x)
