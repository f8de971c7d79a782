"""Races between the programs of a launch. Each test is a fault and its right twin, and compares the result as an author would."""

import races
import torch
from planted import planted

BLOCK = 128


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def drawn(n):
    """Numbers whose sum is the same in each order; none is 0, since adding that would change nothing."""
    return torch.randint(1, 9, (n,), device="cuda").float()


@planted("race", "out", "every program stores its number in one place")
def test_one_place_for_all(fault):
    out = zeros(8, dtype=torch.int32)
    races.own_number[(8,)](out, fault)
    if not fault:
        assert out.tolist() == list(range(8))


@planted("race", "x", "a neighbour's element is read, in place")
def test_stencil_in_place(fault):
    x = torch.randn(1000, device="cuda")
    expected, out = x + torch.cat([x[1:], zeros(1)]), x if fault else torch.empty_like(x)
    races.blur[(8,)](x, out, 1000, BLOCK)
    torch.testing.assert_close(out, expected)


@planted("race", "out", "blocks that overlap by half")
def test_overlapping_blocks(fault):
    out = zeros(512, dtype=torch.int32)
    races.overlapping[(4,)](out, 512, BLOCK, fault)
    if not fault:
        assert out.tolist() == [n // BLOCK for n in range(512)]


@planted("race", "out", "two programs write one row")
def test_two_to_a_row(fault):
    x, out = torch.randn(8, 100, device="cuda"), zeros(8, 100)
    races.two_to_a_row[(8,)](x, out, 100, BLOCK, fault)
    torch.testing.assert_close(out, x)


@planted("race", "out", "a sum without an atomic")
def test_sum(fault):
    x, out = drawn(8 * BLOCK), zeros(1)
    races.accumulate[(8,)](x, out, BLOCK, fault)
    torch.testing.assert_close(out[0], x.sum())


@planted("race", "out", "the first program zeroes what all add to")
def test_zeroed_by_the_first(fault):
    x, out = drawn(8 * BLOCK), torch.full((1,), 5.0 if fault else 0.0, device="cuda")
    races.zero_and_add[(8,)](x, out, BLOCK, fault)
    torch.testing.assert_close(out[0], x.sum())


@planted("race", "out", "a sum is read while others still add to it")
def test_read_while_others_add(fault):
    x, out, seen = torch.ones(8 * BLOCK, device="cuda"), zeros(1), zeros(8)
    races.add_and_read[(8,)](x, out, seen, BLOCK, fault)
    assert out[0] == 8 * BLOCK


def added_up(who, sem, scope="gpu"):
    x, scratch, count, out = drawn(8 * BLOCK), zeros(8), zeros(1, dtype=torch.int32), zeros(1)
    races.last_one_adds_up[(8,)](x, scratch, count, out, 8, BLOCK, who, sem, scope)
    torch.testing.assert_close(out[0], x.sum())


@planted("race", "scratch", "the last program adds up what the others may not have written yet")
def test_last_program_adds_up(fault):
    added_up("the last program" if fault else "the last one to come", "acq_rel")


@planted("race", "scratch", "all count, and the last program adds up without a look at the count")
def test_count_that_nobody_looks_at(fault):
    added_up("the last program, which also counts" if fault else "the last one to come", "acq_rel")


@planted("race", "scratch", "a counter with relaxed order lets the last one add up")
def test_relaxed_counter(fault):
    added_up("the last one to come", "relaxed" if fault else "acq_rel")


@planted("race", "scratch", "a counter that only acquires lets the last one add up")
def test_counter_without_release(fault):
    added_up("the last one to come", "acquire" if fault else "acq_rel")


def locked(how):
    x, lock, out = drawn(8 * BLOCK), zeros(8, dtype=torch.int32), zeros(1)
    races.locked[(8,)](x, lock, out, BLOCK, how)
    torch.testing.assert_close(out[0], x.sum())


@planted("race", "out", "each program has a lock of its own")
def test_a_lock_each(fault):
    locked("a lock each" if fault else "")


@planted("race", "out", "the sum is read before the lock is taken")
def test_read_before_the_lock(fault):
    locked("read before the lock" if fault else "")


@planted("race", "out", "the lock is released before the sum is stored")
def test_unlocked_too_early(fault):
    locked("unlocked too early" if fault else "")


@planted("race", "lock", "the lock is released by a plain store")
def test_unlocked_by_a_store(fault):
    locked("unlocked by a store" if fault else "")


@planted("race", "x", "a matrix is transposed in place")
def test_transposed_in_place(fault):
    x = torch.randn(64, 64, device="cuda")
    expected, out = x.t().clone(), x if fault else torch.empty_like(x)
    races.transpose[(4, 4)](x, out, 64, 16)
    if not fault:
        torch.testing.assert_close(out, expected)


@planted("race", "out", "a running total that does not wait for the program before")
def test_running_total(fault):
    x, out, flags = drawn(8 * BLOCK), zeros(8), zeros(8, dtype=torch.int32)
    races.running_total[(8,)](x, out, flags, BLOCK, fault)
    torch.testing.assert_close(out, x.view(8, BLOCK).sum(1).cumsum(0))


@planted("race", "out", "a histogram without atomics")
def test_histogram(fault):
    x, out = torch.randint(0, 4, (8 * BLOCK,), device="cuda"), zeros(4, dtype=torch.int32)
    races.histogram[(8,)](x, out, BLOCK, fault)
    if not fault:
        assert out.tolist() == torch.bincount(x, minlength=4).tolist()


@planted("race", "counter", "a queue of tiles without an atomic")
def test_queue(fault):
    counter, out = zeros(1, dtype=torch.int32), zeros(8, dtype=torch.int32)
    races.next_tile[(8,)](counter, out, fault)
    assert out.tolist() == [1] * 8


@planted("race", "out", "split-K without atomics")
def test_split_k(fault):
    x, y, out = torch.randn(16, 64, device="cuda"), torch.randn(64, 16, device="cuda"), zeros(16, 16)
    races.split_k[(4,)](x, y, out, 64, 16, 16, fault)
    torch.testing.assert_close(out, x @ y)


@planted("race", "scratch", "one scratch buffer for all programs")
def test_shared_scratch(fault):
    x, scratch, out = drawn(8 * BLOCK), torch.empty(8 * BLOCK, device="cuda"), zeros(8 * BLOCK)
    races.shared_scratch[(8,)](x, scratch, out, BLOCK, fault)
    torch.testing.assert_close(out, x)


@planted("race", "flag", "a flag that gets another value from each program")
def test_flag(fault):
    flag, out = zeros(1, dtype=torch.int32), zeros(8, dtype=torch.int32)
    races.flagged[(8,)](flag, out, fault)
    assert out.tolist() == list(range(8))


@planted("race", "out", "tiles of a descriptor that overlap by one row")
def test_overlapping_tiles(fault):
    out = zeros(32, 32)
    races.described[(4,)](out, 32, 32, 8, 32, fault)
    if not fault:
        torch.testing.assert_close(out, torch.arange(4, device="cuda").repeat_interleave(8)[:, None].expand(32, 32).float())


@planted("race", "scratch", 'a counter that is an atomic only to its own program (`scope="cta"`) lets the last one add up')
def test_counter_of_its_own_program(fault):
    added_up("the last one to come", "acq_rel", "cta" if fault else "gpu")


@planted(None, None, "the last program to exchange wins, by an atomic", in_order=False)
def test_last_to_exchange(fault):
    out = zeros(1, dtype=torch.int32)
    races.last_to_exchange[(8,)](out, fault)
    assert out.tolist() == [7]


@planted(None, None, "sums go where an atomic counter says, in the order in which programs come", in_order=False)
def test_order_of_arrival(fault):
    x, count, out = drawn(8 * BLOCK), zeros(1, dtype=torch.int32), zeros(8)
    races.kept_numbers[(8,)](x, count, out, BLOCK, fault)
    torch.testing.assert_close(out, x.view(8, BLOCK).sum(1))
