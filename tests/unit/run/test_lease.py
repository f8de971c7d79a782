"""A card is locked when a stage asks for it, and free before, between and afterwards."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from warpwave.errors import InfrastructureError
from warpwave.inside.process import lease as inside
from warpwave.inside.process.journal import Journal
from warpwave.records import LEASE_FILE, Job, Stage
from warpwave.run.cards import Lease


class Card:
    """What locks a card that is in the test's memory: its state, and how often it was taken."""

    def __init__(self) -> None:
        self.locked, self.taken, self.refusal = False, 0, ""

    @contextmanager
    def lock(self):
        if self.refusal:
            raise InfrastructureError(self.refusal, "Another run uses it.", "Wait.")
        self.locked, self.taken = True, self.taken + 1
        try:
            yield
        finally:
            self.locked = False


@pytest.fixture
def card():
    return Card()


@pytest.fixture
def raw(tmp_path):
    for stage in ("test", "bench"):
        (tmp_path / stage).mkdir()
    return tmp_path


def event(stage: str, wanted: bool) -> dict[str, object]:
    return {"event": "lease", "stage": stage, "wanted": wanted}


def answer(raw: Path, stage: str) -> str:
    """Wait for the host's answer to a stage."""
    file, until = raw / stage / LEASE_FILE, time.monotonic() + 30
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.005)
    return file.read_text()


def test_a_stage_has_the_card_from_its_question_to_its_end(card, raw):
    """And between two stages another run may have it. Each stage's seconds are kept."""
    lease = Lease(card.lock, raw)
    lease.on_event(event("test", True))
    assert (answer(raw, "test"), card.locked) == ("", True)
    lease.on_event(event("test", False))
    assert not card.locked
    lease.on_event(event("bench", True))
    assert (answer(raw, "bench"), card.locked) == ("", True)
    lease.end()

    assert (card.locked, card.taken, set(lease.held)) == (False, 2, {"test", "bench"})


def test_what_asks_twice_gets_it_once(card, raw):
    """A replaced worker asks again."""
    lease = Lease(card.lock, raw)
    for _ in range(2):
        lease.on_event(event("test", True))
        answer(raw, "test")
    lease.end()

    assert (card.taken, card.locked) == (1, False)


def test_a_card_that_does_not_come_is_an_answer(card, raw):
    """With the reason; the run is not left waiting."""
    card.refusal = "a GPU of stub is in use by run-9."
    lease = Lease(card.lock, raw)
    lease.on_event(event("test", True))

    assert answer(raw, "test").startswith("a GPU of stub is in use by run-9.")
    assert lease.held == {}


def test_an_answer_follows_no_link(card, raw, tmp_path_factory):
    """The package can write to the stage's folder."""
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_text("precious")
    (raw / "test" / LEASE_FILE).symlink_to(outside)
    lease = Lease(card.lock, raw)
    lease.on_event(event("test", True))
    until = time.monotonic() + 30
    while (raw / "test" / LEASE_FILE).is_symlink() and time.monotonic() < until:
        time.sleep(0.005)
    lease.end()

    assert (outside.read_text(), (raw / "test" / LEASE_FILE).read_text()) == ("precious", "")


def test_a_stranger_among_stages_gets_nothing(card, raw):
    """A stage's name becomes part of a path."""
    lease = Lease(card.lock, raw)
    lease.on_event(event("../..", True))
    lease.end()

    assert card.taken == 0


@pytest.fixture
def stage(raw, monkeypatch):
    """A stage's side; its events go to a list."""
    told: list[dict] = []
    monkeypatch.setenv(inside.LEASE_VARIABLE, "")
    monkeypatch.setattr(inside, "emit", lambda name, **fields: told.append({"event": name, **fields}))
    return inside.Lease(Job("run-1", "stub", (Stage.TEST,), "", str(raw), lease=True), Stage.TEST), told


def test_a_worker_waits_for_the_answer(stage, raw):
    """Having asked once, in its journal; the supervisor asks the host once for all workers."""
    lease, told = stage
    journal = Journal(raw / "journal.jsonl")
    worker = threading.Thread(target=inside.await_card, args=(journal,), daemon=True)
    worker.start()
    until = time.monotonic() + 30
    while not journal.read() and time.monotonic() < until:
        time.sleep(0.005)
    assert worker.is_alive()
    lease.ask()
    lease.ask()
    (raw / "test" / LEASE_FILE).write_text("")
    worker.join(30)
    lease.give_back()
    lease.give_back()

    assert not worker.is_alive()
    assert [entry["event"] for entry in journal.read()] == ["card"]
    assert [(entry["stage"], entry["wanted"]) for entry in told] == [("test", True), ("test", False)]


def test_a_refused_worker_ends_and_says_why(stage, raw, monkeypatch):
    """As for a card that is lost: no test is blamed."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    (raw / "test" / LEASE_FILE).write_text("it is in use")
    inside.await_card(Journal(raw / "journal.jsonl"))
    (line,) = map(json.loads, (raw / "journal.jsonl").read_text().splitlines())

    assert (ended, line["event"], line["reason"]) == ([1], "lost", "it is in use")


def test_a_job_without_a_lease_waits_for_nobody(raw, monkeypatch):
    """An engine elsewhere, or a target without a card."""
    monkeypatch.setenv(inside.LEASE_VARIABLE, "left over")
    inside.Lease(Job("run-1", "stub", (Stage.TEST,), "", str(raw)), Stage.TEST).ask()
    inside.await_card(Journal(raw / "journal.jsonl"))

    assert not (raw / "journal.jsonl").exists()


class Cards:
    """Two locked cards, each of which can be released."""

    def __init__(self) -> None:
        self.free: list[int] = []

    def __len__(self) -> int:
        return 2

    def release(self, position: int) -> bool:
        self.free.append(position)
        return True


def test_seconds_of_several_cards_are_added_up(raw, monkeypatch):
    """Both for 10 s, then one for 5 s. The last one goes with the stage; what is no card's index releases nothing."""
    now, cards = [100.0], Cards()
    monkeypatch.setattr("warpwave.run.cards.time.monotonic", lambda: now[0])

    @contextmanager
    def lock():
        yield cards

    lease = Lease(lock, raw)
    lease.take()
    now[0] += 10
    for card in ("1", True, None, 1, 1, 0):
        lease.on_event({**event("test", False), "card": card})
    now[0] += 5
    lease.on_event(event("test", False))

    assert (cards.free, lease.held) == ([1], {"facts": 25.0})
