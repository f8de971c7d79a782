"""The limit of a case: time in which other processes had the cores is not the case's."""

from __future__ import annotations

import os

from warpwave.inside.process import supervise, workers


def test_a_limit_does_not_count_the_wait_for_a_core(monkeypatch):
    """100 s passed, of which the worker waited 70 s for a core: a limit of 40 s has not passed, one of 20 s has."""
    now, waited = [0.0], [5.0]
    monkeypatch.setattr(supervise.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(supervise, "waited_s", lambda pid: waited[0])
    clock = supervise._Clock(1)

    now[0], waited[0] = 100.0, 75.0

    assert not clock.is_past(40.0)
    assert clock.is_past(20.0)


def test_the_wait_is_the_kernels(tmp_path):
    """A process that is gone, and a kernel that keeps no account, have waited for nothing: then the limit is one of the wall clock."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("12000000000 3500000000 41\n")

    assert workers.waited_s(7, tmp_path) == 3.5
    assert workers.waited_s(8, tmp_path) == 0.0
    assert workers.waited_s(os.getpid()) >= 0.0
