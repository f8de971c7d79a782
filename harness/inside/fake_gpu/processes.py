"""Processes and process groups of tests on a pretended card: a new Python would not have the card."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.popen_fork
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from harness.inside.fake_gpu.torch_device import Patch


def processes() -> list[Patch]:
    """Return what forks where a package starts new processes (`mp.spawn`), and lets them talk as processes on the CPU do."""
    found: list[Patch] = [(multiprocessing.context.SpawnProcess, "_Popen", staticmethod(_fork))]
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        found.append((torch.distributed, "init_process_group", _on_the_host(torch.distributed.init_process_group)))
    return found


def _fork(process: Any) -> Any:
    """Start a process as a copy of this one. Threads of torch's pool do not live on in the copy."""
    run = process.run

    def alone() -> None:
        torch.set_num_threads(1)
        run()

    process.run = alone
    return multiprocessing.popen_fork.Popen(process)


def _on_the_host(begin: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a group whose library is the CPU's, whatever the package names: the tensors are there, or have no data."""

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return begin("gloo", *args, **kwargs)

    return init_process_group
