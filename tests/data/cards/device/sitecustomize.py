"""Cards that do not exist, for every Python process whose PYTHONPATH begins with this folder: torch and Triton see STUB_CARDS of them.

STUB_VISIBLE_DEVICES shows a process some of them, as a vendor's variable would. A step on a card takes half a millisecond of the card's own
time, on one that STUB_SLOW names (`1:1.25`) that much longer; with STUB_SLEEP it takes as long for real. A card is lost while there is a
file `lost-<card>` in STUB_STATE.
"""

import os
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

STEP_MS = 0.5
SLOW = dict(pair.split(":") for pair in os.environ.get("STUB_SLOW", "").split(",") if pair)


def visible():
    there = [str(card) for card in range(int(os.environ["STUB_CARDS"]))]
    shown = os.environ.get("STUB_VISIBLE_DEVICES")
    return there if shown is None else [card for card in shown.split(",") if card in there]


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self, stream=None):
        step = STEP_MS * float(SLOW.get(visible()[0], 1))
        if os.environ.get("STUB_SLEEP"):
            time.sleep(step / 1e3)
        device.now += step
        self.at = device.now

    def elapsed_time(self, end):
        return end.at - self.at


def synchronize(*_):
    if Path(os.environ["STUB_STATE"], f"lost-{visible()[0]}").exists():
        raise RuntimeError("the card has fallen off the bus")


def properties(index=0):
    card = visible()[index]
    return SimpleNamespace(name="Stub Card", total_memory=1 << 20, multi_processor_count=4, L2_cache_size=4096, uuid=f"stub-{card}")


device = SimpleNamespace(
    now=0.0,
    Event=Event,
    current_stream=lambda: None,
    synchronize=synchronize,
    get_device_properties=properties,
    mem_get_info=lambda index=0: (1 << 20, 1 << 20),
    memory_reserved=lambda: 0,
    empty_cache=lambda: None,
    is_initialized=lambda: True,
)


def patch_torch(torch):
    torch.accelerator.device_count = lambda: len(visible())
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    torch.accelerator.synchronize = synchronize
    torch.get_device_module = lambda *_: device


def patch_triton(triton):
    told = {"multiprocessor_count": 4, "max_shared_mem": 65536, "max_num_regs": 65536, "warpSize": 32}

    class Driver(triton.backends.driver.DriverBase):
        is_active = map_python_to_cpp_type = get_benchmarker = get_empty_cache_for_benchmark = lambda *_: None
        utils = SimpleNamespace(get_device_properties=lambda index: {**told, "sm_clock_rate": 1_000_000 - 100_000 * int(visible()[index])})
        get_current_target = staticmethod(lambda: SimpleNamespace(backend="stub", arch="sx1", warp_size=32))
        get_active_torch_device = staticmethod(lambda: sys.modules["torch"].device("cpu"))
        get_device_interface = staticmethod(lambda: device)
        get_current_device = staticmethod(lambda: 0)

        def __init__(self):
            pass

    import triton.backends.driver

    triton.runtime.driver.set_active(Driver())


def patch_timer(timer):
    timer.FLUSH_FLOOR_BYTES = 4096  # what is overwritten is this machine's memory


class After:
    """Changes a module once it has been imported, and costs nothing where nobody imports it."""

    PATCHES = {"torch": patch_torch, "triton": patch_triton, "warpwave.inside.bench.timing": patch_timer}

    def find_spec(self, name, path=None, target=None):
        patch = self.PATCHES.get(name)
        found = patch and PathFinder.find_spec(name, path, target)
        if found:
            run = found.loader.exec_module
            found.loader.exec_module = lambda module: (run(module), patch(module))
        return found or None


sys.meta_path.insert(0, After())
