"""Tests of autotuned kernels: which configurations they run with, by a tuner's choice or, where nothing can be timed, by ours."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from warpwave.inside.fake_gpu.launches import Asked, Launched, as_asked, configuration_text
from warpwave.inside.process.journal import Journal
from warpwave.records.selection import CONFIGURATION_OF

RUNNER = sys.modules["_pytest.runner"]  # not part of pytest's interface, but what plugins that repeat a test call


class Timed:
    """Notes what autotuners chose on a card since `begin`. Of the configurations, they time only those that have what was `asked` for."""

    def __init__(self, asked: Asked) -> None:
        from triton.runtime.autotuner import Autotuner

        self.asked, self.chosen, self.in_place = asked, dict[str, str](), list[str]()
        run, prune = Autotuner.run, Autotuner.prune_configs

        def running(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return run(tuner, *args, **kwargs)
            finally:
                if len(tuner.configs) > 1 and (chosen := getattr(tuner, "best_config", None)) is not None:
                    self.chosen[tuner.base_fn.__name__] = f"{configuration_text(chosen)} (chosen by the tuner)"

        Autotuner.run = running
        if asked:
            Autotuner.prune_configs = lambda tuner, *args, **kwargs: as_asked(asked, tuner, prune(tuner, *args, **kwargs))

    def begin(self) -> None:
        """Start a new test."""
        self.chosen.clear()


class Autotuned:
    """Run each test with the first configuration of its autotuned kernels, or once with each (`every`), and say which.

    A test that launches several autotuned kernels runs once for each configuration of the kernel that has the most. Run n uses the nth
    configuration of each kernel, or its last one. Each run has its own setup and teardown, but the fixtures of modules, classes and
    sessions stay. The first failure ends the test.
    """

    def __init__(self, tuning: Any, every: bool, journal: Journal | None) -> None:
        self.tuning, self.every, self.journal = tuning, every, journal
        tuning.every = every
        self.failed, self._launched = False, set[str]()

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
            properties = {f"{CONFIGURATION_OF}{kernel}": text for kernel, text in self.tuning.chosen.items()}
            item.user_properties[:] = [pair for pair in item.user_properties if pair[0] not in properties]
            item.user_properties += properties.items()
            Launched.tuned, Launched.in_place = dict(self.tuning.chosen), list(dict.fromkeys(self.tuning.in_place))
            self._launched |= self.tuning.chosen.keys()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Say below a failure what autotuning did to the arguments of a kernel."""
        report: Any = yield
        if Launched.in_place and report.when == "call" and report.failed:
            report.sections.append(("autotuning", "\n".join(Launched.in_place)))
        return report  # type: ignore[no-any-return]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Say which kernels that were asked for by their configuration no autotuner launched: nothing ran as it was asked."""
        for name in self.tuning.asked.keys() - self._launched:
            text = f"--config names {name}, and no test launched an autotuned kernel of that name"
            if self.journal:
                self.journal.write("note", text=text)
            else:
                warnings.warn(pytest.PytestWarning(text), stacklevel=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a run of the test failed or was skipped."""
        self.failed = self.failed or not report.passed
