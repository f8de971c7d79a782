"""Puts operations before those that torch has for the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch


def replaced_on_cpu(operations: Mapping[str, Callable[[Any], Callable[..., Any]]]) -> Callable[[], None]:
    """Replace operations of torch's on the CPU. Return what undoes that. A torch without `library.get_kernel` keeps them.

    Args:
        operations: By name, what makes the new operation of torch's kernel. It gets torch's keys first.
    """
    get: Any = getattr(torch.library, "get_kernel", None)
    library: Any = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they replace torch's own, as they should
        for name, make in operations.items() if get else ():
            library.impl(name, make(get(f"aten::{name}", "CPU")), "CPU", with_keyset=True)
    undo: Callable[[], None] = library._destroy
    return undo
