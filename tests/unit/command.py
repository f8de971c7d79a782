"""Processes of their own, forked from one that has imported what they need: the `warpwave` command, and `python -m MODULE`.

A caller sees what a new process gives: its folder, its environment, its descriptors, its exit code. How Python itself starts is left out,
and signals reach nobody; what depends on that starts it.
"""

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from forking import client
from light import light_python, share_light_python

_CLOSED = -1
_READING = ("clean", "codegen", "compare", "export", "history", "init", "list", "plot", "report")  # commands that start no stage
_SHARED = "WARPWAVE_TEST_SERVERS"
_SERVER = Path(client.__file__).with_name("server.py")


def warpwave(*arguments: object, light: bool = False, **more) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `more` as for `python`.

    Args:
        light: What it starts finds tests/data/light in place of torch.
    """
    words = _words(arguments)
    kind = "command" if words[:1] and words[0] in _READING else "stages"
    return _run([light_python() if light else sys.executable, "warpwave", *words], **{"kind": kind, **more})


def python(*arguments: object, light: bool = False, **more) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENT...` to its end. What no fork can stand for is started as usual.

    Args:
        light: It finds tests/data/light in place of torch.
        kind: `compiler` for the compile stage alone: Triton is imported too, and does not interpret. `command` has no torch.
        cwd, env: As for `subprocess.run`.
        before: A command that starts what the process is forked from, such as `setpriv` with its options.
        descriptors: The process's 0, 1 and 2. None is /dev/null or what this returns as text, -1 a closed one.
    """
    return _run([light_python() if light else sys.executable, *_words(arguments)], **more)


def shell_words(light: bool = False, kind: str = "stages") -> str:
    """What stands for `warpwave` on a shell's line; `light` and `kind` as above."""
    command = [light_python() if light else sys.executable, "warpwave"]
    return shlex.join([sys.executable, "-I", "-S", client.__file__, _server((), kind), *command])


def beats(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of an error, without a traceback in them. The reason of the exit code is a line before it."""
    assert "Traceback" not in done.stderr + done.stdout
    return [line.strip() for line in done.stderr.strip().splitlines() if not line.startswith("exit code ")]


def _words(arguments: Sequence[object]) -> list[str]:
    return [os.fsdecode(argument) if isinstance(argument, Path) else str(argument) for argument in arguments]


def _run(
    words: list[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    kind: str = "stages",
    before: tuple[str, ...] = (),
    descriptors: Sequence[int | None] = (None, None, None),
    timeout: float | None = 300,
) -> subprocess.CompletedProcess[str]:
    asked = {"words": words, "cwd": os.fsdecode(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull))
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        usual = [nothing.fileno(), *(file.fileno() for file in said)]
        asked["closed"] = [number for number, one in enumerate(descriptors) if one == _CLOSED]
        files = [ours if theirs in (None, _CLOSED) else theirs for ours, theirs in zip(usual, descriptors, strict=True)]
        status = client.ask(_server(before, kind), asked, files, timeout)
        for file in said:
            file.seek(0)
        return subprocess.CompletedProcess(words, status, *(file.read().decode() for file in said))


def share_servers() -> None:
    """Start what the processes of all of pytest's workers are forked from: called in the process that starts those."""
    share_light_python()
    os.environ[_SHARED] = os.pathsep.join(f"{kind}={_start((), kind)}" for kind in ("stages", "compiler", "command"))


@functools.cache
def _server(before: tuple[str, ...], kind: str) -> str:
    """The socket of what processes are forked from."""
    shared = dict(entry.split("=", 1) for entry in os.environ.get(_SHARED, "").split(os.pathsep) if entry)
    return shared[kind] if kind in shared and not before else _start(before, kind)


def _start(before: tuple[str, ...], kind: str) -> str:
    """Start a server, which ends when this process does, or removes its folder if it cannot serve; the socket that it will have."""
    folder = Path(tempfile.mkdtemp(prefix="warpwave-command-"))
    reading, writing = os.pipe()
    words = [*before, sys.executable, str(_SERVER), kind, light_python(), str(folder / "socket"), str(reading)]
    process = subprocess.Popen(words, pass_fds=[reading], stdin=subprocess.DEVNULL)
    os.close(reading)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.wait, 60)
    atexit.register(os.close, writing)
    return str(folder / "socket")
