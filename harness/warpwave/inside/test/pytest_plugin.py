"""The pytest plugin of the test stage: it journals every outcome at once, and collects benches as smoke tests.

Loaded with `-p warpwave.inside.test.pytest_plugin`; kernel packages need not know it. PYTEST_DONT_REWRITE: the stage from which workers
are forked has imported it before.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from warpwave.inside.benchmarks import load_module, smallest_points
from warpwave.inside.codegen.recorder import Compiling, written_since, written_so_far
from warpwave.inside.environment import import_compiler, is_of_the_disk, root_of
from warpwave.inside.facts.device import ask_afresh, trouble_if_used
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.multi_gpu.pytest_plugin import NEIGHBOURS, TURNS, Neighbours
from warpwave.inside.process.forks import die_with_parent
from warpwave.inside.process.journal import Journal, settle
from warpwave.inside.process.lease import await_card, await_card_at_first_use
from warpwave.inside.process.outcomes import OF_ENVIRONMENT, Pretended, describe, unchecked
from warpwave.inside.process.workers import is_last, seconds_left
from warpwave.inside.scripts.hooks import noted
from warpwave.inside.test.autotuned import RUNNER, Autotuned, Timed
from warpwave.inside.test.budget import Turns, planned
from warpwave.inside.test.collection import Collection, Failure, last_line
from warpwave.inside.test.notes import COMPILED, NOT_AFTER, ONLY_AFTER, failed_by
from warpwave.inside.test.pretend import begin_test, provide, words_of
from warpwave.inside.test.settings import counter_limits, settings
from warpwave.records import BUDGET_UP, FAILED_PROPERTY, HOST_ERROR_PROPERTY, LAUNCHED_PROPERTY, UNWRITABLE, NotRun, What, plural
from warpwave.records.selection import file_of, is_bench, is_test, parse_configuration

# Bench files as smoke tests: each must load.


class BenchModule(pytest.File):
    """A bench file as a test: it must load, and its assertions must hold."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item: the module itself."""
        yield BenchItem.from_parent(self, name="module")


class BenchItem(pytest.Item):
    """Loads the module without running its sweeps. For a profile of benches, it calls each once, with the smallest size."""

    def runtest(self) -> None:
        """Run the module's top level."""
        module = load_module(self.path, Path(settings().job.kernels))
        job = settings().job
        if (job.what.profile or counter_limits(job)) and job.what.benches != What.benches:
            for point in smallest_points(module):
                point.run()

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the location that a failure points to."""
        return self.path, None, f"{self.path.name} loads"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the job's benches, except those that pytest collects as test files anyway."""
    job, root = settings().job, parent.config.rootpath
    path = file_path.relative_to(root).as_posix() if file_path.is_relative_to(root) else file_path.name
    if is_test(path, job.declared.pytest.python_files) or not is_bench(path, job.what.benches):
        return None
    module: pytest.Collector = BenchModule.from_parent(parent, path=file_path)
    return module


# Check that a test's function was really called, whatever pytest's hooks report.


def code_of(item: pytest.Item) -> CodeType | None:
    """Return the code of a plain test function; None for items that pytest or a plugin runs in another way."""
    if type(item) is not pytest.Function:
        return None
    code = getattr(item.obj, "__code__", None)
    return code if isinstance(code, CodeType) else None


@contextmanager
def watched(code: CodeType | None) -> Iterator[list[bool]]:
    """Yield a list that becomes non-empty when `code` is entered. Profiling stops there, so the test itself is not slowed down.

    The list starts non-empty if there is nothing to watch, or another profiler is active.
    """
    if code is None or sys.getprofile() is not None:
        yield [True]
        return
    entered: list[bool] = []

    def notice(frame: FrameType, event: str, argument: Any) -> None:
        if entered or (event == "call" and frame.f_code is code):
            entered.append(True)
            sys.setprofile(None)

    threading.setprofile(notice)  # a plugin may call the test in another thread
    sys.setprofile(notice)
    try:
        yield entered
    finally:
        threading.setprofile(None)
        if sys.getprofile() is notice:
            sys.setprofile(None)


_SANITIZER = "warpwave-sanitized"  # importing its name would import torch
_SHARE_LEFT = 7 / 8  # of a budget's time, by the tests that run before one that fails
_CUT = 20_000  # characters kept of a traceback; the stage's log has all of it


class Reporter:
    """Turn pytest's hooks into journal events, and deselect what an earlier worker has decided.

    The reporter shares a process with the package, which may change anything. It reports the changes it finds; see `SECURITY.md`.
    """

    def __init__(
        self, journal: Journal, collection: Collection, pretended: bool, account: Any = None, neighbours: Neighbours | None = None
    ) -> None:
        self.journal, self.collection, self.pretended, self.account = journal, collection, pretended, account
        self.neighbours, self.compiling = neighbours, Compiling(journal)
        self.done = journal.done()
        self.reports: list[tuple[pytest.TestReport, BaseException | None]] = []  # several of a test with subtests
        self.raised: dict[str, BaseException | None] = {}  # by phase of the test
        self.called: Sequence[bool] = ()
        self.printed_before = -1  # bytes of the log
        self.printed: str | None = None  # what child processes of a failed test wrote to it
        self.stopped = ""
        self.session: pytest.Session | None = None
        self.turns: Turns | None = None  # with a budget
        self.files: dict[str, list[pytest.Item]] = {}  # the tests of each file that the job has chosen, in pytest's order
        self.ran: set[pytest.Item] = set()  # in this process, or in one that did not survive it
        self.replaced: list[str] = []
        self._process = os.getpid()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session: it ends when the budget is up."""
        self.session = session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        """Announce what will run, after all other plugins selected tests; deselect what is done."""
        found = [item.nodeid for item in items]
        yield
        if not settle(self.journal, ask_afresh):
            os._exit(1)
        self.done = self.journal.done()
        if unknown := self.collection.unknown(found):
            self.journal.write("note", text=unknown)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.done])
        plan = planned(items, found, self.collection, settings().job, self.done)
        for failure in plan.failures:
            self._not_collected(failure)
        left = Counter[str]() if self._takes_over_late() else plan.left
        told = {"ids": plan.ids, "deselected": plan.deselected, "left_out": left.total(), "left": left}
        self.journal.write("collected", **told)
        for item in plan.chosen:
            self.files.setdefault(file_of(item.nodeid), []).append(item)
        self.ran |= {item for item in plan.chosen if item.nodeid in self.collection.deadly}
        if plan.units:
            self.turns = Turns(plan.units, lambda: bool(Launched.functions) or not _notes_launches())
            config.pluginmanager.register(self.turns, TURNS)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module or a conftest.py that does not import as a case, once: for doctests, pytest collects a module again."""
        if report.failed:
            self._not_collected(self.collection.failure(report), str(report.longrepr)[-_CUT:])
        elif report.skipped:
            self.collection.skipped(report.nodeid, _skip_reason(report))
            if report.nodeid not in self.done:
                self.done.add(report.nodeid)
                self._finish(report.nodeid, "skipped", _skip_reason(report), "", not_run=NotRun.SKIPPED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test, and if it fails, once more after the tests of its file before it that this process had left out, then after all.

        A quick run leaves some out, a budget has another order, and a resumed run or the one after a crash begins in the middle of a file.
        What such a test lacks may be what they leave behind: a variable of the module, the content of a fixture.
        """
        tests = self.files.get(file_of(item.nodeid), [])
        place = tests.index(item) if item in tests else 0
        before = [each for each in tests[:place] if each.nodeid not in self.collection.deadly]
        left = [each for each in before if each not in self.ran]
        is_in_order = not left and not any(each in self.ran for each in tests[place + 1 :])
        self.ran.add(item)
        if is_in_order or settings().job.what.autotune == "all":  # which has a loop of its own
            return None
        where = {"nodeid": item.nodeid, "location": item.location}
        item.ihook.pytest_runtest_logstart(**where)
        reports = RUNNER.runtestprotocol(item, log=False, nextitem=item.parent)
        errors = [error for error in self.raised.values() if error is not None]
        stands = any(getattr(error, "is_finding", False) or unchecked(error) for error in errors)
        is_ended = self.turns is not None and self.turns.ended_s > 0
        if any(report.failed for report in reports) and not (stands or is_ended or trouble_if_used()):
            if left:
                reports = self._again_after(item, left)
            if any(report.failed for report in reports) and len(left) < len(before):
                reports = self._again_after(item, before)  # the first try, or tests that come later, may have changed what others left
        # Then fixtures end that no later test shares.
        ended = pytest.CallInfo.from_call(lambda: item.session._setupstate.teardown_exact(nextitem), when="teardown")
        if ended.excinfo is not None:
            reports.append(item.ihook.pytest_runtest_makereport(item=item, call=ended))
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(**where)
        return True

    def _again_after(self, item: pytest.Item, left: Sequence[pytest.Item]) -> list[pytest.TestReport]:
        """Run the tests that are left before `item`, and then it once more. Return its reports, which say after how many it passed."""
        number = self._run_before(item, left)
        self._begin(item.nodeid)
        item.user_properties.clear()
        reports: list[pytest.TestReport] = RUNNER.runtestprotocol(item, log=False, nextitem=item.parent)
        if not any(report.failed for report in reports):
            item.user_properties.append((ONLY_AFTER, plural(number, "test")))
        elif number < len(left):
            item.user_properties.append((NOT_AFTER, plural(len(left) - number, "test")))
        for report in reports:
            report.user_properties = list(item.user_properties)
        return reports

    def _run_before(self, item: pytest.Item, left: Sequence[pytest.Item]) -> int:
        """Run the tests that are left before `item`, as long as a budget allows, without a result. Return how many ran."""
        plugins = item.config.pluginmanager
        sanitizer = plugins.unregister(name=_SANITIZER)  # its findings would be rows of tests that have no result
        until = seconds_left() * _SHARE_LEFT
        try:
            for number, each in enumerate(left):
                if settings().job.limits.budget and seconds_left() < until:
                    return number
                self.journal.write("turn", id=item.nodeid)  # each has a test's limit
                self._end_others(each)
                RUNNER.runtestprotocol(each, log=False, nextitem=each.parent)
                self.ran.add(each)
            return len(left)
        finally:
            self._end_others(item)
            if self.turns:
                self.turns.ended_s = 0.0
            if sanitizer is not None:
                plugins.register(sanitizer, _SANITIZER)
                sanitizer.pytest_runtest_logstart()  # which discards them

    def _end_others(self, item: pytest.Item) -> None:
        """End the fixtures that a test does not share with the one before it."""
        try:
            item.session._setupstate.teardown_exact(item)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            self.journal.write("note", text=f"a fixture raised when it ended, before {item.nodeid}: {describe(error)}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the start: from here on, a crash is this case's."""
        self._begin(nodeid)
        self.journal.write("start", id=nodeid)

    def _begin(self, nodeid: str) -> None:
        self.reports, self.raised, self.called = [], {}, ()
        self.printed_before, self.printed = written_so_far(), None
        self.compiling.seconds = 0.0
        self.compiling.watch()
        _note_launches()
        begin_test(self.account)
        if self.neighbours:
            self.neighbours.begin()

    @pytest.hookimpl(wrapper=True, trylast=True)  # within all other wrappers: each call of theirs would cost the profiler's time
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Check that the test itself is called."""
        with watched(code_of(item)) as self.called:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Keep what the test raised, before other hooks turn it into a report. What `unittest` caught is there only afterwards."""
        self.raised[call.when] = call.excinfo.value if call.excinfo else None
        if call.excinfo and self.printed_before >= 0:
            self.printed = written_since(self.printed_before).rpartition(item.nodeid)[2]  # behind what pytest writes of the test
        report = yield
        if call.excinfo and self.raised[call.when] is None:
            self.raised[call.when] = call.excinfo.value
        if is_of_the_disk(self.raised[call.when]):
            os._exit(UNWRITABLE)  # no test is blamed for it
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the reports of setup, call and teardown until the case ends."""
        self._end_copies()
        self.reports.append((report, self.raised.get(report.when)))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write one event per case, with its most severe phase."""
        self._end_copies()
        bad = [(report, error) for report, error in self.reports if report.failed]
        skipped = [report for report, _ in self.reports if report.skipped]
        error = None
        outcome, message, detail, why = "passed", "", "", None
        if bad:
            report, error = bad[0]
            if error is not None and unchecked(error, self.printed):  # of subtests, one that can be checked and failed decides
                others = ((other, its) for other, its in bad if other.when == report.when and its and not unchecked(its, self.printed))
                report, error = next(others, bad[0])
            outcome = "failed" if report.when == "call" else "error"
            detail = report.longreprtext
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "") or last_line(detail)
            message = words_of(error, message, self.printed)
            if (found := unchecked(error, self.printed)) and (self.pretended or found[0] in OF_ENVIRONMENT):
                outcome, why, message = "skipped", found[0], found[1] or message
        elif skipped:
            outcome, message, why = "skipped", _skip_reason(skipped[0]), NotRun.SKIPPED
            if hasattr(skipped[0], "wasxfail"):
                outcome, why = "xfailed", None
        elif message := self._doubt():
            outcome = "invalid"
        properties = {str(key): str(value) for report, _ in self.reports[-1:] for key, value in report.user_properties}
        if error:
            properties[FAILED_PROPERTY] = failed_by(error, root_of(settings().job))
        if _notes_launches() or "triton" not in sys.modules:
            properties[LAUNCHED_PROPERTY] = " ".join(Launched.functions)
        if Pretended.ran_compiled:
            properties[COMPILED] = "replaced by the function itself"
        if self.account:
            properties.update(self.account.properties())
            # A failure that the author expects may be the fault itself.
            if (fault := self.account.fault) and (outcome, fault.outcome) != ("xfailed", "failed"):
                outcome, message, why = fault.outcome, Launched.with_configurations(fault.message), None
                properties.pop(FAILED_PROPERTY, None)
            if outcome == "failed" and error:
                from warpwave.inside.test.notes import raised_by_host

                if by_host := raised_by_host(error, self.account, self.collection.root):
                    properties[HOST_ERROR_PROPERTY] = by_host
        wrong = trouble_if_used()
        if outcome == "skipped" and NotRun.NOT_FOLLOWED.value in properties:
            why = NotRun.NOT_FOLLOWED  # a sanitizer met its own limit, which ends the device, too
        elif wrong and not bad:
            # Launches are asynchronous: a fault that this test caused would otherwise be blamed on the next one.
            outcome, message = "failed", f"after this test the device no longer answers: {wrong}"
        self._look_for_replaced()
        is_ended = self.turns is not None and self.turns.ended_s > 0 and not wrong
        if not is_ended and not self._postponed(nodeid, outcome, f"{message}\n{detail}", bool(wrong)):
            kind = "poisoned" if wrong else "finish"
            took = {"seconds": sum(report.duration for report, _ in self.reports), "compiling_s": round(self.compiling.seconds, 3)}
            self._finish(nodeid, outcome, message[:2000], detail[-_CUT:], kind, **took, properties=properties, not_run=why)
        if is_last(settings().job.limits.budget) and self.session:
            self.session.shouldstop = BUDGET_UP
        if wrong:
            os._exit(1)  # a normal exit would run teardowns against a dead device

    def _postponed(self, nodeid: str, outcome: str, text: str, poisoned: bool) -> bool:
        """Have a test run again if its neighbours on the card may have caused this outcome. Return whether it does."""
        if self.neighbours is None:
            return False
        skips = [raised for raised in self.raised.values() if isinstance(raised, pytest.skip.Exception)]
        in_body = any(not getattr(skip, "_use_item_location", False) for skip in skips)  # True if a mark skipped it
        why = self.neighbours.why_again(outcome, text, in_body, poisoned)
        if why:
            self.neighbours.postpone(self.journal, nodeid, why, poisoned)
        return bool(why)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep the reason of `pytest.exit` outside of a test. A signal may have come between the count of a case and its line."""
        self.stopped = str(excinfo.value) or excinfo.typename

    def pytest_internalerror(self, excrepr: object) -> None:
        """Keep the error of a failing hook, or of pytest itself."""
        self.stopped = f"an internal error: {last_line(str(excrepr))}"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the line that makes the run complete; exit code 0 alone never does."""
        self._end_copies()
        self._look_for_replaced()
        stopped = self.stopped or str(session.shouldfail or session.shouldstop or (BUDGET_UP if self._takes_over_late() else ""))
        self.journal.write("end", stopped=stopped[:500], replaced=self.replaced)

    def _takes_over_late(self) -> bool:
        """Whether this worker, which took over after a crash, had no time to collect all tests that an earlier one has announced."""
        return self.collection.cut and self.collection.takes_over

    def _not_collected(self, failure: Failure, detail: str = "") -> None:
        if failure.id not in self.done:
            self.done.add(failure.id)
            outcome, raised = "error" if failure.broken else "skipped", re.match(r"\w+(?=: )", failure.message)
            properties = {FAILED_PROPERTY: raised[0]} if failure.broken and raised else {}
            self._finish(failure.id, outcome, failure.message, detail, properties=properties, not_run=failure.why)

    def _finish(self, nodeid: str, outcome: str, message: str, detail: str, kind: str = "finish", **fields: object) -> None:
        self.journal.write(kind, id=nodeid, outcome=outcome, message=message, detail=detail, **{"seconds": 0.0, **fields})

    def _doubt(self) -> str:
        """Return why a test that pytest reports as passed did not pass; empty if it did."""
        for when, raised in self.raised.items():
            if raised is not None:
                text = next(iter(str(raised).splitlines()), "")
                return f"pytest reported a pass, but its {when} raised {type(raised).__name__}: {text}"
        if not any(report.when == "call" and report.passed for report, _ in self.reports):
            return "pytest reported no failure, but no call of this test either"
        return "" if self.called or "call" not in self.raised else "pytest reported a pass, but the test function was never called"

    def _look_for_replaced(self) -> None:
        """Note functions that run, report or compare tests and were replaced after the package was loaded."""
        now = [(name, False) for name, members, key, was in _ORIGINALS if members.get(key) is not was]
        close = getattr(sys.modules.get("torch.testing"), "assert_close", None)
        now.append(("torch.testing.assert_close", close is None or getattr(close, "__module__", "").startswith("torch.testing.")))
        now.append(("the reporter's journal", type(self.journal) is Journal))
        now += [(f"Reporter.{name}", False) for name in vars(self) if name in vars(Reporter)]
        self.replaced += [name for name, same in now if not same and name not in self.replaced]

    def _end_copies(self) -> None:
        """End a forked copy of a test: otherwise it would continue with pytest and report everything twice."""
        if os.getpid() != self._process:
            os._exit(1)


def _originals() -> list[tuple[str, Mapping[str, object], str, object]]:
    kept = [(pytest.Function, "pytest.Function.runtest"), (RUNNER, "_pytest.runner.runtestprotocol")]
    kept += [(RUNNER, "_pytest.runner.call_and_report"), (pytest.CallInfo, "pytest.CallInfo.from_call")]
    kept += [(Journal, "Journal.write"), (Journal, "Journal._append")]
    kept += [(Reporter, f"Reporter.{name}") for name, value in vars(Reporter).items() if callable(value)]
    keys = [(name, vars(owner), name.rpartition(".")[2]) for owner, name in kept]
    return [(name, members, key, members.get(key)) for name, members, key in keys]


_ORIGINALS = _originals()
_COLLECTION = Collection()
_ACCOUNT: pytest.StashKey[Any] = pytest.StashKey()  # of what the emulator executed


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register what must see the first conftest.py."""
    pluginmanager.register(_COLLECTION, "warpwave-collection")


_NOTING: list[AbstractContextManager[None]] = []  # never left: the process ends


def _notes_launches() -> bool:
    return bool(_NOTING) or _interpreted()


def _note_launches() -> None:
    """Begin to note what tests launch, once Triton is imported. Where kernels are interpreted, the interpreter does."""
    if "triton.runtime.jit" in sys.modules and not _interpreted() and not _NOTING:
        _NOTING.append(noted(lambda name: Launched.functions.setdefault(name)))
        _NOTING[0].__enter__()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Provide a fake GPU if tests run in Triton's interpreter or in the emulator: the first conftest.py may ask for one."""
    journal, job = Journal.from_environment(), settings().job
    await_card_at_first_use(journal)
    asked = dict(map(parse_configuration, job.what.configs))
    card = job.emulate or job.interpret_as or next(iter(job.architectures), None)
    if card and (job.emulate or _interpreted()):
        early_config.stash[_ACCOUNT] = provide(
            early_config,
            card,
            job.torch_devices,
            seconds=job.limits.test_s if job.emulate else 0.0,
            sanitize=job.sanitizes,
            every=job.what.autotune == "all",
            asked=asked,
            profile=bool(job.what.profile or counter_limits(job)),
            passes=job.what.passes,
            journal=journal,
        )
        return
    if job.sanitizes and job.rocjitsu:
        from warpwave.inside.sanitize.rocjitsu import of_kernels_in_rocjitsu

        of_kernels_in_rocjitsu(early_config.pluginmanager, journal)
    elif job.sanitizes:
        from warpwave.inside.sanitize.on_card import of_kernels_on_a_card

        of_kernels_on_a_card(early_config.pluginmanager, journal)
    # A package that keeps Triton's own `run`, to see later whether a tool watches launches, must keep the one that notes them.
    with suppress(ImportError):
        import triton  # noqa: F401

        _note_launches()
        early_config.pluginmanager.register(Autotuned(Timed(asked), every=False, journal=journal), "warpwave-autotuned")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Wait for the card before the first test."""
    if session.items and not session.config.option.collectonly:
        import_compiler()
        await_card(Journal.from_environment())


def pytest_configure(config: pytest.Config) -> None:
    """Register the reporter."""
    die_with_parent()
    account = config.stash.get(_ACCOUNT, None)
    pretended = _interpreted() or account is not None
    reporter = Reporter(Journal.from_environment(), _COLLECTION, pretended, account, config.stash.get(NEIGHBOURS, None))
    config.pluginmanager.register(reporter, "warpwave-reporter")


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    longrepr = report.longrepr
    text = getattr(report, "wasxfail", None) or (longrepr[2] if isinstance(longrepr, tuple) else str(longrepr or ""))
    return text.removeprefix("Skipped: ")
