"""What atomics order between the programs of one launch.

The interpreter runs one program after the other, so everything seems ordered. On a card it is only if an atomic says so: a program that
releases makes what it did before visible to a program that acquires *and looks at the result*, as a lock, a semaphore or "the last
one adds up" does. A result that nobody looks at orders nothing: the other program might as well have come first.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from types import MappingProxyType
from typing import Any

Clock = MappingProxyType[int, int]  # by program: the last segment of it that came before
NOTHING: Clock = MappingProxyType({})
_MOST_PROGRAMS = 2048  # of more, everything counts as ordered once they synchronise: a clock holds an entry for each


class Order:
    """The clock of the running program. A program's accesses between two of its atomics are one segment."""

    def __init__(self, programs: int) -> None:
        self.segment = 0
        self.seen = NOTHING
        self._many = programs > _MOST_PROGRAMS
        self._released: dict[Hashable, Clock] = {}

    def begin(self) -> None:
        """Begin another program."""
        self.segment += 1
        self.seen = NOTHING

    def release(self, keys: Iterable[Hashable], program: int) -> None:
        """Publish at each of `keys` (addresses) what this program did so far."""
        for key in () if self._many else keys:
            self._released[key] = _joined(self._released.get(key, NOTHING), MappingProxyType({**self.seen, program: self.segment}))
        self.segment += 1

    def published(self, keys: Iterable[Hashable]) -> Clock:
        """Return what programs published at these addresses so far."""
        clock = NOTHING
        for key in keys:
            clock = _joined(clock, self._released.get(key, NOTHING))
        return clock

    def acquire(self, clock: Clock | None) -> None:
        """Order what was published before all that follows. None orders everything: nobody can know what the kernel waited for."""
        if clock is None or self._many:
            clock = MappingProxyType({**self.seen, _ALL: self.segment - 1})
        self.seen = _joined(self.seen, clock)


_ALL = -1


def is_before(clock: Clock, program: int, segment: int) -> bool:
    """Return whether a segment of a program came before whatever has this clock."""
    return clock.get(program, -1) >= segment or clock.get(_ALL, -1) >= segment


def _joined(one: Clock, other: Clock) -> Clock:
    news: dict[int, int] = {program: segment for program, segment in other.items() if one.get(program, -1) < segment}
    return MappingProxyType({**one, **news}) if news else one


def watched(handle: Any, order: Order, clock: Clock | None) -> Any:
    """Return a handle like `handle` that acquires `clock` as soon as its data is looked at."""
    base: Any = type(handle)
    result: Any = object.__new__(_watched(base))
    result.__dict__.update(handle.__dict__, _acquire=lambda: order.acquire(clock))
    return result


@functools.cache
def _watched(base: Any) -> Any:
    class Watched(base):  # type: ignore[misc]
        """The result of an atomic."""

        @property
        def data(self) -> Any:
            self._acquire()
            return self.__dict__["data"]

        @data.setter
        def data(self, value: Any) -> None:
            self.__dict__["data"] = value

    return Watched
