"""What a tensor without data says when it is asked for some: that an assertion holds, and nothing else.

Tests compare what kernels computed. Where nothing was computed the comparison is skipped, and the test goes on to its next launch; a
decision outside of an assertion would lead to launches that nobody can vouch for, and is refused.
"""

from __future__ import annotations

import ast
import functools
import linecache
from types import FrameType
from typing import Any

_ASKING = ("__bool__", "item", "__float__", "__int__", "tolist")


class Agreeable(float):
    """A number that every comparison holds for."""

    def _agree(self, other: object) -> bool:
        return True

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _agree
    __hash__ = float.__hash__


def asks_for_data(name: str) -> bool:
    """Whether a method of a tensor needs its data on the host."""
    return name in _ASKING


def answer(name: str, caller: FrameType) -> Any:
    """What such a method returns to its caller's frame.

    Raises:
        RuntimeError: the caller is not asserting.
    """
    if not is_asserting(caller):
        raise RuntimeError("the host's code depends on the data of a tensor, and without a GPU there is none")
    return True if name == "__bool__" else Agreeable()


def is_asserting(frame: FrameType) -> bool:
    """Whether a frame is in an `assert` statement, also in one that pytest has rewritten."""
    return any(first <= frame.f_lineno <= last for first, last in _assertions(frame.f_code.co_filename))


@functools.cache
def _assertions(filename: str) -> tuple[tuple[int, int], ...]:
    """The lines of each `assert` of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ()
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Assert))
