"""What torch has for a type of device, replaced while a card of that type is pretended: `torch.cuda`, `torch.accelerator` and their kin."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from harness.inside.fake_gpu import streams
from harness.inside.fake_gpu.generators import CardGenerator
from harness.inside.process.exceptions import NotPretended
from harness.inside.process.pretended_answers import Pretended
from harness.records import Architecture

_MEMORY_BYTES = 64 << 30

# An attribute of something, and what it is while a card is pretended.
Patch = tuple[object, str, object]


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


class DeviceGuard:
    """Stand in for `torch.cuda.device` and `device_of`: there is one device, and it is the current one."""

    def __init__(self, device: object = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> DeviceGuard:
        return self

    def __exit__(self, *raised: object) -> None:
        """There is nothing to go back to."""


class _Runtime:
    """Stand in for the vendor's runtime, which packages call to mark what a profiler should record: each call succeeds."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: 0


def patches(card: Architecture, device: torch.device, capability: object, free_bytes: int | None = None) -> list[Patch]:
    """Return what makes torch's module for the device, `torch.accelerator` and `torch.version` answer as with one such card.

    `free_bytes` is what the card says of its free memory, if it is not all free.
    """
    module = getattr(torch, device.type)
    properties = _properties(card, capability)
    free = min(properties.total_memory, free_bytes or properties.total_memory)
    answers: dict[str, object] = {
        "_lazy_init": _nothing,
        "init": _nothing,
        "is_available": _always(True),
        "is_initialized": _always(True),
        "device_count": _always(1),
        "current_device": _always(0),
        "_exchange_device": _always(0),
        "_maybe_exchange_device": _always(0),
        "get_device_name": _always(properties.name),
        "get_device_capability": _always(capability),
        "get_device_properties": _always(properties),
        "get_arch_list": _always([card.name]),
        "get_gencode_flags": _always(""),
        "is_bf16_supported": _always(True),
        "can_device_access_peer": _always(False),
        "is_current_stream_capturing": lambda: bool(streams.Graph.capturing),
        "device": DeviceGuard,
        "device_of": DeviceGuard,
        "Stream": streams.Stream,
        "ExternalStream": type("ExternalStream", (streams.Stream,), {}),
        "StreamContext": streams.StreamContext,
        "stream": lambda stream: streams.StreamContext(stream),
        "current_stream": lambda device=None: streams.Stream.current(),
        "default_stream": lambda device=None: streams.Stream.default(),
        "get_stream_from_external": lambda pointer, device=None: streams.Stream.default(),
        "set_stream": lambda stream: streams.Stream.make_current(stream),
        "Event": streams.Event,
        "CUDAGraph": streams.Graph,
        "graph": streams.capture,
        "graph_pool_handle": _always((0, 0)),
        "make_graphed_callables": lambda callables, *args, **kwargs: callables,
        "cudart": _always(_Runtime()),
        **dict.fromkeys(_SILENT, _nothing),
        "synchronize": streams.wait,
        **_memory(free, properties.total_memory),
        **_randomness(device),
    }
    answers = {name: _own(value) for name, value in answers.items()}
    owners = [module, *(inner for name in _PARTS if isinstance(inner := getattr(module, name, None), ModuleType))]
    found = [(owner, name, value) for owner in owners for name, value in answers.items() if owner is module or hasattr(owner, name)]
    found += [(module, name, missing(f"torch.{device.type}.{name}")) for name in _unanswered(module, answers)]
    if hasattr(module, "nvtx"):
        found += [(module.nvtx, name, _own(_nothing)) for name in ("range_push", "range_pop", "range_start", "range_end", "mark")]
        found.append((module.nvtx, "range", contextlib.nullcontext))
    if hasattr(module, "profiler"):
        found += [(module.profiler, name, _own(_nothing)) for name in ("init", "start", "stop")]
    found += _accelerator(device, answers)
    found += [(torch.version, name, version) for name, version in card.torch_version.items()]
    allocators: Any = torch._C._dynamo.guards  # what torch.compile writes calls them, and authors keep such code
    if hasattr(allocators, allocate := f"_empty_strided_{device.type}"):
        found.append((allocators, allocate, functools.partial(_empty_strided, device)))
    if device.type == "cuda":
        found.append((torch._C, "_cuda_getCurrentRawStream", _always(0)))
        found += [(torch._C, name, _nothing) for name in ("_cuda_setStream", "_cuda_setDevice", "_cuda_clearCublasWorkspaces")]
    return found


def _empty_strided(device: torch.device, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def apply(changes: Iterable[Patch], undo: contextlib.ExitStack) -> None:
    """Set each attribute until `undo` is closed."""
    for owner, name, value in changes:
        if hasattr(owner, name):
            undo.callback(setattr, owner, name, getattr(owner, name))
        else:
            undo.callback(delattr, owner, name)
        setattr(owner, name, value)


_PARTS = ("memory", "random", "streams", "graphs")
_SILENT = (
    "set_device",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
    "_sleep",
    "_record_memory_history",
    "_dump_snapshot",
)
_SIZES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "device_memory_used",
)


def _memory(free: int, total: int) -> dict[str, object]:
    """Nothing is allocated on a card that is not there."""
    stats = ("memory_stats", "memory_stats_as_nested_dict", "host_memory_stats", "host_memory_stats_as_nested_dict")
    return {
        "get_sync_debug_mode": _always(0),
        **{name: _made_up(int) for name in _SIZES},
        **{name: _made_up(lambda: defaultdict(int)) for name in stats},
        "mem_get_info": _always((free, total)),
        "memory_summary": _always(""),
        "memory_snapshot": _always([]),
        "_snapshot": lambda *args, **kwargs: {"segments": [], "device_traces": [[]]},
        "get_per_process_memory_fraction": _always(1.0),
    }


def _made_up(answer: Callable[[], object]) -> Callable[..., object]:
    """Return a function of a made-up answer, and note that a test has asked."""

    def answered(*args: object, **kwargs: object) -> object:
        Pretended.memory = True
        return answer()

    return answered


def _randomness(device: torch.device) -> dict[str, object]:
    """The card's random numbers are the host's."""
    generator = CardGenerator(torch.device(device.type, 0), torch.default_generator)
    return {
        "manual_seed": lambda seed: generator.manual_seed(int(seed)) and None,
        "manual_seed_all": lambda seed: generator.manual_seed(int(seed)) and None,
        "seed": lambda: generator.seed() and None,
        "seed_all": lambda: generator.seed() and None,
        "initial_seed": lambda: generator.initial_seed(),
        "get_rng_state": lambda device=None: generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda state, device=None: generator.set_state(state) and None,
        "set_rng_state_all": lambda states: generator.set_state(states[0]) and None,
        "default_generators": (generator,),
    }


def _accelerator(device: torch.device, answers: dict[str, object]) -> list[Patch]:
    kind = torch.device(device.type)
    same = ("is_available", "device_count", "synchronize", "current_stream", "empty_cache", *_SIZES, *_SILENT, "memory_stats")
    values = {
        **{name: answers[name] for name in same},
        "current_accelerator": lambda check_available=False: kind,
        "current_device_index": _always(0),
        "current_device_idx": _always(0),
        "set_device_index": _nothing,
        "set_device_idx": _nothing,
        "device_index": DeviceGuard,
        "set_stream": answers["set_stream"],
        "get_memory_info": answers["mem_get_info"],
        "empty_host_cache": _nothing,
    }
    return [(torch.accelerator, name, _own(value)) for name, value in values.items() if hasattr(torch.accelerator, name)]


def _unanswered(module: ModuleType, answers: dict[str, object]) -> list[str]:
    """Return torch's functions that would ask a real card, and that have no answer here."""
    public = [(name, getattr(module, name, None)) for name in getattr(module, "__all__", ())]
    return [name for name, value in public if name not in answers and isinstance(value, FunctionType) and "_C" in value.__code__.co_names]


def missing(name: str) -> Callable[..., object]:
    """Return a function that refuses to do what a real card can."""

    def refuse(*args: object, **kwargs: object) -> object:
        raise NotPretended(f"the pretended card has no {name}")

    return refuse


def _own(value: object) -> object:
    """Return a copy of a function: torch's compiler has rules by function, and one that stands in for several would have several."""
    if not isinstance(value, FunctionType):
        return value
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__)


def _always(value: object) -> Callable[..., object]:
    return lambda *args, **kwargs: value


def _nothing(*args: object, **kwargs: object) -> None:
    """Do nothing: there is no card to do it on."""


def _properties(card: Architecture, capability: object) -> SimpleNamespace:
    """What `get_device_properties` of torch's module returns: its names on the two vendors that share `torch.cuda`."""
    known = card.properties
    major, minor = capability if isinstance(capability, tuple) else (0, 0)
    from_triton = {
        "name": card.name,
        "gcnArchName": card.torch_properties.get("name", card.name),
        "major": major,
        "minor": minor,
        "multi_processor_count": known["multiprocessor_count"],
        "warp_size": card.warp_size,
        "shared_memory_per_block": known["max_shared_mem"],
        "shared_memory_per_block_optin": known["max_shared_mem"],
        "shared_memory_per_multiprocessor": known["max_shared_mem"],
        "regs_per_multiprocessor": known.get("max_num_regs", 0),
        "max_threads_per_multi_processor": known.get("max_threads_per_sm", 0),
        "max_threads_per_block": card.program_threads,
        "L2_cache_size": 0,
        "total_memory": _MEMORY_BYTES,
        "is_integrated": 0,
        "is_multi_gpu_board": 0,
    }
    return SimpleNamespace(**{**from_triton, **card.torch_properties})
