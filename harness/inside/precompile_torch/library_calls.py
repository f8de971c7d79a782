"""The calls of torch's own operators that a sweep makes: noted on tensors without data, and written down for another process.

Noted are those that may wait for a library: they take a tensor of the card, compute another one there, and are more than an element-wise
loop. Of a tensor, only shape, strides and type are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# What a call returns is allocated when it is planned. Those that return more are left out.
_MOST_BYTES = 1 << 30
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class LibraryCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, calls on tensors without data are noted, each once. `lines` are their texts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: dict[str, None] = {}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True. torch's compiler would leave alone for good what it meets in any other mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Let the call through, and note it."""
        options = kwargs or {}
        if not _may_wait(func):
            return func(*args, **options)
        call = {
            "op": func._schema.name,
            "overload": func._overloadname,
            "args": _told(list(args)),  # before the call, which may change its arguments
            "options": {name: _told(value) for name, value in options.items()},
            "in_backward": torch._C._current_graph_task_id() != -1,
        }
        result = func(*args, **options)
        given, made = _tensors((args, tuple(options.values()))), _tensors(result)
        on_card = made and any(tensor.device.type != "cpu" for tensor in given)
        known = _UNKNOWN not in (call["args"], *call["options"].values())
        if on_card and known and sum(tensor.numel() * tensor.element_size() for tensor in made) <= _MOST_BYTES:
            self.lines[json.dumps(call)] = None
        return result


def _may_wait(func: Any) -> bool:
    own = isinstance(func, torch._ops.OpOverload) and func.namespace == "aten"
    return own and not func.is_view and torch.Tag.pointwise not in func.tags


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for inner in value for tensor in _tensors(inner)] if isinstance(value, (tuple, list)) else []


_UNKNOWN = {"unknown": True}


def _told(value: Any) -> Any:
    """Return an argument as JSON has it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        inner = [_told(each) for each in value]
        return _UNKNOWN if _UNKNOWN in inner else inner
    if isinstance(value, _NAMED):
        return {"named": type(value).__name__, "value": str(value)}
    if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_complex():
        return {"size": list(value.size()), "stride": list(value.stride()), "dtype": str(value.dtype), "device": value.device.type}
    return _UNKNOWN


class Call:
    """A call that another process noted. `make` makes a tensor of a size, strides and dtype on a type of device."""

    def __init__(self, line: str, make: Callable[[list[int], list[int], torch.dtype, str], torch.Tensor]) -> None:
        told = json.loads(line)
        namespace, _, name = told["op"].partition("::")
        if namespace != "aten":
            raise ValueError(f"{told['op']} is none of torch's own operators")
        self._op = getattr(getattr(torch.ops.aten, name), told["overload"] or "default")
        self._args, self._options, self._make = told["args"], told["options"], make
        self.in_backward = bool(told["in_backward"])

    def __call__(self) -> Any:
        """Call the operator, on tensors made for it."""
        return self._op(*map(self._value, self._args), **{name: self._value(value) for name, value in self._options.items()})

    def _value(self, told: Any) -> Any:
        if isinstance(told, list):
            return list(map(self._value, told))
        if not isinstance(told, dict):
            return told
        if "named" in told:
            return torch.device(told["value"]) if told["named"] == "device" else getattr(torch, told["value"].removeprefix("torch."))
        return self._make(told["size"], told["stride"], getattr(torch, told["dtype"].removeprefix("torch.")), told["device"])


def calls(lines: Iterator[str] | list[str], make: Callable[..., torch.Tensor]) -> Iterator[Call]:
    """Yield the calls of these lines, each once. A line that means nothing here is left out."""
    for line in dict.fromkeys(lines):
        try:
            yield Call(line, make)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
