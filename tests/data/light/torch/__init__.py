"""As much of torch as the stages touch themselves, in a build for no GPU. For packages that use none of it: torch takes seconds to import."""

import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace

import numpy

__version__ = importlib.metadata.version("torch")


uint8, int32 = numpy.uint8, numpy.int32


class Tensor:
    """Memory that is overwritten: what the bench stage copies, and what it empties a cache with."""

    def __init__(self, data: numpy.ndarray) -> None:
        self.data = data

    def random_(self) -> "Tensor":
        return self

    def zero_(self) -> None:
        self.data[...] = 0

    def copy_(self, other: "Tensor") -> None:
        self.data[...] = other.data


def empty(size: int, dtype: type, device: object = None) -> Tensor:
    return Tensor(numpy.empty(size, dtype))


def empty_like(other: Tensor) -> Tensor:
    return Tensor(numpy.empty_like(other.data))


class device:
    """What a name of a device is made into."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, self.index = type, index


def ones(*size: int, device: object = None) -> numpy.ndarray:
    """The small product of which a device is asked."""
    return numpy.ones(size)


class _Mode:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def set_num_threads(number: int) -> None:
    """Compute in one thread, as ever."""


def _module(name: str, **members: object) -> ModuleType:
    module = sys.modules[f"{__name__}.{name}"] = ModuleType(f"{__name__}.{name}")
    vars(module).update(members)
    return module


version = _module("version", __version__=__version__, cuda=None, hip=None, git_version="0" * 40)
overrides = _module("overrides", TorchFunctionMode=_Mode, __file__=__file__)
utils = SimpleNamespace(backend_registration=SimpleNamespace(__file__=__file__))
autograd = _module("autograd", Function=object)
accelerator = SimpleNamespace(current_accelerator=lambda: None, device_count=lambda: 0, is_available=lambda: False, synchronize=lambda: None)
