"""The pytest plugin of the test stage: every outcome goes to the journal as it happens, and benches are collected as smoke tests.

Loaded with `-p harness.inside.reporter`; a kernel package knows nothing of it.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.inside.benches import load_module
from harness.inside.device import accelerator, ask_afresh, trouble
from harness.inside.supervise import Journal, settle
from harness.inside.workers import die_with_parent

BENCHES_VARIABLE = "WARPWAVE_BENCHES"
_CUT = 20_000  # characters of a traceback that are kept; the whole of it is in the stage's log


class Reporter:
    """Turns pytest's hooks into journal events and leaves out what an earlier worker has already decided."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.done = journal.done()
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Announce what will run; deselect what is done."""
        if not settle(self.journal, ask_afresh):
            os._exit(1)
        self.done = self.journal.done()
        left = [item for item in items if item.nodeid not in self.done]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.done])
        items[:] = left
        self.journal.write("collected", ids=[item.nodeid for item in left])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that does not import is a case of its own, once."""
        if report.failed and report.nodeid not in self.done:
            detail = str(report.longrepr)
            self.journal.write("finish", id=report.nodeid, outcome="error", message=_last_line(detail), detail=detail[-_CUT:], seconds=0.0)
        elif report.skipped and report.nodeid not in self.done:
            self.journal.write("finish", id=report.nodeid, outcome="skipped", message=_skip_reason(report), detail="", seconds=0.0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, a death is this case's."""
        self.reports = []
        self.journal.write("start", id=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown are kept until the case is over."""
        self.reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """One event a case: the most severe of its phases."""
        bad = [report for report in self.reports if report.failed]
        skipped = [report for report in self.reports if report.skipped]
        outcome, message, detail = "passed", "", ""
        if bad:
            outcome = "failed" if bad[0].when == "call" else "error"
            detail = bad[0].longreprtext
            message = getattr(getattr(bad[0].longrepr, "reprcrash", None), "message", "") or _last_line(detail)
        elif skipped:
            outcome, message = "skipped", _skip_reason(skipped[0])
        properties = {str(key): str(value) for report in self.reports[-1:] for key, value in report.user_properties}
        seconds = sum(report.duration for report in self.reports)
        wrong = _device_trouble()
        if wrong and not bad:
            # Launches do not wait: what this test has started has faulted behind its back, and the next test would get the blame.
            outcome, message = "failed", f"after this test the device no longer answers: {wrong}"
        fields = {"outcome": outcome, "message": message[:2000], "detail": detail[-_CUT:], "seconds": seconds, "properties": properties}
        self.journal.write("poisoned" if wrong else "finish", id=nodeid, **fields)
        if wrong:
            os._exit(1)  # an orderly exit would run teardowns against a dead device

    def pytest_sessionfinish(self) -> None:
        """Only this line makes the run complete; exit code 0 alone never does."""
        self.journal.write("end")


class BenchModule(pytest.File):
    """A bench file seen as a test: it loads, and whatever it asserts on the way holds."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item: the module itself."""
        yield BenchItem.from_parent(self, name="module")


class BenchItem(pytest.Item):
    """Loading the module with its sweeps left out."""

    def runtest(self) -> None:
        """Run the module's top level."""
        load_module(self.path, self.config.rootpath)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where a failure points to."""
        return self.path, None, f"{self.path.name} loads"


def pytest_configure(config: pytest.Config) -> None:
    """Register the reporter, and stand in for a GPU where the tests run in Triton's interpreter."""
    die_with_parent()
    config.pluginmanager.register(Reporter(Journal.from_environment()), "warpwave-reporter")
    if os.environ.get("TRITON_INTERPRET") == "1":
        from harness.inside.pretend import interpreted_device

        config.add_cleanup(interpreted_device(config.rootpath))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect what the job calls a bench, unless pytest collects it as a test file anyway."""
    patterns = os.environ.get(BENCHES_VARIABLE, "").split(os.pathsep)
    relative = file_path.relative_to(parent.config.rootpath).as_posix() if file_path.is_relative_to(parent.config.rootpath) else ""
    if file_path.name.startswith("test_") or not any(_matches(file_path.name, relative, pattern) for pattern in patterns if pattern):
        return None
    module: pytest.Collector = BenchModule.from_parent(parent, path=file_path)
    return module


def _matches(name: str, relative: str, pattern: str) -> bool:
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(relative, pattern)


def _device_trouble() -> str:
    """What is wrong with the GPU after a test, if it was used at all; nothing is initialized to find out."""
    if "torch" not in sys.modules:
        return ""
    here = accelerator()
    return trouble() if here is not None and here[1].is_initialized() else ""


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else getattr(report, "wasxfail", "") or str(longrepr or "")
    return text.removeprefix("Skipped: ")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip()[:500] if lines else ""
