"""The accelerator of this machine, whatever its vendor, by torch's names."""

from __future__ import annotations

import sys
from typing import Any


def accelerator() -> tuple[str, Any] | None:
    """Return torch's name for the type of device and torch's module for it; None if this build of torch is for none."""
    import torch

    kind = torch.accelerator.current_accelerator()
    return None if kind is None else (kind.type, torch.get_device_module(kind))


def is_usable() -> bool:
    """Return whether the device still answers: after a fault in a kernel, some runtimes refuse every call until the process ends."""
    return not trouble()


def trouble() -> str:
    """Wait for the device and return its error in one line; empty if there is none. Costs microseconds.

    Launches do not wait for the device, so a fault appears here first, in the case that caused it.
    """
    import torch

    try:
        torch.accelerator.synchronize()
    except Exception as error:
        return _line(error)
    return ""


def trouble_if_used() -> str:
    """Do the same as `trouble`, but if this process has not used the device, do not initialize it."""
    if "torch" not in sys.modules:
        return ""
    here = accelerator()
    return trouble() if here is not None and here[1].is_initialized() else ""


def ask_afresh() -> str:
    """Do the same as `trouble` in a process that has not used the device yet: run one small computation first."""
    import torch

    here = accelerator()
    try:
        if here is not None and float((torch.ones(64, 64, device=here[0]) @ torch.ones(64, 64, device=here[0])).sum()) != 64.0**3:
            return "it computes a wrong product"
    except Exception as error:
        return _line(error)
    return trouble()


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:300] or type(error).__name__
