"""Ctrl-C and SIGTERM while a target runs: they cut waiting short and interrupt nothing else.

A CI system sends SIGINT, then SIGTERM, then SIGKILL within seconds, and people press Ctrl-C twice. Within `held` a signal is counted, and
raises KeyboardInterrupt only where the code is `interruptible`. So nothing interrupts what stops the kernels, tidies up after them and
writes down how they ended.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Union

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _State:
    """One for the process, as its signal handlers are."""

    signals: list[int]
    depth = 0
    armed = False
    on_stop: Union[Callable[[], None], None] = None


_state = _State()
_state.signals = []


def listen() -> None:
    """Take SIGINT and SIGTERM for requests to stop, from now on. Only the main thread of a process may."""
    for number in _SIGNALS:
        signal.signal(number, _note)


def asked() -> int:
    """How many signals have asked this process to stop."""
    return len(_state.signals)


def terminated() -> bool:
    """Whether one of them was SIGTERM."""
    return signal.SIGTERM in _state.signals


@contextmanager
def held(on_stop: Callable[[], None] | None = None) -> Iterator[None]:
    """Count signals from here on; they raise only where the code is `interruptible`. May be nested.

    `on_stop` is called once, before the stopping begins, with signals held back.
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
                except ValueError:  # not the main thread, which is the only one that signals interrupt
                    break
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _state.on_stop = above
        _state.depth -= 1


class interruptible:  # noqa: N801 - used like a function
    """Let one signal raise KeyboardInterrupt in this block; one that came before raises at once.

    A class and not a generator: an interrupt may come in the middle of entering or leaving, and must find it disarmed.
    """

    def __enter__(self) -> None:
        """Begin to wait.

        Raises:
            KeyboardInterrupt: the process has been asked to stop already.
        """
        if not _state.depth:
            return
        _state.armed = True
        if _state.signals:
            _state.armed = False
            _tell()
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Hold signals back again."""
        _state.armed = False
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            _tell()


def _tell() -> None:
    on_stop, _state.on_stop = _state.on_stop, None
    if on_stop:
        on_stop()


def _note(number: int, frame: object) -> None:
    _state.signals.append(number)
    if _state.armed or not _state.depth:
        _state.armed = False  # the next one is only counted
        raise KeyboardInterrupt
