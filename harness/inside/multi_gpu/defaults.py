"""Defaults of torch that a test changes and leaves so, such as the dtype: other files of this worker are not the ones that would follow.

pytest runs files in one order, in which authors see what a test leaves behind. Workers that share the files run them in others.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Default = tuple[Callable[[], Any], Callable[[Any], Any]]


_PAIRS = {
    "dtype": ("get_default_dtype", "set_default_dtype"),
    "gradients": ("is_grad_enabled", "set_grad_enabled"),
    "precision of products": ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    "deterministic algorithms": ("are_deterministic_algorithms_enabled", "use_deterministic_algorithms"),
}


def _defaults() -> dict[str, Default]:
    """Return how each default that this torch has is read and set; nothing before torch is imported."""
    torch: Any = sys.modules.get("torch")
    found = {name: (getattr(torch, read, None), getattr(torch, write, None)) for name, (read, write) in _PAIRS.items()}
    with contextlib.suppress(ImportError):
        devices: Any = importlib.import_module("torch.utils._device") if torch else None
        found["device"] = (lambda: devices.CURRENT_DEVICE, getattr(torch, "set_default_device", None))
    return {name: (read, write) for name, (read, write) in found.items() if read is not None and write is not None}


class Defaults:
    """Sets back at the end of a file what the bodies of its tests changed. What a fixture sets is the fixture's to set back."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Remember how each default was before the first test that changed it."""
        before = _current()
        try:
            return (yield)
        finally:
            after = _current()
            for name in before.keys() & after.keys():
                if after[name] != before[name]:
                    self._before.setdefault(name, before[name])

    def end_file(self) -> None:
        """Set them back."""
        known = _defaults()
        for name, value in self._before.items():
            with contextlib.suppress(Exception):
                known[name][1](value)
        self._before.clear()


def _current() -> dict[str, Any]:
    """Return the defaults that can be read. torch refuses some: of a precision, if a package has used its newer functions to set it."""
    found = {}
    for name, (read, _) in _defaults().items():
        with contextlib.suppress(Exception):
            found[name] = read()
    return found
