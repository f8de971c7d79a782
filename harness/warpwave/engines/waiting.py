"""Handle Ctrl-C and SIGTERM while a target runs: a signal ends a wait early, and interrupts nothing else. A CI system sends SIGINT, then
SIGTERM, then SIGKILL within seconds, and people press Ctrl-C twice. Within `held`, signals are only counted. They raise KeyboardInterrupt
only in `interruptible` blocks. So no signal interrupts the code that stops the kernels, cleans up after them and records how they ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from _typeshed import SupportsNext

    from warpwave.engines.protocol import Say

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _State:
    """The state of this process: signal handlers are global, so there is only one."""

    signals: list[int]
    depth = 0
    armed = False
    on_stop: Union[Callable[[], None], None] = None


_state = _State()
_state.signals = []


def listen() -> None:
    """Treat SIGINT and SIGTERM as requests to stop from now on. Call this from the main thread."""
    for number in _SIGNALS:
        signal.signal(number, _note)


def asked() -> int:
    """Return how many signals have asked this process to stop."""
    return len(_state.signals)


def terminated() -> bool:
    """Return whether one of those signals was SIGTERM."""
    return signal.SIGTERM in _state.signals


@contextmanager
def held(on_stop: Callable[[], None] | None = None) -> Iterator[None]:
    """Count signals in this block. They raise only in `interruptible` blocks within it. Blocks may be nested. `on_stop` is called once,
    before anything is stopped. Signals do not interrupt it."""
    previous = {}
    if not _state.depth:
        _state.signals.clear()
    above, _state.on_stop = _state.on_stop, on_stop or _state.on_stop
    _state.depth += 1
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not _note:
                try:
                    previous[number] = signal.signal(number, _note)
                except ValueError:  # not the main thread: signals interrupt only the main thread
                    break
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _state.on_stop = above
        _state.depth -= 1


class interruptible:  # noqa: N801 - used like a function
    """Let one signal raise KeyboardInterrupt in this block. If a signal arrived before, raise at once. This is a class and not a generator:
    a signal may arrive while the block is entered or left, and must not raise then."""

    def __enter__(self) -> None:
        """Allow a signal to raise. Raises KeyboardInterrupt if a signal has already asked the process to stop."""
        if not _state.depth:
            return
        _state.armed = True
        if _state.signals:
            _state.armed = False
            _call_on_stop()
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Only count signals again."""
        _state.armed = False
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            _call_on_stop()


def _call_on_stop() -> None:
    on_stop, _state.on_stop = _state.on_stop, None
    if on_stop:
        on_stop()


def _note(number: int, frame: object) -> None:
    _state.signals.append(number)
    if _state.armed or not _state.depth:
        _state.armed = False  # the next one is only counted
        raise KeyboardInterrupt


# Split the output of a container or process into lines. No output can raise an error here or use unlimited memory.

MAX_LINE = 10_000


class Reader(threading.Thread):
    """Passes each line on while the main thread watches the clock. `ended` is set at the end of the output."""

    def __init__(self, output: SupportsNext[bytes], on_line: Say) -> None:
        """Start the thread only where KeyboardInterrupt is caught: Ctrl-C may arrive before `start` returns."""
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._output, self._on_line = output, on_line

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
