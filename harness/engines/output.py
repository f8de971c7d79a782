"""What a container prints → lines for the host: whatever the program writes, nothing here fails or grows without bound."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from harness.engines.seam import Say

MAX_LINE = 10_000


class Output(Protocol):
    """The pieces as they come from the engine."""

    def __next__(self) -> bytes:
        """The next piece."""
        ...


class Reader(threading.Thread):
    """Hands each line on while the main thread watches the clock; `ended` is set when nothing more will come."""

    def __init__(self, output: Output, on_line: Say) -> None:
        """To be started where a Ctrl-C is caught: one may come before `start` returns."""
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._output = output
        self._on_line = on_line

    def run(self) -> None:
        """Read to the end."""
        try:
            for line in split_lines(self._pieces()):
                self._on_line(line)
        finally:
            self.ended.set()

    def _pieces(self) -> Iterator[bytes]:
        while True:
            try:
                piece = next(self._output)
            except Exception:  # the end, or a broken stream: what became of the container is asked of the engine, not concluded here
                return
            yield piece


def split_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Bytes in pieces → lines of text, each cut at `MAX_LINE` bytes with a word on how many are missing."""
    held, cut = bytearray(), 0
    for piece in pieces:
        *complete, rest = piece.split(b"\n")
        for end in complete:
            yield _text(held, cut, end)
            held, cut = bytearray(), 0
        room = max(0, MAX_LINE - len(held))
        held += rest[:room]
        cut += len(rest[room:])
    if held or cut:
        yield _text(held, cut, b"")


def _text(held: bytearray, cut: int, end: bytes) -> str:
    line = bytes(held) + end
    cut += len(line[MAX_LINE:])
    text = line[:MAX_LINE].decode("utf-8", errors="replace").rstrip("\r")
    return f"{text} … {cut} bytes cut" if cut else text
