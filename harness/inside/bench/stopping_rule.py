"""When a point has been measured enough, and which of its rounds count: rules, so that nobody has to look. Pure.

A point is measured in rounds, and the providers of one case take turns: a card that warms up or slows down does so for all of them alike.
Quiet points end early; noisy ones go on until their time is up, and say so.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.inside.bench.batches import Burst
from harness.records import Job
from harness.stats import median_interval

# So many rounds at the end are taken for settled, however few there are in all.
_SETTLED = 4


@dataclass(frozen=True)
class Rule:
    """When to stop: `target` is the half-width of the median's 95 % interval, over the median; the cap is the author's `rep` milliseconds.

    A round takes a `slices`-th of the cap, or a `rounds`-th of the `timings`, which takes longer where a call does. After that many of both
    the interval is looked at, and once more after `settled` rounds: from it follows how many the target takes (Stein's two stages), and so
    many are measured, up to the cap. To look after each round, and to stop when the interval happens to be narrow, would make intervals
    that are too narrow: by simulation they miss the true median one time in six.
    """

    target: float = Job.precision
    rounds: int = 5
    settled: int = 11
    timings: int = 50
    slices: int = 80

    def repetitions(self, cap_ms: float, pace_ms: float) -> int:
        """How many of that pace make a round."""
        asked = max(cap_ms / self.slices / pace_ms, self.timings / self.rounds)
        return max(1, int(min(asked, cap_ms / self.rounds / pace_ms)))


@dataclass
class Gathered:
    """What one `do_bench` call of a point has gathered over its rounds, in ms. `spent_ms` counts flushes, too."""

    rule: Rule = field(default_factory=Rule)
    rounds: list[list[float]] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    cap_ms: float = 0.0
    spent_ms: float = 0.0
    pace_ms: float = 0.0
    host_ms: float = 0.0
    device_ms: float = 0.0
    untimed: int = 0
    late: int = 0
    graph_ms: float | None = None
    planned: int | None = None
    look_at: int = 0
    looked_behind: int | None = None

    def add(self, burst: Burst, untimed: int = 0) -> None:
        """One more round, before whose timings there were `untimed` repetitions."""
        self.rounds.append(burst.times_ms)
        self.medians.append(statistics.median(burst.times_ms))
        self.host_ms, self.pace_ms = burst.host_ms, max(burst.pace_ms, 1e-3)
        self.spent_ms += burst.spent_ms
        self.untimed += untimed
        self.late += burst.late

    @property
    def discarded(self) -> int:
        """How many rounds at the beginning do not count: a card needs time to reach its clock."""
        return unsettled(self.medians)

    @property
    def kept(self) -> list[list[float]]:
        """The rounds that count."""
        return self.rounds[self.discarded :]

    @property
    def times_ms(self) -> list[float]:
        """Their timings, in the order in which they were taken."""
        return list(itertools.chain.from_iterable(self.kept))

    @property
    def quiet(self) -> bool:
        """Whether all rounds that the target takes have been measured."""
        return self.planned is not None and len(self.rounds) - self.discarded >= self.planned

    @property
    def enough(self) -> bool:
        """Whether another round would be one too many."""
        kept = self.kept
        if self.looked_behind != self.discarded:  # anew, where the card had not settled yet
            self.looked_behind, self.look_at, self.planned = self.discarded, self.rule.rounds, None
        if len(kept) < self.rule.rounds:
            return False
        if self.planned is None and len(kept) >= self.look_at and sum(map(len, kept)) >= self.rule.timings:
            takes = self._takes(kept)
            if takes <= len(kept) or len(kept) >= self.rule.settled:
                self.planned = takes
            self.look_at = self.rule.settled
        return self.quiet or self.spent_ms >= self.cap_ms

    def _takes(self, kept: list[list[float]]) -> int:
        """How many rounds: an interval becomes narrower with the root of their number."""
        interval = median_interval(self.times_ms, [len(times) for times in kept])
        if interval is None:
            return len(kept)
        width = (interval.high - interval.low) / 2 / interval.value
        return math.ceil(len(kept) * (width / self.rule.target) ** 2)


@dataclass
class Rounds:
    """A point over its rounds: what each `do_bench` call of its author's function has gathered, by where that is called from.

    In each round the function is called anew, so that everything that the author set up around `do_bench` is in place, and from all rounds
    so far it makes its number. A function that takes longer to set up than to measure is called twice, and then measures on by itself.
    """

    rule: Rule = field(default_factory=Rule)
    calls: dict[tuple[str, int, int], Gathered] = field(default_factory=dict)
    latest: list[tuple[str, int, int]] = field(default_factory=list)
    turns: int = 0

    def begin(self) -> None:
        """The author's function is about to be called."""
        self.latest = []
        self.turns += 1

    def gathered(self, file: str, line: int, setup_ms: float) -> tuple[Gathered, bool]:
        """What the call from there has gathered, and whether it has to go on until it is enough; `setup_ms` is what came before it."""
        again = sum(place[:2] == (file, line) for place in self.latest)
        place = (file, line, again)
        self.latest.append(place)
        found = self.calls.setdefault(place, Gathered(self.rule))
        # The first turn compiles: only the second knows what setting up costs.
        return found, self.turns > 1 and setup_ms > found.cap_ms > 0

    @property
    def enough(self) -> bool:
        """Whether all that the latest turn called for has been measured enough; a function that measures for itself is called once."""
        return all(self.calls[place].enough for place in self.latest)


def unsettled(medians: Sequence[float]) -> int:
    """How many rounds at the beginning to discard: those whose median lies further from all of the last half than these do from each other.

    Of scatter alone that is hardly ever true, of a clock that comes up it is.
    """
    later = medians[-max(_SETTLED, len(medians) // 2) :]
    first = medians[: len(medians) - len(later)]
    if not first:
        return 0
    low, high = min(later), max(later)
    near = (low - (high - low), high + (high - low))
    return next((count for count, median in enumerate(first) if near[0] <= median <= near[1]), len(first))
