"""Streams, events and ranges for profilers."""

import torch
from small_kernels import add, scale


def test_synchronize(pair):
    out = add(*pair)
    torch.cuda.synchronize()
    torch.cuda.synchronize(out.device)
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_the_current_streams_handle(pair):
    handle = torch.cuda.current_stream().cuda_stream
    assert isinstance(handle, int)
    assert torch.cuda.current_stream(pair[0].device).cuda_stream == handle
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_a_side_stream(pair):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = add(*pair)
    torch.cuda.current_stream().wait_stream(stream)
    out.record_stream(torch.cuda.current_stream())
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_a_stream_of_a_device_with_a_priority(pair):
    stream = torch.cuda.Stream(device=pair[0].device, priority=-1)
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        out = scale(pair[0], 2.0)
    stream.synchronize()
    assert stream.query()
    torch.testing.assert_close(out, 2 * pair[0])


def test_the_stream_inside_its_context(pair):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        out = scale(torch.ones(300, device="cuda"), 2.0)
    torch.cuda.synchronize()
    assert (out == 2).all()


def test_events_time_a_kernel(pair):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    add(*pair)
    start.record()
    for _ in range(3):
        out = add(*pair)
    end.record()
    torch.cuda.synchronize()
    ms = start.elapsed_time(end) / 3
    print(f"{12 * out.numel() / ms * 1e-6:.2f} GB/s")
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_events_order_streams(pair):
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled = scale(pair[0], 2.0)
        done.record(side)
    torch.cuda.current_stream().wait_event(done)
    out = add(doubled, pair[1])
    done.synchronize()
    assert done.query()
    torch.testing.assert_close(out, 2 * pair[0] + pair[1])


def test_an_external_stream(pair):
    stream = torch.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    with torch.cuda.stream(stream):
        out = add(*pair)
    stream.synchronize()
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_ranges_for_a_profiler(pair):
    torch.cuda.nvtx.range_push("scale")
    doubled = scale(pair[0], 2.0)
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("add"):
        out = add(doubled, pair[1])
    torch.testing.assert_close(out, 2 * pair[0] + pair[1])


def test_a_launch_below_record_function(pair):
    with torch.autograd.profiler.record_function("scale"):
        out = scale(pair[0], 2.0)
    torch.testing.assert_close(out, 2 * pair[0])
