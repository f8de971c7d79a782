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
    import torch

    try:
        torch.accelerator.synchronize()
    except Exception:
        return False
    return True
