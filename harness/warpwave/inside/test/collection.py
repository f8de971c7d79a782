"""Watch pytest collect, so that each file which it matched has a row: of its tests, of what went wrong, or of why it has none.

Both stages that run tests register this beside their own plugin. pytest itself says nothing of a file without tests, and ends at once if
the `conftest.py` of the package does not import.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import DecidedByData, describe, unchecked, with_place
from warpwave.inside.process.workers import seconds_left
from warpwave.inside.scripts.script import IS_SCRIPT
from warpwave.inside.test.settings import selection_of, settings
from warpwave.records import Budget, Chosen, NotRun, Selection
from warpwave.records.selection import NO_SUCH_TEST, at_and_above, file_of, is_bench, is_test

_FEWEST, _A_SECOND = 100, 10  # tests of one function: this many at least, and so many for each second of a budget
_COLLECTING = 0.4  # of a budget's time: files that come later are left out
_BROKEN = "ConftestImportFailure"  # pytest's own name for it is not public


@dataclass(frozen=True)
class Failure:
    """Why a file has no test that ran: `id` is the file, `message` the exception in one line, if one was raised.

    `broken` is True if the import of this file failed. The author of the package can fix that.
    """

    id: str
    message: str
    why: NotRun
    broken: bool = False


@dataclass(eq=False)  # a plugin must be hashable
class Collection:
    """A pytest plugin: it keeps what was matched and what failed, and keeps pytest out of files without a chosen test.

    `root` is the folder that ids are relative to. This stage has no tests of the benches `elsewhere`.
    """

    root: Path = field(default_factory=Path)
    matched: dict[str, None] = field(default_factory=dict)
    raised: dict[str, BaseException] = field(default_factory=dict)  # by node
    below: dict[str, Failure] = field(default_factory=dict)  # folders whose conftest.py is broken
    selection: Selection = field(default_factory=lambda: Selection(Chosen()))  # read when pytest starts: this may be made in the stage
    elsewhere: tuple[str, ...] = ()
    stage: str = "test"
    deadly: set[str] = field(default_factory=set)  # files that an earlier worker did not survive, or not within a test's limit
    budget: Budget | None = None  # unless the tests are narrowed in a way that needs all of them to be collected
    seen: frozenset[str] = frozenset()  # with a budget: the only files whose failures the list of known failures can tell from new ones
    enough_s: float = -math.inf  # with a budget: no file is collected when less of the stage's time is left
    begun: bool = False  # a file with tests was collected
    cut: bool = False  # a file was left out for want of time
    takes_over: bool = False  # from an earlier worker, which may have announced tests of that file
    left: Counter[str] = field(default_factory=Counter)  # tests that were not made, as no budget reaches them, by function or file

    def pytest_configure(self, config: pytest.Config) -> None:
        """Learn the root, and which files to leave out."""
        job = settings().job
        self.root, self.selection = config.rootpath, selection_of(job)
        if self.selection.chosen.tests is None and not (config.option.keyword or config.option.markexpr):
            self.budget = job.limits.budget
        if self.budget:
            self.enough_s = (1 - _COLLECTING) * seconds_left()
        if self.budget and self.budget.seen:
            names = (name.partition(" ") for each in self.budget.seen.values() for name in each)
            # In the compile stage, an architecture is in front.
            seen = {file_of(name.partition(" ")[2] if stage == "compile" else name) for stage, _, name in names if stage == self.stage}
            self.seen = frozenset({*seen, *self.budget.edited, *map(file_of, self.budget.failed)}) if seen else frozenset()
        events = Journal.from_environment().read()
        self.deadly = {event["id"] for event in events if event["event"] == "death" and event.get("id")}
        self.takes_over = [event["event"] for event in events].count("worker") > 1

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out files and folders without a test to run: importing them takes time, and may fail."""
        if not collection_path.is_relative_to(self.root) or collection_path.name in ("__init__.py", "conftest.py"):
            return None
        name = collection_path.relative_to(self.root).as_posix()
        if self.seen and name.endswith(".py") and name not in self.seen:
            if is_test(name, settings().job.declared.pytest.python_files):
                self.left[name] = 1  # at least
            return True
        return None if self.selection.looks_into(name) and name not in self.deadly else True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Iterator[None]:
        """With a budget, make only as many tests of a function as may have a turn: some functions have 300,000, in gigabytes of memory.

        What failed last time is among them, and so are the smallest and a sample of the others.
        """
        many: Any = metafunc
        if not self.budget or not hasattr(many, "_calls"):  # not public: the parameters of each test
            return (yield)
        name, parametrize, several = many.definition.nodeid, many.parametrize, 1.0
        most = max(_FEWEST, int(_A_SECOND * self.budget.seconds))
        failed = [test for test in self.budget.failed if test.startswith(f"{name}[")]

        def some(*args: Any, **options: Any) -> None:
            # Each parameter multiplies the tests so far, so there is a choice after each.
            nonlocal several
            before = max(1, len(many._calls))
            parametrize(*args, **options)
            several *= len(many._calls) / before
            if len(many._calls) > most:
                others = [not any(test.startswith(f"{name}[{call.id}") for test in failed) for call in many._calls]
                ordered = sorted(range(len(others)), key=lambda place: (others[place], _work(many._calls[place].params)))
                sample = random.Random(0).sample(ordered[most // 2 :], most - most // 2)  # noqa: S311, the same in each worker
                kept = {*ordered[: most // 2], *sample}
                many._calls[:] = [call for place, call in enumerate(many._calls) if place in kept]

        many.parametrize = some
        yield
        if (left := round(several) - max(1, len(many._calls))) > 0:
            self.left[name] += left

    def choose(self, items: list[pytest.Item]) -> list[Failure]:
        """Keep the chosen tests of `items`, in place. Return a failure for each chosen id that stands for none of them.

        If nobody typed it, a file without tests is none: the package's settings may keep pytest out of it.
        """
        found = [item.nodeid for item in items]
        items[:] = [item for item in items if self.selection.takes(item.nodeid)]
        reported = {failure.id for failure in self.below.values()} | set(self.raised)
        lacking = [each for each in self.selection.unmet(found)[0] if reported.isdisjoint(at_and_above(each))]
        must, how = self.selection.chosen.must_exist, " ".join(self.selection.chosen.how)
        lacking = [each for each in lacking if (must or "::" in each) and not self._is_elsewhere(file_of(each))]
        return [Failure(each, f"{how}: {NO_SUCH_TEST}", NotRun.EMPTY, broken=must) for each in lacking]

    def _comes_first(self, name: str) -> bool:
        return self.budget is not None and name in {*self.budget.changed, *map(file_of, self.budget.failed)}

    def _is_elsewhere(self, path: str) -> bool:
        return is_bench(path, self.elsewhere) and not is_test(path, settings().job.declared.pytest.python_files)

    def unknown(self, found: Iterable[str]) -> str:
        """Return a note on ids that were to be left out and that no test has; empty if there is none."""
        unknown = self.selection.unmet(found)[1]
        few = ", ".join(unknown[:3]) + (" …" if len(unknown) > 3 else "")
        return f"{len(unknown)} of the ids to leave out have no test here: {few}" if unknown else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Iterator[None]:
        """Go on without a conftest.py that fails or skips. pytest tries again when it collects that folder, and reports it then."""
        try:
            return (yield)
        except pytest.skip.Exception:
            return None
        except Exception as error:
            if type(error).__name__ != _BROKEN:
                raise
            return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path) -> None:
        """Note a file that pytest takes for one with tests."""
        if module_path.is_relative_to(self.root):
            self.matched[module_path.relative_to(self.root).as_posix()] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Record which file is imported: if its import crashes or takes too long, that costs no test of the others.

        With a budget, leave out what a stage collects late: some packages take longer for all files than the budget is.
        """
        if not isinstance(collector, pytest.Module) or not collector.path.is_relative_to(self.root):
            return (yield)
        name, journal = collector.path.relative_to(self.root).as_posix(), Journal.from_environment()
        if self.begun and seconds_left() < self.enough_s and not self._comes_first(name):
            self.matched.pop(name, None)
            self.left[name] = 1  # at least
            self.cut = True
            collector.collect = list  # type: ignore[method-assign]
            return (yield)
        journal.write("loading", id=name)
        try:
            report = yield
            self.begun = self.begun or bool(report.result)
            return report
        finally:
            journal.write("ready", id=name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]) -> None:
        """Keep what a collector raised; its report comes next, and has only the text."""
        if isinstance(node, pytest.Collector) and call.excinfo is not None:
            self.raised[node.nodeid] = call.excinfo.value

    def failure(self, report: pytest.CollectReport) -> Failure:
        """Return what a failed report is about: a module, or the conftest.py of a folder."""
        error = self.raised.get(report.nodeid)
        if error is None:
            return Failure(report.nodeid, last_line(str(report.longrepr)), NotRun.IMPORT, broken=True)
        cause = error.__cause__ or getattr(error, "cause", None) or error
        found = unchecked(cause)
        broken = found is None and DecidedByData not in (type(error), type(cause))
        why = found[0] if found else NotRun.IMPORT if broken else NotRun.DATA
        words = found[1] if found else ""
        if type(error).__name__ != _BROKEN:
            of_pytest = isinstance(cause, pytest.Collector.CollectError)
            said = with_place(cause) or (last_line(str(report.longrepr)) if of_pytest else describe(cause))
            return Failure(report.nodeid, words or said, why, broken)
        path = Path(getattr(error, "path", report.nodeid))
        name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        text = next(iter(str(cause).splitlines()), "")
        failure = Failure(name, words or with_place(cause) or f"{type(cause).__name__}: {text}", why, broken)
        self.below[report.nodeid] = failure
        return failure

    def skipped(self, nodeid: str, reason: str) -> None:
        """Note a folder that its conftest.py skips."""
        if (self.root / nodeid).is_dir():
            self.below[nodeid] = Failure(f"{nodeid}/conftest.py".removeprefix("./"), reason, NotRun.SKIPPED)

    def without_tests(self, before: Sequence[str], after: Sequence[str], narrowed: bool) -> Iterator[Failure]:
        """Yield each matched file without a row, and why it has none.

        `before` and `after` are the ids that pytest found, and those that are left after deselection. If the user `narrowed` the run to
        some tests, the others need no row: they are counted.
        """
        found, left = ({nodeid.partition("::")[0] for nodeid in ids} for ids in (before, after))
        for name in self.matched:
            if name in self.raised or name in left:
                continue
            if name not in found:
                yield Failure(name, _why_empty(self.root, name), NotRun.EMPTY)
            elif not narrowed:
                yield Failure(name, "all tests of this file are deselected", NotRun.SKIPPED)
        patterns = settings().job.declared.pytest.python_files
        for folder, failure in self.below.items():
            for path in sorted((self.root / folder).rglob("*.py")):
                name = path.relative_to(self.root).as_posix()
                if is_test(name, patterns) and name not in self.matched and "/." not in f"/{name}" and self.selection.looks_into(name):
                    what = "skips its folder" if failure.why is NotRun.SKIPPED else "does not import"
                    yield Failure(name, f"{failure.id} {what}: {failure.message}", failure.why)


def _why_empty(root: Path, name: str) -> str:
    """Say that a file has no test, and how to run one that is a script."""
    is_script = IS_SCRIPT.search((root / name).read_text(errors="replace"))
    return "there is no test in this file" + (f"; it is a script: --bench-script {name} runs it" if is_script else "")


def last_line(text: str) -> str:
    """Return the line of a traceback that says what happened: the last one, or the first that pytest marks if the last is only a place."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    if re.fullmatch(r".+:\d+", said):  # as after a fixture that does not exist
        said = next((line for line in lines if line.startswith("E ")), said)
    return said.removeprefix("E").strip()[:500]


# Choose the tests of a `--quick` run: at most three of each test function, spread over its parameters; fewer if there are many functions,
# and all of a package that has few.
#
# Sizes much above the smallest ones are left out: one test of 8192 by 8192 takes an interpreter longer than all others. If even the
# smallest are large, only they are left. The choice follows from the parameters alone, so it is the same on every machine and in every
# stage.

MOST = 3  # like the sizes of a sweep: the first, the last and one between
FEW = 12  # tests in all, which are not worth a choice
ENOUGH = 150  # tests in all: with more, each function gets two, and with still more one; of more functions, some are left out
_DIGIT = re.compile(r"\d")
LARGEST = 16  # times the work of a function's smallest test
ALWAYS_SMALL = 1 << 20  # elements that an interpreter works through in seconds; sizes such as 0, 1 and 1023 belong together
ALWAYS_LARGE = 1 << 28  # an interpreter takes minutes for 16 times as much: only a function's smallest tests may be larger


def few_of_each(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items to run, in the order given: as many of each function as there is room for."""
    functions, chosen = _functions(items)
    several = [_small(functions[name]) for name in chosen]
    most = next((few for few in range(MOST, 1, -1) if sum(min(few, len(each)) for each in several) <= ENOUGH), 1)
    if sum(map(len, several)) <= FEW:
        most = FEW
    kept = {id(item) for each in several for item in _spread(each, most)}
    return [item for item in items if id(item) in kept]


def first_of_each(items: Sequence[pytest.Item]) -> dict[str, tuple[list[pytest.Item], list[pytest.Item]]]:
    """Return the items of each function as a budget has them run: a few small ones and the rest, each with the least work first.

    Each file by itself: the next run may collect others, and must choose the same tests of this one. Of a file with very many functions,
    some have no first ones.
    """
    found: dict[str, tuple[list[pytest.Item], list[pytest.Item]]] = {}
    for several in _grouped(items, lambda item: (file_of(item.nodeid), "")).values():
        functions, chosen = _functions(several)
        for name, each in functions.items():
            least = min(each, key=lambda item: (work_of(item), tuple(_places(item).values())))
            few = [least, *(item for item in _spread(_small(each), MOST) if item is not least)] if name in chosen else []
            taken = set(map(id, few))
            rest = [item for item in each if id(item) not in taken]
            found["::".join(name)] = sorted(few, key=work_of), sorted(rest, key=work_of)
    return found


def _functions(items: Sequence[pytest.Item]) -> tuple[dict[tuple[str, str], list[pytest.Item]], set[tuple[str, str]]]:
    """Return the items by function, and of which functions some are chosen: of all, unless there are too many."""
    functions = _grouped(items, _function)
    if len(functions) > ENOUGH:
        functions = _grouped(items, _combination)
    names = sorted(functions)
    return functions, {names[place * len(names) // ENOUGH] for place in range(ENOUGH)} if len(names) > ENOUGH else set(names)


def _function(item: pytest.Item) -> tuple[str, str]:
    """Return what the copies of one test have in common: pytest's parameters are in brackets, other libraries only append a number."""
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    if not hasattr(item, "callspec"):
        name = name.rstrip("0123456789")
    return (item.parent.nodeid if item.parent else "", name)


def _combination(item: pytest.Item) -> tuple[str, str]:
    """Return the same for methods that a generator made, with sizes and dtypes in their names: `test_add_n_64_cpu_float32`."""
    parent, name = _function(item)
    return (parent, name if hasattr(item, "callspec") else "_".join(part for part in name.split("_") if not _DIGIT.search(part)))


def _grouped(items: Sequence[pytest.Item], key: Callable[[pytest.Item], tuple[str, str]]) -> dict[tuple[str, str], list[pytest.Item]]:
    groups: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _small(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items whose parameters ask for little work."""
    work = [work_of(item) for item in items]
    most = max(ALWAYS_SMALL, min(LARGEST * min(work), max(ALWAYS_LARGE, min(work))))
    return [item for item, each in zip(items, work, strict=True) if each <= most]


def work_of(item: pytest.Item) -> float:
    """Return about how much work the parameters of a test ask for, as a number that only others of its function compare with."""
    return _work(dict(getattr(getattr(item, "callspec", None), "params", {})))


def _work(value: object) -> float:
    """Return the product of the whole numbers in a parameter, which grows with the sizes of tensors: 1 if there is none."""
    if isinstance(value, bool):
        return 1.0
    if isinstance(value, int):
        return float(min(max(abs(value), 1), 2**63))  # a seed may be of any size
    if is_dataclass(value):  # such as the shape of a model
        value = {each.name: getattr(value, each.name, None) for each in fields(value)}
    if isinstance(value, dict):
        value = tuple(value.values())
    return math.prod(map(_work, value)) if isinstance(value, tuple | list) else 1.0


def _spread(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return the first, the last, and those that add most values of parameters to what is covered. If only one may be, the middle one.

    If several add as many, the one that is nearest to the middle of every parameter is taken, then the earlier one.
    """
    if len(items) <= most:
        return items
    # Plugins may shuffle tests, and pytest groups them by fixtures. The places of values in their lists depend on neither.
    ordered = sorted(items, key=lambda item: tuple(_places(item).values()))
    middle = {name: place / 2 for name, place in _places(ordered[-1]).items()}
    if most == 1:
        return [max(ordered, key=lambda item: _worth(_places(item), set(), middle))]
    chosen = [ordered.pop(0), ordered.pop()]
    covered = {value for item in chosen for value in _places(item).items()}
    while len(chosen) < most:
        best = max(ordered, key=lambda item: _worth(_places(item), covered, middle))
        ordered.remove(best)
        chosen.append(best)
        covered.update(_places(best).items())
    return chosen


def _worth(places: dict[str, int], covered: set[tuple[str, int]], middle: dict[str, float]) -> tuple[int, float]:
    return len(places.items() - covered), -sum(abs(place - middle.get(name, 0.0)) for name, place in places.items())


def _places(item: pytest.Item) -> dict[str, int]:
    """Return the place of each parameter's value in its list; empty for a test without parameters."""
    return dict(getattr(getattr(item, "callspec", None), "indices", {}))
