"""The pretended card as torch's general accelerator: `torch.accelerator`, and torch's own bindings below it and below `torch.cuda`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from warpwave.inside.fake_gpu import streams
from warpwave.inside.process.outcomes import NotPretended
from warpwave.records import Architecture

_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")


class Properties(SimpleNamespace):
    """What `get_device_properties` returns, with torch's own text."""

    def __repr__(self) -> str:
        megabytes = f"{self.total_memory >> 20}MB"
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, total_memory={megabytes}, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def more_properties(card: Architecture) -> dict[str, object]:
    """Return what torch says of every card and `card` has in Triton's words, or not at all: clocks in kHz, the memory's bus, its place."""
    known = card.properties
    return {
        "clock_rate": known.get("sm_clock_rate", 0),
        "memory_clock_rate": known.get("mem_clock_rate", 0),
        "memory_bus_width": known.get("mem_bus_width", 0),
        "uuid": UUID,
        "pci_domain_id": 0,
        "pci_bus_id": 1,
        "pci_device_id": 0,
    }


UUID = "00000000-7761-7270-7761-766500000000"
PCI_BUS = "00000000:01:00.0"


def bindings(card: Architecture, device: torch.device, answers: dict[str, object]) -> list[tuple[object, str, object]]:
    """Return the functions of `torch._C` that torch's Python modules ask, with what `answers` says of torch's module for the device."""
    kind = torch.device(device.type)
    memory: Any = answers["memory_stats_as_nested_dict"]
    accelerator: dict[str, object] = {
        "_get_accelerator": lambda *args: kind,
        "_accelerator_getAccelerator": lambda *args: kind,
        **dict.fromkeys(("_accelerator_getDeviceIndex", "_accelerator_hooks_get_current_device"), lambda *args: 0),
        **dict.fromkeys(("_accelerator_exchangeDevice", "_accelerator_maybeExchangeDevice"), lambda *args: 0),
        **dict.fromkeys(("_accelerator_hooks_exchange_device", "_accelerator_hooks_maybe_exchange_device"), lambda *args: 0),
        **dict.fromkeys(("_accelerator_setDeviceIndex", "_accelerator_hooks_set_current_device"), lambda *args: None),
        "_accelerator_hooks_device_count": lambda *args: 1,
        "_accelerator_getStream": lambda *args: streams.Stream.current(),
        "_accelerator_setStream": lambda stream: streams.Stream.make_current(stream),
        "_accelerator_synchronizeDevice": streams.wait,
        **{f"_accelerator_{name}": lambda *args: None for name in ("emptyHostCache", "setAllocatorSettings")},
        "_accelerator_emptyCache": answers["empty_cache"],
        "_accelerator_isAllocatorInitialized": lambda *args: True,
        "_accelerator_getDeviceStats": memory,
        "_accelerator_resetPeakStats": answers["reset_peak_memory_stats"],
        "_accelerator_resetAccumulatedStats": answers["reset_accumulated_memory_stats"],
        "_accelerator_getMemoryInfo": answers["mem_get_info"],
        "_accelerator_getDeviceCapability": lambda *args: {"supported_dtypes": {getattr(torch, name) for name in _DTYPES}},
    }
    found: dict[str, object] = {name: value for name, value in accelerator.items() if hasattr(torch._C, name)}
    for name in dir(torch._C):
        if name.startswith("_accelerator_") and name not in found:
            found[name] = _refuse(f"torch._C.{name}")
    if device.type == "cuda":  # torch without a card's library has none of these
        version = card.torch_version.get("cuda", "")
        found |= {
            "_cuda_getDeviceCount": lambda *args: 1,
            "_cuda_getDevice": lambda *args: 0,
            "_cuda_isInBadFork": lambda *args: False,
            "_cuda_memoryStats": memory,
            "_cuda_getCompiledVersion": lambda *args: _cuda_number(version),
        }
    return [(torch._C, name, value) for name, value in found.items()]


def _cuda_number(version: str) -> int:
    """Return the number of a toolkit: 13000 of `13.0`."""
    major, _, minor = version.partition(".")
    return int(major or 0) * 1000 + int(minor or 0) * 10


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*args: object, **kwargs: object) -> Any:
        raise NotPretended(f"the pretended card has no {name}")

    return refuse
