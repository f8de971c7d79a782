"""Answer questions about the data of a tensor that has none: every assertion holds, and anything else is refused.

Tests compare what kernels computed. Nothing is computed here, so an assertion passes and the test goes on to its next launch. A decision
outside of an assertion is refused: it could lead to launches that would not happen with real data.
"""

from __future__ import annotations

import ast
import functools
import linecache
from types import FrameType
from typing import Any

_ASKING = ("__bool__", "item", "__float__", "__int__", "tolist")


class Agreeable(float):
    """A number for which every comparison is true."""

    def _agree(self, other: object) -> bool:
        return True

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _agree
    __hash__ = float.__hash__


def asks_for_data(name: str) -> bool:
    """Return whether a method of a tensor needs its data on the host."""
    return name in _ASKING


def answer(name: str, caller: FrameType) -> Any:
    """Return what such a method gives to its caller's frame.

    Raises:
        RuntimeError: the caller is not asserting.
    """
    if not is_asserting(caller):
        raise RuntimeError("the host's code depends on the data of a tensor, and without a GPU there is none")
    return True if name == "__bool__" else Agreeable()


def is_asserting(frame: FrameType) -> bool:
    """Return whether a frame is in an `assert` statement, also in one that pytest has rewritten."""
    return any(first <= frame.f_lineno <= last for first, last in _assertions(frame.f_code.co_filename))


@functools.cache
def _assertions(filename: str) -> tuple[tuple[int, int], ...]:
    """Return the first and the last line of each `assert` in a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ()
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Assert))
