"""Let torch's compiler trace and load what a sweep compiles in the process that measures it, before the card is held.

What it generates and compiles is in its cache by then (see `generated`). What is left of a first call is work of the host: it traces the
function, finds the graph in the cache, and loads its kernels. Each point runs once on tensors without data, up to what it times. Nothing
runs on the card; the first real call finds the traced function, tunes and launches.

A guard of a traced function says what its arguments must be. torch lets a tensor without data say for what it stands (it packs traced
functions for other machines in this way). Here it stands for a plain tensor on the card, so the guards hold for those that are measured.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import time
from collections.abc import Iterator
from typing import Any

from harness.inside.benchmarks import Point
from harness.inside.fake_gpu.torch_device import apply
from harness.inside.precompile_torch.without_card import Change, Reached, graphs_without_data, stops

_LIMIT_S = 300.0  # what is not traced by then is traced when it is first called
_OF_FAKES = ("Python", "PythonTLSSnapshot")  # dispatch keys that a tensor without data has, and a real one has not


class _DynamicError(BaseException):
    """A graph was made for several shapes. Which graph a call finds would then depend on the order of calls, so nothing is traced ahead."""


def trace(points: list[Point], more: list[Change]) -> int:
    """Trace each of the points. `more` are attributes that are replaced meanwhile. Return how many points came to what they time."""
    import torch

    ends, traced = time.monotonic() + _LIMIT_S, 0
    with contextlib.ExitStack() as undo, torch.random.fork_rng(devices=()):
        undo.callback(random.setstate, random.getstate())
        try:
            undo.enter_context(importlib.import_module("torch._functorch.config").patch(enable_autograd_cache=False))
            apply([*graphs_without_data(_refuse_dynamic), *stops(), *_guards(), *more], undo)
            for point in points:
                if time.monotonic() > ends:
                    break
                with contextlib.suppress(Exception):  # the sweep reports the error, if it is one of the point's own
                    traced += _came_to_what_it_times(point)
        except (_DynamicError, AttributeError, ImportError):  # or another torch than this was written for
            torch._dynamo.reset()
            return 0
    return traced


def _came_to_what_it_times(point: Point) -> bool:
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            point.run()
    except Reached:
        return True
    return False


def _refuse_dynamic(inputs: Any) -> None:
    import torch

    for value in inputs:
        sizes = (*value.size(), *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(size, torch.SymInt) for size in sizes):
            raise _DynamicError


def _guards() -> Iterator[Change]:
    """Make guards for the tensors that those without data stand for. These do not pass them, so that is not checked."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    keys = torch._C.DispatchKey

    def of_what(tensor: Any) -> type:
        plain: type = torch.nn.Parameter if getattr(tensor, "_is_param", False) else torch.Tensor
        return tensor.__dict__.get("pytype") or plain

    def with_keys(tensor: Any) -> Any:
        found = tensor.__dict__.get("dispatch_keys")
        if found is None:
            found = torch._C._dispatch_keys(tensor)
            for name in _OF_FAKES:
                found = found.remove(getattr(keys, name))
        return found

    yield FakeTensor, "pytype", _told("pytype", of_what)
    yield FakeTensor, "dispatch_keys", _told("dispatch_keys", with_keys)
    yield importlib.import_module("torch._dynamo.guards").GuardManagerWrapper, "check", lambda self, scope: True


def _told(name: str, value: Any) -> property:
    return property(value, lambda tensor, told: tensor.__dict__.__setitem__(name, told))
