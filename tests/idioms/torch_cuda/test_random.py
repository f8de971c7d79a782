"""Seeds and generators."""

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import scale


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = tl.rand(seed, offsets) > p
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(x, p, seed):
    out = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), p, seed, BLOCK=256)
    return out


def test_the_same_seed_gives_the_same_numbers():
    torch.manual_seed(7)
    torch.cuda.manual_seed_all(7)
    first = torch.randn(300, device="cuda")
    torch.manual_seed(7)
    torch.cuda.manual_seed_all(7)
    assert torch.equal(scale(first, 2.0), scale(torch.randn(300, device="cuda"), 2.0))


def test_a_seed_for_the_card_alone():
    torch.cuda.manual_seed(3)
    x = torch.rand(300, device="cuda")
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_generator_on_the_card():
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = torch.randn(300, device="cuda", generator=generator)
    generator.manual_seed(0)
    y = torch.empty(300, device="cuda").normal_(generator=generator)
    assert scale(x, 2.0).shape == y.shape


@pytest.fixture
def generator(device):
    made = torch.Generator(device=device)
    made.manual_seed(42)
    return made


def test_a_generator_from_a_fixture(generator, device):
    x = torch.randint(0, 10, (300,), device=device, generator=generator).float()
    assert generator.device.type == "cuda"
    assert generator.initial_seed() == 42
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_the_state_of_the_cards_generator():
    state = torch.cuda.get_rng_state()
    x = torch.randn(300, device="cuda")
    torch.cuda.set_rng_state(state)
    y = torch.randn(300, device="cuda")
    assert torch.equal(scale(x, 2.0), scale(y, 2.0))


def test_a_forked_generator():
    with torch.random.fork_rng(devices=[0]):
        torch.manual_seed(5)
        x = torch.randn(300, device="cuda")
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_kernels_seed_from_the_host(pair):
    seed = torch.randint(0, 2**31 - 1, (1,)).item()
    first, second = dropout(pair[0], 0.5, seed), dropout(pair[0], 0.5, seed)
    assert torch.equal(first, second)


def test_a_kernels_seed_from_the_card(pair):
    seed = torch.randint(0, 2**31 - 1, (1,), device="cuda").item()
    first, second = dropout(pair[0], 0.5, seed), dropout(pair[0], 0.5, seed)
    assert torch.equal(first, second)


def test_an_explicit_seed_is_an_argument(pair):
    kept = (dropout(pair[0], 0.5, 123) != 0).float().mean().item()
    assert 0.3 < kept < 0.7


def test_initial_seed(pair):
    out = dropout(pair[0], 0.25, torch.initial_seed() % 2**31)
    assert out.shape == pair[0].shape


def test_weights_initialized_in_place():
    weight = torch.empty(16, 64, device="cuda")
    torch.nn.init.normal_(weight, std=0.02)
    weight.uniform_(-1, 1)
    torch.testing.assert_close(scale(weight, 2.0), 2 * weight)


def seed_and_offset(increment):
    """As packages do that draw random numbers in a kernel."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.get_state()
    seed, offset = state.view(torch.int64)
    found = int(seed), int(offset)
    offset += (increment + 3) // 4 * 4
    generator.set_state(state)
    return found


def test_a_seed_and_an_offset_of_the_cards_generator(pair):
    torch.cuda.manual_seed(11)
    first, second = seed_and_offset(301), seed_and_offset(301)
    assert first == (11, 0)
    assert second == (11, 304)
    out = dropout(pair[0], 0.5, first[0] + second[1])
    assert out.shape == pair[0].shape


def test_the_state_of_a_generator_on_the_card():
    generator = torch.Generator(device="cuda").manual_seed(5)
    state = generator.get_state()
    x = torch.randn(300, device="cuda", generator=generator)
    assert generator.get_state().view(torch.int64)[1] > 0
    generator.set_state(state)
    assert state.numel() == 16
    assert torch.equal(scale(x, 2.0), scale(torch.randn(300, device="cuda", generator=generator), 2.0))
