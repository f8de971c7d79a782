"""Tests of autotuned kernels where nothing can be timed: which configurations they run with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

RUNNER = sys.modules["_pytest.runner"]  # not part of pytest's interface, but what plugins that repeat a test call


class Autotuned:
    """Run each test with the first configuration of its autotuned kernels, or once with each (`every`), and say which.

    A test that launches several autotuned kernels runs once for each configuration of the kernel that has the most. Run n uses the nth
    configuration of each kernel, or its last one. Each run has its own setup and teardown, but the fixtures of modules, classes and
    sessions stay. The first failure ends the test.
    """

    def __init__(self, tuning: Any, every: bool) -> None:
        self.tuning, self.every = tuning, every
        self.failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run the test with every configuration, as one case."""
        if not self.every:
            return None
        where = {"nodeid": item.nodeid, "location": item.location}
        item.ihook.pytest_runtest_logstart(**where)
        self.tuning.turn, self.failed = 0, False
        # The parent stands for a next test: teardown then ends what belongs to this test alone.
        RUNNER.runtestprotocol(item, nextitem=item.parent)
        while not self.failed and self.tuning.turn + 1 < self.tuning.most:
            self.tuning.turn += 1
            RUNNER.runtestprotocol(item, nextitem=item.parent)
        item.session._setupstate.teardown_exact(nextitem)
        item.ihook.pytest_runtest_logfinish(**where)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Note what was chosen while the test ran, and add it to the words of a failure."""
        self.tuning.begin()
        try:
            return (yield)
        finally:
            properties = {f"configuration of {kernel}": text for kernel, text in self.tuning.chosen.items()}
            item.user_properties[:] = [pair for pair in item.user_properties if pair[0] not in properties]
            item.user_properties += properties.items()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Say first of a failure what autotuning did to the arguments of a kernel: it usually is why."""
        report: Any = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if self.tuning.in_place and report.when == "call" and report.failed and crash:
            said = "\n".join(dict.fromkeys(self.tuning.in_place))
            crash.message = f"{said}\n{crash.message}"
            report.sections.append(("autotuning", said))
        return report  # type: ignore[no-any-return]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a run of the test failed or was skipped."""
        self.failed = self.failed or not report.passed
