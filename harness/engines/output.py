"""Split the output of a container or process into lines. No output can raise an error here or use unlimited memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from harness.engines.protocol import Say

MAX_LINE = 10_000


class Output(Protocol):
    """The output as the engine delivers it, in pieces."""

    def __next__(self) -> bytes:
        """Return the next piece."""
        ...


class Reader(threading.Thread):
    """Passes each line on while the main thread watches the clock. `ended` is set at the end of the output."""

    def __init__(self, output: Output, on_line: Say) -> None:
        """Start the thread only where KeyboardInterrupt is caught: Ctrl-C may arrive before `start` returns."""
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._output = output
        self._on_line = on_line

    def run(self) -> None:
        """Read the output to its end."""
        try:
            for line in split_lines(self._pieces()):
                self._on_line(line)
        finally:
            self.ended.set()

    def _pieces(self) -> Iterator[bytes]:
        while True:
            try:
                piece = next(self._output)
            except Exception:  # the end, or a broken stream: the caller asks the engine how the container ended
                return
            yield piece


def split_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Join the pieces and split them into lines of text. Cut each line at `MAX_LINE` bytes and note how many bytes were cut."""
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
