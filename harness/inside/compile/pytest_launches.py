"""A package's tests on a pretended device: run for what they launch, not for what they find out.

There is no data, so nothing can be compared: an assertion holds. Whatever else needs a number ends the test, and is the reason in a row of
its own, since launches behind it are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

OnStart = Callable[[str], None]
OnEnd = Callable[[str, "BaseException | str | None"], None]


class _Runner:
    """The plugin: a test is a point that begins, runs and ends; what it found out is nobody's business."""

    def __init__(self, done: set[str], on_start: OnStart, on_end: OnEnd) -> None:
        self.done, self.on_start, self.on_end = done, on_start, on_end
        self.ended: BaseException | str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what an earlier worker has been through."""
        items[:] = [item for item in items if item.nodeid not in self.done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that does not import launches nothing, and says why."""
        if not report.passed and report.nodeid not in self.done:
            self.on_start(report.nodeid)
            self.on_end(report.nodeid, str(report.longrepr).strip().rpartition("\n")[2].removeprefix("E").strip())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """From the first fixture to the last."""
        self.ended = None
        self.on_start(item.nodeid)
        result = yield
        self.on_end(item.nodeid, self.ended)
        return result

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """What ended the test before its time; teardowns that look at data come too late to matter."""
        if call.excinfo is not None and call.when != "teardown" and self.ended is None:
            self.ended = call.excinfo.value


def run_tests(root: Path, options: list[str], done: set[str], on_start: OnStart, on_end: OnEnd) -> None:
    """Run every test below `root` that is not `done`; `on_end` is told what ended it early, None if nothing did."""
    pytest.main(["-q", "--no-header", "--tb=no", "--capture=no", *options, str(root)], plugins=[_Runner(done, on_start, on_end)])
