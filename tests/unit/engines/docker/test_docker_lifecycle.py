"""The life of a container against an engine that fails: nothing hangs, nothing is made up, and the ladder is climbed in order."""

import os
import signal
import threading
import time

import pytest

from warpwave.engines.docker import engine
from warpwave.engines.waiting import MAX_LINE, Reader, held, split_lines

RUNNING = {"Running": True}
GOOD = {"Running": False, "ExitCode": 0, "OOMKilled": False, "Error": ""}
BROKEN = ConnectionError("connection reset")


class GoneError(OSError):
    """As the SDK says 404."""

    status_code = 404


class FakeApi:
    """Answers `inspect` from a script, whose last entry stays; a signal in `deadly` ends the container."""

    def __init__(self, *script, deadly=()):
        self.script = list(script)
        self.deadly = deadly
        self.calls: list[str] = []

    def inspect_container(self, container):
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return {"State": answer}

    def signal(self, name):
        self.calls.append(name)
        if name in self.deadly:
            self.script = [{**GOOD, "ExitCode": 137 if name == "SIGKILL" else 0}]

    def kill(self, container, signal="SIGKILL"):
        self.signal(signal)

    def stop(self, container, timeout):
        self.signal("SIGTERM")


class Silence:
    """An output that never comes to an end."""

    def __next__(self):
        threading.Event().wait()


class Pressed(Reader):
    """Ctrl-C arrives while `start` still waits for the thread."""

    def start(self):
        super().start()
        raise KeyboardInterrupt


class Words:
    """An output that is over after these pieces; an exception among them is raised."""

    def __init__(self, *pieces):
        self.pieces = iter(pieces)

    def __next__(self):
        piece = next(self.pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    for name in ("_RECONNECT_S", "_KILL_S", "_DRAIN_S", "_POLL_S"):
        monkeypatch.setattr(engine, name, 0.2)


def watch(api, output=None, limit_s=30.0, grace_s=0.2, on_line=lambda line: None):
    started = time.monotonic()
    ended = engine.watch(api, "c", output or Words(), on_line, limit_s, grace_s)
    assert time.monotonic() - started < 25
    return ended


def test_an_engine_that_goes_away():
    ended = watch(FakeApi(RUNNING, BROKEN))
    assert ended.code is None
    assert "connection to the engine broke" in ended.error


def test_an_engine_that_comes_back():
    """A container that still runs is followed on; one that is said to have ended meanwhile is not believed."""
    assert watch(FakeApi(RUNNING, BROKEN, RUNNING, GOOD)).code == 0
    ended = watch(FakeApi(RUNNING, BROKEN, GOOD))
    assert ended.code is None
    assert "how the container ended is not known" in ended.error


def test_a_container_that_is_gone():
    ended = watch(FakeApi(RUNNING, GoneError()))
    assert (ended.code, ended.timed_out) == (None, False)
    assert "removed while it ran" in ended.error


@pytest.mark.parametrize(
    ("deadly", "climbed"),
    [("SIGINT", ["SIGINT"]), ("SIGTERM", ["SIGINT", "SIGTERM"]), ("SIGKILL", ["SIGINT", "SIGTERM", "SIGKILL"])],
)
def test_the_ladder(deadly, climbed):
    api = FakeApi(RUNNING, deadly=(deadly,))
    ended = watch(api, Silence(), limit_s=0.1)
    assert ended.timed_out
    assert ended.code == (137 if deadly == "SIGKILL" else 0)
    assert api.calls == climbed


def test_ctrl_c_before_the_first_look(monkeypatch):
    """It comes while the thread that reads is being started: the container gets its grace, and the run is one that was interrupted."""
    monkeypatch.setattr(engine, "Reader", Pressed)
    api = FakeApi(RUNNING, deadly=("SIGINT",))
    assert watch(api).interrupted
    assert api.calls == ["SIGINT"]


def test_what_survives_everything():
    """A process stuck in the driver is given up after a bound, with the only advice there is."""
    ended = watch(FakeApi(RUNNING), Silence(), limit_s=0.1)
    assert (ended.code, ended.timed_out) == (None, True)
    assert "drain or reboot" in ended.error


def test_an_end_at_the_last_moment():
    assert not watch(FakeApi(GOOD), Silence(), limit_s=0.0).timed_out


def test_a_broken_output_is_not_an_end():
    """The stream breaks, the container goes on: its end is what counts, and what was read is kept."""
    lines: list[str] = []
    ended = watch(FakeApi(RUNNING, RUNNING, RUNNING, GOOD), Words(b"one\ntw", BROKEN), on_line=lines.append)
    assert ended.code == 0
    assert lines == ["one", "tw"]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([], []),
        ([b""], []),
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\n", b"c"], ["ab", "c"]),
        ([b"\n\n"], ["", ""]),
        ([b"a\r\n"], ["a"]),
        ([b"\xc3", b"\xa9\n\xff\n"], ["é", "\ufffd"]),
        ([b"x" * (MAX_LINE + 5) + b"\nz\n"], ["x" * MAX_LINE + " … 5 bytes cut", "z"]),
        ([b"x" * MAX_LINE, b"yy", b"y\nz"], ["x" * MAX_LINE + " … 3 bytes cut", "z"]),
    ],
)
def test_bytes_become_lines(pieces, lines):
    assert list(split_lines(pieces)) == lines


def test_a_second_request_to_stop_skips_the_grace():
    """At whichever rung it comes, and also if both came before the first: the container is killed, and nothing is raised."""
    for before, climbed in ((1, ["SIGINT", "SIGKILL"]), (2, ["SIGKILL"])):

        class Pressing(FakeApi):
            def signal(self, name):
                super().signal(name)
                os.kill(os.getpid(), signal.SIGTERM)

        api = Pressing(RUNNING, deadly=("SIGKILL",))
        with held():
            for _ in range(before):
                os.kill(os.getpid(), signal.SIGINT)
            engine.end(api, "c", 30.0, patient_with=1)
        assert api.calls == climbed
