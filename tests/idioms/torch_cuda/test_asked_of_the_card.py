"""What packages ask of the card before and beside their kernels: who is the accelerator, its properties, how much memory is in use."""

from __future__ import annotations

import pytest
import torch
from small_kernels import add

needs_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")


@needs_card
def test_every_door_names_the_same_accelerator():
    """torch's own modules ask the binding below."""
    assert torch._C._get_accelerator().type == torch.accelerator.current_accelerator().type == "cuda"
    assert torch.get_device_module() is torch.cuda
    assert torch.accelerator.device_count() == torch.cuda.device_count()
    assert torch.accelerator.current_stream().device.type == "cuda"
    torch.accelerator.synchronize()


@needs_card
def test_the_properties_that_grids_are_made_of():
    """Each is a divisor somewhere."""
    card = torch.cuda.get_device_properties(0)
    sizes = (card.multi_processor_count, card.warp_size, card.total_memory, card.L2_cache_size, card.max_threads_per_multi_processor)
    assert min(*sizes, card.regs_per_multiprocessor, card.shared_memory_per_block, card.shared_memory_per_multiprocessor) > 0
    assert (card.major, card.minor) == torch.cuda.get_device_capability()
    assert card.name == torch.cuda.get_device_name()
    assert len(str(card.uuid)) > 0


def _peak(work):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = work()
    return torch.cuda.max_memory_allocated() - before, kept


@needs_card
def test_memory_that_is_counted(pair):
    """A share of what another way takes; the result is freed, and the peak stays."""
    x, y = pair
    out_of_place, _ = _peak(lambda: torch.add(x, y))
    in_place, _ = _peak(lambda: x.add_(y))
    ours, kept = _peak(lambda: add(x, y))
    assert in_place / out_of_place < 0.1
    assert ours == out_of_place >= kept.numel() * kept.element_size()
    now = torch.cuda.memory_allocated()
    del kept
    assert torch.cuda.memory_allocated() < now <= torch.cuda.memory_stats()["allocated_bytes.all.peak"]


@needs_card
def test_views_take_no_memory(pair):
    x, _ = pair
    before = torch.cuda.memory_allocated()
    kept = [x[1:], x.view(-1), x.detach()]
    assert torch.cuda.memory_allocated() == before, kept


@needs_card
def test_memory_in_use_is_not_free():
    free, total = torch.cuda.mem_get_info()
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.mem_get_info()[0] < free <= total
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() >= kept.numel()
