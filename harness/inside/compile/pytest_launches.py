"""Run a package's tests on a fake device for their launches, not for their results.

There is no data, so nothing can be compared, and every assertion passes. Anything else that needs a number ends the test. The test then
gets a row with that reason, because its later launches are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import pytest

from harness.inside.test.collection import Collection, Failure, last_line
from harness.inside.test.quick import few_of_each
from harness.records import NotRun

OnStart = Callable[[str], None]
OnEnd = Callable[[str, "BaseException | Failure | None"], None]
OnCollected = Callable[[list[str], int, int], None]  # the ids to run, how many were deselected, and how many a quick run leaves out


@dataclass(frozen=True)
class Choice:
    """Which tests to run: not those that are `done`, nor the `benches`. `narrowed`: the user asked for some only."""

    done: set[str]
    quick: bool
    narrowed: bool
    benches: tuple[str, ...] = ()


class _Runner:
    """The plugin: report each test's start and end, and ignore its result."""

    def __init__(self, choice: Choice, collection: Collection, on_collected: OnCollected, on_start: OnStart, on_end: OnEnd) -> None:
        self.choice, self.collection = choice, collection
        self.on_collected, self.on_start, self.on_end = on_collected, on_start, on_end
        self.ended: BaseException | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Announce what will run, after all other plugins selected tests. Deselect what an earlier worker has run."""
        found = [item.nodeid for item in items]
        yield
        unchosen = self.collection.choose(items)
        selected = [item.nodeid for item in items]
        for failure in [*self.collection.without_tests(found, selected, self.choice.narrowed), *unchosen]:
            self._not_collected(failure)
        if self.choice.quick:
            items[:] = few_of_each(items)
        left_out = len(selected) - len(items)
        items[:] = [item for item in items if item.nodeid not in self.choice.done]
        self.on_collected([item.nodeid for item in items], max(0, len(found) - len(selected)), left_out)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module or a conftest.py that does not import: it launches nothing."""
        if report.failed:
            self._not_collected(self.collection.failure(report))
        elif report.skipped:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else last_line(str(report.longrepr))
            self._not_collected(Failure(report.nodeid, text, NotRun.SKIPPED))

    def _not_collected(self, failure: Failure) -> None:
        if failure.id not in self.choice.done:
            self.choice.done.add(failure.id)
            self.on_start(failure.id)
            self.on_end(failure.id, failure)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report the start and end of a test, including its fixtures."""
        self.ended = None
        self.on_start(item.nodeid)
        result = yield
        self.on_end(item.nodeid, self.ended)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what ended the test early, as a failure that its author expects if pytest says so. Teardowns come too late to matter."""
        report = yield
        if call.excinfo is not None and call.when != "teardown" and self.ended is None:
            expected = report.skipped and hasattr(report, "wasxfail")
            self.ended = pytest.xfail.Exception(f"{report.wasxfail}") if expected else call.excinfo.value
        return report


def run_tests(
    options: list[str], choice: Choice, on_collected: OnCollected, on_start: OnStart, on_end: OnEnd, plugins: Sequence[object] = ()
) -> None:
    """Run every chosen test that these options select. `on_end` receives what ended it early, or None."""
    collection = Collection(elsewhere=choice.benches)
    runner = _Runner(choice, collection, on_collected, on_start, on_end)
    ended = pytest.main(["-q", "--no-header", "--tb=no", "--capture=no", *options], plugins=[collection, runner, *plugins])
    if ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED):
        said = (
            f"pytest ended early ({pytest.ExitCode(ended).name.lower().replace('_', ' ')}), so some tests did not run: see the stage's log"
        )
        on_start("(pytest)")
        on_end("(pytest)", Failure("(pytest)", said, NotRun.STOPPED, broken=True))
