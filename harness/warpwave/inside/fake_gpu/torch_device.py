"""What torch has for a type of device, replaced while a card of that type is pretended: `torch.cuda`, `torch.accelerator` and their kin."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from warpwave.inside.fake_gpu.host_side import is_meta, put_on_host
from warpwave.inside.process.outcomes import NeedsCard, NotPretended, Pretended
from warpwave.records import Architecture

# Generators of random numbers on a pretended card: the numbers are the host's, the state is a card's.
#
# A card's state has 16 bytes, a seed and an offset. Packages read both from it, and write it back with a larger offset, so that a kernel
# draws numbers of its own (`tl.rand(seed, …)`).

_STEP = 4  # a card's offset counts in fours
_BYTES = 16
_MOST_STATES = 1024
_OF_HOST = ("initial_seed", "manual_seed", "seed", "get_state", "set_state")
_Generator: Any = torch.Generator


class CardGenerator(_Generator):  # type: ignore[misc]
    """A generator that says that it is on a card. With `host`, the numbers are that one's: the card's default generator.

    It remembers which state of the generator on the host stands for a seed and an offset.
    """

    def __new__(cls, device: torch.device, host: Any = None) -> Any:  # noqa: D102
        return super().__new__(cls)

    def __init__(self, device: torch.device, host: Any = None) -> None:
        self.asked, self.is_default = device, host is not None
        torchs_own = {name: getattr(_Generator, name).__get__(self) for name in _OF_HOST}
        self._host = host or SimpleNamespace(**torchs_own)
        self._known: OrderedDict[tuple[int, int], Any] = OrderedDict()
        with torch._C.DisableTorchFunction():
            self._begin(self._host.initial_seed())

    @property
    def device(self) -> torch.device:  # noqa: D102
        return self.asked

    def manual_seed(self, seed: int) -> Any:  # noqa: D102
        self._host.manual_seed(int(seed))
        self._begin(int(seed))
        return self

    def seed(self) -> int:  # noqa: D102
        self._begin(self._host.seed())
        return self.initial_seed()

    def initial_seed(self) -> int:  # noqa: D102
        return self._now()[0] % (1 << 64)

    def get_state(self) -> torch.Tensor:
        """Return the 16 bytes, on the host."""
        with torch._C.DisableTorchFunction():
            return put_on_host(torch.tensor(self._now(), dtype=torch.int64, device="cpu").view(torch.uint8))

    def set_state(self, state: torch.Tensor) -> Any:
        """Continue from the 16 bytes that `get_state` returned."""
        with torch._C.DisableTorchFunction():
            if is_meta(state) or state.dtype is not torch.uint8:
                raise TypeError("RNG state must be a torch.ByteTensor")
            if state.numel() != _BYTES:
                raise RuntimeError("RNG state is wrong size")
            seed, offset = state.contiguous().view(torch.int64).tolist()
            self._restore((seed, offset))
        return self

    def get_offset(self) -> int:  # noqa: D102
        return self._now()[1]

    def set_offset(self, offset: int) -> None:  # noqa: D102
        self._restore((self._now()[0], int(offset)))

    def clone_state(self) -> Any:  # noqa: D102
        return CardGenerator(self.asked).set_state(self.get_state())

    graphsafe_get_state, graphsafe_set_state = clone_state, lambda self, other: self.set_state(other.get_state())

    def _begin(self, seed: int) -> None:
        """Start at a seed that the host's generator has just been given."""
        self._place = (seed + (1 << 63)) % (1 << 64) - (1 << 63), 0
        self._last, self._seed = self._host.get_state(), self._host.initial_seed()

    def _now(self) -> tuple[int, int]:
        """Return the seed and the offset of now. What was drawn since the last call moves the offset."""
        with torch._C.DisableTorchFunction():
            state = self._host.get_state()
            if self._host.initial_seed() != self._seed:
                self._begin(self._host.initial_seed())
            elif state.numpy().tobytes() != self._last.numpy().tobytes():  # `torch.equal` has no answer without data
                self._place, self._last = (self._place[0], self._place[1] + _STEP), state
        self._known[self._place] = self._last
        while len(self._known) > _MOST_STATES:
            self._known.popitem(last=False)
        return self._place

    def _restore(self, place: tuple[int, int]) -> None:
        """Go on from a seed and an offset: where the numbers after them were drawn before, the same come again."""
        with torch._C.DisableTorchFunction():
            if (known := self._known.get(place)) is None:
                self._host.manual_seed(hash(place) if place[1] else place[0])
            else:
                self._host.set_state(known)
            self._place, self._last, self._seed = place, self._host.get_state(), self._host.initial_seed()


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


def advance(generator: Any) -> None:
    """Move a generator on, where numbers are asked for that are not drawn."""
    if generator is not None:
        with torch._C.DisableTorchFunction():
            torch.empty(1, device="cpu").uniform_(generator=generator)


# What stands in torch's module of the device.

# An attribute of something, and what it is while a card is pretended.
Patch = tuple[Any, str, Any]


def apply(changes: Iterable[Patch], undo: contextlib.ExitStack) -> None:
    """Set each attribute until `undo` is closed."""
    for owner, name, value in changes:
        if hasattr(owner, name):
            undo.callback(setattr, owner, name, getattr(owner, name))
        else:
            undo.callback(delattr, owner, name)
        setattr(owner, name, value)


def follow_in_compiler(device: torch.device, undo: contextlib.ExitStack) -> None:
    """Let torch's compiler ask the pretended device, if it was imported before: it copies functions of torch's module of the device."""
    compiler: Any = sys.modules.get("torch._dynamo.device_interface")
    with contextlib.suppress(NotImplementedError):  # of a type that it does not know
        interface = compiler.get_interface_for_device(device.type) if compiler else None
        of_torch = getattr(torch, device.type, None)
        for name, before in list(vars(interface).items()) if interface else ():
            copied, now = getattr(before, "__func__", before), getattr(of_torch, name, None)
            # What the compiler defines itself calls torch's module.
            if now is None or copied is now or getattr(copied, "__module__", "") in (None, compiler.__name__) or name.startswith("__"):
                continue
            undo.callback(setattr, interface, name, before)
            setattr(interface, name, staticmethod(now) if isinstance(before, staticmethod) else now)


def around(function: Callable[..., Any], before: Any) -> Callable[..., Any]:
    """Return what calls a function in the place of another one, with that as the first argument."""

    @functools.wraps(before, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(before, *args, **kwargs)

    return call


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


def always(value: object) -> Callable[..., object]:
    """Return a function that returns a value, whatever it is given."""
    return lambda *args, **kwargs: value


def nothing(*args: object, **kwargs: object) -> None:
    """Do nothing: there is no card to do it on."""


class DeviceGuard:
    """Stand in for `torch.cuda.device` and `device_of`: there is one device, and it is the current one."""

    def __init__(self, device: object = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> DeviceGuard:
        return self

    __exit__ = nothing


class Runtime:
    """Stand in for the vendor's runtime, which packages call to mark what a profiler should record: each call succeeds."""

    def __init__(self, memory: object) -> None:
        self.cudaMemGetInfo = memory

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: 0


# What is measured: no answer could be pretended.
_MEASURED = re.compile(r"power_?(usage|draw|info)|temp|clock|utili[sz]ation|fan_?speed|energy|throughput|activity", re.IGNORECASE)


def missing(name: str) -> Callable[..., object]:
    """Return a function that refuses to do what a real card can."""

    def refuse(*args: object, **kwargs: object) -> object:
        if _MEASURED.search(name):
            raise NeedsCard(f"{name} is measured, and needs a card")
        raise NotPretended(f"the pretended card has no {name}")

    return refuse


# What packages read from torch's profiler.
_OF_PROFILER = ("key_averages", "events", "export_chrome_trace", "cuda_time_total", "device_time_total", "self_device_time_total")


def profiling(enter: Callable[..., Any], profile: Any) -> Any:
    """Begin a profile, and note that what it says of kernels needs a card."""
    Pretended.asked.update(_OF_PROFILER)
    return enter(profile)


def is_built() -> bool:
    """Return whether torch is built for cards: yes to a package. torch's own code would import what only such a build has."""
    return not sys._getframe(1).f_globals.get("__name__", "").startswith("torch.")


def only_card(device: object = 0) -> None:
    """Refuse any card but the first, which is the only one. It is a RuntimeError, as a driver's."""
    index = str(device).rpartition(":")[2] if isinstance(device, (str, torch.device)) else str(device)
    if index.isdigit() and int(index) > 0:
        raise NotPretended(f"one card is pretended, and this asks for card {index}")


def no_handle(*args: object, **kwargs: object) -> object:
    """Refuse to share memory of the card, or to take it from a process that has."""
    raise NeedsCard("a handle for another process (IPC) needs a card: its driver makes it")


def own(value: object) -> object:
    """Return a copy of a function: torch's compiler has rules by function, and one that stands in for several would have several."""
    if not isinstance(value, FunctionType):
        return value
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__)


UUID = "00000000-7761-7270-7761-766500000000"
PCI_BUS = "00000000:01:00.0"


def properties(card: Architecture, capability: object) -> SimpleNamespace:
    """Return what `get_device_properties` returns: its names on the two vendors that share `torch.cuda`. Clocks are in kHz."""
    known = card.properties
    major, minor = capability if isinstance(capability, tuple) else (0, 0)
    from_triton = {
        "name": card.name,
        "gcnArchName": card.torch_properties.get("name", card.name),
        "major": major,
        "minor": minor,
        "multi_processor_count": known["multiprocessor_count"],
        "warp_size": card.warp_size,
        **{f"shared_memory_per_{unit}": known["max_shared_mem"] for unit in ("block", "block_optin", "multiprocessor")},
        "regs_per_multiprocessor": known.get("max_num_regs", 0),
        "max_threads_per_multi_processor": known.get("max_threads_per_sm", 0),
        "max_threads_per_block": card.program_threads,
        "total_memory": 64 << 30,
        "clock_rate": known.get("sm_clock_rate", 0),
        "memory_clock_rate": known.get("mem_clock_rate", 0),
        "memory_bus_width": known.get("mem_bus_width", 0),
        "uuid": UUID,
        "pci_bus_id": 1,
        **dict.fromkeys(("L2_cache_size", "is_integrated", "is_multi_gpu_board", "pci_domain_id", "pci_device_id"), 0),
    }
    return SimpleNamespace(**{**from_triton, **card.torch_properties})


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
    """Return the arguments of a call of the torch function `name`, in fp32 where autocast of a card of this `kind` computes in it.

    The CPU's autocast has another list.
    """

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.float32) if tensor.dtype in (torch.float16, torch.bfloat16) and is_on_card(tensor) else tensor

    named = any(kwargs.get(option) is not None for option in ("dtype", "out"))  # torch.nn.functional passes dtype=None
    if name not in _IN_FP32 or named or not torch.is_autocast_enabled(kind):
        return args, kwargs
    changed: tuple[Any, Any] = tree_map_only(torch.Tensor, wide, (args, kwargs))
    return changed


def on_cpu_too(kinds: Sequence[str], enter_or_leave: Callable[..., Any], context: Any, *raised: Any) -> Any:
    """Let autocast for a GPU of any of these types be one for the CPU, too: that is where the tensors are.

    torch keeps a state for each type of device, also where there is none, so its own questions have the right answers.
    """
    is_of_gpu, leaves = context.device in kinds, bool(raised)
    if is_of_gpu and not leaves:
        context._of_cpu = torch.amp.autocast_mode.autocast("cpu", dtype=context.fast_dtype, enabled=context._enabled)
        enter_or_leave(context._of_cpu)
    result = enter_or_leave(context, *raised)
    if is_of_gpu and leaves:
        enter_or_leave(context._of_cpu, *raised)
    return result
