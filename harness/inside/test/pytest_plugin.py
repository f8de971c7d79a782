"""The pytest plugin of the test stage: every outcome goes to the journal as it happens, and benches are collected as smoke tests.

Loaded with `-p harness.inside.test.pytest_plugin`; a kernel package knows nothing of it.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.inside.facts.device import accelerator, ask_afresh, trouble
from harness.inside.marks import load_module
from harness.inside.process.journal import Journal, settle
from harness.inside.process.workers import die_with_parent
from harness.inside.test.called import code_of, watched

BENCHES_VARIABLE = "WARPWAVE_BENCHES"
_RUNNER = sys.modules["_pytest.runner"]  # part of no interface of pytest's: only looked at, never called
_CUT = 20_000  # characters of a traceback that are kept; the whole of it is in the stage's log


class Reporter:
    """Turns pytest's hooks into journal events and leaves out what an earlier worker has already decided.

    It shares a process with the package, which may change all of it. What it finds of that is reported; see `SECURITY.md`.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.done = journal.done()
        self.reports: list[pytest.TestReport] = []
        self.raised: dict[str, BaseException | None] = {}  # by phase of the test
        self.called: Sequence[bool] = ()
        self.outcomes: Counter[str] = Counter()
        self.stopped = ""
        self.replaced: list[str] = []
        self._process = os.getpid()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        """Announce what will run, once everybody else has chosen; deselect what is done."""
        found = len(items)
        yield
        if not settle(self.journal, ask_afresh):
            os._exit(1)
        self.done = self.journal.done()
        selected = len(items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.done])
        items[:] = [item for item in items if item.nodeid not in self.done]
        self.journal.write("collected", ids=[item.nodeid for item in items], deselected=max(0, found - selected))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that does not import is a case of its own, once."""
        if report.failed and report.nodeid not in self.done:
            detail = str(report.longrepr)
            self._finish(report.nodeid, "error", _last_line(detail), detail[-_CUT:])
        elif report.skipped and report.nodeid not in self.done:
            self._finish(report.nodeid, "skipped", _skip_reason(report), "")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, a death is this case's."""
        self.reports, self.raised, self.called = [], {}, ()
        self.journal.write("start", id=nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """See whether the test itself is called."""
        with watched(code_of(item)) as self.called:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Keep what the test raised, before other hooks make a report of it."""
        self.raised[call.when] = call.excinfo.value if call.excinfo else None
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown are kept until the case is over."""
        self._end_copies()
        self.reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """One event a case: the most severe of its phases."""
        self._end_copies()
        bad = [report for report in self.reports if report.failed]
        skipped = [report for report in self.reports if report.skipped]
        outcome, message, detail = "passed", "", ""
        if bad:
            outcome = "failed" if bad[0].when == "call" else "error"
            detail = bad[0].longreprtext
            message = getattr(getattr(bad[0].longrepr, "reprcrash", None), "message", "") or _last_line(detail)
        elif skipped:
            outcome, message = "skipped", _skip_reason(skipped[0])
        elif message := self._doubt():
            outcome = "invalid"
        properties = {str(key): str(value) for report in self.reports[-1:] for key, value in report.user_properties}
        seconds = sum(report.duration for report in self.reports)
        wrong = _device_trouble()
        if wrong and not bad:
            # Launches do not wait: what this test has started has faulted behind its back, and the next test would get the blame.
            outcome, message = "failed", f"after this test the device no longer answers: {wrong}"
        self._look_for_replaced()
        kind = "poisoned" if wrong else "finish"
        self._finish(nodeid, outcome, message[:2000], detail[-_CUT:], kind, seconds=seconds, properties=properties)
        if wrong:
            os._exit(1)  # an orderly exit would run teardowns against a dead device

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """`pytest.exit` outside of a test, with its reason."""
        self.stopped = str(excinfo.value) or excinfo.typename

    def pytest_internalerror(self, excrepr: object) -> None:
        """A hook of the package's, or pytest itself, has failed."""
        self.stopped = f"an internal error: {_last_line(str(excrepr))}"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Only this line makes the run complete; exit code 0 alone never does."""
        self._end_copies()
        self._look_for_replaced()
        stopped = self.stopped or str(session.shouldfail or session.shouldstop or "")
        self.journal.write("end", stopped=stopped[:500], replaced=self.replaced, outcomes=self.outcomes)

    def _finish(self, nodeid: str, outcome: str, message: str, detail: str, kind: str = "finish", **fields: object) -> None:
        self.outcomes[outcome] += 1
        self.journal.write(kind, id=nodeid, outcome=outcome, message=message, detail=detail, **{"seconds": 0.0, **fields})

    def _doubt(self) -> str:
        """Why a test that pytest reports as passed did not pass; empty where it did."""
        for when, raised in self.raised.items():
            if raised is not None:
                said = next(iter(str(raised).splitlines()), "")
                return f"pytest reported a pass, but its {when} raised {type(raised).__name__}: {said}"
        if not any(report.when == "call" and report.passed for report in self.reports):
            return "pytest reported no failure, but no call of this test either"
        return "" if self.called or "call" not in self.raised else "pytest reported a pass, but the test function was never called"

    def _look_for_replaced(self) -> None:
        """What runs tests, reports them or compares for them, and is not what it was before the package was loaded."""
        now = [(name, vars(owner).get(name.rpartition(".")[2]) is was) for name, owner, was in _ORIGINALS]
        close = getattr(sys.modules.get("torch.testing"), "assert_close", None)
        now.append(("torch.testing.assert_close", close is None or getattr(close, "__module__", "").startswith("torch.testing.")))
        now.append(("the reporter's journal", type(self.journal) is Journal))
        now += [(f"Reporter.{name}", False) for name in vars(self) if name in vars(Reporter)]
        self.replaced += [name for name, same in now if not same and name not in self.replaced]

    def _end_copies(self) -> None:
        """A test that forked, and whose copy goes on with pytest here, would report everything twice."""
        if os.getpid() != self._process:
            os._exit(1)


def _originals() -> list[tuple[str, object, object]]:
    kept = [(pytest.Function, "pytest.Function.runtest"), (_RUNNER, "_pytest.runner.runtestprotocol")]
    kept += [(_RUNNER, "_pytest.runner.call_and_report"), (pytest.CallInfo, "pytest.CallInfo.from_call")]
    kept += [(Journal, "Journal.write"), (Journal, "Journal._append")]
    kept += [(Reporter, f"Reporter.{name}") for name, value in vars(Reporter).items() if callable(value)]
    return [(name, owner, vars(owner).get(name.rpartition(".")[2])) for owner, name in kept]


_ORIGINALS = _originals()


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
        from harness.inside.fake_gpu.interpreter import interpreted_device

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
