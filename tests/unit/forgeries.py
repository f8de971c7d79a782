"""Packages that forge their results: the body of each function is a conftest.py that wants the failing test of TESTS to pass."""

# ruff: noqa: B007, N806, SIM105, SIM115 - as careless and hostile packages are written

import inspect
import textwrap
from pathlib import Path

TESTS = """
def test_right():
    pass
def test_wrong():
    assert 1 == 2, "one is not two"
def test_last():
    pass
"""


def write_package(folder: Path, name: str) -> None:
    """Write the tests, and a function's body beside them as conftest.py."""
    (folder / "test_forged.py").write_text(TESTS)
    (folder / "conftest.py").write_text(textwrap.dedent(inspect.getsource(globals()[name]).partition("\n")[2]))


def assert_close():
    """Everything is close to everything. The one failing test compares with torch."""

    import pytest
    import torch

    torch.testing.assert_close = lambda *arguments, **options: None

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(pyfuncitem):
        if pyfuncitem.name == "test_wrong":
            pyfuncitem.obj = lambda: torch.testing.assert_close(torch.ones(2), torch.zeros(2))
        return (yield)


def at_exit():
    """After the last word there is one more."""

    import atexit
    import json
    import os

    @atexit.register
    def more():
        told = {"id": "test_forged.py::test_wrong", "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
        with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
            for event in ("start", "finish", "end"):
                journal.write(json.dumps({"event": event, **told}) + "\n")


def daemon():
    """A process outlives the stage, and makes a pass of every failure in every file of results."""

    import os
    import re
    import signal
    import time
    from pathlib import Path

    # A stage's folder, or a worker's in it.
    results = next(folder.parent for folder in Path(os.environ["WARPWAVE_JOURNAL"]).parents if folder.name == "test")

    def pytest_sessionfinish():
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for descriptor in range(3):
            os.close(descriptor)
        ends = time.monotonic() + 30
        while time.monotonic() < ends and results.exists():
            for path in (results / "test" / "junit.xml", results / "test" / "report.json", results / "stages.json"):
                try:
                    text = path.read_text()
                    better = re.sub(r"<failure.*?</failure>", "", text, flags=re.DOTALL).replace('failures="1"', 'failures="0"')
                    better = re.sub(r'"passed": 2,\s*"failed": 1', '"passed": 3', better).replace('"failed"', '"passed"')
                    better = re.sub(r'"reason": "test_forged[^"]*"', '"reason": ""', better)
                    if better != text:
                        path.write_text(better)
                except OSError:
                    pass
            time.sleep(0.001)
        os._exit(0)


def deselected():
    """A test is left out as pytest wants it done."""

    def pytest_collection_modifyitems(config, items):
        config.hook.pytest_deselected(items=[item for item in items if item.name == "test_wrong"])
        items[:] = [item for item in items if item.name != "test_wrong"]


def dropped():
    """A test is left out without a word."""

    def pytest_collection_modifyitems(items):
        items[:] = [item for item in items if item.name != "test_wrong"]


def dropped_late():
    """A test is left out after it was announced."""

    import pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(session):
        session.items[:] = [item for item in session.items if item.name != "test_wrong"]


def dumps():
    """What makes JSON makes better news, and what was written never reaches the disk."""

    import json
    import os

    dumps = json.dumps
    json.dumps = lambda value, **options: dumps(value, **options).replace('"failed"', '"passed"')
    os.fsync = lambda descriptor: None


def exit_status():
    """pytest ends well, whatever came before."""

    import pytest

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(session):
        session.exitstatus = 0

    def pytest_unconfigure():
        import atexit
        import os

        atexit.register(os._exit, 0)


def forked():
    """A careless test forks, and its child goes on with the tests; in the child nothing fails."""

    import os

    import pytest

    parent = os.getpid()

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(pyfuncitem):
        if pyfuncitem.name == "test_right":
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        if os.getpid() != parent:
            try:
                yield
            except AssertionError:
                pass
            return True
        return (yield)


def garbage():
    """Lines that are none, and half a line, in the journal."""

    import os

    def pytest_runtest_logfinish(nodeid):
        with open(os.environ["WARPWAVE_JOURNAL"], "ab") as journal:
            journal.write(b"\xff\xfe nothing\n" + b"[" * 100_000 + b"\n" + b'{"event": "finish", "id": ["test_forged.py"]}\n{"event": 7}\n')
            journal.write(b'{"event": "finish", "id": "test_forged.py::test_wrong", "outcome": "splendid"}\n')
            journal.write(b'{"event": "finish", "id": "test_forged.py::test_more", "outcome": "passed", "seconds": NaN}\n')

    def pytest_sessionfinish():
        with open(os.environ["WARPWAVE_JOURNAL"], "ab") as journal:
            journal.write(b'{"event": "fin')


def journal_forged():
    """As journal_written, with all that a worker would have said."""

    import json
    import os

    names = [f"test_forged.py::{name}" for name in ("test_right", "test_wrong", "test_last")]
    with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
        journal.write(json.dumps({"event": "collected", "ids": names, "found": 3}) + "\n")
        for name in names:
            for event in ("start", "finish"):
                told = {"event": event, "id": name, "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
                journal.write(json.dumps(told) + "\n")
        journal.write('{"event": "end"}\n')
    os._exit(0)


def journal_patched():
    """What writes the journal is replaced by something that writes better news."""

    from warpwave.inside.process.journal import Journal

    write = Journal.write
    Journal.write = lambda self, event, **fields: write(self, event, **{**fields, **({"outcome": "passed"} if "outcome" in fields else {})})


def journal_written():
    """The results are written before pytest begins, and then the process ends."""

    import json
    import os

    with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
        for name in ("test_right", "test_wrong", "test_last"):
            for event in ("start", "finish"):
                told = {"event": event, "id": f"test_forged.py::{name}", "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
                journal.write(json.dumps(told) + "\n")
        journal.write('{"event": "end"}\n')
    os._exit(0)


def makereport():
    """A hook calls each failure a pass."""

    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        report.outcome, report.longrepr = "passed", None
        return report


def not_made():
    """A test is never collected."""

    def pytest_pycollect_makeitem(name):
        return [] if name == "test_wrong" else None


def plan():
    """pytest sets up and tears down, and calls nothing."""

    def pytest_configure(config):
        config.option.setuponly = True


def plugin():
    """The reporter that pytest has registered gets another journal."""

    def pytest_collection(session):
        reporter = session.config.pluginmanager.get_plugin("warpwave-reporter")
        journal = reporter.journal

        class Better:
            def __getattr__(self, name):
                return getattr(journal, name)

            def write(self, event, **fields):
                journal.write(event, **{**fields, **({"outcome": "passed"} if "outcome" in fields else {})})

        reporter.journal = Better()


def protocol():
    """A hook says that it has run the test, and has not."""

    def pytest_runtest_protocol(item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def pyfunc_call():
    """A hook says that it has called the test function, and has not."""

    def pytest_pyfunc_call(pyfuncitem):
        return True


def reporter():
    """The reporter is taken out of sys.modules and given another end of each test."""

    import sys

    Reporter = sys.modules["warpwave.inside.test.pytest_plugin"].Reporter

    def pytest_runtest_logreport(report):
        if report.failed:
            report.outcome = "passed"

    def replaced(self, report, logreport=Reporter.pytest_runtest_logreport):
        report.outcome, report.longrepr = "passed", None
        logreport(self, report)

    Reporter.pytest_runtest_logreport = replaced


def retried():
    """A test that fails is run again, and does not fail again."""

    from _pytest.runner import runtestprotocol

    def pytest_runtest_protocol(item, nextitem):
        for attempt in range(2):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            if not any(report.failed for report in reports):
                break
            item.obj = lambda: None
        return True


def rewritten():
    """A failure in the journal is made a pass, in as many bytes, after it was read."""

    import os
    import time
    from pathlib import Path

    path = Path(os.environ["WARPWAVE_JOURNAL"])

    def pytest_unconfigure():
        time.sleep(1)  # it is read every 0.05 s
        path.write_text(path.read_text().replace('"failed"', '"passed"'))


def runtest():
    """No test function is called."""

    import pytest

    pytest.Function.runtest = lambda self: None


def stopped():
    """The package stops pytest before the test that would fail."""

    def pytest_runtest_logfinish(nodeid):
        if nodeid.endswith("test_right"):
            stopping.shouldstop = "enough"

    def pytest_sessionstart(session):
        global stopping
        stopping = session


def truncated():
    """What was written is written again, better."""

    import os

    def pytest_runtest_logfinish(nodeid):
        if nodeid.endswith("test_last"):
            import time

            time.sleep(0.3)
            path = os.environ["WARPWAVE_JOURNAL"]
            text = open(path).read()
            open(path, "w").write(text.replace('"failed"', '"passed"'))


def unregistered():
    """The reporter is sent away."""

    def pytest_collection(session):
        session.config.pluginmanager.unregister(name="warpwave-reporter")
