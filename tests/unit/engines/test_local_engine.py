"""The engine without a container: what its child prints, and that nothing of the child is left, whenever Ctrl-C comes."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import ask
from slow_cases import slow_but

from warpwave.config.targets import load_targets
from warpwave.engines import local, waiting
from warpwave.engines.waiting import MAX_LINE, Reader, held, interruptible
from warpwave.records import Environment

LONG = f"printf 'one\\ntwo\\377 '; head -c {MAX_LINE + 5} /dev/zero | tr '\\0' x; echo; echo three >&2"


@pytest.fixture
def execute(tmp_path):
    """Run a shell script where the inside's Python would be run; returns how it ended and its lines."""

    def execute(script: str):
        lines: list[str] = []
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        (tmp_path / "raw").mkdir()
        request = ask(load_targets()["cpu"], tmp_path, tmp_path / "raw", grace_s=5.0)
        _, ended = local.LocalEngine().execute(request, Environment(engine="local", python=str(python)), lines.append)
        return ended, lines

    return execute


def test_output_of_any_kind_comes_through(execute):
    """Both streams in order, bytes that are no text, and a line that is cut where it is too long."""
    ended, lines = execute(LONG)
    assert ended.code == 0
    assert [line[:8] for line in lines] == ["one", "two\ufffd xxx", "three"]
    assert lines[1].endswith("x … 10 bytes cut")


def test_ctrl_c_while_the_run_begins(execute, monkeypatch, tmp_path):
    """It comes before the child is watched: the run is interrupted, and the child, in a session of its own, is gone too."""

    class Pressed(Reader):
        def start(self) -> None:
            super().start()
            until = time.monotonic() + 10
            while not (tmp_path / "pid").exists() and time.monotonic() < until:
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(local, "Reader", Pressed)
    ended, _ = execute(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 60")
    assert ended.interrupted
    assert ended.code == -2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list((tmp_path / "raw").iterdir()) == []


def test_import_paths_come_behind_the_harness(execute, monkeypatch, tmp_path):
    """The caller's PYTHONPATH and the target's are both kept; neither displaces the harness."""
    monkeypatch.setenv("PYTHONPATH", "/callers")
    target = load_targets()["cpu"]
    monkeypatch.setattr("test_local_engine.load_targets", lambda: {"cpu": replace(target, environment={"PYTHONPATH": "/targets"})})
    _, lines = execute('echo "$PYTHONPATH"')

    assert lines == [f"{tmp_path}/raw/.harness:/callers:/targets"]


# A run that is stopped, by one signal or by many at random moments: nothing interrupts the tidying, and the record says what happened.

# Where the inside's Python would be run: deaf to signals, with many files, a link, and a daemon that goes on planting links.
HOSTILE = """#!/bin/sh
[ "$1" != -c ] || exit 0
trap '' INT TERM HUP
mkdir -p test/many
(cd test/many && seq 5000 | xargs touch)
setsid sh -c 'trap "" INT TERM HUP; while :; do ln -sfn /etc/hostname test/again; sleep 0.01; done' >/dev/null 2>&1 &
echo $! >test/daemon
echo $$ >test/main
ln -s /etc/hostname test/ready
while :; do sleep 1; done
"""


def press(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


def wait_for(path: Path) -> None:
    until = time.monotonic() + 30
    while not os.path.lexists(path) and time.monotonic() < until:
        time.sleep(0.01)


@pytest.fixture
def stubborn(tmp_path):
    """A run of the local engine that will not end by itself, once it has planted its link; and its results folder."""
    python = tmp_path / "python"
    python.write_text(HOSTILE)
    python.chmod(0o755)
    (tmp_path / "kernels").mkdir()
    words = ["run", "cpu", "--engine", "local", "--python", str(python), "--kernels", "kernels", "--out", "out", "--no-report"]
    raw = tmp_path / "out" / "raw" / "cpu"
    process = subprocess.Popen(
        [sys.executable, "-m", "warpwave", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    wait_for(raw / "test" / "ready")
    yield process, raw
    process.kill()
    process.communicate()
    for name in ("daemon", "main"):  # a run that is killed with SIGKILL cannot end what it started
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((raw / "test" / name).read_text()), signal.SIGKILL)


@pytest.mark.parametrize("seed", slow_but(range(4), [0]))
def test_no_link_survives_however_often_and_whenever_it_is_stopped(stubborn, seed):
    """SIGINT, then more signals at random moments until it has ended: no link, no process, and a record that is true."""
    process, raw = stubborn
    daemon = int((raw / "test" / "daemon").read_text())
    moments = random.Random(seed)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        time.sleep(moments.uniform(0, 0.15))
        process.send_signal(moments.choice([signal.SIGINT, signal.SIGTERM]))
    record = json.loads((raw / "run.json").read_text())

    assert [path for path in raw.rglob("*") if path.is_symlink()] == []
    assert (record["verdict"], record["exit"]["interrupted"]) == ("incomplete", True)
    assert record["reason"].startswith("stopped by the user or the CI system")
    assert record["exit"]["code"] == -9
    with pytest.raises(ProcessLookupError):
        os.kill(daemon, 0)


def test_what_is_killed_while_it_stops_has_said_so(stubborn):
    """SIGINT, and SIGKILL before the run has ended: the record neither says that it had not started, nor that it runs still."""
    process, raw = stubborn
    process.send_signal(signal.SIGINT)
    until = time.monotonic() + 10
    while '"interrupted": true' not in (raw / "run.json").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    record = json.loads((raw / "run.json").read_text())

    assert record["verdict"] == "incomplete"
    assert record["reason"] == "stopped by the user or the CI system while the kernels ran; warpwave was killed before everything had ended"
    assert "--resume" in record["hint"]


def test_a_signal_interrupts_waiting_and_nothing_else():
    """Counted where the code is not interruptible, and raised where it is next: once each time, and at once if one has come before."""
    told = []
    with held(lambda: told.append("told")):
        press(signal.SIGINT, signal.SIGTERM)
        assert waiting.asked() == 2
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt), interruptible():
                pytest.fail("entered")
    assert told == ["told"]
    assert waiting.terminated()


def test_only_the_first_signal_is_raised():
    handled = []
    with held():
        assert waiting.asked() == 0
        try:
            with interruptible():
                press(signal.SIGINT)
                pytest.fail("went on")
        except KeyboardInterrupt:
            press(signal.SIGINT, signal.SIGTERM)
            handled.append(waiting.asked())
    assert handled == [3]


def test_handlers_are_given_back():
    """Outside of a run Ctrl-C is what it was, also after an error."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="x"), held(), held():
        raise ValueError("x")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(KeyboardInterrupt):
        press(signal.SIGINT)
