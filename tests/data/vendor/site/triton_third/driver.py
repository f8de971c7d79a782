"""The driver of cards that do not exist: it launches nothing. It is active if there are any, see `../sitecustomize.py`."""

import os
from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class ThirdLauncher:
    def __init__(self, source, metadata):
        pass

    def __call__(self, *arguments):
        pass


class ThirdDriver(DriverBase):
    launcher_cls = ThirdLauncher

    def __init__(self):
        # Some drivers also list sizes.
        told = {"multiprocessor_count": 4, "max_shared_mem": 65536, "sm_clock_rate": 1_000_000, "sub_group_sizes": (16, 32)}
        self.utils = SimpleNamespace(
            get_device_properties=lambda index: told,
            load_binary=lambda name, binary, shared, index: (object(), object(), 32, 0, 512),
            unload_module=lambda module: None,
        )

    @staticmethod
    def is_active():
        return "STUB_CARDS" in os.environ

    def get_current_target(self):
        # More than the targets file says, as of a card that is here.
        return GPUTarget("third", {"name": "Third Card", "arch": "tv1", "units": 8, "sizes": [16, 32], "device_id": 7}, 16)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.get_device_module()

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def map_python_to_cpp_type(self, kind):
        return kind

    def get_benchmarker(self):
        raise NotImplementedError

    def get_empty_cache_for_benchmark(self):
        return torch.empty(1)
