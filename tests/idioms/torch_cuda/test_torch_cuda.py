"""CUDA graphs, as authors guard them: launched before, so that nothing compiles during the capture."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add, scale

needs_graphs = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA graphs")


def warm_up(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)


@needs_graphs
@pytest.mark.parametrize("own", [False, True], ids=["as it is", "with a pool and a stream"])
def test_capture_and_replay(own, pair):
    x, y = pair
    warm_up(lambda: add(x, y))
    graph = torch.cuda.CUDAGraph()
    options = {"pool": torch.cuda.graph_pool_handle(), "stream": torch.cuda.Stream()} if own else {}
    with torch.cuda.graph(graph, **options):
        out = add(x, y)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, x + y)
    x.copy_(torch.ones_like(x))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, 1 + y)


def test_asking_whether_a_capture_is_under_way(pair):
    x, _ = pair
    if torch.cuda.is_current_stream_capturing():
        pytest.fail("nothing captures here")
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_captured_update_happens_when_it_is_replayed():
    weight, step = torch.ones(300, device="cuda"), torch.full((300,), 2.0, device="cuda")
    out = torch.zeros_like(weight)
    weight.mul_(step)  # warms up what the graph contains
    scale(weight, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weight.mul_(step)
        out.copy_(scale(weight, 3.0))
    assert (weight == 2).all()
    assert (out == 0).all()
    for expected in (4, 8):
        graph.replay()
        assert (weight == expected).all()
        assert (out == 3 * expected).all()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scale(x, 3.0)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad, 3.0)


@needs_graphs
def test_a_backward_is_captured_with_its_forward():
    x = torch.ones(300, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        (Scaled.apply(x) * x).sum().backward()

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for value in (1.0, 2.0):
        with torch.no_grad():
            x.fill_(value)
        graph.replay()
        torch.testing.assert_close(x.grad, torch.full_like(x, 6 * value))


@torch.library.custom_op("idioms::advance", mutates_args={"state"}, device_types="cuda")
def advance(state: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    state.copy_(add(state, step))
    return scale(state, 2.0)


@needs_graphs
def test_an_op_that_advances_a_state_does_it_once_a_replay():
    state, step = torch.zeros(300, device="cuda"), torch.ones(300, device="cuda")
    warm_up(lambda: advance(state, step))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = advance(state, step)
    state.zero_()
    for expected in (1, 2):
        graph.replay()
        assert (state == expected).all()
        assert (out == 2 * expected).all()


# Statistics of the card's memory.


def test_peak_memory_of_a_call(pair):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = scale(pair[0], 2.0)
    peak = torch.cuda.max_memory_allocated()
    print(f"peak: {(peak - before) / 2**20:.1f} MiB, reserved: {torch.cuda.memory_reserved() / 2**20:.1f} MiB")
    print(torch.cuda.memory_stats().get("allocated_bytes.all.current", 0), torch.cuda.memory_summary(abbreviated=True))
    assert peak >= before
    torch.testing.assert_close(out, 2 * pair[0])
    del out
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def test_free_memory_decides_the_size(pair):
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    if free < 1 << 20 or torch.cuda.get_device_properties(0).total_memory < 1 << 30:
        pytest.skip("needs 1 MiB")
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_running_out_of_memory_is_an_error_to_catch(pair):
    try:
        out = scale(pair[0], 2.0)
    except torch.cuda.OutOfMemoryError:
        pytest.skip("not enough memory")
    torch.testing.assert_close(out, 2 * pair[0])


# Seeds and generators.


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


def seed_all():
    torch.manual_seed(7)
    torch.cuda.manual_seed_all(7)


def of_the_card():
    state = torch.cuda.get_rng_state()
    return lambda: torch.cuda.set_rng_state(state)


@pytest.mark.parametrize("seeded", [lambda: seed_all, lambda: lambda: torch.cuda.manual_seed(3), of_the_card], ids=["all", "card", "state"])
def test_the_same_state_gives_the_same_numbers(seeded):
    again = seeded()
    again()
    x = torch.randn(300, device="cuda")
    again()
    assert torch.equal(scale(x, 2.0), scale(torch.randn(300, device="cuda"), 2.0))


def test_a_forked_generator():
    with torch.random.fork_rng(devices=[0]):
        torch.manual_seed(5)
        x = torch.randn(300, device="cuda")
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


SEEDS = {
    "host": lambda: torch.randint(0, 2**31 - 1, (1,)).item(),
    "card": lambda: torch.randint(0, 2**31 - 1, (1,), device="cuda").item(),
    "initial": lambda: torch.initial_seed() % 2**31,
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_kernels_seed(seed, pair):
    number = seed()
    first, second = dropout(pair[0], 0.5, number), dropout(pair[0], 0.5, number)
    assert torch.equal(first, second)


def test_an_explicit_seed_is_an_argument(pair):
    kept = (dropout(pair[0], 0.5, 123) != 0).float().mean().item()
    assert 0.3 < kept < 0.7


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


def test_a_generator_on_the_card(device):
    generator = torch.Generator(device=device)
    generator.manual_seed(42)
    assert generator.device.type == "cuda"
    assert generator.initial_seed() == 42
    state = generator.get_state()
    x = torch.randn(300, device="cuda", generator=generator)
    assert generator.get_state().view(torch.int64)[1] > 0
    generator.set_state(state)
    assert state.numel() == 16
    assert torch.equal(scale(x, 2.0), scale(torch.randn(300, device="cuda", generator=generator), 2.0))
    y = torch.empty(300, device="cuda").normal_(generator=generator)
    z = torch.randint(0, 10, (300,), device=device, generator=generator).float()
    torch.testing.assert_close(add(y, z), y + z)


# Tensors in files, pickles and queues: they come back to the card that they were on.


def written(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def test_a_pickle(pair):
    x, y = pickle.loads(pickle.dumps(pair))
    assert x.is_cuda
    torch.testing.assert_close(add(x, y), x + y)


def test_a_file_of_both_sides(pair):
    loaded = written({"card": pair[0], "host": torch.ones(3), "weight": torch.nn.Parameter(torch.ones(3))}, weights_only=False)
    assert loaded["card"].is_cuda
    assert not loaded["host"].is_cuda
    assert not loaded["weight"].is_cuda
    torch.testing.assert_close(add(loaded["card"], pair[1]), pair[0] + pair[1])


def test_a_file_read_to_the_host(pair):
    x = written(pair[0], map_location="cpu")
    assert x.device.type == "cpu"
    y = written(pair[1], map_location=lambda storage, place: storage)
    assert y.device.type == "cpu"
    torch.testing.assert_close(add(x.cuda(), y.cuda()), sum(pair))


def test_a_file_of_the_host_read_to_the_card(pair):
    x = written(pair[0].cpu(), map_location="cuda")
    assert x.is_cuda
    assert written(torch.nn.Parameter(torch.ones(3)), map_location={"cpu": "cuda:0"}, weights_only=False).is_cuda
    torch.testing.assert_close(add(x, pair[1]), pair[0] + pair[1])


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_state(weights_only, tmp_path, pair):
    model = torch.nn.Linear(4, 4, device="cuda")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=weights_only)
    assert all(value.is_cuda for value in state.values())
    other = torch.nn.Linear(4, 4, device="cuda")
    other.load_state_dict(state)
    torch.testing.assert_close(other.weight, model.weight)
    torch.testing.assert_close(add(*pair), sum(pair))


def test_a_model(pair):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).cuda()
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), written(model, weights_only=False)):
        assert isinstance(again[0].weight, torch.nn.Parameter)
        assert again[1].weight.is_cuda
    torch.testing.assert_close(add(*pair), sum(pair))


def test_a_view_and_what_it_views(pair):
    x, part = written([pair[0], pair[0][:8]])
    assert part.is_cuda
    torch.testing.assert_close(add(x, pair[1]), sum(pair))
    part.zero_()
    torch.testing.assert_close(x[:8], torch.zeros_like(part))


# Streams, events and ranges for profilers.


STREAMS = {
    "side": lambda x: torch.cuda.Stream(),
    "of a device, with a priority": lambda x: torch.cuda.Stream(device=x.device, priority=-1),
    "external": lambda x: torch.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream),
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_a_stream(make, pair):
    assert isinstance(torch.cuda.current_stream().cuda_stream, int)
    assert torch.cuda.current_stream(pair[0].device).cuda_stream == torch.cuda.current_stream().cuda_stream
    stream = make(pair[0])
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        out = add(*pair)
    torch.cuda.current_stream().wait_stream(stream)
    out.record_stream(torch.cuda.current_stream())
    stream.synchronize()
    torch.cuda.synchronize(out.device)
    assert stream.query()
    torch.testing.assert_close(out, pair[0] + pair[1])


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


def test_ranges_for_a_profiler(pair):
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.nvtx.range_push("scale")
    doubled = scale(pair[0], 2.0)
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("add"), torch.autograd.profiler.record_function("add"):
        out = add(doubled, pair[1])
    torch.cuda.cudart().cudaProfilerStop()
    torch.testing.assert_close(out, 2 * pair[0] + pair[1])


# What tests and benchmarks switch on around a launch, and names of torch that are older than its devices.


def test_memory_is_recorded(pair):
    torch.cuda.memory._record_memory_history(max_entries=100)
    x, y = pair
    torch.testing.assert_close(add(x, y), x + y)
    torch.cuda.memory._record_memory_history(enabled=None)


def test_types_of_tensors_by_their_old_names():
    x = torch.cuda.FloatTensor(100).fill_(1.0)
    assert isinstance(x, torch.cuda.FloatTensor)
    assert x.is_cuda
    y = torch.cuda.FloatTensor([1.0, 2.0])
    torch.testing.assert_close(add(y, y), y + y)
    assert torch.randn(3).type(torch.cuda.HalfTensor).dtype == torch.float16


# What packages ask of the card before and beside their kernels: who is the accelerator, its properties, how much memory is in use.


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
