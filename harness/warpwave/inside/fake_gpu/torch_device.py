"""What torch has for a type of device, replaced while a card of that type is pretended: `torch.cuda`, `torch.accelerator` and their kin."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

from warpwave.inside.fake_gpu import streams
from warpwave.inside.fake_gpu.accelerator import Properties, bindings, more_properties
from warpwave.inside.fake_gpu.allocated import memory_answers
from warpwave.inside.fake_gpu.host_side import is_meta, put_on_host
from warpwave.inside.process.outcomes import NeedsCard, NotPretended
from warpwave.records import Architecture

# Generators of random numbers on a pretended card: the numbers are the host's, the state is a card's.
#
# A card's state has 16 bytes, a seed and an offset. Packages read both from it, and write it back with a larger offset, so that a kernel
# draws numbers of its own (`tl.rand(seed, …)`).

_STEP = 4  # a card's offset counts in fours
_BYTES = 16
_MOST_STATES = 1024
_Generator: Any = torch.Generator


class _States:
    """Which state of a generator on the host stands for a seed and an offset."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.known: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self.begin(host.initial_seed())

    def begin(self, seed: int) -> None:
        """Start at a seed that the host's generator has just been given."""
        self.place, self.last, self.host_seed = (_signed(seed), 0), self.host.get_state(), self.host.initial_seed()

    def save(self) -> tuple[int, int]:
        """Return the seed and the offset of now. What was drawn since the last call moves the offset."""
        now = self.host.get_state()
        if self.host.initial_seed() != self.host_seed:
            self.begin(self.host.initial_seed())
        elif now.numpy().tobytes() != self.last.numpy().tobytes():  # `torch.equal` has no answer without data
            self.place, self.last = (self.place[0], self.place[1] + _STEP), now
        self.known[self.place] = self.last
        while len(self.known) > _MOST_STATES:
            self.known.popitem(last=False)
        return self.place

    def restore(self, place: tuple[int, int]) -> None:
        """Go on from a seed and an offset: where the numbers after them were drawn before, the same come again."""
        known = self.known.get(place)
        if known is None:
            self.host.manual_seed(hash(place) if place[1] else place[0])
        else:
            self.host.set_state(known)
        self.place, self.last, self.host_seed = place, self.host.get_state(), self.host.initial_seed()


class _Own:
    """A generator's methods as torch has them."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __getattr__(self, name: str) -> Any:
        return getattr(_Generator, name).__get__(self.generator)


class CardGenerator(_Generator):  # type: ignore[misc]
    """A generator that says that it is on a card. With `host`, the numbers are that one's: the card's default generator."""

    def __new__(cls, device: torch.device, host: Any = None) -> Any:  # noqa: D102
        return super().__new__(cls)

    def __init__(self, device: torch.device, host: Any = None) -> None:
        self.asked, self.is_default, self.host = device, host is not None, host or _Own(self)
        with torch._C.DisableTorchFunction():
            self.states = _States(self.host)

    @property
    def device(self) -> torch.device:  # noqa: D102
        return self.asked

    def manual_seed(self, seed: int) -> Any:  # noqa: D102
        self.host.manual_seed(int(seed))
        self.states.begin(int(seed))
        return self

    def seed(self) -> int:  # noqa: D102
        self.states.begin(self.host.seed())
        return self.initial_seed()

    def initial_seed(self) -> int:  # noqa: D102
        return self._place()[0] % (1 << 64)

    def get_state(self) -> torch.Tensor:
        """Return the 16 bytes, on the host."""
        seed, offset = self._place()
        with torch._C.DisableTorchFunction():
            return put_on_host(torch.tensor([seed, offset], dtype=torch.int64, device="cpu").view(torch.uint8))

    def set_state(self, state: torch.Tensor) -> Any:
        """Continue from the 16 bytes that `get_state` returned."""
        with torch._C.DisableTorchFunction():
            if is_meta(state) or state.dtype is not torch.uint8:
                raise TypeError("RNG state must be a torch.ByteTensor")
            if state.numel() != _BYTES:
                raise RuntimeError("RNG state is wrong size")
            seed, offset = state.contiguous().view(torch.int64).tolist()
            self.states.restore((seed, offset))
        return self

    def get_offset(self) -> int:  # noqa: D102
        return self._place()[1]

    def set_offset(self, offset: int) -> None:  # noqa: D102
        with torch._C.DisableTorchFunction():
            self.states.restore((self.states.save()[0], int(offset)))

    def clone_state(self) -> Any:  # noqa: D102
        return CardGenerator(self.asked).set_state(self.get_state())

    graphsafe_get_state, graphsafe_set_state = clone_state, lambda self, other: self.set_state(other.get_state())

    def _place(self) -> tuple[int, int]:
        with torch._C.DisableTorchFunction():
            return self.states.save()


def generator_type(kinds: Iterable[str]) -> type:
    """Return what stands in for `torch.Generator`, where devices of these types are pretended."""
    named = tuple(kinds)

    class AnyGenerator(type(_Generator)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Generator)

    class Generator(_Generator, metaclass=AnyGenerator):  # type: ignore[misc]
        """torch's generator on the host, or one of the pretended card."""

        def __new__(cls, device: Any = "cpu") -> Any:
            kind, _, index = str(device).partition(":")
            if kind in named or isinstance(device, int):
                return CardGenerator(torch.device(kind if kind in named else named[0], int(index or 0)))
            return _Generator(device)

    return Generator


def of_host(options: dict[str, Any]) -> None:
    """Take the card's default generator out of the arguments of a call of torch: its numbers are those of torch's own default."""
    if getattr(options.get("generator"), "is_default", False):
        options["generator"] = None


def advance(generator: Any) -> None:
    """Move a generator on, where numbers are asked for that are not drawn."""
    if generator is not None:
        with torch._C.DisableTorchFunction():
            torch.empty(1, device="cpu").uniform_(generator=generator)


def _signed(seed: int) -> int:
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)


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
        "get_sync_debug_mode": _always(0),
        **memory_answers(free, properties.total_memory),
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
    found += [*_accelerator(device, answers), *bindings(card, device, answers)]
    found += [(torch.version, name, version) for name, version in card.torch_version.items()]
    allocators: Any = torch._C._dynamo.guards  # what torch.compile writes calls them, and authors keep such code
    if hasattr(allocators, allocate := f"_empty_strided_{device.type}"):
        found.append((allocators, allocate, functools.partial(_empty_strided, device)))
    found += [(torch.UntypedStorage, name, _no_handle) for name in ("_share_cuda_", "_new_shared_cuda")]
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
    "ipc_collect",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
    "_sleep",
    "_record_memory_history",
    "_dump_snapshot",
)
_RESETS = ("reset_peak_memory_stats", "reset_accumulated_memory_stats")
_SIZES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


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
    same = ("is_available", "device_count", "synchronize", "current_stream", "empty_cache", *_SIZES, *_SILENT, "memory_stats", *_RESETS)
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


def _no_handle(*args: object, **kwargs: object) -> object:
    """Refuse to share memory of the card, or to take it from a process that has."""
    raise NeedsCard("a handle for another process (IPC) needs a card: its driver makes it")


def _own(value: object) -> object:
    """Return a copy of a function: torch's compiler has rules by function, and one that stands in for several would have several."""
    if not isinstance(value, FunctionType):
        return value
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__)


def _always(value: object) -> Callable[..., object]:
    return lambda *args, **kwargs: value


def _nothing(*args: object, **kwargs: object) -> None:
    """Do nothing: there is no card to do it on."""


def _properties(card: Architecture, capability: object) -> Properties:
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
    return Properties(**{**from_triton, **more_properties(card), **card.torch_properties})


# Autocast as a card has it: what it computes in fp32, and its state where the tensors are on the CPU.

# From torch's documentation of automatic mixed precision: what autocasts to fp32 on a GPU.
_NAMES_IN_FP32 = """
__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss
cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log
log10 log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist
poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm tan
triplet_margin_loss
"""
_IN_FP32 = frozenset(_NAMES_IN_FP32.split())


def in_fp32(name: str, args: Any, kwargs: Any, kind: str, is_on_card: Callable[[torch.Tensor], bool]) -> tuple[Any, Any]:
    """Return the arguments of a call, in fp32 where a card's autocast computes in it. The CPU's autocast has another list.

    Args:
        name: The function of torch.
        kind: The type of device that the card has.
    """

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            is_low = value.dtype in (torch.float16, torch.bfloat16) and is_on_card(value)
            return value.to(torch.float32) if is_low else value
        if isinstance(value, dict):
            return {key: wide(entry) for key, entry in value.items()}
        return tuple(map(wide, value)) if type(value) is tuple else value

    named = any(kwargs.get(option) is not None for option in ("dtype", "out"))  # torch.nn.functional passes dtype=None
    if name not in _IN_FP32 or named or not torch.is_autocast_enabled(kind):
        return args, kwargs
    return wide(args), wide(kwargs)


def of_card(kinds: Sequence[str]) -> list[Patch]:
    """Return what makes autocast for a GPU one for the CPU, too: that is where the tensors are.

    torch keeps a state for each type of device, also where there is none, so its own questions have the right answers.
    """
    autocast: Any = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__
    open_ones: list[Any] = []

    def begin(self: Any) -> Any:
        if self.device in kinds:
            open_ones.append(autocast("cpu", dtype=self.fast_dtype, enabled=self._enabled))
            enter(open_ones[-1])
        return enter(self)

    def end(self: Any, *raised: Any) -> Any:
        result = leave(self, *raised)
        if self.device in kinds:
            leave(open_ones.pop(), *raised)
        return result

    return [(autocast, "__enter__", begin), (autocast, "__exit__", end)]
