"""Objects of torch's that take a device, or make a tensor, past its own calls: a mode does not see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from harness.inside.fake_gpu.generators import generator_type
from harness.inside.fake_gpu.host_side import is_host, put_on_host
from harness.inside.fake_gpu.torch_device import Patch


def objects(kinds: Iterable[str]) -> list[Patch]:
    """Return what makes generators, parameters, NumPy's arrays and files work with a pretended device of these types."""
    named = tuple(kinds)
    parameter = torch.nn.Parameter.__new__
    return [
        (torch, "Generator", generator_type(named)),
        (torch.nn.Parameter, "__new__", staticmethod(_keeping_side(parameter))),
        *((torch, name, _from_host(getattr(torch, name))) for name in ("from_numpy", "frombuffer")),
        # torch looks at the type of the stream before any mode sees the call.
        (torch.Tensor, "record_stream", lambda tensor, stream: None),
        (torch, "load", _loading(torch.load, named)),
    ]


def _keeping_side(make: Callable[..., Any]) -> Callable[..., Any]:
    def parameter(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = make(cls, data, *args, **kwargs)
        return put_on_host(made) if isinstance(data, torch.Tensor) and is_host(data) else made

    return parameter


def _from_host(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: put_on_host(make(*args, **kwargs))


def _loading(load: Callable[..., Any], kinds: tuple[str, ...]) -> Callable[..., Any]:
    """Load to the host what is wanted on a card, and move it there."""

    def loaded(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = str(map_location).split(":")[0] in kinds
        found = load(file, "cpu" if wanted else map_location, *args, **kwargs)
        return _moved(found, map_location) if wanted else found

    return loaded


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        for key, entry in value.items():
            value[key] = _moved(entry, device)
        return value
    return type(value)(_moved(entry, device) for entry in value) if type(value) in (list, tuple) else value
