"""What packages ask of the vendors' libraries and tools before they ask torch: they answer for the card that torch pretends."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.config.targets import load_targets
from warpwave.inside.fake_gpu.vendor_tools import pretend_tools
from warpwave.inside.process.outcomes import NeedsCard, NotPretended, why_not_run
from warpwave.records import NotRun

GIB = 1 << 30


@pytest.fixture
def pretended():
    """Pretend the tools of a card until the test ends."""
    cards = {card.name: card for target in load_targets().values() for card in target.architectures}
    with contextlib.ExitStack() as undo:

        def pretend(name):
            card = cards[name]
            said = card.torch_properties
            properties = SimpleNamespace(name=said["name"], total_memory=said["total_memory"])
            pretend_tools(card, properties, (said["major"], said["minor"]), undo)
            return properties

        yield pretend


class Memory(ctypes.Structure):
    """As a package writes it that has no module for NVML."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def test_the_c_library_answers_ctypes(pretended):
    """By pointers, as its header says: numbers, texts and structures."""
    card = pretended("sm_90")
    nvml = ctypes.CDLL(ctypes.util.find_library("nvidia-ml"))
    count, handle, memory, name = ctypes.c_uint(), ctypes.c_void_p(), Memory(), ctypes.create_string_buffer(64)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetName.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint]
    codes = [
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)),
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.pointer(handle)),
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)),
        nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(64)),
        nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)),
        nvml.nvmlShutdown(),
    ]

    assert (codes, count.value, bool(handle)) == ([0] * 7, 1, True)
    assert (name.value.decode(), memory.total, (major.value, minor.value)) == (card.name, card.total_memory, (9, 0))
    assert memory.free + memory.used == memory.total
    later = (ctypes.c_ulonglong * 5)(7)  # a version, then total, reserved, free and used
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(later)) == 0
    assert list(later) == [7, memory.total, 0, memory.free, memory.used]
    assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle)) != 0
    with pytest.raises(NotPretended, match="nvmlDeviceGetBrand") as caught:
        nvml.nvmlDeviceGetBrand(handle, ctypes.byref(major))
    assert not isinstance(caught.value, NeedsCard)
    with pytest.raises(NeedsCard, match="nvmlDeviceGetFanSpeed"):
        nvml.nvmlDeviceGetFanSpeed(handle, ctypes.byref(count))
    assert ctypes.CDLL(None).getpid() > 0


def test_a_short_buffer_is_not_overrun(pretended):
    """The length is that of the caller."""
    pretended("sm_90")
    name = ctypes.create_string_buffer(b"x" * 15)
    ctypes.cdll.LoadLibrary("libnvidia-ml.so.1").nvmlDeviceGetName(None, name, 7)

    assert name.raw == b"NVIDIA\0" + b"x" * 8 + b"\0"


@pytest.mark.parametrize("kind", ["pynvml", "amdsmi"])
def test_modules_answer_for_the_cards_vendor_alone(pretended, kind):
    """The other one is not there, as on a machine with such a card."""
    card = pretended({"pynvml": "sm_90", "amdsmi": "gfx942"}[kind])
    other = {"pynvml": "amdsmi", "amdsmi": "pynvml"}[kind]
    module = importlib.import_module(kind)
    assert why_not_run(OSError("NVML Shared Library Not Found")) is (NotRun.NEEDS_CARD if kind == "pynvml" else NotRun.RAISED)
    if kind == "pynvml":
        module.nvmlInit()
        handle = module.nvmlDeviceGetHandleByIndex(0)
        assert (module.nvmlDeviceGetName(handle), module.nvmlDeviceGetCount()) == (card.name, 1)
        assert module.nvmlDeviceGetMemoryInfo(handle).total == card.total_memory
        unanswered, misspelt = module.nvmlDeviceGetFanSpeed, "nvmlDeviceGetNmae"
        assert issubclass(module.NVMLError_NotSupported, module.NVMLError)
    else:
        module.amdsmi_init(module.AmdSmiInitFlags.INIT_AMD_GPUS)
        (handle,) = module.amdsmi_get_processor_handles()
        assert module.amdsmi_get_gpu_asic_info(handle)["market_name"] == card.name
        assert module.amdsmi_get_gpu_vram_info(handle)["vram_size"] << 20 == card.total_memory
        unanswered, misspelt = module.amdsmi_get_power_info, "amdsmi_get_gpu_asic_inf"
        assert issubclass(module.AmdSmiLibraryException, module.AmdSmiException)

    with pytest.raises(NotPretended, match=r"get_power_info|GetFanSpeed"):
        unanswered(handle)
    with pytest.raises(AttributeError) as caught:
        getattr(module, misspelt)
    assert why_not_run(caught.value) is NotRun.RAISED
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(other)


def _printed(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_nvidia_smi_is_a_program(pretended):
    """What torch says of the card, in its format; another question fails and is named."""
    card = pretended("sm_90")
    fields = "--query-gpu=name,memory.total,compute_cap"

    assert _printed("nvidia-smi", fields, "--format=csv,noheader,nounits") == f"{card.name}, {card.total_memory >> 20}, 9.0"
    assert _printed("nvidia-smi", fields, "--format=csv").startswith("name, memory.total, compute_cap\n")
    assert card.name in _printed("nvidia-smi", "-L")
    assert "Driver Version" in _printed("nvidia-smi")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _printed("nvidia-smi", "--query-gpu=fan.speed", "--format=csv")
    assert "fan.speed" in caught.value.stderr
    assert why_not_run(caught.value) is NotRun.NOT_PRETENDED
    with pytest.raises(FileNotFoundError):
        _printed("rocm-smi")


def test_rocm_smi_is_a_program(pretended):
    """As text, and as JSON."""
    card = pretended("gfx942")

    assert card.name in _printed("rocm-smi", "--showproductname")
    found = json.loads(_printed("rocm-smi", "--showmeminfo", "vram", "--showproductname", "--json"))["card0"]
    assert (int(found["VRAM Total Memory (B)"]), found["GFX Version"]) == (card.total_memory, "gfx942")
    with pytest.raises(subprocess.CalledProcessError):
        _printed("rocm-smi", "--showfan")


def test_nothing_is_left_behind(pretended):
    """The library is looked for, and opened, as before."""
    before, path = ctypes.CDLL.__init__, sys.meta_path[:]
    cards = {card.name: card for target in load_targets().values() for card in target.architectures}
    with contextlib.ExitStack() as undo:
        pretend_tools(cards["sm_90"], SimpleNamespace(name="x", total_memory=GIB), (9, 0), undo)
        importlib.import_module("pynvml")

    assert ctypes.CDLL.__init__ is before
    assert sys.meta_path == path
    assert getattr(sys.modules.get("pynvml"), "__file__", "installed") == "installed"
