"""Kernels that spoil a GPU for the process that launches them, with innocent tests between them."""

import torch
import triton
import triton.language as tl


@triton.jit
def wild(pointer, far):
    tl.store(pointer + far, 1.0)


@triton.jit
def endless(flag):
    seen = tl.load(flag, volatile=True)
    while seen == 0:
        seen = tl.load(flag, volatile=True)
    tl.store(flag, seen)


def device():
    return triton.runtime.driver.active.get_active_torch_device()


def product():
    ones = torch.ones(64, 64, device=device())
    assert float((ones @ ones).sum()) == 64.0**3


def test_before():
    product()


def test_wild_that_waits():
    wild[(1,)](torch.zeros(1, device=device()), 1 << 40)
    torch.accelerator.synchronize()


def test_innocent():
    product()


def test_wild_that_does_not_wait():
    wild[(1,)](torch.zeros(1, device=device()), 1 << 40)


def test_innocent_too():
    product()


def test_too_large():
    torch.empty(1 << 50, device=device())


def test_endless():
    endless[(1,)](torch.zeros(1, dtype=torch.int32, device=device()))
    torch.accelerator.synchronize()


def test_after():
    product()
