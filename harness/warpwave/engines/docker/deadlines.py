"""Put a deadline on every call to a container engine: each call runs in its own thread, and is given up when its time is over.

A socket timeout covers one read only, so an engine that sends one byte a second would keep us waiting for ever. A thread that was given up
ends with the process. The main thread waits for an event, so Ctrl-C still works.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, Union

from warpwave.engines import waiting

IMPATIENT_S = 5.0  # the limit for a call if an earlier call was given up (until the engine answers again), or if the user wants to stop
BEAT_S = 30.0  # how often we check that an engine is still alive during a long call
MAX_BODY = 64 << 20  # bytes of one answer; a list of thousands of containers takes a few MiB
_PIECE = 1 << 16

T = TypeVar("T")
Beat = Callable[[], object]


class _Thread(threading.Thread, Generic[T]):
    """A running call. Its result is in `outcome`, or its exception in `error`."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.call, self.done = call, threading.Event()
        self.outcome: list[T] = []
        self.error: Union[BaseException, None] = None

    def run(self) -> None:
        """Make the call, and keep its result or exception."""
        try:
            self.outcome.append(self.call())
        except BaseException as error:  # raised in the thread that waits for the result
            self.error = error
        finally:
            self.done.set()


def within(seconds: float, call: Callable[[], T], what: str, beat: Union[Beat, None] = None) -> T:
    """Return or raise what `call` returns or raises. During a long call, call `beat` at intervals; an exception from it ends the wait.

    Raises:
        TimeoutError: the call did not return within `seconds`.
    """
    thread = _Thread(call)
    thread.start()
    until = time.monotonic() + seconds
    while not thread.done.wait(max(0.0, min(BEAT_S, until - time.monotonic()))):
        if time.monotonic() >= until:
            raise TimeoutError(f"it did not answer {what} within {seconds:g} s")
        if beat is not None:
            beat()
    if thread.error is not None:
        raise thread.error
    return thread.outcome[0]


def paced(seconds: float, messages: Iterator[T], what: str, beat: Beat) -> Iterator[T]:
    """Yield the messages of an answer that comes in pieces, with a deadline for the whole answer.

    Raises:
        TimeoutError: the answer did not end within `seconds`.
    """
    found: queue.SimpleQueue[tuple[T, ...]] = queue.SimpleQueue()  # an empty tuple marks the end
    enough = threading.Event()

    def read() -> None:
        try:
            for message in messages:
                found.put((message,))
                if enough.is_set():
                    return
        finally:
            found.put(())

    thread = _Thread(read)
    thread.start()
    until = time.monotonic() + seconds
    try:
        while True:
            try:
                message = found.get(timeout=max(0.0, min(BEAT_S, until - time.monotonic())))
            except queue.Empty:
                message = None
            if message:
                yield message[0]
            elif message is not None:
                break
            elif time.monotonic() < until:
                beat()
            if time.monotonic() >= until:
                raise TimeoutError(f"it did not come to the end of {what} within {seconds:g} s")
    finally:
        enough.set()
    thread.done.wait()
    if thread.error is not None:
        raise thread.error


class Bounds:
    """Puts a deadline on every call of the SDK's client, by replacing the one method that all calls use."""

    def __init__(self, api: Any, longest_s: float) -> None:
        """`longest_s` is the deadline for calls without one of their own: pulling and building an image."""
        self.longest_s = longest_s
        self._late = self._long = False
        self._api, self._ping = api, api.ping
        self._send, self._build, self._pull = api.send, api.build, api.pull
        api.send, api.build, api.pull = self.send, self.build, self.pull

    def send(self, request: Any, **options: Any) -> Any:
        """Send one request and return its whole answer; for a stream, the deadline covers the headers only."""
        # The SDK sets no timeout for long calls. It sets none for attaching either, which is a short call.
        limit = self.longest_s if self._long else options.get("timeout") or self._api.timeout
        seconds = min(limit, IMPATIENT_S) if self._late or waiting.asked() else limit
        started, what = time.monotonic(), f"{request.method} {request.path_url.partition('?')[0]}"[:200]
        given_up = threading.Event()
        try:
            answer = within(seconds, lambda: self._ask(request, options, given_up), what, self._beat if self._long else None)
        except BaseException as error:
            given_up.set()
            # Ctrl-C counts too: a user who presses it has waited long enough.
            self._late = isinstance(error, (TimeoutError, KeyboardInterrupt)) and time.monotonic() - started >= min(seconds, IMPATIENT_S)
            raise
        self._late = False
        return answer

    def build(self, **options: Any) -> Iterator[Any]:
        """Build like the SDK, with a deadline."""
        return self._whole("the build", self._build, options)

    def pull(self, repository: str, **options: Any) -> Iterator[Any]:
        """Pull like the SDK, with a deadline."""
        return self._whole("the pull", lambda **more: self._pull(repository, **more), options)

    def _whole(self, what: str, call: Callable[..., Iterator[Any]], options: dict[str, Any]) -> Iterator[Any]:
        until = time.monotonic() + self.longest_s
        self._long = True
        try:
            messages = call(**options)
        finally:
            self._long = False
        return paced(max(0.0, until - time.monotonic()), messages, what, self._beat)

    def _beat(self) -> None:
        """Ping the engine. An engine that is busy building answers at once; an engine that hangs does not."""
        self._long, long = False, self._long
        self._ping()
        self._long = long

    def _ask(self, request: Any, options: dict[str, Any], given_up: threading.Event) -> Any:
        answer = self._send(request, **{**options, "stream": True})
        if not options.get("stream"):
            body = bytearray()
            for piece in answer.iter_content(_PIECE):
                body += piece
                if len(body) > MAX_BODY or given_up.is_set():
                    answer.close()
                    raise ConnectionError(f"its answer to {request.method} is longer than {MAX_BODY} bytes, or came too late")
            answer._content = bytes(body)  # `requests` keeps a body that it has read here
        elif given_up.is_set():
            answer.close()
        return answer
