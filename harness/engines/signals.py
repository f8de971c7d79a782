"""Handle Ctrl-C and SIGTERM while a target runs: a signal ends a wait early, and interrupts nothing else.

A CI system sends SIGINT, then SIGTERM, then SIGKILL within seconds, and people press Ctrl-C twice. Within `held`, signals are only counted.
They raise KeyboardInterrupt only in `interruptible` blocks. So no signal interrupts the code that stops the kernels, cleans up after them
and records how they ended.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Union

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
    """Count signals in this block. They raise only in `interruptible` blocks within it. Blocks may be nested.

    `on_stop` is called once, before anything is stopped. Signals do not interrupt it.
    """
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
    """Let one signal raise KeyboardInterrupt in this block. If a signal arrived before, raise at once.

    This is a class and not a generator: a signal may arrive while the block is entered or left, and must not raise then.
    """

    def __enter__(self) -> None:
        """Allow a signal to raise.

        Raises:
            KeyboardInterrupt: a signal has already asked the process to stop.
        """
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
