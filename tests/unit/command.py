"""The `warpwave` command as a process of its own, forked from one that has imported what every command needs.

A caller sees what `python -m harness` gives: its folder, its environment, its descriptors, its exit code. How Python itself starts is left
out, and signals reach nobody; what depends on that starts it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import command_client
from light import light_python

ROOT = Path(__file__).parents[2]
_CLOSED = -1


def warpwave(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    light: bool = False,
    before: tuple[str, ...] = (),
    descriptors: Sequence[int | None] = (None, None, None),
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        light: What it starts finds tests/data/light in place of torch.
        before: A command that starts what the command is forked from, such as `setpriv` with its options.
        descriptors: The command's 0, 1 and 2. None is /dev/null or what this returns as text, -1 a closed one.
    """
    words = [os.fsdecode(argument) if isinstance(argument, Path) else str(argument) for argument in arguments]
    asked = {"words": words, "cwd": os.fsdecode(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull))
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        usual = [nothing.fileno(), *(file.fileno() for file in said)]
        asked["closed"] = [number for number, one in enumerate(descriptors) if one == _CLOSED]
        asked["python"] = light_python() if light else sys.executable
        files = [ours if theirs in (None, _CLOSED) else theirs for ours, theirs in zip(usual, descriptors, strict=True)]
        status = command_client.ask(_server(before), asked, files, timeout)
        for file in said:
            file.seek(0)
        return subprocess.CompletedProcess(["warpwave", *words], status, *(file.read().decode() for file in said))


def shell_words(light: bool = False) -> str:
    """What stands for `warpwave` on a shell's line."""
    return shlex.join([sys.executable, "-I", "-S", command_client.__file__, _server(()), light_python() if light else sys.executable])


@functools.cache
def _server(before: tuple[str, ...]) -> str:
    """The socket of what commands are forked from. That ends when this process does."""
    folder = Path(tempfile.mkdtemp(prefix="warpwave-command-"))
    reading, writing = os.pipe()
    words = [*before, sys.executable, str(Path(__file__).with_name("command_server.py")), str(folder / "socket"), str(reading)]
    process = subprocess.Popen(words, pass_fds=[reading], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL)
    os.close(reading)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.wait, 60)
    atexit.register(os.close, writing)
    until = time.monotonic() + 60
    while not (folder / "socket").exists():
        assert process.poll() is None, "what commands are forked from has not started"
        assert time.monotonic() < until, "what commands are forked from takes too long to start"
        time.sleep(0.01)
    return str(folder / "socket")
