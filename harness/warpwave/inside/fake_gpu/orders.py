"""Does a launch's result depend on the order of its waves and workgroups? It is executed again, in other orders.

A pair of accesses that nothing orders is a race if the result has other bits where the second one comes first. Behind that, the launch is
executed in random orders. Rounding alone is no such dependence: kernels add up by atomics, behind locks, or in the program that comes last,
and floats may differ by what another order of a sum explains. Where atomics only add up, and nothing loads the sums, that holds for the
tensors that they add to; where a kernel has no such atomic, every bit counts. But a test may not ask for the same bits of a sum: later
launches of a kernel in a test keep the result of a random order.

Where atomics order all accesses, as those of programs that take the next free place, the order is the kernel's own choice. Then memory
keeps the result of another order, and the test says whether that is right. If it is wrong, the test's message names the atomic behind
which another program came, and accesses that nothing orders in that order.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from warpwave.emulator import Access, Check, EmulatorError, Execution, Found, Launch, Pair, TimeLimit, Unimplemented
from warpwave.emulator.errors import Place
from warpwave.inside.fake_gpu.emulated_findings import Different, Given, Race, decided
from warpwave.inside.fake_gpu.launches import Launched

SEEDS = (1, 2)
_MORE_SEEDS = (3, 4, 5, 6)  # for a kernel's first launch in a test, if it is short and atomics decide what programs do
_SHORT = 200_000  # wave-instructions, some hundredths of a second
_MOST_BYTES = 1 << 28  # of all buffers of a launch: they are copied
_MOST_WATCHED = 64 << 20  # of a buffer whose pairs are known, as `checks/lifecycle.c` has it
# Executions with a pair reversed: of one launch, of two lines in one launch, of two lines in one test.
_MOST_REVERSED, _MOST_OF_LINES, _MOST_OF_TEST = 24, 8, 16
_RELATIVE, _OF_LARGEST = 0.02, 1e-4  # by how much floats may differ: of the value, and of the largest one of the tensor
_MOST_NAMED = 2  # pairs of lines in a message
_STEPS = 16  # of a short type: so many steps of the largest one, as each addition rounds to one

Buffer = tuple[int, int]
Again = Callable[..., Execution]  # with an `order`, or a pair to `reverse`


class Orders:
    """Executes a launch again. Made before the launch, because memory must be as it was then. A wave has `lanes` threads."""

    def __init__(self, launch: Launch, lanes: int) -> None:
        self._buffers: Sequence[Buffer] = launch.buffers
        programs = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self.worth = (programs > 1 or launch.threads > lanes) and sum(size for _, size in launch.buffers) <= _MOST_BYTES
        self._before = self._copy() if self.worth else []
        self._is_watched = all(size <= _MOST_WATCHED for _, size in launch.buffers)

    def races(self, again: Again, execution: Execution, tensors: Sequence[Given], launched: Launched) -> list[Race]:
        """Return the pairs of an execution that are races; memory keeps the result of that execution.

        Of the pairs of two lines, the first race is enough: others say the same. What cannot come in the other order is none.
        """
        found: dict[tuple[str, str], Race] = {}
        if not self.worth or not execution.pairs:
            return []
        first = self._copy()
        for lines, pair in _chosen(execution.pairs, launched):
            if lines in found:
                continue
            launched.reversed[lines] = launched.reversed.get(lines, 0) + 1
            self._restore(self._before)
            try:
                if not again(reverse=pair).reversed:
                    continue
            except (TimeLimit, Unimplemented):
                continue  # one wave waits for the other
            except EmulatorError:
                found[lines] = Race(pair, None)
                continue
            # One held wave leaves the order of programs as it is; a held program may let another one add up.
            is_held = pair.found.workgroup != pair.found.other_workgroup and not pair.found.in_flight
            rounds = execution.rounds or (execution.decides and is_held)
            if different := next(self._different(first, self._copy(), tensors, rounds, execution.added), None):
                found[lines] = Race(pair, different)
        self._restore(first)
        return [*found.values()]

    def compare(self, again: Again, execution: Execution, tensors: Sequence[Given], launched: Launched) -> list[Different]:
        """Return what differs if `again` executes the launch in the orders of some seeds.

        Memory keeps the result of the first time. From the kernel's second launch on, it keeps that of a random order if no more than
        rounding differs; and from the first one on where atomics order all accesses. The same numbers in other places, as in the next free
        ones, are right more often than other numbers: then more orders are tried.

        An execution that does not end well is no answer: programs may wait for others that start before them.
        """
        if not self.worth:
            return []
        first = kept = other = self._copy()

        def differences(**how: Any) -> tuple[list[Different], Execution]:
            nonlocal other
            self._restore(self._before)
            ended = again(**how)
            other = self._copy()
            return list(self._different(first, other, tensors, execution.rounds or execution.decides, execution.added)), ended

        try:
            is_asked = execution.decides and execution.instructions <= _SHORT and not launched.is_unordered
            for seed in (*SEEDS, *(_MORE_SEEDS if is_asked and launched.times == 1 else ())):
                order = seed + len(SEEDS + _MORE_SEEDS) * (launched.times - 1)
                try:
                    found, ended = differences(order=order)
                except EmulatorError:
                    return []
                if not found:
                    continue
                if execution.pairs or not self._is_watched:
                    return found
                is_rearranged = _is_rearranged(first, other)
                if kept is first or not is_rearranged:
                    launched.is_unordered, kept = True, other
                    launched.is_moved = (
                        launched.is_moved and next(self._different(first, other, tensors, True, (), sort=True), None) is None
                    )
                    if is_asked and (where := _in_turns(differences, order, ended.switches)):
                        launched.turns = f"in order {order} of launch {launched.times}, {where}: {decided(found[0], 'in that order')}"
                if not (is_asked and is_rearranged):
                    return []
            if kept is not first:
                return []
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

    def _different(
        self,
        first: Sequence[bytes],
        second: Sequence[bytes],
        tensors: Sequence[Given],
        rounds: bool,
        added: Sequence[Buffer],
        sort: bool = False,
    ) -> Iterator[Different]:
        for (start, _), one, other in zip(self._buffers, first, second, strict=True):
            given = next((each for each in tensors if each.tensor.untyped_storage().data_ptr() == start), None)
            if given is None or one == other:
                continue
            kind = given.tensor.dtype
            a, b = (torch.frombuffer(bytearray(data), dtype=kind, count=len(data) // kind.itemsize) for data in (one, other))
            if sort:
                a, b = ((each.double() if kind.is_floating_point else each).sort().values for each in (a, b))
            may_round = rounds or any(low <= start < high for low, high in added)
            if (wrong := unequal(a, b, may_round)).numel():
                at = int(wrong[0])
                yield Different(given, start + at * kind.itemsize, wrong.numel(), float(a[at].real), float(b[at].real))


def _in_turns(differences: Callable[..., tuple[list[Different], Execution]], order: int, switches: int) -> str:
    """Say where programs took turns in an order whose result differs; empty where only one after the other comes out differently, too.

    Of the places where a program was held, it is the first one without which the result is that of programs in order.
    """
    behind, unordered, low, high = "", "", 0, switches + 1
    with contextlib.suppress(EmulatorError):
        if not differences(order=order, switches=0)[0]:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if differences(order=order, switches=middle)[0] else (middle, high)
            if at := differences(order=order, switches=high)[1].switched_at:
                behind = f"another program ran right behind {_line(at())}"
    with contextlib.suppress(EmulatorError):
        pairs = differences(order=order, findings=[])[1].pairs
        lines = {tuple(sorted(_line(place) for place in (one.found.place, one.found.other) if place)) for one in pairs}
        unordered = ", ".join(f"nothing orders {' and '.join(dict.fromkeys(two))}" for two in sorted(lines)[:_MOST_NAMED])
    return ", and ".join(filter(None, (behind, unordered)))


def _is_rearranged(first: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Return whether the same bytes are there, in other places."""
    changed = ([one, two] for one, two in zip(first, other, strict=True) if one != two)
    counts = ([torch.frombuffer(bytearray(data), dtype=torch.uint8).bincount(minlength=256) for data in both] for both in changed)
    return all(torch.equal(one, two) for one, two in counts)


def _line(place: Place) -> str:
    return place.line or str(place)


def _chosen(pairs: Sequence[Pair], launched: Launched) -> list[tuple[tuple[str, str], Pair]]:
    """Return the pairs to try, with their lines, or instructions where lines are not known: some of each two lines, evenly spread.

    Of two lines, pairs of each kind have their share: waves that repeat each other's work make many in a program, and they decide nothing.
    """
    by_lines: dict[tuple[str, str], dict[tuple[object, ...], list[Pair]]] = {}
    for pair in pairs:
        found = pair.found
        assert found.other is not None
        one, other = sorted(place.line or str(place.pc) for place in (found.other, found.place))
        kind = (found.workgroup == found.other_workgroup, found.access, found.other_access)
        by_lines.setdefault((one, other), {}).setdefault(kind, []).append(pair)
    turns = [
        (turn, lines, pair)
        for lines, kinds in by_lines.items()
        if launched.reversed.get(lines, 0) < _MOST_OF_TEST
        for known in kinds.values()
        for turn, pair in enumerate(known[:: -(-len(known) // max(1, _MOST_OF_LINES // len(kinds)))])
    ]
    return [(lines, pair) for _, lines, pair in sorted(turns, key=lambda one: one[0])[:_MOST_REVERSED]]


def was_tried(one: Found) -> bool:
    """Return whether the other order decides if a finding is a race. It does between programs.

    A plain store among atomics is a race in any case: it is no release, and no order here shows what others see too early.
    """
    is_between_programs = one.check is Check.GLOBAL_RACE and one.workgroup != one.other_workgroup
    return is_between_programs and {one.access, one.other_access} != {Access.STORE, Access.ATOMIC}


def unequal(a: torch.Tensor, b: torch.Tensor, rounds: bool) -> torch.Tensor:
    """Return the indices of elements that differ, if `rounds` by more than rounding. Any NaN is as good as another."""
    if not a.dtype.is_floating_point:
        return (a != b).nonzero().flatten()
    of_largest = max(_OF_LARGEST, _STEPS * torch.finfo(a.dtype).eps)
    a, b = a.double(), b.double()
    same = (a == b) & (a.signbit() == b.signbit()) | (a.isnan() & b.isnan())
    if rounds:
        known = torch.cat([a[a.isfinite()].abs(), torch.zeros(1, dtype=a.dtype, device="cpu")])
        allowed = _RELATIVE * torch.maximum(a.abs(), b.abs()) + of_largest * known.max()
        same |= a.isfinite() & b.isfinite() & ((a - b).abs() <= allowed)
    return (~same).nonzero().flatten()
