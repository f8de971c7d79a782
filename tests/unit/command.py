"""The `warpwave` command as a process of its own, forked from one that has imported what every command needs.

A caller sees what `python -m harness` gives: its folder, its environment, its descriptors, its signals, its exit code. How Python itself
starts is left out; a test of that starts it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from light import light_python

REPOSITORY = Path(__file__).parents[2]
_IMPORTED = (
    "harness.__main__",
    "harness.engines.local",
    "harness.out_folder",
    "harness.package_settings",
    "harness.render.exports",
    "harness.render.terminal",
    "harness.report",
    "harness.run",
    "harness.run.target",
    "harness.targets",
)
_SIZE = 8  # bytes of a message's length, and of an exit status
_CLOSED = -1


def warpwave(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    light: bool = False,
    descriptors: Sequence[int | None] = (None, None, None),
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        light: What it starts finds tests/data/light in place of torch.
        descriptors: The command's 0, 1 and 2. None is /dev/null or what this returns as text, -1 a closed one.
    """
    words = [os.fsdecode(argument) if isinstance(argument, Path) else str(argument) for argument in arguments]
    asked = {"words": words, "cwd": os.fsdecode(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull))
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        usual = [nothing.fileno(), *(file.fileno() for file in said)]
        given = [ours if theirs is None else theirs for ours, theirs in zip(usual, descriptors, strict=True)]
        asked["closed"] = [number for number, one in enumerate(given) if one == _CLOSED]
        message = json.dumps(asked).encode()
        server = _server(light_python() if light else sys.executable)
        server.settimeout(timeout)
        files = [ours if theirs == _CLOSED else theirs for ours, theirs in zip(usual, given, strict=True)]
        socket.send_fds(server, [len(message).to_bytes(_SIZE, "big")], files)
        server.sendall(message)
        answer = server.recv(_SIZE)
        assert answer, "the process that commands are forked from has ended"
        for file in said:
            file.seek(0)
        status = int.from_bytes(answer, "big", signed=True)
        return subprocess.CompletedProcess(["warpwave", *words], status, *(file.read().decode() for file in said))


@functools.cache
def _server(python: str) -> socket.socket:
    """What commands are forked from; it ends when this socket is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [python, __file__, str(theirs.fileno())]
        variables = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{Path(__file__).parent}"}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=variables)
    atexit.register(process.wait, 60)
    atexit.register(ours.close)
    return ours


def _serve(server: socket.socket) -> None:
    """Fork for every message, and answer with the exit status. Returns in the child alone, as the command's process."""
    for name in _IMPORTED:
        importlib.import_module(name)
    sys.modules["harness.targets"].load_targets()  # what reads records is built on its first use
    while True:
        head, files, _, _ = socket.recv_fds(server, _SIZE, 3)
        if not head:
            os._exit(0)
        asked = json.loads(_read(server, int.from_bytes(head, "big")))
        child = os.fork()
        if not child:
            server.close()
            _become(asked, files)
            return
        for file in files:
            os.close(file)
        server.sendall(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]).to_bytes(_SIZE, "big", signed=True))


def _read(server: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += server.recv(size - len(data))
    return data


def _become(asked: dict, files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for number in asked["closed"]:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python does at its start
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["warpwave", *asked["words"]]
    sys.path[0] = asked["cwd"]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from harness.__main__ import main

    main()
