"""The output of a container that may have been started by another client, over a connection that may break."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

_PAUSE_S = 0.5


class Followed:
    """A container's output from its first byte, each byte once. After a break it is read again, and what has been seen is skipped."""

    def __init__(self, follow: Callable[[], Any], runs: Callable[[], bool]) -> None:
        """`follow` returns the output from its beginning, in pieces, up to the container's end. `runs` tells whether that has come."""
        self._follow, self._runs = follow, runs
        self._pieces: Iterator[bytes] = iter(())
        self._seen = 0
        self._begun = self._complete = self._enough = False
        self._stream: Any = None

    def __next__(self) -> bytes:
        """Return the next piece.

        Raises:
            StopIteration: the container has ended.
            OSError: the machine cannot be reached any more.
        """
        while not self._enough:
            piece = next(self._pieces, None)
            if piece:
                self._seen += len(piece)
                return piece
            if piece is None and not self._again():
                break
        raise StopIteration

    def close(self) -> None:
        """Stop reading."""
        self._enough = True
        self._end()

    def _end(self) -> None:
        """End the current reading. The SDK shuts its socket down; only the response behind it closes the socket."""
        parts: tuple[Any, ...] = (self._stream, getattr(self._stream, "_response", None))
        for part in parts:
            with suppress(Exception):
                part.close()

    def _again(self) -> bool:
        """Read again. Return False if the container had ended before the last reading began: then everything has been seen."""
        ended = self._begun and not self._runs()
        if ended and self._complete:
            return False
        self._complete = ended
        if self._begun:
            time.sleep(_PAUSE_S)
        self._begun = True
        self._end()
        self._stream = self._follow()
        self._pieces = _unseen(self._stream, self._seen)
        return True


def _unseen(pieces: Any, seen: int) -> Iterator[bytes]:
    """Yield what comes after the first `seen` bytes. A reading that breaks off ends like one at its end."""
    with suppress(Exception):  # also what the SDK and its libraries raise about a broken stream
        for piece in pieces:
            if seen >= len(piece):
                seen -= len(piece)
                continue
            yield bytes(piece[seen:])
            seen = 0
