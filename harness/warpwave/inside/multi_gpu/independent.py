"""Which files of tests several workers may share: those whose tests, as far as one can see, need nothing that another one leaves behind."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_ORDERED = frozenset({"dependency", "depends", "incremental", "order", "run", "xdist_group"})  # marks of plugins
_CHANGES = frozenset({"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"})


def are_independent(items: Sequence[pytest.Item]) -> bool:
    """Return whether the tests of a file may run in any process, and in any order.

    They may not if they have an order, share a fixture that lives longer than a test, or if a function of the file or of its conftest.py
    changes what belongs to the process: a variable of the module, an attribute of a class, `os.environ`, a setting of torch's.
    """
    if len(items) < 2 or any(type(item) is not pytest.Function for item in items):  # unittest and other plugins have fixtures of their own
        return False
    if any(mark.name in _ORDERED for item in items for mark in item.iter_markers()):
        return False
    fixtures = {id(each): each for item in items for several in _defined(item).values() for each in several}.values()
    named = [sys.modules.get(each.func.__module__) for each in fixtures]
    conftests = [module for module in named if module and Path(module.__file__ or "").name == "conftest.py"]
    modules = {id(module): module for module in (*(getattr(item, "module", None) for item in items), *conftests)}
    return not any(map(_lives_longer, fixtures)) and all(isinstance(each, ModuleType) and not _changes(each) for each in modules.values())


def _defined(item: Any) -> dict[str, Sequence[Any]]:
    return item._fixtureinfo.name2fixturedefs  # type: ignore[no-any-return]


def _lives_longer(fixture: Any) -> bool:
    """Whether several tests share a fixture. pytest's own hold nothing of the package's, but those that it makes of `setup_module`."""
    of_pytest = fixture.func.__module__.startswith("_pytest.") and "xunit_setup" not in fixture.argname
    return fixture.scope != "function" and not of_pytest


@functools.cache
def _changes(module: ModuleType) -> bool:
    """Return whether a function of a module changes what outlives its call, or asks for fixtures that are known only when it runs."""
    try:
        with open(module.__file__ or "", "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True
    imported = {name for name, value in vars(module).items() if isinstance(value, ModuleType)}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes = list(ast.walk(function))
            own = {each.arg for each in nodes if isinstance(each, ast.arg)} - {"cls"}
            own |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
            if any(isinstance(each, ast.Global) or {*_changed(each, imported)} - own for each in nodes):
                return True
    return any(isinstance(each, ast.Attribute) and each.attr == "getfixturevalue" for each in ast.walk(tree))


def _changed(node: ast.AST, imported: set[str]) -> Iterator[str]:
    """Yield the name of what a statement changes: `x` in `x.a[0] = 1`. Attributes of attributes may be of a class."""
    target: ast.AST | None = None
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and node.args:
        target = node.args[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of_module = isinstance(node.func.value, ast.Name) and node.func.value.id in imported  # `torch.add` changes nothing
        if node.func.attr.startswith("set_") or (node.func.attr in _CHANGES and not of_module):
            target = node.func.value
    is_deep = isinstance(target, ast.Attribute)
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Call)):
        target = target.func if isinstance(target, ast.Call) else target.value
    if isinstance(target, ast.Name):
        yield f"the class of {target.id}" if is_deep and target.id == "self" else target.id
