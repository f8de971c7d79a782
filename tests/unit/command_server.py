"""What commands are forked from: `python command_server.py SOCKET PIPE` serves until the other end of the pipe is closed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
import tempfile
from pathlib import Path

from command_client import SIZE
from synthetic import two_targets, write_raw

REPOSITORY = Path(__file__).parents[2]


def serve(listener: socket.socket, pipe: int) -> None:
    """Fork for every connection. Returns in a command's process alone."""
    while True:
        ready, _, _ = select.select([listener, pipe], [], [])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if listener not in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            os.close(pipe)
            if _attend(connection):
                return
            os._exit(0)
        connection.close()


def import_all() -> None:
    """Import the harness, and make what it makes on first use: its templates, and what reads its records."""
    for path in sorted((REPOSITORY / "harness").rglob("*.py")):
        place = path.relative_to(REPOSITORY).with_suffix("").parts
        if place[1] != "inside":
            importlib.import_module(".".join(place).removesuffix(".__init__"))
    with tempfile.TemporaryDirectory() as folder:
        for run in two_targets():
            write_raw(Path(folder) / run.record.target, run)
        sys.modules["harness.report"].make_report([Path(folder)], Path(folder))
    sys.modules["harness.config.targets"].load_targets()
    gc.freeze()


def _attend(connection: socket.socket) -> bool:
    """Fork the command and answer with its exit status. True in the command's process."""
    head, files, _, _ = socket.recv_fds(connection, SIZE, 3)
    data = b""
    while len(data) < int.from_bytes(head, "big"):
        data += connection.recv(1 << 20)
    child = os.fork()
    if not child:
        connection.close()
        _become(json.loads(data), files)
        return True
    for file in files:
        os.close(file)
    connection.sendall(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]).to_bytes(SIZE, "big", signed=True))
    return False


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
    tempfile.tempdir = None  # it was read from the server's own TMPDIR
    sys.executable = asked["python"]
    sys.argv = ["warpwave", *asked["words"]]
    sys.path[0] = asked["cwd"]


if __name__ == "__main__":
    import_all()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{sys.argv[1]}.new")
        made.listen(64)
        Path(f"{sys.argv[1]}.new").rename(sys.argv[1])  # whoever sees it can connect
        serve(made, int(sys.argv[2]))
    sys.modules["harness.__main__"].main()
