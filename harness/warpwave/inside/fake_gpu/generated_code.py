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

from warpwave.inside.process.outcomes import NotPretended

_MODULE = "torch._inductor.utils"  # takes seconds to import, so it is changed when a package does
_WITH_RESULT = ("run_and_get_code", "run_and_get_kernels", "run_fw_bw_and_get_code")
_ALONE = ("get_code",)


def _refuse(*args: object) -> Any:
    raise NotPretended("torch.compile made no code here, and the test reads it")


class NoCode(Sequence[str]):
    """Stands for code that torch.compile did not generate. It can be passed on; reading it raises `NotPretended`."""

    __len__ = __getitem__ = __iter__ = __contains__ = __bool__ = __eq__ = _refuse
    __hash__ = object.__hash__


def without_code(undo: contextlib.ExitStack) -> None:
    """Let torch's functions that return generated code return `NoCode` where there is none, until `undo` is closed."""
    if _MODULE in sys.modules:
        _change(sys.modules[_MODULE], undo)
        return
    finder = _Finder(undo)
    sys.meta_path.insert(0, finder)
    undo.callback(sys.meta_path.remove, finder)


def _change(module: ModuleType, undo: contextlib.ExitStack) -> None:
    for name in (*_WITH_RESULT, *_ALONE):
        if (function := getattr(module, name, None)) is not None:
            undo.callback(setattr, module, name, function)
            setattr(module, name, _reading(function, alone=name in _ALONE))


def _reading(function: Callable[..., Any], *, alone: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if alone:
            return found or NoCode()
        result, texts = found
        return result, texts or NoCode()

    return run


class _Finder(MetaPathFinder):
    """Changes the module behind its own code."""

    def __init__(self, undo: contextlib.ExitStack) -> None:
        self.undo = undo

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that changes it."""
        spec = PathFinder.find_spec(name, path) if name == _MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then_change(module: ModuleType) -> None:
            execute(module)
            _change(module, self.undo)

        spec.loader.exec_module = then_change  # type: ignore[method-assign]
        return spec
