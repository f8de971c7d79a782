"""Threads and processes that a package starts: they see the pretended card, too."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.popen_fork
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import torch.distributed

from harness.inside.fake_gpu.redirect import within
from harness.inside.fake_gpu.torch_device import Patch


def processes() -> list[Patch]:
    """Return what forks where a package starts new processes (`mp.spawn`, pools), and lets them communicate as processes on the CPU do."""
    contexts: Any = multiprocessing.context
    found: list[Patch] = [
        # Private, and in each Python from 3.10 to 3.14; `run` is what subclasses replace.
        (threading.Thread, "_bootstrap_inner", within(threading.Thread._bootstrap_inner)),  # type: ignore[attr-defined]
        (contexts.SpawnProcess, "_Popen", staticmethod(_fork)),
        (contexts.SpawnProcess, "_after_fork", staticmethod(contexts.ForkProcess._after_fork)),
        (contexts.ForkServerProcess, "_Popen", staticmethod(_fork)),
        (ProcessPoolExecutor, "__init__", _started_at_once(ProcessPoolExecutor.__init__)),
    ]
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


def _started_at_once(begin: Callable[..., None]) -> Callable[..., None]:
    """Let a pool start its processes before its threads, which could hold locks that a fork copies."""

    def started(pool: Any, *args: Any, **kwargs: Any) -> None:
        begin(pool, *args, **kwargs)
        pool._safe_to_dynamically_spawn_children = False  # private; an older or newer Python may not read it

    return started


def _on_the_host(begin: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a group whose library is the CPU's, whatever the package names: the tensors are there, or have no data."""

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return begin("gloo", *args, **kwargs)

    return init_process_group
