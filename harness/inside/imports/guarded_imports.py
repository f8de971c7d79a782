"""Whether a package goes on if an import fails: whether a `try` with a handler for that, or `suppress`, is around it."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from types import FrameType

_HANDLED = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# Python's own import, whose frames say nothing of who imports.
_IMPORTING = ("<frozen importlib", "importlib/__init__.py")
# Those who ask whether a module is there, and those who run tests: what they do with a failed import is not the package's decision.
_ASKING = ("<frozen importlib.util>", "importlib/util.py", "pkgutil.py", "_pytest/outcomes.py")
_RUNNING = ("/_pytest/", "/pluggy/", "/harness/inside/", "<frozen runpy>")


def is_guarded(frame: FrameType | None) -> bool:
    """Return whether an import that is being looked up fails without harm. `frame` is that of the finder's caller."""
    first = True
    while frame is not None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if first and file.endswith(_ASKING):
            return True
        if not (file.startswith(_IMPORTING[0]) or file.endswith(_IMPORTING[1])):
            if any(part in file for part in _RUNNING):
                return False
            if any(start <= frame.f_lineno <= end for start, end in _guarded_lines(frame.f_code.co_filename)):
                return True
            first = False
        frame = frame.f_back
    return False


@functools.cache
def _guarded_lines(file: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a file's lines where an ImportError is caught and not raised again."""
    try:
        module = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_lines(module))


def _lines(module: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(module):
        tries = isinstance(node, ast.Try) and any(map(_goes_on, node.handlers))
        if tries or (isinstance(node, ast.With) and any(map(_suppresses, node.items))):
            yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno  # type: ignore[attr-defined]


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler takes an ImportError, and does not raise it, or a plainer one, again."""
    caught = handler.type is None or bool(_HANDLED & set(_names(handler.type)))
    return caught and not isinstance(handler.body[-1], ast.Raise)


def _suppresses(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and "suppress" in _names(call.func) and any(_HANDLED & set(_names(each)) for each in call.args)


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Tuple):
        return [name for each in node.elts for name in _names(each)]
    return [node.attr] if isinstance(node, ast.Attribute) else [node.id] if isinstance(node, ast.Name) else []
