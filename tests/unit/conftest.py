"""Fixtures of the bench stage's tests."""

import pytest
from benching import FakeDevice

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
