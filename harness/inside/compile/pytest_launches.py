"""Run a package's tests on a fake device for their launches, not for their results.

There is no data, so nothing can be compared, and every assertion passes. Anything else that needs a number ends the test. The test then
gets a row with that reason, because its later launches are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

OnStart = Callable[[str], None]
OnEnd = Callable[[str, "BaseException | str | None"], None]


class _Runner:
    """The plugin: report each test's start and end, and ignore its result."""

    def __init__(self, done: set[str], on_start: OnStart, on_end: OnEnd) -> None:
        self.done, self.on_start, self.on_end = done, on_start, on_end
        self.ended: BaseException | str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect what an earlier worker has run."""
        items[:] = [item for item in items if item.nodeid not in self.done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module that does not import: it launches nothing."""
        if not report.passed and report.nodeid not in self.done:
            self.on_start(report.nodeid)
            self.on_end(report.nodeid, str(report.longrepr).strip().rpartition("\n")[2].removeprefix("E").strip())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report the start and end of a test, including its fixtures."""
        self.ended = None
        self.on_start(item.nodeid)
        result = yield
        self.on_end(item.nodeid, self.ended)
        return result

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Keep what ended the test early. Teardowns come too late to matter."""
        if call.excinfo is not None and call.when != "teardown" and self.ended is None:
            self.ended = call.excinfo.value


def run_tests(options: list[str], done: set[str], on_start: OnStart, on_end: OnEnd) -> None:
    """Run every test that these options select and that is not in `done`. `on_end` receives what ended it early, or None."""
    pytest.main(["-q", "--no-header", "--tb=no", "--capture=no", *options], plugins=[_Runner(done, on_start, on_end)])
