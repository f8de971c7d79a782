"""Fixtures of the bench stage's tests."""

import os
from pathlib import Path
from unittest import mock

import pytest
from benching import FakeDevice

from warpwave.errors import WarpwaveError
from warpwave.inside.bench.timing import Timer


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def timer(device, monkeypatch):
    """Of a host that takes no time: it is ahead however busy this machine is."""
    monkeypatch.setattr("warpwave.inside.bench.timing.time.perf_counter", lambda: 0.0)
    return Timer(device, device.flush, 1 << 20)


@pytest.fixture(autouse=True, scope="session")
def _errors_are_sentences():
    """Whatever error a test meets: its meaning and its remedy are sentences, not shouted, and what happened is told."""
    made = WarpwaveError.__init__

    def init(self, happened, meaning, remedy):
        assert not any(text.isupper() for text in (happened, meaning, remedy)), (happened, meaning, remedy)
        for text in (meaning, remedy):  # a test's own error may have none
            assert text == "" or text.endswith((".", "`", ")")), text
        made(self, happened, meaning, remedy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarpwaveError, "__init__", init)
        yield


@pytest.fixture(autouse=True)
def _own_variables():
    """Take back the variables and the folder that a test's code sets: a stage names its files by some, and torch's compiler its caches.

    The folder may be the test's own, which is gone after it.
    """
    before = Path.cwd()
    with mock.patch.dict(os.environ):
        yield
    os.chdir(before)


@pytest.fixture(autouse=True, scope="module")
def _leave_no_variables(request):
    """Name the module whose tests leave a variable: later tests would run with it, and no fork could stand for a new process."""
    before = set(os.environ)
    yield
    left = sorted(set(os.environ) - before - {"PYTEST_CURRENT_TEST"})
    for name in left:
        del os.environ[name]
    assert not left, f"{request.node.nodeid} left {', '.join(left)} in the environment, by a fixture of the module"
