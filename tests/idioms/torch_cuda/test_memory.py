"""Statistics of the card's memory."""

import gc

import pytest
import torch
from small_kernels import scale


def test_peak_memory_of_a_call(pair):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = scale(pair[0], 2.0)
    peak = torch.cuda.max_memory_allocated()
    print(f"peak: {(peak - before) / 2**20:.1f} MiB, reserved: {torch.cuda.memory_reserved() / 2**20:.1f} MiB")
    assert peak >= before
    torch.testing.assert_close(out, 2 * pair[0])


def test_free_memory_decides_the_size():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    if free < 1 << 20:
        pytest.skip("needs 1 MiB")
    assert (scale(torch.ones(1000, device="cuda"), 2.0) == 2).all()


def test_a_large_case_is_skipped_on_a_small_card(pair):
    if torch.cuda.get_device_properties(0).total_memory < 1 << 30:
        pytest.skip("needs 1 GiB")
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_clean_up_between_tests(pair):
    out = scale(pair[0], 2.0)
    torch.testing.assert_close(out, 2 * pair[0])
    del out
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def test_statistics_by_name(pair):
    out = scale(pair[0], 2.0)
    statistics = torch.cuda.memory_stats()
    print(statistics.get("allocated_bytes.all.current", 0), torch.cuda.memory_summary(abbreviated=True))
    torch.testing.assert_close(out, 2 * pair[0])


def test_running_out_of_memory_is_an_error_to_catch(pair):
    try:
        out = scale(pair[0], 2.0)
    except torch.cuda.OutOfMemoryError:
        pytest.skip("not enough memory")
    torch.testing.assert_close(out, 2 * pair[0])
