"""Each test adds what its kernel has made to a digest, right or wrong."""

import hashlib

import kernels as k
import pytest
import torch


def numbers(*size):
    torch.manual_seed(0)
    return torch.randn(*size, device="cuda")


def digest(record_property, *made):
    text = b"".join(each.cpu().contiguous().view(torch.uint8).numpy().tobytes() for each in made)
    record_property("digest", hashlib.sha256(text).hexdigest())


def test_decide(record_property):
    x = numbers(1500)
    out = torch.zeros_like(x)
    k.decide_kernel[(24,)](x, out, 1500, B=64)
    digest(record_property, out)


def test_product(record_property):
    a, b, out = numbers(128, 64), numbers(128, 64), torch.zeros(128, 8, device="cuda")
    k.product_kernel[(8,)](a, b, out, 64, B=16)
    digest(record_property, out)
    whole = (a.view(8, 16, 64) @ b.view(8, 16, 64).transpose(1, 2)).view(128, 16)
    torch.testing.assert_close(out, whole[:, ::2] * whole[:, 1::2], atol=1e-3, rtol=1e-3)


def test_described(record_property):
    x = numbers(64, 16)
    out = torch.zeros_like(x)
    k.described_kernel[(4,)](x, out, 64, 16, B=16)
    digest(record_property, out)
    torch.testing.assert_close(out, x * 2)


def test_counted(record_property):
    count, last = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    seen = torch.zeros(9, dtype=torch.int32, device="cuda")
    k.counted_kernel[(9,)](count, seen, last, 9)
    digest(record_property, seen, last)
    assert seen.tolist() == list(range(9)) and last.item() == 8


def test_assembly(record_property):
    x = numbers(256)
    out = torch.zeros_like(x)
    k.assembly_kernel[(4,)](x, out, B=64)
    digest(record_property, out)
    torch.testing.assert_close(out, x * 2)


def test_relay(record_property):
    flags, out = torch.zeros(6, dtype=torch.int32, device="cuda"), torch.zeros(6, dtype=torch.int32, device="cuda")
    k.relay_kernel[(6,)](flags, out, 6)
    digest(record_property, out)
    assert out.tolist() == list(range(6))


def test_beyond():
    x = numbers(4 * 64 - 3)
    k.beyond_kernel[(4,)](x, torch.zeros(256, device="cuda"), B=64)


def test_one_place():
    k.one_place_kernel[(5,)](torch.zeros(256, device="cuda"), B=32)


@pytest.mark.parametrize("step", [32, 40])
def test_promise(step):
    x = numbers(512)
    k.promise_kernel[(4,)](x, torch.zeros_like(x), step, B=32)


def test_print(capsys):
    k.print_kernel[(4,)](torch.arange(4, device="cuda"))
    assert capsys.readouterr().out.split() == ["[0]", "[1]", "[2]", "[3]"]


def test_memory_is_free_after_a_launch():
    x = numbers(1024)
    before, out = torch.cuda.memory_allocated(), torch.zeros_like(x)
    k.beyond_kernel[(16,)](x, out, B=64)
    del out
    assert torch.cuda.memory_allocated() == before
