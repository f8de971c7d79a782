"""Python's `math`, `max` and `min` of numbers that depend on the data of a tensor which has none.

Host code computes scales with them: `2 ** math.floor(math.log2(x.abs().max().item()))`, `max(amax.item(), 1e-12)`. Their results depend on
the data as well, and nothing is decided yet. C code would take such a number for the zero that it looks like.
"""

from __future__ import annotations

import ast
import functools
import linecache
import math
from collections.abc import Callable
from types import FrameType
from typing import Any

from harness.inside.fake_gpu.no_data.assertions import at, place_of
from harness.inside.fake_gpu.torch_device import Patch

_WHOLE = ("floor", "ceil", "trunc", "isqrt", "gcd", "lcm", "comb", "perm", "factorial")
_PICKING = {"max": "gt", "min": "lt"}  # which comparison, if it holds, makes it go over to the later number


def mathematics(kinds: tuple[type, type, type]) -> list[Patch]:
    """Return what lets `math` take unknown numbers. `kinds` are the types of an unknown float, whole number and truth."""
    return [(math, name, _of_unknown(function, kinds)) for name, function in vars(math).items() if callable(function) and name[0] != "_"]


def _of_unknown(function: Callable[..., Any], kinds: tuple[type, type, type]) -> Callable[..., Any]:
    fractional, whole, truth = kinds
    name = function.__name__
    result = truth if name.startswith("is") and name != "isqrt" else whole if name in _WHOLE else fractional

    @functools.wraps(function)
    def compute(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(each, (fractional, whole)) for each in args):
            return function(*args, **kwargs)
        return (result(), result()) if name in ("frexp", "modf") else result()

    return compute


def picked(frame: FrameType, comparison: str) -> bool | None:
    """Return the truth with which `max` or `min`, called there, takes an unknown number and not a known one; None if neither is called.

    `comparison` is the one of the unknown number with the other: `gt`, `lt`.
    """
    place = at(frame)[1]
    called = {name for name, where in _calls(frame.f_code.co_filename) if where == place}
    if place is None:  # Python 3.10 knows lines only
        called = {name for name, where in _calls(frame.f_code.co_filename) if where[0] <= frame.f_lineno <= where[1]}
    return comparison == _PICKING[called.pop()] if len(called) == 1 else None


@functools.cache
def _calls(filename: str) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Return the calls of `max` and `min` in a file."""
    try:
        module = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [(node.func.id, place_of(node)) for node in calls if node.func.id in _PICKING]  # type: ignore[attr-defined]
