"""Values that a load took from memory which nobody wrote. They are a fault where a kernel uses them, and none where `tl.where` drops them.

Packages load a square of a matrix of which only a triangle was written, and mask the rest afterwards.

A load beyond a tensor's end is a fault as soon as anything is done with its result. If nothing is, the compiler removes the load:
packages load what only some of their types need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.inside.sanitize.origins import Patch

Blame = Callable[[NDArray[np.int64]], None]  # reports flat positions in the block
Entry = tuple[NDArray[np.int64], Blame]  # positions, and who reports them
_CASTS = ("fp_ext", "fp_trunc", "fp_to_fp", "int_cast", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "bitcast")

_ARITHMETIC = ("fadd", "fsub", "fmul", "add", "sub", "mul")  # `-x` is `0 - x`


@dataclass(frozen=True)
class AnyUse:
    """Reports positions that not even `tl.where` may drop."""

    blame: Blame

    def __call__(self, positions: NDArray[np.int64]) -> None:
        """Report them."""
        self.blame(positions)


def suspected(handle: Any, entries: tuple[Entry, ...]) -> Any:
    """Return a handle like `handle` whose `entries`, positions and who blames them, are reported as soon as its data is looked at."""
    entries = tuple((positions, blame) for positions, blame in entries if positions.size)
    if not entries:
        return handle
    base: Any = type(handle)
    result: Any = object.__new__(_suspected(base))
    result.__dict__.update(handle.__dict__, _plain=handle, _entries=entries)
    return result


def patches(builder: Any) -> Iterator[Patch]:
    """Yield what passes such values on without a look: the choice between two values, and conversions."""
    yield builder, "create_select", _choosing(builder.create_select)
    for name in _ARITHMETIC:
        yield builder, f"create_{name}", _computing(getattr(builder, f"create_{name}"))
    for name in _CASTS:
        if cast := getattr(builder, f"create_{name}", None):
            yield builder, f"create_{name}", _converting(cast)


@functools.cache
def _suspected(base: Any) -> Any:
    class Suspected(base):  # type: ignore[misc]
        """The result of a load."""

        _plain: Any = None
        _entries: tuple[Entry, ...] = ()

        @property
        def is_suspected(self) -> bool:
            """Whether there is something to report yet."""
            return bool(self._entries)

        def converted(self, cast: Callable[[Any], Any]) -> Any:
            """Convert without a look: `narrow_floats` has conversions of its own, on top of these."""
            return suspected(cast(self._plain), self._entries) if self._entries else cast(self)

        @property
        def data(self) -> Any:
            entries, self._entries = self._entries, ()
            for positions, blame in entries:
                blame(positions)
            return self.__dict__["data"]

        @data.setter
        def data(self, value: Any) -> None:
            self.__dict__["data"] = value

    return Suspected


def _entries_of(handle: Any) -> tuple[Any, Any]:
    """Return a handle that anyone may look at, and what is to be said of it, for an operation that is a use of it."""
    entries = getattr(handle, "_entries", ())
    if not entries:
        return handle, ()
    handle._entries = tuple(entry for entry in entries if not isinstance(entry[1], AnyUse))
    for positions, blame in entries:
        if isinstance(blame, AnyUse):
            blame(positions)
    return handle._plain, handle._entries


def _choosing(select: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(select)
    def choose(builder: Any, condition: Any, left: Any, right: Any) -> Any:
        (left, of_left), (right, of_right) = _entries_of(left), _entries_of(right)
        if not (of_left or of_right):
            return select(builder, condition, left, right)
        result = select(builder, condition, left, right)
        taken = np.broadcast_to(condition.data, result.data.shape).ravel().astype(bool)
        kept = [(positions[taken[positions]], blame) for positions, blame in of_left]
        kept += [(positions[~taken[positions]], blame) for positions, blame in of_right]
        return suspected(result, tuple(kept))

    return choose


def _computing(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def compute(builder: Any, left: Any, right: Any) -> Any:
        (left, of_left), (right, of_right) = _entries_of(left), _entries_of(right)
        result = operation(builder, left, right)
        kept: list[Any] = []
        for handle, entries in ((left, of_left), (right, of_right)):
            if handle.data.shape == result.data.shape:
                kept += entries
                continue
            for positions, blame in entries:  # in the result, they are others
                blame(positions)
        return suspected(result, tuple(kept))

    return compute


def _converting(cast: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cast)
    def convert(builder: Any, source: Any, *rest: Any) -> Any:
        if getattr(source, "is_suspected", False):
            return source.converted(lambda plain: cast(builder, plain, *rest))
        return cast(builder, source, *rest)

    return convert
