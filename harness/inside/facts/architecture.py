"""What an architecture is called, from what Triton's `GPUTarget` says, and the card that is here as targets.yml describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from harness.records import Arch, Architecture

# Backends that describe a card by a mapping of facts. Of these keys the first that is there names the architecture.
_NAMES = ("arch", "architecture", "name")


class Target(Protocol):
    """What is read of a `GPUTarget`; an `Architecture` has the same."""

    @property
    def backend(self) -> str:
        """Triton's name for the compiler."""

    @property
    def arch(self) -> Arch:
        """A number, a text or a mapping."""


def architecture_name(target: Target) -> str:
    """Return `sm_90` for CUDA's 90, `gfx942` for `gfx942:sramecc+:xnack-`, and `bmg` for `{"arch": "bmg", …}`.

    `choose` in kernels/configs goes by the same rule; a kernel package cannot import this one.
    """
    arch: Any = target.arch
    if isinstance(arch, Mapping):
        arch = next((arch[key] for key in _NAMES if arch.get(key)), "")
    if isinstance(arch, int):
        return f"{'sm' if target.backend == 'cuda' else target.backend}_{arch}"
    return str(arch).split(":")[0] or target.backend


def described(target: Target, known: Iterable[Architecture]) -> Architecture | None:
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
