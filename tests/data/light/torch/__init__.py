"""As much of torch as the stages touch themselves, in a build for no GPU. For packages that use none of it: torch takes seconds to import."""

import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace

__version__ = importlib.metadata.version("torch")


class Tensor:
    """Nothing makes one here."""


class device:
    """What a name of a device is made into."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, self.index = type, index


class _Mode:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _module(name: str, **members: object) -> ModuleType:
    module = sys.modules[f"{__name__}.{name}"] = ModuleType(f"{__name__}.{name}")
    vars(module).update(members)
    return module


version = _module("version", __version__=__version__, cuda=None, hip=None, git_version="0" * 40)
overrides = _module("overrides", TorchFunctionMode=_Mode)
autograd = _module("autograd", Function=object)
accelerator = SimpleNamespace(current_accelerator=lambda: None, device_count=lambda: 0, is_available=lambda: False, synchronize=lambda: None)
