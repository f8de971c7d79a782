"""The sanitizer in the test stage: a test in which it found something has failed, and each finding is a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from warpwave.inside.fake_gpu.emulated_findings import Collected
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.torch_device import Patch, around
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import Ended
from warpwave.inside.sanitize.sanitizer import Sanitizer
from warpwave.inside.sanitize.torch_reads import TorchReads
from warpwave.records import NotRun

_NAME = "warpwave-sanitized"
_LONGEST = 1000  # characters of a property


def of_interpreted_kernels(plugins: pytest.PytestPluginManager, journal: Journal | None) -> list[Patch]:
    """Check interpreted kernels; return what the interpreter and torch must do instead, so that the sanitizer sees it."""
    sanitizer = Sanitizer()
    plugins.register(Sanitized(journal, sanitizer.findings), _NAME)
    reads, run_backward = TorchReads(sanitizer.shadows, sanitizer.findings), "_engine_run_backward"
    watching = (Redirect, "watch", staticmethod(reads.called))
    below = (torch.autograd, run_backward, around(reads.differentiating, getattr(torch.autograd, run_backward)))
    return [*sanitizer.patches(), watching, below]


def of_machine_code(plugins: pytest.PytestPluginManager, journal: Journal | None) -> Collected:
    """Check emulated kernels; return what collects the findings of the emulator."""
    checks = Collected()
    plugins.register(Sanitized(journal, checks), _NAME)
    return checks


def failure(found: str) -> BaseException:
    """Return what was found in a test as an exception. It stands whatever else the test has asked a card for."""
    made = pytest.fail.Exception(found, pytrace=False)
    vars(made).update(is_finding=True)
    return made


class Sanitized:
    """A pytest plugin. What a fixture does before the test counts as the test's. The journal, if there is one, gets each finding."""

    def __init__(self, journal: Journal | None, findings: Collected) -> None:
        self.journal, self.findings = journal, findings

    def pytest_runtest_logstart(self) -> None:
        """Discard findings from between tests."""
        self.findings.take()
        self.findings.not_checked.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail the test if there are findings."""
        try:
            result = yield
        except (Exception, pytest.skip.Exception, pytest.xfail.Exception, Ended) as error:
            if found := self._found(item):
                raise failure(found) from error  # which usually is why
            raise
        if found := self._found(item):
            swallowed = getattr(item, "_excinfo", None)  # by unittest; pytest would report it in place of what is raised here
            cause = swallowed[0].value if swallowed else None
            if swallowed:
                swallowed.clear()
            raise failure(found) from cause
        return result

    def _found(self, item: pytest.Item) -> str:
        """Return what was found in a test, in words. What could not be checked becomes a property of it."""
        case, rows, not_checked = item.nodeid, self.findings.take(), self.findings.not_checked
        if not_checked:
            item.user_properties.append((NotRun.NOT_FOLLOWED.value, "; ".join(not_checked)[:_LONGEST]))
        for row in rows:
            if self.journal:
                self.journal.write("finding", id=case, row=dataclasses.asdict(row))
        return "\n".join(row.sentence for row in rows)
