"""Which GPU is active, and the one place where configurations differ by architecture: a table an op, in the files beside this one.

A table maps patterns of architecture names to configurations, e.g. `{"sm_90": ..., "gfx9*": ..., "*": ...}`; the first that matches is
taken. The names are those of the vendors' compilers.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import triton

Config = TypeVar("Config")


@dataclass(frozen=True, eq=False)  # a key by its identity
class Card:
    """The GPU that kernels are launched on: architecture, lanes a warp, multiprocessors, bytes of shared memory that a program may have."""

    name: str
    warp_size: int
    processors: int
    shared_bytes: int

    @property
    def early(self) -> dict[str, bool]:
        """Options of a kernel that waits itself (`EARLY`) for the one before it: its launch then overlaps that one's end.

        From Hopper on (programmatic dependent launch).
        """
        early = self.name.startswith("sm_") and int(self.name[3:]) >= 90
        return {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}


# Any size is right in the interpreter; a small one is fast, and several programs exercise strides over programs.
INTERPRETER = Card("interpreter", 32, 4, 64 << 10)


# `triton.jit` decides it where a kernel is defined, so it is the same for all calls.
_INTERPRETED = triton.knobs.runtime.interpret


def card() -> Card:
    """Return the active GPU, or `INTERPRETER`. Costs microseconds, and never synchronizes."""
    if _INTERPRETED:
        return INTERPRETER
    driver = triton.runtime.driver.active
    return _card(driver, driver.get_current_device())


@functools.cache
def _card(driver: Any, device: int) -> Card:
    # Asking for the target costs more than many a kernel runs.
    target = driver.get_current_target()
    properties = driver.utils.get_device_properties(device)
    return Card(architecture(target), target.warp_size, properties["multiprocessor_count"], properties["max_shared_mem"])


def architecture(target: Any) -> str:
    """Return the name of a `GPUTarget` of Triton's: `sm_90`, `gfx942`, or of a mapping of facts what it calls `arch`."""
    arch = target.arch
    if isinstance(arch, Mapping):
        arch = next((arch[key] for key in ("arch", "architecture", "name") if arch.get(key)), "")
    if isinstance(arch, int):
        return f"{'sm' if target.backend == 'cuda' else target.backend}_{arch}"
    return str(arch).split(":")[0] or str(target.backend)


# Matching takes microseconds. A table that is kept here keeps its id.
_CHOSEN: dict[tuple[int, str], tuple[Any, Any]] = {}


def choose(table: Mapping[str, Config], on: Card | None = None) -> Config:
    """Return the configuration of the first pattern that matches `on`, or the active GPU.

    Raises:
        NotImplementedError: none matches.
    """
    name = (on or card()).name
    known = _CHOSEN.get((id(table), name))
    if known:
        return known[1]
    for pattern, config in table.items():
        if fnmatchcase(name, pattern):
            _CHOSEN[id(table), name] = table, config
            return config
    raise NotImplementedError(f"there is no configuration for {name}; this op has some for {', '.join(table)}")
