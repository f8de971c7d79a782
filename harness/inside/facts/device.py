"""The accelerator that is here, whatever its vendor: torch's own names for it."""

from __future__ import annotations

from typing import Any


def accelerator() -> tuple[str, Any] | None:
    """torch's name for the kind of device and torch's module for it (`torch.cuda` for two vendors); None in a build for none."""
    import torch

    kind = torch.accelerator.current_accelerator()
    return None if kind is None else (kind.type, torch.get_device_module(kind))


def is_usable() -> bool:
    """Whether the device still answers: after a kernel has faulted, some runtimes refuse everything until the process ends."""
    return not trouble()


def trouble() -> str:
    """What the device says to a process that waits for it, in one line; empty where all is well. Costs microseconds.

    Launches do not wait, so a fault shows here first, in the case that has caused it.
    """
    import torch

    try:
        torch.accelerator.synchronize()
    except Exception as error:
        return _line(error)
    return ""


def ask_afresh() -> str:
    """As `trouble`, in a process that has not used the device yet: one small computation is asked of it."""
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
