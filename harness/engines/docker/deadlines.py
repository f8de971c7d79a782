"""Calls to a container engine that may never come back: each is made in a thread of its own, and given up when its time is over.

A timeout of a socket is for one read: an engine that sends one byte a second would be waited for without end. What a thread waits for in
vain ends with the process; the main thread waits for an event, so that a Ctrl-C is heard.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, Union

from harness.engines import signals

IMPATIENT_S = 5.0  # for each call after one that was given up, until the engine has answered again, and once somebody wants to stop
BEAT_S = 30.0  # how often an engine that is at a long work is asked whether it is there
MAX_BODY = 64 << 20  # of one answer; that of thousands of containers has a few MiB
_PIECE = 1 << 16

T = TypeVar("T")
Beat = Callable[[], object]


class _Thread(threading.Thread, Generic[T]):
    """A call under way; what it came to is in `outcome`."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.call, self.done = call, threading.Event()
        self.outcome: list[T] = []
        self.error: Union[BaseException, None] = None

    def run(self) -> None:
        """Make the call, and keep what it raises for whoever waits."""
        try:
            self.outcome.append(self.call())
        except BaseException as error:  # it is raised where it is waited for
            self.error = error
        finally:
            self.done.set()


def within(seconds: float, call: Callable[[], T], what: str, beat: Union[Beat, None] = None) -> T:
    """What `call` returns or raises. While it takes long, `beat` is called now and then; what it raises ends the waiting.

    Raises:
        TimeoutError: it did not come back within `seconds`.
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
    """The messages of an answer that comes in pieces, with an end to all of it.

    Raises:
        TimeoutError: its end did not come within `seconds`.
    """
    found: queue.SimpleQueue[tuple[T, ...]] = queue.SimpleQueue()  # an empty tuple: there are no more
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
    """Gives every call of the SDK's client an end, by taking the place of the one method through which all of them go."""

    def __init__(self, api: Any, longest_s: float) -> None:
        """`longest_s` is for what has no limit of its own: pulling and building an image."""
        self.longest_s = longest_s
        self._late = self._long = False
        self._api, self._ping = api, api.ping
        self._send, self._build, self._pull = api.send, api.build, api.pull
        api.send, api.build, api.pull = self.send, self.build, self.pull

    def send(self, request: Any, **options: Any) -> Any:
        """One request and its answer, in all; of a stream only until its headers are there."""
        # The SDK names no timeout for what takes long, and none for attaching, which does not.
        limit = self.longest_s if self._long else options.get("timeout") or self._api.timeout
        seconds = min(limit, IMPATIENT_S) if self._late or signals.asked() else limit
        started, what = time.monotonic(), f"{request.method} {request.path_url.partition('?')[0]}"[:200]
        given_up = threading.Event()
        try:
            answer = within(seconds, lambda: self._ask(request, options, given_up), what, self._beat if self._long else None)
        except BaseException as error:
            given_up.set()
            # A Ctrl-C too: whoever had to press it has waited long enough.
            self._late = isinstance(error, (TimeoutError, KeyboardInterrupt)) and time.monotonic() - started >= min(seconds, IMPATIENT_S)
            raise
        self._late = False
        return answer

    def build(self, **options: Any) -> Iterator[Any]:
        """As the SDK's, with an end."""
        return self._whole("the build", self._build, options)

    def pull(self, repository: str, **options: Any) -> Iterator[Any]:
        """As the SDK's, with an end."""
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
        """An engine that builds for an hour answers this at once; one that hangs does not."""
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
            answer._content = bytes(body)  # where requests keeps what it has read itself
        elif given_up.is_set():
            answer.close()
        return answer
