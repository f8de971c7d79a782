"""The output of a container that may have been started by another client, over a connection that may break."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

from warpwave.engines import waiting
from warpwave.engines.protocol import Say
from warpwave.engines.ssh.tunnel import Tunnel
from warpwave.errors import InfrastructureError

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
        """Return the next piece. Raises StopIteration if the container has ended, and OSError if the machine cannot be reached any more."""
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


_PATIENCE_S = 180.0
_NOTICED_S = 2.0  # ssh ends a moment after the connection
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_SAFE = ("GET", "HEAD", "DELETE")


class LostError(ConnectionError):
    """The machine cannot be reached any more."""


class Reconnecting:
    """Replaces the one method of the SDK's client that all calls use."""

    def __init__(self, api: Any, tunnel: Tunnel) -> None:
        """`say` takes a line for the user when the connection breaks; set it before the first call."""
        self.say: Say = lambda line: None
        self.patience_s = _PATIENCE_S
        self._lost = ""
        self._lock = threading.Lock()
        self._tunnel, self._send = tunnel, api.send
        api.send = self.send

    def send(self, request: Any, **options: Any) -> Any:
        """Send one request. If the connection breaks, make a new one, and send again what only asks or removes. Raises LostError if the
        machine cannot be reached for a while, and OSError if the engine fails, or the call must not be made twice."""
        while True:
            try:
                return self._send(request, **options)
            except OSError as error:
                if not self.is_broken():
                    raise
                self.reconnect(error)
                # A signal to a container may be sent twice.
                if request.method not in _SAFE and "/kill" not in request.path_url:
                    raise

    def is_broken(self) -> bool:
        """Return whether the connection has ended, and not only the engine failed."""
        until = time.monotonic() + _NOTICED_S
        while not self._tunnel.is_broken():
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        return True

    def reconnect(self, error: BaseException) -> None:
        """Connect anew, with patience. Raises LostError if the machine cannot be reached for a while, or the user does not want to wait."""
        with self._lock:
            if self._lost:
                raise LostError(self._lost) from error
            if not self._tunnel.is_broken():
                return
            name, until = self._tunnel.place.name, time.monotonic() + self.patience_s
            self.say(f"the connection to {name} broke; the kernels go on there. Connecting again for up to {self.patience_s:g} s")
            for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
                try:
                    self._tunnel.open()
                except InfrastructureError as failed:
                    if time.monotonic() >= until or waiting.asked():
                        self._lost = f"the connection to {name} was lost ({failed.happened.rstrip('.')})"
                        raise LostError(self._lost) from error
                    time.sleep(pause_s)
                else:
                    self.say(f"connected to {name} again")
                    return
