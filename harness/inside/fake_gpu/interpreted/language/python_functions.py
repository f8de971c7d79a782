"""Python's `min` and `max` in kernels: the compiler takes them for the language's, which compare tensors element by element.

Python's own return one of their operands, so `min(BLOCKS, n)` of a constant and a tensor would be a plain number, which has no `to`.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch

_MEANT = "_warpwave_meant"
_OF_THE_LANGUAGE = ((builtins.min, "minimum"), (builtins.max, "maximum"))


def python_functions() -> list[Patch]:
    """Return what replaces their calls, and the name that rewritten kernels call instead."""
    from triton.runtime import interpreter

    # The interpreter lends its own names to kernels.
    return [(interpreter, _MEANT, _meant), (interpreter.ASTTransformer, "visit_Call", _asking)]


def _asking(transformer: ast.NodeTransformer, node: ast.Call) -> ast.Call:
    """Make `min(…)` a call of `_warpwave_meant(min)(…)`: a module may have a `min` of its own."""
    transformer.generic_visit(node)
    if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        node.func = ast.Call(func=ast.Name(id=_MEANT, ctx=ast.Load()), args=[node.func], keywords=[])
    return ast.fix_missing_locations(node)


def _meant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what the compiler would call."""
    name = next((name for own, name in _OF_THE_LANGUAGE if function is own), "")
    return functools.partial(_compared, function, name) if name else function


def _compared(function: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    args = tuple(tl.core._unwrap_if_constexpr(each) for each in args)
    if len(args) < 2 or not any(isinstance(each, tl.core.base_value) for each in args):
        return function(*args, **options)  # of constants, it is a constant
    compare = functools.partial(getattr(tl, name), **options)
    return functools.reduce(compare, args)
