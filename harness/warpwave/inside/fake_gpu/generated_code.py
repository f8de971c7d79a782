"""What `torch.compile` would have written, which tests read: nothing is generated without a card, and reading it says so.

The function that was to be compiled runs, so what it computes is checked all the same.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from warpwave.inside.fake_gpu.torch_device import apply
from warpwave.inside.process.outcomes import NotPretended

_MODULE = "torch._inductor.utils"  # takes seconds to import, so it is changed when a package does
_READERS = ("run_and_get_code", "run_and_get_kernels", "run_fw_bw_and_get_code", "get_code")  # the last one returns the code alone


def _refuse(*args: object) -> Any:
    raise NotPretended("torch.compile made no code here, and the test reads it")


class NoCode(Sequence[str]):
    """Stands for code that torch.compile did not generate. It can be passed on; reading it raises `NotPretended`."""

    __len__ = __getitem__ = __iter__ = __contains__ = __bool__ = __eq__ = _refuse
    __hash__ = object.__hash__


def without_code(undo: contextlib.ExitStack) -> None:
    """Let torch's functions that return generated code return `NoCode` where there is none, until `undo` is closed."""

    def change(module: ModuleType) -> None:
        apply([(module, name, _reading(getattr(module, name))) for name in _READERS if hasattr(module, name)], undo)

    if _MODULE in sys.modules:
        change(sys.modules[_MODULE])
    else:
        finder = _Finder(change)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found or NoCode() if function.__name__ == "get_code" else (found[0], found[1] or NoCode())

    return run


class _Finder(MetaPathFinder):
    def __init__(self, change: Callable[[ModuleType], None]) -> None:
        self.change = change

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that changes it."""
        spec = PathFinder.find_spec(name, path) if name == _MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), self.change(module))[0]  # type: ignore[method-assign]
        return spec
