"""The order of tests in a run with a time budget, and an estimate of what there was no time for."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import pytest

from warpwave.inside.multi_gpu.pytest_plugin import PART
from warpwave.inside.process.journal import Event
from warpwave.inside.test.collection import Collection, Failure, few_of_each
from warpwave.inside.test.settings import is_narrowed
from warpwave.records import Budget, Job
from warpwave.records.selection import at_and_above, file_of

LONGER_BUDGET = "Give a longer --budget: importing torch and collecting tests takes its time, too."


class Planned(NamedTuple):
    """What a worker announces: files and ids without a test, the `ids` to run, and how many tests were left out, by function."""

    failures: list[Failure]
    ids: list[str]
    deselected: int
    left: Counter[str]
    ordered: list[pytest.Item]


def planned(
    items: list[pytest.Item], found: Sequence[str], collection: Collection, job: Job, done: Container[str], of: str = ""
) -> Planned:
    """Keep the tests of this job of those that pytest `found`, in place. `ordered` are those not `done`, as they are to run.

    `of` is the architecture, in the compile stage.
    """
    unchosen = collection.choose(items)
    selected = [item.nodeid for item in items]
    failures = [*collection.without_tests(found, selected, is_narrowed(job)), *unchosen]
    if job.what.quick:
        items[:] = few_of_each(items)
    ordered = in_order(items, job.limits.budget, of) if job.limits.budget else items[:]
    reached = set(map(id, ordered))
    items[:] = [item for item in items if id(item) in reached]
    left = by_function(selected) - by_function(item.nodeid for item in items) + collection.left
    ids = [item.nodeid for item in items if item.nodeid not in done]
    return Planned(failures, ids, max(0, len(found) - len(selected)), left, [item for item in ordered if item.nodeid not in done])


def in_order(items: Sequence[pytest.Item], budget: Budget, of: str = "") -> list[pytest.Item]:
    """Return the items in the order in which a budget has them run: what failed last time, what a change touches, then the others.

    Of the latter two, first one test of each function, then a few more, then the rest, each in the author's order. Of the others, as many
    of each file are returned as the list of known failures has seen, or so many in all as it has of the architecture `of`: what fails
    beyond would look new.
    """
    failed, changed = frozenset(budget.failed), frozenset(budget.changed)
    groups: dict[int, list[pytest.Item]] = {0: [], 1: [], 2: []}
    for item in items:
        is_failed = any(above in failed for above in at_and_above(item.nodeid))
        groups[0 if is_failed else 1 if file_of(item.nodeid) in changed else 2].append(item)
    found = groups.pop(0)
    for item in found:
        item.stash[PART] = 0
    left = Counter(seen_by("compile" if of else "test", budget))
    is_cut = of in left if of else bool(left)
    for group, several in groups.items():
        by_file: dict[str, list[pytest.Item]] = {}
        for item in several:
            by_file.setdefault(file_of(item.nodeid), []).append(item)
        # Each file by itself: the next run may collect others, and must choose the same tests of this one.
        first, few = ({id(item) for each in by_file.values() for item in few_of_each(each, most)} for most in (1, None))
        ranked = [(0 if id(item) in first else 1 if id(item) in few else 2, item) for item in several]
        for rank, item in sorted(ranked, key=lambda each: each[0]):
            name = of or file_of(item.nodeid)
            if group == 2 and is_cut and left[name] <= 0:
                continue
            left[name] -= 1
            item.stash[PART] = 3 * group + rank
            found.append(item)
    return found


def seen_by(stage: str, budget: Budget) -> dict[str, int]:
    """Return how many tests of each file, or for each architecture, the list of known failures has seen in this stage."""
    return {name.partition(" ")[2]: n for each in budget.seen.values() for name, n in each.items() if name.startswith(f"{stage} ")}


def function_of(name: str) -> str:
    """Return the function of a test: pytest writes parameters in brackets."""
    return name.partition("[")[0]


def by_function(names: Iterable[str]) -> Counter[str]:
    """Count tests by their function."""
    return Counter(map(function_of, names))


class Pace:
    """How fast tests end on workers side by side, to estimate how long others would take."""

    def __init__(self) -> None:
        self._last: dict[object, float] = {}
        self._warm: set[object] = set()  # workers whose first test has ended: that one imports and compiles for all
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._count: Counter[str] = Counter()
        self._first: list[float] = []

    def note(self, event: Event, worker: object = None) -> None:
        """Take one event of a worker's journal, as it is read."""
        now = time.monotonic()
        if event["event"] == "start":
            self._last.setdefault(worker, now)
        elif event["event"] in ("finish", "death") and worker in self._last:
            took, function = now - self._last[worker], function_of(event["id"])
            self._last[worker] = now
            if worker in self._warm:
                self._seconds[function] += took
                self._count[function] += 1
            else:
                self._first.append(took)
                self._warm.add(worker)

    def estimate(self, left: Mapping[str, int]) -> float | None:
        """Return about how long so many more tests of each function would take, in s; None if none ended, or none is left.

        A function of which none ran counts like the average test.
        """
        if not self._first or not left:
            return None
        number = self._count.total()
        usual = sum(self._seconds.values()) / number if number else sum(self._first) / len(self._first)
        means = {function: seconds / self._count[function] for function, seconds in self._seconds.items()}
        work = sum(count * means.get(function, usual) for function, count in left.items())
        return round(work / len(self._warm), 1)
