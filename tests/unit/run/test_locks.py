"""One run at a time: on a GPU, and in a results folder. With real locks of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warpwave.errors import InfrastructureError
from warpwave.run import cards

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


def test_other_cards_are_free(hold):
    """Two jobs with a card each run side by side."""
    hold("0")
    take("1")


def test_a_dead_owner_owns_nothing(hold):
    """SIGKILL leaves no lock behind."""
    owner = hold("0")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    take("0", wait_s=10.0)


def test_who_waits_gets_it(hold):
    """As soon as the owner is done."""
    owner = hold(None)

    def say(line: str) -> None:
        owner.kill()

    started = time.monotonic()
    take(None, wait_s=60.0, say=say)
    assert time.monotonic() - started < 30


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
