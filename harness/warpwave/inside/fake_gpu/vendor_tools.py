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
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from warpwave.inside.fake_gpu import smi
from warpwave.inside.fake_gpu.allocated import ALLOCATED
from warpwave.inside.fake_gpu.torch_device import PCI_BUS, UUID, apply, missing
from warpwave.inside.process.lacking import is_near
from warpwave.inside.process.outcomes import Pretended
from warpwave.records import Architecture

_DRIVER = "580.65.06"
_NVML = "nvidia-ml"  # as `ctypes.util.find_library` is asked for it
_HANDLE = 0x7761  # of the only card; any address but 0
_INVALID = 2  # NVML's return code for an argument
_CLOCK_MEM = 2


def pretend_tools(card: Architecture, properties: Any, capability: object, undo: contextlib.ExitStack) -> None:
    """Let the tools of the card's vendor answer until `undo` is closed; those of another vendor are not there.

    `properties` and `capability` are what torch's `get_device_properties` and `get_device_capability` answer.
    """
    version, runtime = capability if isinstance(capability, tuple) else (0, 0), next(iter(card.torch_version.values()), "")
    name, total = properties.name, properties.total_memory
    if "cuda" in card.torch_version:
        clocks = [card.properties.get(name, 0) // 1000 for name in ("sm_clock_rate", "mem_clock_rate")]
        nvml = _nvml(name, total, version, clocks, runtime, card.properties.get("mem_bus_width", 0))
        _put_program("nvidia-smi", _nvidia_smi(name, total, version, clocks, runtime), undo)
        _open_nvml(nvml, undo)
        if PathFinder.find_spec("pynvml") is None:
            numbers = {"SUCCESS": 0, "ERROR_INVALID_ARGUMENT": _INVALID, "ERROR_NOT_SUPPORTED": 3, "ERROR_NOT_FOUND": 6}
            numbers |= {"CLOCK_GRAPHICS": 0, "CLOCK_SM": 1, "CLOCK_MEM": _CLOCK_MEM, "TEMPERATURE_GPU": 0}
            constants = {f"NVML_{name}": number for name, number in numbers.items()}
            functions = {name: function for name, (_, _, function) in nvml.items()}
            _StandIn("pynvml", "nvml", NVMLError, {**constants, **functions}, undo)
    elif "hip" in card.torch_version:
        undo.callback(setattr, Pretended, "without_nvml", Pretended.without_nvml)
        Pretended.without_nvml = True
        _put_program("rocm-smi", _rocm_smi(name, total, card.name), undo)
        answers = _amdsmi(name, total, card.name, runtime, card.properties.get("mem_bus_width", 0))
        # Also in place of one that is installed, which needs the driver even to be imported.
        _StandIn("amdsmi", "amdsmi", AmdSmiException, answers, undo)


# Programs.


def _put_program(name: str, known: Mapping[str, Any], undo: contextlib.ExitStack) -> None:
    """Put a program before all others on the path. Its numbers are those of now: another process cannot ask this one."""
    folder = Path(tempfile.mkdtemp(prefix="warpwave-tools-"))
    words = [sys.executable, "-I", "-S", smi.__file__, name, json.dumps(known)]
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(folder), before])
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    undo.callback(os.environ.__setitem__, "PATH", before)


def _nvidia_smi(name: str, total: int, capability: tuple[int, int], clocks: list[int], runtime: str) -> dict[str, str]:
    """Return what is printed for each field; for `-L`, and for nothing."""
    mib, used = total >> 20, ALLOCATED.reserved.current >> 20
    return {
        **dict.fromkeys(("name", "gpu_name"), name),
        **dict.fromkeys(("index", "minor_number"), "0"),
        "count": "1",
        **dict.fromkeys(("uuid", "gpu_uuid"), f"GPU-{UUID}"),
        "driver_version": _DRIVER,
        **dict.fromkeys(("compute_cap", "compute_capability"), ".".join(map(str, capability))),
        **dict.fromkeys(("pci.bus_id", "gpu_bus_id"), PCI_BUS),
        "memory.total": f"{mib} MiB",
        "memory.used": f"{used} MiB",
        "memory.free": f"{mib - used} MiB",
        "memory.reserved": "0 MiB",
        "clocks.max.sm": f"{clocks[0]} MHz",
        **dict.fromkeys(("clocks.max.mem", "clocks.max.memory"), f"{clocks[1]} MHz"),
        "-L": f"GPU 0: {name} (UUID: GPU-{UUID})",
        "": f"| NVIDIA-SMI {_DRIVER}   Driver Version: {_DRIVER}   CUDA Version: {runtime} |\n"
        f"|   0  {name}  |  {PCI_BUS}  |  {used}MiB / {mib}MiB  |",
    }


def _rocm_smi(name: str, total: int, architecture: str) -> dict[str, dict[str, str]]:
    vendor, used = "Advanced Micro Devices, Inc. [AMD/ATI]", ALLOCATED.reserved.current
    return {
        "--showproductname": {"Card Series": name, "Card Model": name, "Card Vendor": vendor, "GFX Version": architecture},
        "--showmeminfo": {"VRAM Total Memory (B)": str(total), "VRAM Total Used Memory (B)": str(used)},
        "--showid": {"Device Name": name},
        "--showuniqueid": {"Unique ID": f"GPU-{UUID}"},
        "--showbus": {"PCI Bus": PCI_BUS},
        "--showdriverversion": {"Driver version": _DRIVER},
    }


# Modules.


class NVMLError(Exception):
    """What `pynvml` raises."""

    def __init__(self, value: int = 999) -> None:
        super().__init__(f"error {value} of NVML")
        self.value = value


class AmdSmiException(Exception):  # noqa: N818 - the library's name
    """What `amdsmi` raises."""


class _StandIn(ModuleType):
    """A module of which a part answers. A function of the library that does not is there, and refuses when it is called."""

    def __init__(self, name: str, prefix: str, failure: type[Exception], answers: Mapping[str, Any], undo: contextlib.ExitStack) -> None:
        """Let it be imported until `undo` is closed."""
        super().__init__(name)
        undo.callback(sys.modules.pop, name, None)
        sys.modules[name] = self
        self.__spec__, self._prefix, self._failure = ModuleSpec(name, None), prefix, failure
        self.__dict__.update(answers)
        setattr(self, failure.__name__, failure)

    def __getattr__(self, name: str) -> Any:
        is_misspelt = any(is_near(name, other) for other in dir(self))
        if name.startswith(self._failure.__name__.removesuffix("Exception")) and not is_misspelt:  # one of its exceptions
            setattr(self, name, made := type(name, (self._failure,), {}))
            return made
        if not name.startswith(self._prefix) or is_misspelt:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name, obj=self)
        return missing(f"{self.__name__}.{name}")


def _nvml(
    name: str, total: int, capability: tuple[int, int], clocks: list[int], runtime: str, bus_bits: int
) -> dict[str, tuple[int, str, Callable[..., Any]]]:
    """Return for each function its number of inputs, the C types of what it writes behind them, and what it answers. `s` is a text."""
    major, _, minor = runtime.partition(".")

    def only(value: Any, wanted: Any) -> int:
        if (value.decode() if isinstance(value, bytes) else value) != wanted:
            raise NVMLError(_INVALID)
        return _HANDLE

    def memory(handle: Any, version: Any = None) -> SimpleNamespace:
        used = ALLOCATED.reserved.current
        return SimpleNamespace(total=total, free=total - used, used=used, reserved=0, version=version)

    place = SimpleNamespace(busIdLegacy=PCI_BUS[4:], domain=0, bus=1, device=0, pciDeviceId=0, pciSubSystemId=0, busId=PCI_BUS)
    of_card = {
        "Index": ("I", 0),
        "MinorNumber": ("I", 0),
        "Name": ("s", name),
        "UUID": ("s", f"GPU-{UUID}"),
        "CudaComputeCapability": ("ii", capability),
        "MemoryBusWidth": ("I", bus_bits),
        "MigMode": ("II", (0, 0)),
        "PciInfo": ("16s5I32s", place),
    }
    return {
        "nvmlInit": (0, "", lambda: None),
        "nvmlInitWithFlags": (1, "", lambda flags: None),
        "nvmlShutdown": (0, "", lambda: None),
        "nvmlSystemGetDriverVersion": (0, "s", lambda: _DRIVER),
        "nvmlSystemGetNVMLVersion": (0, "s", lambda: f"13.{_DRIVER}"),
        "nvmlSystemGetCudaDriverVersion": (0, "i", lambda: int(major or 0) * 1000 + int(minor or 0) * 10),
        "nvmlDeviceGetCount": (0, "I", lambda: 1),
        "nvmlDeviceGetHandleByIndex": (1, "P", lambda index: only(int(index), 0)),
        "nvmlDeviceGetHandleByUUID": (1, "P", lambda uuid: only(uuid, f"GPU-{UUID}")),
        "nvmlDeviceGetHandleByPciBusId": (1, "P", lambda bus: _HANDLE),
        "nvmlDeviceGetMemoryInfo": (1, "QQQ", memory),
        "nvmlDeviceGetMaxClockInfo": (2, "I", lambda handle, kind: clocks[kind == _CLOCK_MEM]),
        **{f"nvmlDeviceGet{word}": (1, types, lambda handle, answer=answer: answer) for word, (types, answer) in of_card.items()},
    }


def _amdsmi(name: str, total: int, architecture: str, runtime: str, bus_bits: int) -> dict[str, Any]:
    mib, vendor = total >> 20, {"vendor_id": 0x1002, "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]", "device_id": 0}
    answers: dict[str, Any] = {
        **dict.fromkeys(("init", "shut_down")),
        "get_processor_handles": [_HANDLE],
        "get_socket_handles": [_HANDLE],
        "get_gpu_asic_info": {"market_name": name, **vendor, "target_graphics_version": architecture, "asic_serial": UUID},
        "get_gpu_board_info": {"product_name": name, "manufacturer_name": "AMD", "model_number": "", "fru_id": ""},
        "get_gpu_vram_info": {"vram_type": "HBM", "vram_vendor": "N/A", "vram_size": mib, "vram_bit_width": bus_bits},
        "get_gpu_memory_total": total,
        "get_gpu_device_uuid": UUID,
        "get_gpu_device_bdf": PCI_BUS[4:],
        "get_gpu_id": 0,
        "get_lib_version": {"year": 25, "major": 26, "minor": 0, "release": 0},
        "get_rocm_version": (True, runtime),
        "get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": _DRIVER},
    }
    return {
        **{f"amdsmi_{function}": lambda *args, answer=answer, **kwargs: answer for function, answer in answers.items()},
        "amdsmi_get_gpu_vram_usage": lambda *args, **kwargs: {"vram_total": mib, "vram_used": ALLOCATED.reserved.current >> 20},
        "amdsmi_get_gpu_memory_usage": lambda *args, **kwargs: ALLOCATED.reserved.current,
        "AmdSmiInitFlags": enum.IntEnum("AmdSmiInitFlags", {"INIT_ALL_PROCESSORS": 0xFFFFFFFF, "INIT_AMD_CPUS": 1, "INIT_AMD_GPUS": 2}),
        "AmdSmiMemoryType": enum.IntEnum("AmdSmiMemoryType", {"VRAM": 0, "VIS_VRAM": 1, "GTT": 2}),
    }


# The C library, which `pynvml` and others open with `ctypes`.


def _open_nvml(functions: Mapping[str, tuple[int, str, Callable[..., Any]]], undo: contextlib.ExitStack) -> None:
    begin, find = ctypes.CDLL.__init__, ctypes.util.find_library

    def opened(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        if Path(str(name)).name.startswith(f"lib{_NVML}.so"):
            self.__class__, self._name, self._handle, self.functions = NvmlLibrary, name, 0, functions
        else:
            begin(self, name, *args, **kwargs)

    found = ctypes.util, "find_library", lambda name: f"lib{_NVML}.so.1" if name == _NVML else find(name)
    apply([(ctypes.CDLL, "__init__", opened), found], undo)


class NvmlLibrary(ctypes.CDLL):
    """What `ctypes` opens: its functions write their answers where their arguments point, and return a code."""

    functions: Mapping[str, tuple[int, str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(f"{self._name}: undefined symbol: {name}")
        plain, _, version = name.partition("_v")
        known = self.functions.get(plain)

        def call(*args: Any) -> Any:
            return _call(*known, bool(version), args) if known else missing(f"{name} of NVML")()

        setattr(self, name, (lambda code: b"an error of NVML") if name == "nvmlErrorString" else call)
        return getattr(self, name)

    __getitem__ = __getattr__


def _call(inputs: int, types: str, function: Callable[..., Any], is_later: bool, args: tuple[Any, ...]) -> int:
    """Call a function as C does: write what it answers to where the arguments behind its inputs point, and return a code."""
    try:
        answer = function(*(getattr(value, "value", value) for value in args[:inputs]))
    except NVMLError as error:
        return error.value
    places = args[inputs:]
    if types == "s":  # a buffer, and behind it its length
        room = int(getattr(places[1], "value", places[1]))
        _write(places[0], str(answer).encode()[: max(0, room - 1)] + b"\0")
    elif types == "QQQ" and is_later:  # a version number, which the caller has set, and the reserved bytes come first
        _write(places[0], struct.pack("QQQQ", answer.total, answer.reserved, answer.free, answer.used), after=8)
    elif isinstance(answer, SimpleNamespace):
        fields = [value.encode() if isinstance(value, str) else value for value in vars(answer).values()]
        _write(places[0], struct.pack(types, *fields[: 3 if types == "QQQ" else None]))
    else:
        for place, letter, number in zip(places, types, answer if isinstance(answer, tuple) else (answer,), strict=False):
            _write(place, struct.pack(letter, number))
    return 0


def _write(place: Any, data: bytes, after: int = 0) -> None:
    """Write to where an argument points: `byref`, a pointer, an array or an address."""
    ctypes.memmove((ctypes.cast(place, ctypes.c_void_p).value or 0) + after, data, len(data))
