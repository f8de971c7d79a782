"""What a card's driver refuses to launch: more programs, larger clusters than the card takes, scratch memory from nobody.

Triton's JIT compiles such a kernel, and the driver raises at the launch. The limits are data of each architecture in the targets file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from triton.runtime import _allocation

from warpwave.inside.codegen.binary import occupancy
from warpwave.records import Architecture


class LaunchRefusedError(RuntimeError):
    """The driver of the card refuses this launch. `binary` is the hash of the compiled kernel, if it is compiled."""

    def __init__(self, card: Architecture, function: str, why: str, binary: str = "") -> None:
        super().__init__(f"`{function}` cannot be launched on {card.name}: {why}")
        self.binary = binary


def check_grid(card: Architecture, function: str, grid: Sequence[Any], metadata: Any) -> None:
    """Refuse a grid that the card's driver does not launch. One without programs is launched nowhere, and is no fault.

    `metadata` is that of the compiled kernel, or what is known of it. The size of an axis may be unknown, if it depends on data.

    Raises:
        LaunchRefusedError: the grid or its clusters are too large.
    """
    known = {axis: int(size) for axis, size in zip("xyz", grid, strict=False) if isinstance(size, Integral)}
    if any(size <= 0 for size in known.values()):
        return
    threads, cluster = metadata.num_warps * card.warp_size, getattr(metadata, "num_ctas", 1)
    binary, shown = getattr(metadata, "hash", ""), f"({', '.join(map(str, (*grid, 1, 1)[:3]))})"
    if card.cluster and cluster > card.cluster:
        raise LaunchRefusedError(card, function, f"its clusters have {cluster} blocks, the limit is {card.cluster}", binary)
    limits: dict[Any, int] = {**card.grid}
    if card.axis_threads:
        limits["x"] = min(limits.get("x", card.axis_threads), card.axis_threads // threads)
    if "x" in limits:
        limits["x"] //= cluster  # Triton puts the blocks of a cluster side by side in x
    for axis, size in known.items():
        if size > limits.get(axis, size):
            of = f" with {threads} threads a program" if axis == "x" and card.axis_threads else ""
            raise LaunchRefusedError(card, function, f"its grid is {shown}, the limit of {axis} is {limits[axis]}{of}", binary)
    if getattr(metadata, "launch_cooperative_grid", False) and card.multiprocessor:
        # As many as fit whatever their registers: the driver may refuse fewer, and never takes more.
        fit = occupancy(card.multiprocessor, metadata.num_warps, 1, getattr(metadata, "shared", 0)).programs
        most = fit * card.properties["multiprocessor_count"]
        if cluster * math.prod(known.values()) > most:
            raise LaunchRefusedError(card, function, f"its grid is {shown} and cooperative, at most {most} blocks run at a time", binary)


def check_scratch(card: Architecture, function: str, metadata: Any, driver: Any) -> None:
    """Refuse a launch that needs scratch memory and has no allocator.

    Raises:
        LaunchRefusedError: it has none.
    """
    for purpose, advice in (("global", "call triton.set_allocator"), ("profile", "start a profiler, which sets one")):
        size = getattr(metadata, f"{purpose}_scratch_size", 0)
        if size and isinstance(allocator(purpose, driver), _allocation.NullAllocator):
            why = f"it needs {size} bytes of scratch memory, and no allocator was set; {advice}"
            raise LaunchRefusedError(card, function, why, getattr(metadata, "hash", ""))


def allocator(purpose: str, driver: Any) -> Any:
    """Return what a launch calls for its `global` or `profile` scratch memory. Since Triton 3.9 the driver has one for profiles."""
    kept: Any = _allocation._allocator if purpose == "global" else _allocation._profile_allocator
    kept = kept.get() if hasattr(kept, "get") else kept
    has_default = purpose == "profile" and hasattr(_allocation, "has_profile_allocator")
    return driver.allocate_default_profile_scratch if has_default and isinstance(kept, _allocation.NullAllocator) else kept


# What a test has launched so far. A card runs programs in another order each time, so a kernel's later launches do, too.


@dataclass
class Launched:
    """The launches of one kernel in a test."""

    name: str
    times: int = 0
    rounds: set[str] = field(default_factory=set)  # what adds floats in the order of programs: the kernel, with the line if it is known
    waits: bool = False  # programs may wait for those that start before them, so they keep their order

    kernels: ClassVar[dict[str, Launched]] = {}
    functions: ClassVar[dict[str, None]] = {}  # the names of all that the test launched, also where programs have a fixed order

    @classmethod
    def again(cls, name: str) -> Launched:
        """Count one more launch of a kernel."""
        one = cls.kernels.setdefault(name, cls(name))
        one.times += 1
        return one

    @classmethod
    def advice(cls) -> str:
        """Return what may be why a test failed: a sum whose order differs from launch to launch; empty without one."""
        where = sorted(place for one in cls.kernels.values() if one.times > 1 for place in one.rounds)
        return (
            f"The bits of what {' and '.join(where)} adds up depend on the order of programs, which is another one at each launch. "
            "If this test compares bits, it fails there now and then. Compare with torch.testing.assert_close, or add up in a fixed order."
            if where
            else ""
        )
