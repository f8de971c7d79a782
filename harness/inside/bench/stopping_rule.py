"""The rules for when a point has been measured enough, and which of its rounds count. Pure.

A point is measured in rounds, and the providers of one case take turns, so that a GPU that warms up or slows down does so for all of them.
Quiet points end early. Noisy points continue until their time is up, and are marked.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.inside.bench.batches import Burst
from harness.inside.bench.call_bytes import Touched
from harness.records import Job
from harness.stats import median_interval

# At least this many rounds at the end count as settled.
_SETTLED = 4


@dataclass(frozen=True)
class Rule:
    """When to stop: `target` is half the median's 95% interval over the median; the cap is the author's `rep` milliseconds.

    A round takes a `slices`-th of the cap, or a `rounds`-th of `timings`, which takes longer for slow calls. After `rounds` rounds with
    `timings` timings, the interval is computed, and once more after `settled` rounds. It determines how many rounds the target needs
    (Stein's two stages), and that many are measured, up to the cap. Checking after each round and stopping at the first narrow interval
    would give intervals that are too narrow: in simulations they miss the true median one time in six.
    """

    target: float = Job.precision
    rounds: int = 5
    settled: int = 11
    timings: int = 50
    slices: int = 80

    def repetitions(self, cap_ms: float, pace_ms: float) -> int:
        """Return how many repetitions of that pace make a round."""
        asked = max(cap_ms / self.slices / pace_ms, self.timings / self.rounds)
        return max(1, int(min(asked, cap_ms / self.rounds / pace_ms)))


@dataclass
class Gathered:
    """What one `do_bench` call of a point has gathered over its rounds, in ms. `spent_ms` includes flushes."""

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
    touched: Touched | None = None
    planned: int | None = None
    look_at: int = 0
    looked_behind: int | None = None

    def add(self, burst: Burst, untimed: int = 0) -> None:
        """Add a round, with the number of `untimed` repetitions before its timings."""
        self.rounds.append(burst.times_ms)
        self.medians.append(statistics.median(burst.times_ms))
        self.host_ms, self.pace_ms = burst.host_ms, max(burst.pace_ms, 1e-3)
        self.spent_ms += burst.spent_ms
        self.untimed += untimed
        self.late += burst.late

    @property
    def discarded(self) -> int:
        """How many rounds at the beginning do not count, because the GPU was still reaching its clock."""
        return unsettled(self.medians)

    @property
    def kept(self) -> list[list[float]]:
        """The rounds that count."""
        return self.rounds[self.discarded :]

    @property
    def times_ms(self) -> list[float]:
        """The timings of the rounds that count, in order."""
        return list(itertools.chain.from_iterable(self.kept))

    @property
    def quiet(self) -> bool:
        """Whether all rounds that the target needs have been measured."""
        return self.planned is not None and len(self.rounds) - self.discarded >= self.planned

    @property
    def enough(self) -> bool:
        """Whether no more rounds are needed."""
        kept = self.kept
        if self.looked_behind != self.discarded:  # start over if the GPU had not settled before
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
        """Return how many rounds are needed: an interval narrows with the square root of their number."""
        interval = median_interval(self.times_ms, [len(times) for times in kept])
        if interval is None:
            return len(kept)
        width = (interval.high - interval.low) / 2 / interval.value
        return math.ceil(len(kept) * (width / self.rule.target) ** 2)


@dataclass
class Rounds:
    """A point over its rounds: what each `do_bench` call of its author's function has gathered, by call site.

    Each round calls the author's function again, so that everything it sets up around `do_bench` is in place. Its result is computed from
    all rounds so far. A function whose setup takes longer than its measurement is called only twice; its second call measures all remaining
    rounds.
    """

    rule: Rule = field(default_factory=Rule)
    calls: dict[tuple[str, int, int], Gathered] = field(default_factory=dict)
    latest: list[tuple[str, int, int]] = field(default_factory=list)
    turns: int = 0

    def begin(self) -> None:
        """Prepare for a call of the author's function."""
        self.latest = []
        self.turns += 1

    def gathered(self, file: str, line: int, setup_ms: float) -> tuple[Gathered, bool]:
        """Return what a call site has gathered, and whether it must continue until it has enough.

        `setup_ms` is the time since the function started, or since its last measurement.
        """
        again = sum(place[:2] == (file, line) for place in self.latest)
        place = (file, line, again)
        self.latest.append(place)
        found = self.calls.setdefault(place, Gathered(self.rule))
        # The first turn includes compilation. Only the second shows the cost of the setup.
        return found, self.turns > 1 and setup_ms > found.cap_ms > 0

    @property
    def enough(self) -> bool:
        """Whether every call of the latest turn has enough. A function without `do_bench` is called once."""
        return all(self.calls[place].enough for place in self.latest)


def unsettled(medians: Sequence[float]) -> int:
    """Return how many rounds at the beginning to discard.

    Discard those whose median is further from all of the last half than the medians of that half are from each other. Random noise almost
    never triggers this; a GPU whose clock is still rising does.
    """
    later = medians[-max(_SETTLED, len(medians) // 2) :]
    first = medians[: len(medians) - len(later)]
    if not first:
        return 0
    low, high = min(later), max(later)
    near = (low - (high - low), high + (high - low))
    return next((count for count, median in enumerate(first) if near[0] <= median <= near[1]), len(first))
