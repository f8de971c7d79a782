"""What torch has for a type of device, replaced while a card of that type is pretended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from harness.records import Architecture

_MEMORY_BYTES = 64 << 30

# An attribute of something, and what it is while a card is pretended.
Patch = tuple[object, str, object]


class _Stream:
    """The default stream, whichever is asked for. A class, as torch's is: libraries annotate with `torch.cuda.Stream | None`."""

    cuda_stream = sycl_queue = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """There is no device to make one on."""


def torch_device(kind: str) -> torch.device:
    """Return the first device of a type.

    A type that torch does not know gets the place that torch keeps for a vendor's extension: the extension is not installed here.
    """
    backends: Any = torch.utils
    try:
        device = torch.device(kind, 0)
    except RuntimeError:
        backends.rename_privateuse1_backend(kind)
        device = torch.device(kind, 0)
        if not hasattr(torch, kind):
            register: Any = torch._register_device_module
            register(kind, ModuleType(f"torch.{kind}"))
            backends.generate_methods_for_privateuse1_backend()  # `is_…` of a tensor, and a method of the device's name
    return device


def patches(card: Architecture, device: torch.device, capability: object) -> list[Patch]:
    """Return what makes torch's module for the device, `torch.accelerator` and `torch.version` answer as with one such card."""
    module = getattr(torch, device.type)
    properties = _properties(card, capability)
    accelerator = torch.device(device.type)
    return [
        (module, "_lazy_init", lambda: None),
        (module, "is_available", lambda: True),
        (module, "device_count", lambda: 1),
        (module, "current_device", lambda: 0),
        (module, "set_device", lambda index: None),
        (module, "synchronize", lambda device=None: None),
        (module, "get_device_name", lambda device=None: card.name),
        (module, "get_device_capability", lambda device=None: capability),
        (module, "get_device_properties", lambda device=None: properties),
        (module, "mem_get_info", lambda device=None: (_MEMORY_BYTES, _MEMORY_BYTES)),
        (module, "Stream", _Stream),
        (module, "current_stream", lambda device=None: _Stream()),
        (module, "set_stream", lambda stream: None),
        (module, "device", contextlib.nullcontext),
        (torch.accelerator, "is_available", lambda: True),
        (torch.accelerator, "device_count", lambda: 1),
        (torch.accelerator, "current_accelerator", lambda check_available=False: accelerator),
        (torch.accelerator, "current_device_index", lambda: 0),
        (torch.accelerator, "set_device_index", lambda device: None),
        (torch.accelerator, "synchronize", lambda device=None: None),
        (torch.accelerator, "current_stream", lambda device=None: _Stream()),
        (torch.accelerator, "set_stream", lambda stream: None),
        *((torch.version, name, version) for name, version in card.torch_version.items()),
    ]


def apply(changes: Iterable[Patch], undo: contextlib.ExitStack) -> None:
    """Set each attribute until `undo` is closed."""
    for owner, name, value in changes:
        if hasattr(owner, name):
            undo.callback(setattr, owner, name, getattr(owner, name))
        else:
            undo.callback(delattr, owner, name)
        setattr(owner, name, value)


def _properties(card: Architecture, capability: object) -> SimpleNamespace:
    """What `get_device_properties` of torch's module returns: its names on the two vendors that share `torch.cuda`."""
    known = card.properties
    major, minor = capability if isinstance(capability, tuple) else (0, 0)
    return SimpleNamespace(
        name=card.name,
        major=major,
        minor=minor,
        multi_processor_count=known["multiprocessor_count"],
        warp_size=card.warp_size,
        shared_memory_per_block_optin=known["max_shared_mem"],
        regs_per_multiprocessor=known.get("max_num_regs", 0),
        max_threads_per_multi_processor=known.get("max_threads_per_sm", 0),
        gcnArchName=card.name,
        total_memory=_MEMORY_BYTES,
    )
