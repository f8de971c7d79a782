"""A card is locked when a stage asks for it, and free before, between and afterwards."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_requests import make_job

from warpwave.errors import InfrastructureError
from warpwave.inside.process import lease as inside
from warpwave.inside.process.journal import Journal
from warpwave.records import LEASE_FILE, Stage
from warpwave.run import cards
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


def test_a_stranger_among_stages_gets_nothing(card, raw):
    lease = Lease(card.lock, raw)
    lease.on_event(event("../..", True))
    lease.end()

    assert card.taken == 0


def test_what_asks_twice_gets_it_once(card, raw):
    lease = Lease(card.lock, raw)
    for _ in range(2):
        lease.on_event(event("test", True))
        answer(raw, "test")
    lease.end()

    assert (card.taken, card.locked) == (1, False)


def test_a_card_that_does_not_come_is_an_answer(card, raw):
    card.refusal = "a GPU of stub is in use by run-9."
    lease = Lease(card.lock, raw)
    lease.on_event(event("test", True))

    assert answer(raw, "test").startswith("a GPU of stub is in use by run-9.")
    assert lease.held == {}


def test_an_answer_follows_no_link(card, raw, tmp_path_factory):
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


@pytest.fixture
def stage(raw, monkeypatch):
    told: list[dict] = []
    monkeypatch.setenv(inside.LEASE_VARIABLE, "")
    monkeypatch.setattr(inside, "emit", lambda name, **fields: told.append({"event": name, **fields}))
    return inside.Lease(make_job("run-1", "stub", (Stage.TEST,), "", str(raw), lease=True), Stage.TEST), told


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
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    (raw / "test" / LEASE_FILE).write_text("it is in use")
    inside.await_card(Journal(raw / "journal.jsonl"))
    (line,) = map(json.loads, (raw / "journal.jsonl").read_text().splitlines())

    assert (ended, line["event"], line["reason"]) == ([1], "lost", "it is in use")


def test_a_job_without_a_lease_waits_for_nobody(raw, monkeypatch):
    monkeypatch.setenv(inside.LEASE_VARIABLE, "left over")
    inside.Lease(make_job("run-1", "stub", (Stage.TEST,), "", str(raw)), Stage.TEST).ask()
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


# One run at a time: on a GPU, and in a results folder. With real locks of real processes.

REPOSITORY = Path(__file__).parents[3]
HOLD = """
import sys, time
from warpwave.run import cards as locks
with locks.gpus("cuda", {chosen!r}, "run-1", 5.0, print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """Another process that has GPUs; its locks, and ours, lie in a folder of the test's."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    held = []

    def start(chosen: str | None) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD.format(chosen=chosen)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env={**os.environ, "TMPDIR": str(tmp_path)})
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        held.append(process)
        return process

    yield start
    for process in held:
        process.kill()
        process.communicate()


def take(chosen: str | None, wait_s: float = 0.3, say=lambda line: None) -> None:
    with cards.gpus("cuda", chosen, "run-2", wait_s, say):
        pass


@pytest.mark.parametrize(("theirs", "ours"), [("0", "0"), ("0,1", "1"), (None, "0"), ("1", None), (None, None)])
def test_two_jobs_do_not_share_a_gpu(hold, theirs, ours):
    """The second waits for a bounded time, is told who has it, and gives up as infrastructure, not as a failed test."""
    owner, said = hold(theirs), []
    with pytest.raises(InfrastructureError) as caught:
        take(ours, say=said.append)

    assert f"run-1, process {owner.pid}" in caught.value.happened
    assert "--gpu" in caught.value.remedy
    assert len(said) == 1


def test_a_dead_owner_owns_nothing(hold):
    owner = hold("0")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    take("0", wait_s=10.0)


def test_a_results_folder_has_one_writer(tmp_path):
    """A second run in the same folder is refused while the first one, or a child that has its lock, is alive."""
    with cards.folder(tmp_path, 0.0, print) as lock:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(lock,))
        with pytest.raises(InfrastructureError, match="in use"), cards.folder(tmp_path, 0.0, print):
            pass
    try:
        with pytest.raises(InfrastructureError, match="in use"), cards.folder(tmp_path, 0.0, print):
            pass
    finally:
        child.kill()
        child.wait()
    with cards.folder(tmp_path, 10.0, print):
        pass


def test_one_of_several_gpus_is_released_before_the_others(hold, tmp_path):
    """Another process can take it; the others stay locked, and a position that is none releases nothing."""
    with cards.gpus("cuda", "0,1", "run-1", 1.0, print) as held:
        assert [held.release(1), held.release(1), held.release(2), held.release(-1)] == [True, False, False, False]
        hold("1")
        with pytest.raises(InfrastructureError):
            take("0")


@pytest.mark.parametrize("chosen", ["1,0", "GPU-3,GPU-4", None])
def test_a_gpu_whose_number_is_not_its_position_is_not_released(hold, chosen):
    """Which of them a process sees first depends on the engine: releasing another card would let a second run spoil its times."""
    with cards.gpus("cuda", chosen, "run-1", 1.0, print) as held:
        assert not any(held.release(position) for position in range(3))
