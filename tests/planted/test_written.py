"""Reads of memory that nobody wrote. Each test is a fault and its right twin, and compares the result as an author would."""

import torch
import written
from planted import planted

N, BLOCK = 1000, 128


@planted("uninitialised-read", "out", "a kernel adds to what `torch.empty` left")
def test_adds_to_empty(fault):
    x = torch.randn(N, device="cuda")
    out = torch.empty(N, device="cuda") if fault else torch.zeros(N, device="cuda")
    written.add_to[(8,)](x, out, N, BLOCK)
    torch.testing.assert_close(out, x)


@planted("uninitialised-read", "out", "an atomic adds to what `torch.empty_like` left")
def test_adds_atomically_to_empty(fault):
    x, total = torch.ones(N, device="cuda"), torch.ones(1, device="cuda")
    out = torch.empty_like(total) if fault else torch.zeros_like(total)
    written.add_atomically[(8,)](x, out, N, BLOCK, False)
    torch.testing.assert_close(out, total * N)


@planted("uninitialised-read", "out", "an atomic maximum with what `new_empty` left")
def test_atomic_maximum_of_empty(fault):
    x = torch.randint(0, 100, (N,), dtype=torch.int32, device="cuda")
    out = x.new_empty(1) if fault else x.new_zeros(1)
    written.add_atomically[(8,)](x, out, N, BLOCK, True)
    assert out[0] == x.max()


@planted("uninitialised-read", "scratch", "a scratch buffer of which half is written")
def test_half_written_scratch(fault):
    x, scratch, out = torch.randn(100, device="cuda"), torch.empty(100, device="cuda"), torch.zeros(100, device="cuda")
    written.through_scratch[(1,)](x, scratch, out, 100, BLOCK, fault)
    torch.testing.assert_close(out, x)


@planted("uninitialised-read", "x", "the padding of rows, which nobody fills")
def test_padding(fault):
    x, out = torch.empty(8, 128, device="cuda"), torch.zeros(8, device="cuda")
    for row in x:
        written.double[(1,)](torch.ones(100, device="cuda"), row, 100, BLOCK)
    written.by_row[(8,)](x, out, 100, 128, 128, fault)
    torch.testing.assert_close(out, torch.full_like(out, 200))


@planted("uninitialised-read", "scratch", "partial sums that are written one place too far")
def test_partial_sums(fault):
    x, scratch, out = torch.randn(8 * BLOCK, device="cuda"), torch.empty(9, device="cuda"), torch.zeros(1, device="cuda")
    written.partial[(8,)](x, scratch, BLOCK, fault)
    written.total[(1,)](scratch, out, 8)
    torch.testing.assert_close(out[0], x.sum())


@planted("uninitialised-read", "x", "a grid that is one program short, in the kernel before")
def test_one_program_short(fault):
    x, between, out = torch.randn(N, device="cuda"), torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    written.double[(7 if fault else 8,)](x, between, N, BLOCK)
    written.double[(8,)](between, out, N, BLOCK)
    torch.testing.assert_close(out, 4 * x)


@planted("uninitialised-read", "x", "a kernel that is never launched")
def test_forgotten_launch(fault):
    x, between, out = torch.randn(N, device="cuda"), torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    if not fault:
        written.double[(8,)](x, between, N, BLOCK)
    written.double[(8,)](between, out, N, BLOCK)
    torch.testing.assert_close(out, 4 * x)


@planted("uninitialised-read", "x", "a buffer of which torch fills half")
def test_half_filled(fault):
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    x[: N // 2 if fault else N].fill_(3.0)
    written.double[(8,)](x, out, N, BLOCK)
    torch.testing.assert_close(out, torch.full_like(out, 6.0))


@planted("uninitialised-read", "x", "the gaps of `torch.empty_strided`, read as if it were contiguous")
def test_gaps(fault):
    x = torch.empty_strided((8, 100), (128, 1), device="cuda")
    for row in x:
        written.double[(1,)](torch.ones(100, device="cuda"), row, 100, BLOCK)
    out = torch.zeros(8, device="cuda")
    written.by_row[(8,)](x, out, 100, 100 if fault else x.stride(0), 128, False)
    torch.testing.assert_close(out, torch.full_like(out, 200))


@planted("uninitialised-read", "out", "a descriptor that adds to what `torch.empty` left")
def test_descriptor(fault):
    x = torch.randn(16, 32, device="cuda")
    out = torch.empty(16, 32, device="cuda") if fault else torch.zeros(16, 32, device="cuda")
    written.described[(1,)](x, out, 16, 32, 16, 32)
    torch.testing.assert_close(out, x)


@planted("uninitialised-read", "lock", "a lock that nobody set to 0")
def test_lock(fault):
    lock, out = torch.empty(1, dtype=torch.int32, device="cuda"), torch.zeros(1, device="cuda")
    if not fault:
        lock.zero_()
    written.once[(4,)](lock, out)
    assert out[0] == 1


@planted("uninitialised-read", "x", "a mask that is too wide for the part of `torch.empty` that was filled")
def test_mask_too_wide(fault):
    x, out = torch.empty(BLOCK, device="cuda"), torch.zeros(1, device="cuda")
    written.double[(1,)](torch.full((100,), -2.0, device="cuda"), x, 100, BLOCK)
    written.largest[(1,)](x, out, 100, BLOCK, fault)
    assert out[0] == -4
