"""A kernel package that means harm. It is run in a container only; each test tries one door and passes whatever comes of it."""

import os
import pathlib
import signal
import socket
import sys

import pytest

RESULTS = pathlib.Path("/results")
if not RESULTS.is_dir():
    pytest.skip("it does harm: only in a container of ours", allow_module_level=True)
NOISE = "::error::forged\n::set-output name=x::y\n::stop-commands::t\n##[error]forged\x1b[2J\x1b]0;title\x07</script><b>"


def quietly(action, *arguments):
    """Try it."""
    try:
        return action(*arguments)
    except OSError as error:
        return error


@pytest.mark.parametrize("name", ["::error::x", "</script><script>", "\x1b[31m", "=1+1", "../../x"])
def test_named(name):
    print(NOISE)
    os.write(2, NOISE.encode())


def test_failing_with_noise():
    pytest.fail(NOISE)


def test_events_are_forged():
    """The pipe on which a stage tells the host how it goes is open in here."""
    for descriptor in range(3, 20):
        quietly(os.write, descriptor, b'{"event": "result", "verdict": "failed", "id": "::error::x", "message": "\\u001b[2J"}\n' + b"[" * 9000 + b"\n")


def test_results_are_traps():
    """What the host will read: links out, pipes without an end, a file that seems to be enormous, a tree without a bottom."""
    facts = RESULTS / "facts.json"
    quietly(facts.unlink)
    quietly(facts.symlink_to, os.environ.get("SECRET", "/etc/passwd"))
    (RESULTS / "bench").mkdir(exist_ok=True)
    quietly(os.mkfifo, RESULTS / "bench" / "samples.jsonl")
    quietly((RESULTS / "outside").symlink_to, "/")
    quietly(os.mknod, RESULTS / "device", 0o20666, os.makedev(1, 1))
    with open(RESULTS / "bench" / "ceilings.jsonl", "wb") as file:
        quietly(file.truncate, 8 << 30)  # past the limit of one file
        file.truncate(3 << 30)
    quietly(pathlib.Path(RESULTS / "run.json").write_text, '{"verdict": "passed"}')
    folder = os.open(RESULTS, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=folder)
        folder, old = os.open("d" * 50, os.O_RDONLY, dir_fd=folder), folder
        os.close(old)
    (RESULTS / "setuid").write_text("#!/bin/sh\n")
    (RESULTS / "setuid").chmod(0o6755)


def test_a_daemon_stays():
    """It has left its process group and its session, holds nothing, and would go on for ever."""
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def test_the_harness_is_edited():
    for place in ("/warpwave/warpwave/records/job.py", "/opt/warpwave/bin/python3", __file__, "/etc/passwd"):
        assert isinstance(quietly(open, place, "w"), OSError)
    assert isinstance(quietly(socket.create_connection, ("192.0.2.1", 80), 1), OSError)
    assert os.getuid() != 0, sys.version
