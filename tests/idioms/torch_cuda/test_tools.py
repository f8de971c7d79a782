"""What tests and benchmarks switch on around a launch, and names of torch that are older than its devices."""

import torch
from small_kernels import add


def test_the_runtime_is_told_what_to_profile(pair):
    torch.cuda.cudart().cudaProfilerStart()
    x, y = pair
    torch.testing.assert_close(add(x, y), x + y)
    torch.cuda.cudart().cudaProfilerStop()


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
