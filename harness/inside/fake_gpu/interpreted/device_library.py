"""The vendors' device libraries (`libdevice`) in Triton's interpreter, which has none: there, their functions return None or raise.

A call still goes through the pretended vendor's own wrapper, so a function takes and returns the types that it has there.
`device_functions.py` has what it computes.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import triton.language.extra as extra

from harness.inside.fake_gpu.interpreted.device_functions import FUNCTIONS
from harness.inside.fake_gpu.torch_device import Patch
from harness.inside.process.exceptions import NotPretended


def library(backend: str) -> list[Patch]:
    """Return what makes every device library compute; the one without a vendor becomes that of Triton's `backend`."""
    from triton.runtime.interpreter import InterpreterBuilder

    calls = _Calls()
    changes: list[Patch] = [(InterpreterBuilder, "create_extern_elementwise", lambda builder, *args: calls.compute(*args))]
    vendors = {info.name: _module(f"{info.name}.libdevice") for info in pkgutil.iter_modules(extra.__path__) if info.ispkg}
    for module in filter(None, vendors.values()):
        changes += [(module, name, calls.named(name, function)) for name, function in _functions(module)]
    if (here := vendors.get(backend)) is not None:
        plain = importlib.import_module(f"{extra.__name__}.libdevice")
        changes += [(plain, name, calls.named(name, vars(here).get(name, _lacking(here, name)))) for name, _ in _functions(plain)]
    return changes


def _lacking(module: ModuleType, name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")

    return refuse


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{extra.__name__}.{name}")
    except ImportError:
        return None


def _functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions that a library defines itself."""
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and not name.startswith("_") and value.__module__ in (module.__name__, "triton.language.core"):
            yield name, value


class _Calls:
    """Remembers which function of a library a kernel is in: the vendor's wrapper knows only the name of a symbol."""

    def __init__(self) -> None:
        self.name = ""

    def named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as kernels call it in the interpreter, with the marks of a built-in, which a kernel's hash looks for."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            from triton.runtime.interpreter import interpreter_semantic

            outer, self.name = self.name, name
            try:
                return function(*args, **{**kwargs, "_semantic": interpreter_semantic})
            finally:
                self.name = outer

        return call

    def compute(self, library: str, path: str, symbol: str, args: list[Any], returned: Any, pure: bool) -> Any:
        """Stand in for the call of a symbol: the handles of the arguments have one shape and the types of the symbol."""
        from triton.runtime.interpreter import TensorHandle, _get_np_dtype

        if (function := FUNCTIONS.get(self.name)) is None:
            raise NotPretended(f"{self.name or symbol} of the device library has no counterpart in the interpreter")
        numbers = np.broadcast_arrays(*(arg.data for arg in args))
        with np.errstate(all="ignore"):
            result = function(*numbers, dtype=np.dtype(_get_np_dtype(returned.scalar)))
        return TensorHandle(result, returned.scalar)
