"""Does a launch's result depend on the order in which waves and workgroups run? It is executed again, in random orders.

Rounding is no such dependence: kernels add up by atomics, and floats may differ by what another order of a sum explains. But a test may
not ask for the same bits then: later launches of a kernel in a test keep the result of a random order, and the test's comparison judges.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import torch

from harness.emulator import EmulatorError, Launch
from harness.inside.fake_gpu.emulated.findings import Different, Given
from harness.inside.fake_gpu.emulated.memory import Buffer
from harness.inside.fake_gpu.launched import Launched

SEEDS = (1, 2)
_MOST_BYTES = 1 << 28  # of all buffers of a launch: they are copied
_RELATIVE, _OF_LARGEST = 0.02, 1e-4  # by how much floats may differ: of the value, and of the largest one of the tensor


class Orders:
    """Executes a launch again. Made before the launch, because memory must be as it was then."""

    def __init__(self, launch: Launch) -> None:
        self._buffers: Sequence[Buffer] = launch.buffers
        programs = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._worth = (programs > 1 or launch.threads > 64) and sum(size for _, size in launch.buffers) <= _MOST_BYTES
        self._before = self._copy() if self._worth else []

    def compare(self, again: Callable[[int], object], tensors: Sequence[Given], launched: Launched) -> list[Different]:
        """Return what differs if `again` executes the launch in the orders of some seeds.

        Memory keeps the result of the first time. From the kernel's second launch on, it keeps that of a random order if no more than
        rounding differs.

        An execution that does not end well is no answer: programs may wait for others that start before them.
        """
        if not self._worth:
            return []
        first = kept = other = self._copy()
        try:
            for seed in SEEDS:
                self._restore(self._before)
                try:
                    again(seed + len(SEEDS) * (launched.times - 1))
                except EmulatorError:
                    return []
                other = self._copy()
                if found := list(self._different(first, other, tensors)):
                    return found
            if other != first:
                launched.rounds.add(launched.name)
            if launched.times > 1:
                kept = other
        finally:
            self._restore(kept)
        return []

    def _copy(self) -> list[bytes]:
        return [ctypes.string_at(start, size) for start, size in self._buffers]

    def _restore(self, kept: Sequence[bytes]) -> None:
        for (start, size), data in zip(self._buffers, kept, strict=True):
            ctypes.memmove(start, data, size)

    def _different(self, first: Sequence[bytes], second: Sequence[bytes], tensors: Sequence[Given]) -> Iterator[Different]:
        for (start, _), one, other in zip(self._buffers, first, second, strict=True):
            given = next((each for each in tensors if each.tensor.untyped_storage().data_ptr() == start), None)
            if given is None or one == other:
                continue
            kind = given.tensor.dtype
            a, b = (torch.frombuffer(bytearray(data), dtype=kind, count=len(data) // kind.itemsize) for data in (one, other))
            if (wrong := _unequal(a, b)).numel():
                at = int(wrong[0])
                yield Different(given, start + at * kind.itemsize, wrong.numel(), float(a[at].real), float(b[at].real))


def _unequal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the indices of elements that differ by more than rounding."""
    if not a.dtype.is_floating_point:
        return (a != b).nonzero().flatten()
    a, b = a.double(), b.double()
    known = torch.cat([a[a.isfinite()].abs(), torch.zeros(1, dtype=a.dtype)])
    allowed = _RELATIVE * torch.maximum(a.abs(), b.abs()) + _OF_LARGEST * known.max()
    same = (a == b) | (a.isnan() & b.isnan()) | (a.isfinite() & b.isfinite() & ((a - b).abs() <= allowed))
    return (~same).nonzero().flatten()
