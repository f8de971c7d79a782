"""Put a deadline on every call to a container engine: each call runs in its own thread, and is given up when its time is over. A socket
timeout covers one read only, so an engine that sends one byte a second would keep us waiting for ever. A thread that was given up ends with
the process. The main thread waits for an event, so Ctrl-C still works."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar, Union

from warpwave.engines import waiting

IMPATIENT_S = 5.0  # the limit for a call if an earlier call was given up (until the engine answers again), or if the user wants to stop
BEAT_S = 30.0  # how often we check that an engine is still alive during a long call
MAX_BODY = 64 << 20  # bytes of one answer; a list of thousands of containers takes a few MiB
_PIECE = 1 << 16

T = TypeVar("T")
Beat = Callable[[], object]


def within(seconds: float, call: Callable[[], T], late: str, beat: Union[Beat, None] = None) -> T:
    """Return or raise what `call` returns or raises. During a long call, call `beat` at intervals; an exception from it ends the wait.
    Raises TimeoutError if the call did not return within `seconds`, with the message `late`."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised in the thread that waits for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    until = time.monotonic() + seconds
    while not wait([future], max(0.0, min(BEAT_S, until - time.monotonic()))).done:
        if time.monotonic() >= until:
            raise TimeoutError(late)
        if beat is not None:
            beat()
    return future.result()


def paced(seconds: float, messages: Iterator[T], what: str, beat: Beat) -> Iterator[T]:
    """Yield the messages of an answer that comes in pieces, with a deadline for the whole answer. Raises TimeoutError if the answer did not
    end within `seconds`."""
    until, late = time.monotonic() + seconds, f"it did not come to the end of {what} within {seconds:g} s"
    while (message := within(until - time.monotonic(), lambda: next(messages, None), late, beat)) is not None:
        yield message
        if time.monotonic() >= until:
            raise TimeoutError(late)


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
        started = time.monotonic()
        late = f"it did not answer {f'{request.method} {request.path_url}'.partition('?')[0][:200]} within {seconds:g} s"
        given_up = threading.Event()
        try:
            answer = within(seconds, lambda: self._ask(request, options, given_up), late, self._beat if self._long else None)
        except BaseException as error:
            given_up.set()
            # Ctrl-C counts too: a user who presses it has waited long enough.
            self._late = isinstance(error, (TimeoutError, KeyboardInterrupt)) and time.monotonic() - started >= min(seconds, IMPATIENT_S)
            raise
        self._late = False
        return answer

    def build(self, **options: Any) -> Iterator[Any]:
        """Build like the SDK, with a deadline."""
        return self._whole("the build", lambda: self._build(**options))

    def pull(self, repository: str, **options: Any) -> Iterator[Any]:
        """Pull like the SDK, with a deadline."""
        return self._whole("the pull", lambda: self._pull(repository, **options))

    def _whole(self, what: str, call: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        until = time.monotonic() + self.longest_s
        self._long = True
        try:
            messages = call()
        finally:
            self._long = False
        return paced(until - time.monotonic(), messages, what, self._beat)

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
