"""Assertions over the data of tensors that have none.

Tests compare what kernels computed. Without data nothing is computed, so what only judges it is taken as if all were well, and the test
goes on to its next launch. A package's code is rewritten for that when it is loaded, as pytest rewrites assertions:

- An `assert`, and a call of a function named `assert…`, holds if it depends on unknown data.
- A branch of which one side only raises, fails, exits or reports is an assertion, too: the other side is taken.
- A report (`print`, `log`, …) shows unknown numbers.
- `bool`, `int`, `float`, `max` and `min` of what is unknown are unknown. Python's own need a number.

What else asks for data decides: a branch, a size, an index. That ends the test as *needs data*. So does a launch that an assertion makes
after it has asked for data.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from warpwave.inside.fake_gpu.no_data import lacks_numbers
from warpwave.inside.fake_gpu.unknown import Judged as Judged
from warpwave.inside.fake_gpu.unknown import UnknownFloat, UnknownInt, UnknownTruth, is_the_packages

_COMPLAINS = ("fail", "exit", "_exit")
_REPORTS = ("print", "log", "debug", "info", "warning", "warn", "error", "write", "echo", "record_property")
_SELF, _JUDGED = "@unknown", "@judged"  # names that no source can have


def code_of(source: bytes | str, path: str) -> CodeType:
    """Return the code of a package's file, rewritten. Where that is no Python, or is too deep, it is the source's own."""
    tree = ast.parse(source, path)
    try:
        return compile(rewritten(tree), path, "exec", dont_inherit=True)
    except (SyntaxError, RecursionError):
        return compile(source, path, "exec", dont_inherit=True)


def rewritten(tree: ast.Module) -> ast.Module:
    """Rewrite a module, and return it."""
    _Rewriter().visit(tree)
    after = next((n for n, each in enumerate(tree.body) if not _is_prologue(each)), len(tree.body))
    tree.body.insert(after, ast.Import(names=[ast.alias(name=__name__, asname=_SELF)], lineno=1, col_offset=0))
    return ast.fix_missing_locations(tree)


def _is_prologue(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


class _Rewriter(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Judge each part of `assert a and b`."""
        self.generic_visit(node)
        parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
        return [each for part in parts for each in _judged(ast.copy_location(ast.Assert(part, node.msg), node), True)]

    def visit_If(self, node: ast.If) -> list[ast.stmt] | ast.If:
        goes_on = False if _only_complains(node.body) else True if node.orelse and _only_complains(node.orelse) else None
        self.generic_visit(node)
        return node if goes_on is None else _judged(node, goes_on)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        is_assertion = _called(node.value).startswith("assert")
        return _within(node, [node], is_assertion) if is_assertion or _is_report(node) else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Leave what is in no function: its names would be the class's attributes."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        node.body = [self.visit(each) if isinstance(each, kinds) else each for each in node.body]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Make `float(x)` a call of `meant(float)(x)`: a module may have a `float` of its own."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("bool", "int", "float", "max", "min"):
            node.func = ast.copy_location(_call(_SELF, "meant", node.func), node.func)
        return node


def _call(owner: str, name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Attribute(value=ast.Name(id=owner, ctx=ast.Load()), attr=name, ctx=ast.Load()), args=list(args), keywords=[])


def _within(at: ast.stmt, body: list[ast.stmt], is_assertion: bool) -> ast.With:
    judged = _call(_SELF, "Judged", ast.Constant(value=is_assertion))
    item = ast.withitem(context_expr=judged, optional_vars=ast.Name(id=_JUDGED, ctx=ast.Store()))
    return ast.copy_location(ast.With(items=[item], body=body), at)


def _judged(node: ast.Assert | ast.If, well: bool) -> list[ast.stmt]:
    """Return what evaluates a test, and the statement with its truth: `well` if it depends on unknown data."""
    take = ast.copy_location(ast.Expr(value=_call(_JUDGED, "take", node.test)), node)
    node.test = ast.copy_location(_call(_JUDGED, "says", ast.Constant(value=well)), node.test)
    return [_within(node, [take], True), node]


def _only_complains(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or only reports: what else a test would launch does not depend on it."""
    last = block[-1]
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    fails = isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and _called(last.value) in _COMPLAINS)
    return fails or all(map(_is_report, block))


def _is_report(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _called(statement.value) in _REPORTS


def _called(node: ast.AST) -> str:
    """Return the name of the function or method that a node calls."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


# What rewritten code calls.


def meant(function: Any) -> Any:
    """Return what a call of a function of Python's calls where its arguments may be unknown; any other function is itself."""
    return _MEANT.get(id(function), function)


def _converted(kind: type, unknown: type) -> Callable[..., Any]:
    return lambda *args, **options: unknown() if args and lacks_numbers(args[0]) else kind(*args, **options)


def _chosen(choose: Callable[..., Any], *args: Any, **options: Any) -> Any:
    values = list(args[0]) if len(args) == 1 else args
    unknown = next(filter(lacks_numbers, values), None)
    return choose(*([values] if len(args) == 1 else args), **options) if unknown is None else unknown


_MEANT = {id(kind): _converted(kind, unknown) for kind, unknown in ((bool, UnknownTruth), (int, UnknownInt), (float, UnknownFloat))}
_MEANT |= {id(choose): functools.partial(_chosen, choose) for choose in (max, min)}


# Where Python and pytest load a package's code. They keep compiled code on the disk, which other stages load.


def loaded(get_code: Callable[..., Any], loader: Any, name: str) -> Any:
    """Load the code of a module."""
    path = loader.get_filename(name)
    return code_of(loader.get_data(path), path) if is_the_packages(path) else get_code(loader, name)


def run_as_script(get_code: Callable[..., Any], *args: str) -> Any:
    """Load the code of a script. Before Python 3.12, `runpy` passes the module's name, too, and wants the file's back."""
    found, path = get_code(*args), args[-1]
    code = code_of(Path(path).read_bytes(), path)
    return (code, *found[1:]) if isinstance(found, tuple) else code


def with_pytests(rewrite: Callable[..., None], tree: ast.Module, source: bytes, path: str | None = None, config: Any = None) -> None:
    """Rewrite a file of tests, and then as pytest does."""
    if path is None or is_the_packages(path):
        rewritten(tree)
    rewrite(tree, source, path, config)


def without_plugins(mark: Callable[..., None], config: Any, hook: Any, *_: object) -> None:
    """Leave installed plugins of pytest as they are."""
    config.pluginmanager.rewrite_hook = hook
