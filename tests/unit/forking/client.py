"""Ask for a forked process, from a test or from a shell: `python client.py SOCKET PYTHON WORD...` ends as that process does."""

import json
import os
import socket
import sys
import time
from collections.abc import Sequence

SIZE = 8  # bytes of a message's length, and of an exit status


def ask(path: str, asked: dict[str, object], files: Sequence[int], timeout: float | None = 300) -> int:
    """The exit status of the process `asked` for, with the descriptors `files` as its 0, 1 and 2; negative for a signal."""
    message = json.dumps(asked).encode()
    until = time.monotonic() + 120
    while not os.path.exists(path):  # noqa: PTH110 - starts sooner
        assert os.path.isdir(os.path.dirname(path)), "what processes are forked from has not started"  # noqa: PTH112, PTH120
        assert time.monotonic() < until, "what processes are forked from takes too long to start"
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(timeout)
        server.connect(path)
        socket.send_fds(server, [len(message).to_bytes(SIZE, "big")], list(files))
        server.sendall(message)
        answer = server.recv(SIZE)
    assert answer, "the process could not be made"
    return int.from_bytes(answer, "big", signed=True)


if __name__ == "__main__":
    where, *words = sys.argv[1:]
    request = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ), "closed": []}  # noqa: PTH109 - starts sooner
    status = ask(where, request, (0, 1, 2))
    sys.exit(status if status >= 0 else 128 - status)
