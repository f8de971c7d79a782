"""The vendors' management libraries and tools for the pretended card, which packages ask before torch: it would make a context.

On a card of NVIDIA: NVML, as the module `pynvml` (the package nvidia-ml-py, or a stand-in if that is not installed), as the C library that
`ctypes` opens, and as `nvidia-smi`. On a card of AMD: the module `amdsmi`, and `rocm-smi`. They answer what torch says of the card: its
name, memory, capability and number. What else is asked is not pretended, and the error names the function.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import enum
import json
import os
import shlex
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from warpwave.inside.fake_gpu import smi
from warpwave.inside.fake_gpu.accelerator import PCI_BUS, UUID
from warpwave.inside.fake_gpu.allocated import ALLOCATED
from warpwave.inside.process.lacking import is_near
from warpwave.inside.process.outcomes import NotPretended
from warpwave.records import Architecture

_DRIVER = "580.65.06"
_NVML = "nvidia-ml"  # as `ctypes.util.find_library` is asked for it
_HANDLE = 0x7761  # of the only card; any address but 0
_INVALID = 2  # NVML's return code for an argument


@dataclass(frozen=True)
class Facts:
    """What torch says of the card."""

    name: str
    architecture: str
    capability: tuple[int, int]
    total_memory: int
    runtime: str
    sm_mhz: int
    memory_mhz: int
    bus_bits: int

    @property
    def used_memory(self) -> int:
        """The bytes that torch has of it."""
        return ALLOCATED.reserved.current

    def as_json(self) -> str:
        """Return the facts for a program, as they are now."""
        known = {**vars(self), "used_memory": self.used_memory, "uuid": f"GPU-{UUID}", "driver": _DRIVER, "bus": PCI_BUS}
        return json.dumps(known)


def pretend_tools(card: Architecture, properties: Any, capability: object, undo: contextlib.ExitStack) -> None:
    """Let the tools of the card's vendor answer until `undo` is closed; those of another vendor are not there.

    Args:
        card: The pretended card.
        properties: What torch's `get_device_properties` answers.
        capability: What torch's `get_device_capability` answers.
        undo: Takes what undoes it.
    """
    version = capability if isinstance(capability, tuple) else (0, 0)
    known = card.properties
    clocks = known.get("sm_clock_rate", 0) // 1000, known.get("mem_clock_rate", 0) // 1000
    runtime = next(iter(card.torch_version.values()), "")
    facts = Facts(properties.name, card.name, version, properties.total_memory, runtime, *clocks, known.get("mem_bus_width", 0))
    if "cuda" in card.torch_version:
        _put_program("nvidia-smi", facts, undo)
        _open_nvml(facts, undo)
        _find("pynvml", lambda: Nvml(facts), undo, shadow=False)
    elif "hip" in card.torch_version:
        _put_program("rocm-smi", facts, undo)
        _find("amdsmi", lambda: Amdsmi(facts), undo, shadow=True)


def _put_program(name: str, facts: Facts, undo: contextlib.ExitStack) -> None:
    """Put a program before all others on the path. Its numbers are those of now: another process cannot ask this one."""
    folder = Path(tempfile.mkdtemp(prefix="warpwave-tools-"))
    words = [sys.executable, "-I", "-S", smi.__file__, name, facts.as_json()]
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(folder), before])
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    undo.callback(os.environ.__setitem__, "PATH", before)


# The modules that are not installed.


def _find(name: str, make: Callable[[], ModuleType], undo: contextlib.ExitStack, *, shadow: bool) -> None:
    """Let a module be imported that is not installed; with `shadow`, also in place of one that is, which needs the driver."""
    finder = _Finder(name, make, shadow)
    sys.meta_path.insert(0, finder)
    undo.callback(sys.meta_path.remove, finder)
    undo.callback(lambda: sys.modules.pop(name) if isinstance(sys.modules.get(name), _StandIn) else None)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, name: str, make: Callable[[], ModuleType], shadow: bool) -> None:
        self.name, self.make, self.shadow = name, make, shadow

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the stand-in's spec, if nothing else has this name."""
        if name != self.name or (not self.shadow and PathFinder.find_spec(name)):
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the stand-in."""
        return self.make()

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it is whole."""


class _StandIn(ModuleType):
    """A module of which a part answers. A function of the library that does not is there, and refuses when it is called."""

    prefix: str = ""
    failure: type[Exception] = Exception

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or any(is_near(name, other) for other in dir(self)):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name, obj=self)
        if name.startswith(self.failure.__name__.removesuffix("Exception")) and name[0].isupper():
            made = type(name, (self.failure,), {})
            setattr(self, name, made)
            return made
        if not name.startswith(self.prefix):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name, obj=self)
        return _refusing(f"{self.__name__}.{name}")


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: object, **kwargs: object) -> Any:
        raise NotPretended(f"the pretended card has no answer to {name}")

    return refuse


class NVMLError(Exception):
    """What `pynvml` raises."""

    def __init__(self, value: int = 999) -> None:
        super().__init__(f"error {value} of NVML")
        self.value = value


class Nvml(_StandIn):
    """`pynvml` where the package is not installed."""

    prefix, failure = "nvml", NVMLError
    NVMLError = NVMLError
    NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND = 0, _INVALID, 3, 6
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2, 0

    def __init__(self, facts: Facts) -> None:
        super().__init__("pynvml")
        self._facts = facts
        answers = _nvml_answers(facts)
        for name, answer in answers.items():
            setattr(self, name, _checked(answer))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        """Return the handle of the card."""
        if int(index) != 0:
            raise NVMLError(_INVALID)
        return _HANDLE

    def nvmlDeviceGetHandleByUUID(self, uuid: Any) -> int:  # noqa: N802
        """Return the handle of the card."""
        if (uuid.decode() if isinstance(uuid, bytes) else uuid) != f"GPU-{UUID}":
            raise NVMLError(_INVALID)
        return _HANDLE

    def nvmlInitWithFlags(self, flags: int) -> None:  # noqa: N802
        """Do nothing."""

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: Any = None) -> SimpleNamespace:  # noqa: N802
        """Return bytes."""
        total, used = self._facts.total_memory, self._facts.used_memory
        return SimpleNamespace(total=total, used=used, free=total - used, reserved=0, version=version)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        """Return where the card is."""
        return SimpleNamespace(busId=PCI_BUS, busIdLegacy=PCI_BUS[4:], domain=0, bus=1, device=0, pciDeviceId=0, pciSubSystemId=0)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        """Return MHz."""
        return self._facts.memory_mhz if kind == self.NVML_CLOCK_MEM else self._facts.sm_mhz


def _checked(answer: Any) -> Callable[..., Any]:
    return lambda handle=None: answer


def _nvml_answers(facts: Facts) -> dict[str, Any]:
    """Return the answers that depend on no argument: `None`, an integer, a pair of integers or a text."""
    major, _, minor = facts.runtime.partition(".")
    return {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": _DRIVER,
        "nvmlSystemGetNVMLVersion": f"13.{_DRIVER}",
        "nvmlSystemGetCudaDriverVersion": int(major or 0) * 1000 + int(minor or 0) * 10,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetIndex": 0,
        "nvmlDeviceGetMinorNumber": 0,
        "nvmlDeviceGetName": facts.name,
        "nvmlDeviceGetUUID": f"GPU-{UUID}",
        "nvmlDeviceGetCudaComputeCapability": facts.capability,
        "nvmlDeviceGetMemoryBusWidth": facts.bus_bits,
        "nvmlDeviceGetMigMode": (0, 0),
    }


# The C library, which `pynvml` and others open with `ctypes`.


def _open_nvml(facts: Facts, undo: contextlib.ExitStack) -> None:
    """Let `ctypes` open NVML, and find it."""
    begin, find = ctypes.CDLL.__init__, ctypes.util.find_library

    def opened(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        if Path(str(name)).name.startswith(f"lib{_NVML}.so"):
            self.__class__, self._name, self._handle, self.facts = NvmlLibrary, name, 0, facts
        else:
            begin(self, name, *args, **kwargs)

    changes: tuple[tuple[Any, str, Any], ...] = (
        (ctypes.CDLL, "__init__", opened),
        (ctypes.util, "find_library", lambda name: f"lib{_NVML}.so.1" if name == _NVML else find(name)),
    )
    for owner, name, value in changes:
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


class NvmlLibrary(ctypes.CDLL):
    """What `ctypes` opens: its functions write their answers where their arguments point, and return a code."""

    facts: Facts

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(f"{self._name}: undefined symbol: {name}")
        function = _Function(self.facts, name)
        setattr(self, name, function)
        return function

    __getitem__ = __getattr__


class _Function:
    """A function of the library. A caller may set its types, which say nothing new here."""

    argtypes: Any = None
    restype: Any = ctypes.c_int
    errcheck: Any = None

    def __init__(self, facts: Facts, name: str) -> None:
        self.__name__, self.facts = name, facts
        self.name, _, self.version = name.partition("_v")

    def __call__(self, *args: Any) -> Any:
        facts, name = self.facts, self.name
        if name == "nvmlErrorString":
            return b"an error of NVML"
        if name == "nvmlInitWithFlags":
            return 0
        if name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId"):
            if name.endswith("Index") and _number(args[0]) != 0:
                return _INVALID
            return _write(args[1], struct.pack("P", _HANDLE))
        if name == "nvmlDeviceGetMemoryInfo":
            total, used = facts.total_memory, facts.used_memory
            if self.version:  # a version number, which the caller has set, and the reserved bytes come first
                return _write(args[1], struct.pack("QQQQ", total, 0, total - used, used), after=8)
            return _write(args[1], struct.pack("QQQ", total, total - used, used))
        if name == "nvmlDeviceGetPciInfo":
            return _write(args[1], struct.pack("16s5I32s", PCI_BUS[4:].encode(), 0, 1, 0, 0, 0, PCI_BUS.encode()))
        if name == "nvmlDeviceGetMaxClockInfo":
            mhz = facts.memory_mhz if _number(args[1]) == Nvml.NVML_CLOCK_MEM else facts.sm_mhz
            return _write(args[2], struct.pack("I", mhz))
        return self._plain(_nvml_answers(facts), args)

    def _plain(self, answers: dict[str, Any], args: Any) -> int:
        if self.name not in answers:
            raise NotPretended(f"the pretended card has no answer to NVML's {self.__name__}")
        answer = answers[self.name]
        if answer is None:
            return 0
        if isinstance(answer, str):  # a buffer, and behind it its length
            text = answer.encode()[: max(0, _number(args[-1]) - 1)]
            return _write(args[-2], text + b"\0")
        numbers = answer if isinstance(answer, tuple) else (answer,)
        for place, number in zip(args[-len(numbers) :], numbers, strict=True):
            _write(place, struct.pack("i", number))
        return 0


def _write(place: Any, data: bytes, after: int = 0) -> int:
    """Write to where an argument points: `byref`, a pointer, an array or an address."""
    if (target := getattr(place, "_obj", None)) is not None:
        address = ctypes.addressof(target)
    else:
        address = place if isinstance(place, int) else ctypes.cast(place, ctypes.c_void_p).value or 0
    ctypes.memmove(address + after, data, len(data))
    return 0


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


class AmdSmiException(Exception):  # noqa: N818 - the library's name
    """What `amdsmi` raises."""


class Amdsmi(_StandIn):
    """`amdsmi`, which needs the driver even to be imported."""

    prefix, failure = "amdsmi", AmdSmiException
    AmdSmiException = AmdSmiException
    AmdSmiInitFlags = enum.IntEnum("AmdSmiInitFlags", {"INIT_ALL_PROCESSORS": 0xFFFFFFFF, "INIT_AMD_CPUS": 1, "INIT_AMD_GPUS": 2})
    AmdSmiMemoryType = enum.IntEnum("AmdSmiMemoryType", {"VRAM": 0, "VIS_VRAM": 1, "GTT": 2})

    def __init__(self, facts: Facts) -> None:
        super().__init__("amdsmi")
        mib = facts.total_memory >> 20
        asic = {"market_name": facts.name, "vendor_id": 0x1002, "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]", "device_id": 0}
        answers: dict[str, Callable[[], Any]] = {
            "init": lambda: None,
            "shut_down": lambda: None,
            "get_processor_handles": lambda: [_HANDLE],
            "get_socket_handles": lambda: [_HANDLE],
            "get_gpu_asic_info": lambda: {**asic, "target_graphics_version": facts.architecture, "asic_serial": UUID},
            "get_gpu_board_info": lambda: {"product_name": facts.name, "manufacturer_name": "AMD", "model_number": "", "fru_id": ""},
            "get_gpu_vram_info": lambda: {"vram_type": "HBM", "vram_vendor": "N/A", "vram_size": mib, "vram_bit_width": facts.bus_bits},
            "get_gpu_vram_usage": lambda: {"vram_total": mib, "vram_used": facts.used_memory >> 20},
            "get_gpu_memory_total": lambda: facts.total_memory,
            "get_gpu_memory_usage": lambda: facts.used_memory,
            "get_gpu_device_uuid": lambda: UUID,
            "get_gpu_device_bdf": lambda: PCI_BUS[4:],
            "get_gpu_id": lambda: 0,
            "get_lib_version": lambda: {"year": 25, "major": 26, "minor": 0, "release": 0},
            "get_rocm_version": lambda: (True, facts.runtime),
            "get_gpu_driver_info": lambda: {"driver_name": "amdgpu", "driver_version": _DRIVER},
        }
        for name, answer in answers.items():
            setattr(self, f"amdsmi_{name}", _answering(answer))


def _answering(answer: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer()
