"""Comparison → one line a kernel: its tests, its share of the ceiling on each target, and how far it falls short. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Union

from harness.compare.model import FAILING, Comparison, Geomean, KernelTests, Row, Since, Speed
from harness.compare.speeds.ratios import lower_is_better
from harness.records import HOST_CODE
from harness.records.units import is_memory, is_rate
from harness.stats import median

# A kernel this close to what the card can do is near; one below the other is far.
NEAR, FAR = 0.9, 0.7


class Distance(str, Enum):
    """How far a share is from 1."""

    NEAR = "near"
    SHORT = "short"
    FAR = "far"


def distance(share: float) -> Distance:
    """Return how far a share is from 1, which is what the hardware, or the fastest provider, reaches."""
    return Distance.NEAR if share >= NEAR else Distance.SHORT if share >= FAR else Distance.FAR


@dataclass(frozen=True)
class Reached:
    """What a kernel's own provider reaches in one unit on a target: medians over its `n` cases.

    `of_ceiling` is the share of the `ceiling` (`the copy`, or `the bf16 product`), None without one. `of_best` is the speed over that of
    the fastest provider of the same case, None if it is the only provider.
    """

    unit: str
    provider: str
    n: int
    best: Union[float, None]
    of_ceiling: Union[float, None]
    of_best: Union[float, None]
    verified: bool
    ceiling: str = ""

    @property
    def ground(self) -> str:
        """What the share is of, in a word: `copy`, `product` or `peer`."""
        return "peer" if self.of_ceiling is None else "product" if is_rate(self.unit) else "copy"

    @property
    def share(self) -> Union[float, None]:
        """The share that says how far it is: of the ceiling, or else of the fastest provider. None if neither is known."""
        if is_memory(self.unit):
            return None
        return self.of_best if self.of_ceiling is None else self.of_ceiling


@dataclass(frozen=True)
class Compiled:
    """How many configurations of a kernel were compiled for a target's architectures, how many failed, and how many break a gate only."""

    n: int = 0
    failed: int = 0
    gated: int = 0


@dataclass(frozen=True)
class Square:
    """A kernel on a target. `counts` and `not_run` count its tests by verdict and by reason; both are empty without tests.

    `since` says how the speed of its own provider changed since the base run, if there is one.
    """

    target: str
    counts: dict[str, int]
    not_run: dict[str, int]
    reached: tuple[Reached, ...]
    since: Union[Since, None] = None
    compiled: Compiled = Compiled()

    @property
    def failed(self) -> int:
        """How many of its tests failed."""
        return sum(self.counts.get(verdict.value, 0) for verdict in FAILING)

    @property
    def share(self) -> Union[float, None]:
        """Its lowest share."""
        return min((one.share for one in self.reached if one.share is not None), default=None)


@dataclass(frozen=True)
class KernelLine:
    """A kernel on all targets. `portability` is Pennycook's, from 0 to 1. The ratios are geometric means over the sound cases."""

    kernel: str
    squares: tuple[Square, ...]
    portability: Union[float, None]
    ratios: tuple[Geomean, ...]

    @property
    def failed(self) -> int:
        """How many tests failed on all targets together."""
        return sum(square.failed for square in self.squares)

    @property
    def uncompiled(self) -> int:
        """How many of its configurations do not compile, on all targets together."""
        return sum(square.compiled.failed for square in self.squares)

    @property
    def gap(self) -> Union[float, None]:
        """What is missing to 1 on the target where most is missing. None if no share is known."""
        shares = [square.share for square in self.squares if square.share is not None]
        return max(0.0, 1 - min(shares)) if shares else None


def overview(comparison: Comparison) -> tuple[KernelLine, ...]:
    """Return every kernel: those with failed tests first, then those that do not compile, then those with the largest gap."""
    own = own_providers(comparison)
    found = _Found(comparison)
    kernels = dict.fromkeys([*(entry.kernel for entry in comparison.kernels), *own, *(kernel for kernel, _ in found.compiled)])
    lines = [_line(comparison, kernel, own.get(kernel, ""), found) for kernel in kernels]
    return tuple(sorted(lines, key=lambda line: (not line.failed, not line.uncompiled, -1.0 if line.gap is None else -line.gap - 1)))


def own_providers(comparison: Comparison) -> dict[str, str]:
    """Return the kernel's own provider by kernel: the first of its benchmark."""
    own: dict[str, str] = {}
    for row in comparison.rows:
        own.setdefault(row.kernel, row.provider)
    return own


class _Found:
    """A comparison, indexed by kernel."""

    def __init__(self, comparison: Comparison) -> None:
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.tests: dict[tuple[str, str], KernelTests] = {(entry.kernel, entry.target): entry for entry in comparison.kernels}
        self.speeds: dict[tuple[str, str, str], list[Speed]] = defaultdict(list)
        self.ratios: dict[tuple[str, str], list[Geomean]] = defaultdict(list)
        self.portability = {(entry.kernel, entry.provider): entry.value for entry in comparison.portabilities}
        self.since = {(entry.kernel, entry.provider, entry.target): entry for entry in comparison.since}
        for row in comparison.rows:
            self.rows[row.kernel].append(row)
        for speed in comparison.speeds:
            self.speeds[speed.kernel, speed.provider, speed.target].append(speed)
        for mean in comparison.geomeans:
            self.ratios[mean.kernel, mean.provider].append(mean)
        self.compiled: dict[tuple[str, str], Compiled] = defaultdict(Compiled)
        for code in comparison.codegen:
            for cell in code.cells:
                made = cell.compiled
                if made.was_compiled and code.function != HOST_CODE:
                    gated = made.only_gates
                    failed = made.verdict in FAILING and not gated
                    before = self.compiled[code.kernel, cell.target]
                    self.compiled[code.kernel, cell.target] = Compiled(before.n + 1, before.failed + failed, before.gated + gated)


def _line(comparison: Comparison, kernel: str, own: str, found: _Found) -> KernelLine:
    best = _of_best(found.rows.get(kernel, []), own)
    squares = []
    for target in comparison.targets:
        tested = found.tests.get((kernel, target.target))
        reached = tuple(_reached(entry, best) for entry in found.speeds.get((kernel, own, target.target), ()))
        counts, not_run = (tested.counts, tested.not_run) if tested else ({}, {})
        squares.append(
            Square(
                target.target,
                counts,
                not_run,
                reached,
                found.since.get((kernel, own, target.target)),
                found.compiled[kernel, target.target],
            )
        )
    return KernelLine(kernel, tuple(squares), found.portability.get((kernel, own)), tuple(found.ratios.get((kernel, own), ())))


def _reached(speed: Speed, best: Mapping[tuple[str, str, str], float]) -> Reached:
    of_best = best.get((speed.unit, speed.target, speed.gpu))
    return Reached(speed.unit, speed.provider, speed.n, speed.best, speed.median_share, of_best, speed.verified, speed.share_of)


def _of_best(rows: Iterable[Row], own: str) -> dict[tuple[str, str, str], float]:
    """Return the share of the best speed by unit, target and GPU, if other providers were measured. The best possible share is 1."""
    cases: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for row in rows:
        for cell in row.cells:
            if cell.value and not cell.suspect:
                cases.setdefault((row.unit, cell.target, cell.gpu), {}).setdefault(row.case, {})[row.provider] = cell.value
    best = {}
    for key, found in cases.items():
        held = [(values[own], values.values()) for values in found.values() if own in values and len(values) > 1]
        shares = [min(values) / mine if lower_is_better(key[0]) else mine / max(values) for mine, values in held]
        if shares:
            best[key] = median(shares)
    return best
