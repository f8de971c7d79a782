"""Tests in several processes, and in a group of one: what packages for many cards run on one."""

from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from small_kernels import add


def rank(index, path):
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=index, world_size=1)
    x = torch.ones(100, device="cuda")
    dist.all_reduce(x)
    torch.testing.assert_close(add(x, x), 2 * x)
    dist.destroy_process_group()


def test_a_group_of_one(tmp_path):
    rank(0, tmp_path / "group")


def test_a_process_for_each_card(tmp_path):
    mp.spawn(rank, args=(tmp_path / "group",), nprocs=1)


def fail(index):
    raise ValueError("the second half is missing")


def test_an_error_of_a_process(pair):
    x, y = pair
    torch.testing.assert_close(add(x, y), x + y)
    with pytest.raises(mp.ProcessRaisedException, match="the second half is missing"):
        mp.spawn(fail, nprocs=1)


def doubled(x):
    return add(x, x)


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_pool_of_processes(start, pair):
    with ProcessPoolExecutor(max_workers=2, mp_context=mp.get_context(start)) as pool:
        futures = [pool.submit(doubled, x) for x in pair]
        for x, future in zip(pair, futures, strict=True):
            result = future.result()
            assert result.is_cuda
            torch.testing.assert_close(result, 2 * x)


def put(queue, done):
    queue.put(torch.ones(3, device="cuda"))
    done.wait()


def test_a_queue_between_processes(pair):
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=put, args=(queue, done))
    process.start()
    x = queue.get()
    assert x.is_cuda
    del x
    done.set()
    process.join()
    torch.testing.assert_close(add(*pair), sum(pair))
