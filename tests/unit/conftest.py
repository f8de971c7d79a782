"""Fixtures of the bench stage's tests."""

import os

import pytest
from benching import FakeDevice
from forking.become import _READ_AT_START

from harness.inside.bench.do_bench import Timer


@pytest.fixture
def device():
    """A GPU's timeline, without a GPU."""
    return FakeDevice()


@pytest.fixture
def timer(device, monkeypatch):
    """Of a host that takes no time: it is ahead however busy this machine is."""
    monkeypatch.setattr("harness.inside.bench.do_bench.time.perf_counter", lambda: 0.0)
    return Timer(device, device.flush, 1 << 20)


@pytest.fixture(autouse=True, scope="module")
def _leave_no_variables():
    """Remove variables that a module of tests leaves: torch's compiler sets some, and no fork stands for a process with them."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before:
        if name.startswith(_READ_AT_START):
            del os.environ[name]
