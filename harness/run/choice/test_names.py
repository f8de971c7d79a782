"""Find ids that name no test, without running the package: by the names that are written in its file."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from harness.records.selection.package import is_load

_MAKERS = {"globals", "locals", "vars", "setattr", "exec", "__dict__"}  # what makes a name that is written nowhere


def missing(nodeid: str, kernels: Path) -> str | None:
    """Return in pytest's words that an id (relative to `kernels`) names no test, with the names that are close; None if it may name one.

    The parameters in brackets are not checked: only running the file tells them.
    """
    file, *names = nodeid.partition("[")[0].split("::")
    path = kernels / file
    if path.suffix != ".py" or is_load(nodeid) or not names or names[0] == path.stem or not all(map(str.isidentifier, names)):
        return None  # what a plugin collects has other names; a doctest has its module's
    try:
        text = path.read_text(encoding="utf-8")
        body: Sequence[ast.stmt] = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # pytest reports why, when it loads the file
    if _makes_names(body):
        return None
    where = f"<Module {path.name}>"
    for name in names:
        if not re.search(rf"\b{name}\b", text):
            return f"not found: {nodeid} (no match in any of [{where}]){_close(name, body)}"
        found = next((each for each in body if isinstance(each, ast.ClassDef) and each.name == name), None)
        if found is None or any(not (isinstance(base, ast.Name) and base.id == "object") for base in found.bases):
            return None  # a function, or a class that inherits tests
        where, body = f"<Class {name}>", found.body
    return None


def _makes_names(body: Sequence[ast.stmt]) -> bool:
    """Whether a file may have tests that it does not name: by `from base import *`, or made while it runs."""
    for node in (found for statement in body for found in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            return True
        if (isinstance(node, ast.Name) and node.id in _MAKERS) or (isinstance(node, ast.Attribute) and node.attr in _MAKERS):
            return True
    return False


def _close(name: str, body: Sequence[ast.stmt]) -> str:
    there = [each.name for each in body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    close = difflib.get_close_matches(name, [each for each in there if each.lower().startswith("test")], n=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""
