"""The accelerator of this machine, whatever its vendor, by torch's names."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from warpwave.records import Architecture


def accelerator() -> tuple[str, Any] | None:
    """Return torch's name for the type of device and torch's module for it; None if this build of torch is for none."""
    import torch

    kind = torch.accelerator.current_accelerator()
    return None if kind is None else (kind.type, torch.get_device_module(kind))


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


# What an architecture is called, from what Triton's `GPUTarget` says, and the card that is here as targets.yml describes it.

# Backends that describe a card by a mapping of facts. Of these keys the first that is there names the architecture.
_NAMES = ("arch", "architecture", "name")


def architecture_name(target: Any) -> str:
    """Return the name of an `Architecture` or of Triton's `GPUTarget`.

    It is `sm_90` for CUDA's 90, `gfx942` for `gfx942:sramecc+:xnack-`, and `bmg` for `{"arch": "bmg", …}`.

    `choose` in kernels/configs goes by the same rule; a kernel package cannot import this one.
    """
    arch: Any = target.arch
    if isinstance(arch, Mapping):
        arch = next((arch[key] for key in _NAMES if arch.get(key)), "")
    if isinstance(arch, int):
        return f"{'sm' if target.backend == 'cuda' else target.backend}_{arch}"
    return str(arch).split(":")[0] or target.backend


def described(target: Any, known: Iterable[Architecture]) -> Architecture | None:
    """Return the architecture among `known` that a card with this target has; None if none of them is it."""
    name = architecture_name(target)
    return next((card for card in known if card.backend == target.backend and architecture_name(card) == name), None)


def card_here(known: Iterable[Architecture] = ()) -> Architecture:
    """Describe the card that Triton runs on as the compile stage does: by the entry for it in `known`, if there is one."""
    import triton

    driver = triton.runtime.driver.active
    target = driver.get_current_target()
    reported = driver.utils.get_device_properties(driver.get_current_device())
    # Some drivers also list sizes and names.
    properties = {key: int(value) for key, value in reported.items() if isinstance(value, (int, float))}
    card = described(target, known) or Architecture(target.backend, target.arch, target.warp_size, {}, name=architecture_name(target))
    return dataclasses.replace(card, arch=target.arch, warp_size=target.warp_size, properties=properties)
