"""Launches outside of the thread that pytest runs: pools that warm kernels up, servers, data loaders."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from small_kernels import add


def test_a_launch_in_a_thread():
    results = []

    def work():
        x = torch.ones(1000, device="cuda")
        results.append(add(x, x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.testing.assert_close(results[0], torch.full((1000,), 2.0, device="cuda"))


def test_launches_in_a_pool(pair):
    x, y = pair
    with ThreadPoolExecutor(2) as pool:
        scaled = list(pool.map(lambda factor: add(x.to("cuda"), y * factor), [1.0, 2.0]))
    torch.testing.assert_close(scaled[0], x + y)
    torch.testing.assert_close(scaled[1], x + y * 2.0)


def test_a_loader_that_pins(device):
    data = torch.utils.data.TensorDataset(torch.arange(64, dtype=torch.float32).reshape(8, 8))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        moved = batch.to(device, non_blocking=True)
        torch.testing.assert_close(add(moved, moved), moved + moved)
