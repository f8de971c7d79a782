"""A test whose process was killed while other workers ran: it runs again when they are done, on a card or without one."""

from __future__ import annotations

from types import SimpleNamespace

from warpwave.inside.multi_gpu import pytest_plugin


def test_what_was_postponed_runs_without_a_card_too(monkeypatch):
    """Nobody watches neighbours where tests use no card. The worker that stays runs it all the same."""
    monkeypatch.setattr(pytest_plugin, "done_by_all", lambda path: set())
    monkeypatch.setattr(pytest_plugin, "given_up", lambda ledger, journal, case: False)
    left, finished = ["test_a.py::test_killed"], []
    ledger = SimpleNamespace(
        card=0,
        neighbours=lambda: [],
        next=lambda units, *rest: left.pop() if units and left else None,
        wait_until_alone=lambda beat: None,
        postponed=lambda: ["test_a.py::test_killed"],
        finish=finished.append,
    )
    item = SimpleNamespace(nodeid="test_a.py::test_killed")
    claims = object.__new__(pytest_plugin._Claims)
    vars(claims).update(
        _ledger=ledger, _journal=SimpleNamespace(path=None), _neighbours=None, _items=[item], _files={}, _order=[], _done=set()
    )

    assert list(claims.pairs()) == [(item, None)]
    assert finished == ["test_a.py::test_killed"]
