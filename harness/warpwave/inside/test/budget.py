"""The order of tests in a run with a time budget, how long each may take, and an estimate of what there was no time for."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

import pytest

from warpwave.inside.multi_gpu.ledger import LEDGER_VARIABLE
from warpwave.inside.multi_gpu.pytest_plugin import Claims
from warpwave.inside.process.journal import Event, Journal
from warpwave.inside.process.outcomes import describe
from warpwave.inside.process.workers import Ended, seconds_left
from warpwave.inside.test.collection import Collection, Failure, few_of_each, first_of_each, work_of
from warpwave.inside.test.settings import is_narrowed
from warpwave.records import Budget, Job
from warpwave.records.selection import at_and_above, file_of

# A property of a test that had failed before it was ended for others: what else it does is not known.
CUT_SHORT = "cut short by the budget"
MOST_REACHED = 1000  # functions in a report
LONGER_BUDGET = "Give a longer --budget: importing torch and collecting tests takes its time, too."


class Planned(NamedTuple):
    """What a worker announces: files and ids without a test, the `ids` to run, and how many tests were left out, by function.

    `units` are the tests not done, as they are to run. `chosen` are all those of the job, in pytest's order.
    """

    failures: list[Failure]
    ids: list[str]
    deselected: int
    left: Counter[str]
    units: dict[str, list[pytest.Item]]
    chosen: list[pytest.Item]


def planned(
    items: list[pytest.Item], found: Sequence[str], collection: Collection, job: Job, done: Container[str], of: str = ""
) -> Planned:
    """Keep the tests of this job of those that pytest `found`, in place: with a budget, in the order of its units.

    `of` is the architecture, in the compile stage.
    """
    unchosen = collection.choose(items)
    chosen, selected = list(items), [item.nodeid for item in items]
    failures = [*collection.without_tests(found, selected, is_narrowed(job)), *unchosen]
    if job.what.quick:
        items[:] = few_of_each(items)
    among = [card.name for card in job.architectures] if of else []
    units = in_units(items, job.limits.budget, of, among) if job.limits.budget else {}
    if job.limits.budget:
        reached = dict.fromkeys(id(item) for unit in units.values() for item in unit)
        items[:] = [item for item in items if id(item) in reached]
    left = by_function(selected) - by_function(item.nodeid for item in items) + collection.left
    ids = [item.nodeid for item in items if item.nodeid not in done]
    items[:] = [item for item in items if item.nodeid not in done]
    units = {name: [item for item in unit if item.nodeid not in done] for name, unit in units.items()}
    return Planned(failures, ids, max(0, len(found) - len(selected)), left, units, chosen)


_TRY = "try"


def in_units(items: Sequence[pytest.Item], budget: Budget, of: str = "", among: Sequence[str] = ()) -> dict[str, list[pytest.Item]]:
    """Return the items in units, in the order in which a budget has them run: what failed last time, what a change touches, the others.

    Of the latter two, first one test of each function, then a few more, then the rest. The unit of a first test (`try`) holds those few,
    too: they stand in for one that launches nothing. Of files that nobody edited, as many of each function are returned as the list of
    known failures has seen; in the compile stage, on the architecture `of`, unless it has seen none `among` those of the run. What fails
    beyond would look new.
    """
    failed, changed, edited = frozenset(budget.failed), frozenset(budget.changed), frozenset(budget.edited)
    units: dict[str, list[pytest.Item]] = {}
    seen = set(map(id, _seen([item for item in items if file_of(item.nodeid) not in edited], budget, of, among)))
    may_run = [item for item in items if id(item) in seen or file_of(item.nodeid) in edited]
    for item in may_run if of else items:  # a test that failed in the test stage may not have been compiled for `of`
        if any(above in failed for above in at_and_above(item.nodeid)):
            units.setdefault(f"failed: {function_of(item.nodeid)}", []).append(item)
    for which in ("touched", "others"):
        found = first_of_each([item for item in may_run if (file_of(item.nodeid) in changed) == (which == "touched")]).items()
        units |= {f"{_TRY} {which}: {function}": first for function, (first, _) in found if first}
        units |= {f"few {which}: {function}": first[1:] for function, (first, _) in found if first[1:]}
        units |= {f"rest {which}: {function}": rest for function, (_, rest) in found if rest}
    return units


def _seen(items: list[pytest.Item], budget: Budget, of: str, among: Sequence[str]) -> list[pytest.Item]:
    seen = seen_by("compile" if of else "test", budget)
    if of:
        seen = {name: number for name, number in seen.items() if name.partition(" ")[0] in among}
    if not seen:
        return items
    left, kept = Counter(seen), set[int]()
    for first, rest in first_of_each(items).values():
        ended = [work_of(item) for item in (*first, *rest) if seen.get(f"{of} {item.nodeid}".strip()) == 0]
        # What asks for as much work as one that was ended ran last, if at all.
        for item in sorted((*first, *rest), key=lambda item: work_of(item) >= min(ended, default=math.inf)):
            name, function = (f"{of} {each}".strip() for each in (item.nodeid, function_of(item.nodeid)))
            if seen.get(name) != 0 and left[function] > 0:
                left[function] -= 1
                kept.add(id(item))
    return [item for item in items if id(item) in kept]


def seen_by(stage: str, budget: Budget) -> dict[str, int]:
    """Return how many tests of each function the list of known failures has seen in this stage, of one of compiling by architecture."""
    return {name.partition(" ")[2]: n for each in budget.seen.values() for name, n in each.items() if name.startswith(f"{stage} ")}


_LEAST_S, _SHARE = 3.0, 1 / 8  # a test may take so much of the time that is left
_FAIR, _LARGEST, _LAST = 2, 1 / 2, 3 / 4  # the first one of a function twice its fair share, but no more than half; the last of them more
_LONG_S = 86400.0
_AGAIN_S = 1.0  # the package's code may catch what ends it
_SIGNAL = signal.SIGVTALRM  # SIGALRM belongs to plugins that limit a test's time


class Turns:
    """A pytest plugin for a run with a budget. It says which test is next, and ends one that takes more than its share of the time.

    An ended test has no result: it is left out, and so are those of its function that ask for as much work. If there is time at the end,
    they run without a limit. `launched` returns whether the test that ran last has launched a kernel: one that has not, and did not fail,
    is no try of its function.
    """

    def __init__(self, units: dict[str, list[pytest.Item]], launched: Callable[[], bool]) -> None:
        self.units, self.launched = units, launched
        self.journal = Journal.from_environment()
        self.ended_s = 0.0  # what the test that runs had, if it was ended
        self._ran: dict[int, bool] = {}  # by item: whether it was a try
        self._late: dict[int, pytest.Item] = {}
        self._claims: Claims | None = None  # if several workers share the tests
        self._limit_s: float | None = None
        self._failed = self._watched = self._fired = False
        self._slow: dict[str, float] = {}  # by function: the work of a test that was ended

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests, one unit after the other."""
        if session.config.option.collectonly:
            return None
        signal.signal(_SIGNAL, self._end)
        for item in self._in_turn(session):
            # The parent stands for a next test, which is not known yet: teardown then ends what belongs to this test alone.
            try:
                session._setupstate.teardown_exact(item)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                self.journal.write("note", text=f"a fixture raised when it ended, before {item.nodeid}: {describe(error)}")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.parent)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _in_turn(self, session: pytest.Session) -> Iterator[pytest.Item]:
        claims = self._claims = Claims(session, self.units) if LEDGER_VARIABLE in os.environ else None
        yield from self._of_units(self._noticing(claims) if claims else self.units.items(), claims.workers() if claims else 1)
        self._limit_s = None
        yield from sorted((item for item in self._late.values() if id(item) not in self._ran), key=work_of)
        if claims:
            yield from self._of_units(claims.units(wait=True), 1)
            yield from (item for item, _ in claims.postponed())

    def _of_units(self, units: Iterable[tuple[str, list[pytest.Item]]], workers: int) -> Iterator[pytest.Item]:
        tries = sum(name.startswith(_TRY) for name in self.units)
        for name, items in units:
            is_try, share = name.startswith(_TRY), _SHARE
            if is_try:
                share = max(share, min(_LARGEST, _FAIR * workers / max(1, tries)) if tries > workers else _LAST)
                tries -= 1
            self._limit_s = max(_LEAST_S, share * min(seconds_left(), _LONG_S))
            if is_try and items[:1] != self.units[name][:1]:  # another worker has run it
                continue
            for item in items:
                if work_of(item) >= self._slow.get(function_of(item.nodeid), math.inf):
                    self._leave_for_later(item)
                elif id(item) not in self._ran:
                    yield item
                if is_try and self._ran.get(id(item), True):
                    break

    def _noticing(self, claims: Claims) -> Iterator[tuple[str, list[pytest.Item]]]:
        """Yield the units that this worker claims. What another worker has ended, it does not try."""
        known = {item.nodeid: item for items in self.units.values() for item in items}
        for name, items in claims.units(wait=False):
            ended = claims.ended()
            for nodeid in ended & known.keys():
                self._note_slow(known[nodeid])
            yield name, items

    def _leave_for_later(self, item: pytest.Item) -> None:
        if self._claims and id(item) not in self._late:
            self._claims.keep(item)
        self._late[id(item)] = item

    def _note_slow(self, item: pytest.Item) -> None:
        self._slow[function_of(item.nodeid)] = min(work_of(item), self._slow.get(function_of(item.nodeid), math.inf))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note whether the test was a try, or was ended."""
        self.ended_s, self._failed = 0.0, False
        result = yield
        if self.ended_s:
            self._leave_for_later(item)
            self._note_slow(item)
            self.journal.write("ready", id=item.nodeid, unfinished=round(self.ended_s, 3))
        else:
            self._ran[id(item)] = self._failed or self.launched()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Fixtures have no limit: other tests need them, too. One that fails was a try, and one that skips was none."""
        return (yield from self._noting())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the time of the test."""
        over, begun, main = threading.Event(), time.monotonic(), threading.get_ident()

        def watch(wait_s: float) -> None:
            while not over.wait(wait_s):
                signal.pthread_kill(main, _SIGNAL)
                wait_s = _AGAIN_S

        if self._limit_s is not None:
            threading.Thread(target=watch, args=(self._limit_s,), daemon=True).start()
        self._watched, self._fired = True, False
        error: BaseException | None = None
        try:
            return (yield from self._noting())
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._watched = False
            over.set()
            caught = getattr(item, "_excinfo", None)  # by unittest
            if self._fired and isinstance(error, pytest.fail.Exception):  # which the sanitizer raises for what it has found until then
                item.user_properties.append((CUT_SHORT, True))
            elif self._fired and (caught or error):
                self.ended_s = time.monotonic() - begun

    def _noting(self) -> Generator[None, object, object]:
        try:
            return (yield)
        except BaseException as error:
            self._failed = not isinstance(error, pytest.skip.Exception)
            if isinstance(error, Ended):  # also of another test's fixture: pytest keeps what it has raised
                self.ended_s = _AGAIN_S
            raise

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._watched and not is_importing(frame):
            self._fired = True
            raise Ended


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a test is in an import, which others need whole: torch refuses to import its compiler again after half of it."""
    while frame is not None and frame.f_code.co_name != "pytest_runtest_call":
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


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
        elif (event["event"] in ("finish", "death") or event.get("unfinished")) and worker in self._last:
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
