"""What a test has launched so far. A card runs programs in another order each time, so a kernel's later launches do, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class Launched:
    """The launches of one kernel in a test."""

    name: str
    times: int = 0
    rounds: set[str] = field(default_factory=set)  # what adds floats in the order of programs: the kernel, with the line if it is known
    waits: bool = False  # programs may wait for those that start before them, so they keep their order

    kernels: ClassVar[dict[str, Launched]] = {}

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
