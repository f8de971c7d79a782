"""Assertions over the data of tensors that have none.

Tests compare what kernels computed. Without data nothing is computed, so what only judges it is taken as if all were well, and the test
goes on to its next launch. A package's code is rewritten for that when it is loaded, as pytest rewrites assertions:

- An `assert` passes if what it asserts depends on unknown data.
- A branch of which one side only raises, fails, exits or reports is an assertion, too: the other side is taken.
- A function whose branches only return True or False, and report, returns an unknown truth.
- `not`, `and`, `or`, and `bool`, `int`, `float`, `max`, `min`, `all` and `any` of what is unknown are unknown. Python's own need a number.

What else asks for data decides: a branch, a size, an index. That ends the test as *needs data*. So does an assertion in an installed
library, whose code is not rewritten.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from warpwave.inside.fake_gpu.no_data import lacks_numbers
from warpwave.inside.fake_gpu.unknown import Judged as Judged
from warpwave.inside.fake_gpu.unknown import UnknownFloat, UnknownInt, UnknownTruth, is_the_packages

_COMPLAINS = ("fail", "exit", "_exit")
_REPORTS = ("print", "log", "debug", "info", "warning", "warn", "error", "write", "echo", "record_property")
_SELF, _JUDGED, _LEFT = "@unknown", "@judged", "@left"  # names that no source can have


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
    """Rewrites what judges by data, and what Python decides by truths."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        self.generic_visit(node)
        judged, node.test = _judging(node, node.test, True)
        return [judged, node]

    def visit_If(self, node: ast.If) -> list[ast.stmt] | ast.If:
        goes_on = False if _only_complains(node.body) else True if node.orelse and _only_complains(node.orelse) else None
        is_verdict = _is_verdict([node])
        self.generic_visit(node)
        if goes_on is None and not is_verdict:
            return node
        judged, node.test = _judging(node, node.test, bool(goes_on))
        if not is_verdict:
            return [judged, node]
        unknown = ast.If(test=_of_judged("asked"), body=[ast.Return(value=_call("UnknownTruth"))], orelse=[])
        return [judged, ast.copy_location(unknown, node), node]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        if not _calls_one_of(node.value, _REPORTS) and not _called(node.value).startswith("assert"):
            return node
        return _within_judged(node, [node])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        for statement in ast.walk(node):
            for block in (getattr(statement, "body", None), getattr(statement, "orelse", None)):
                if isinstance(block, list):
                    for n, each in enumerate(block):
                        if isinstance(each, ast.If) and _is_verdict(block[n:]) and not _is_verdict([each]):
                            each.orelse = block[n + 1 :]  # what follows is the other side
                            del block[n + 1 :]
        self.generic_visit(node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(_call("negated", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Make `a and b` what goes on with `b` also if `a` is unknown."""
        self.generic_visit(node)
        joins = ast.Constant(value=isinstance(node.op, ast.And))
        whole = node.values[-1]
        for value in reversed(node.values[:-1]):
            left = ast.NamedExpr(target=ast.Name(id=_LEFT, ctx=ast.Store()), value=value)
            kept = ast.Name(id=_LEFT, ctx=ast.Load())
            whole = ast.IfExp(test=_call("goes_on", left, joins), body=_call("combined", kept, whole, joins), orelse=kept)
        return ast.copy_location(whole, node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        return node  # Python allows no `:=` there

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [
            self.visit(each) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else each for each in node.body
        ]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Make `float(x)` a call of `meant(float)(x)`: a module may have a `float` of its own."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            node.func = ast.copy_location(_call("meant", node.func), node.func)
        return node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Attribute(value=ast.Name(id=_SELF, ctx=ast.Load()), attr=name, ctx=ast.Load()), args=list(args), keywords=[])


def _of_judged(name: str) -> ast.Attribute:
    return ast.Attribute(value=ast.Name(id=_JUDGED, ctx=ast.Load()), attr=name, ctx=ast.Load())


def _within_judged(at: ast.stmt, body: list[ast.stmt]) -> ast.With:
    item = ast.withitem(context_expr=_call("Judged"), optional_vars=ast.Name(id=_JUDGED, ctx=ast.Store()))
    return ast.copy_location(ast.With(items=[item], body=body), at)


def _judging(at: ast.stmt, test: ast.expr, well: bool) -> tuple[ast.With, ast.expr]:
    """Return what evaluates a test, and what then says its truth: `well` if it depends on unknown data."""
    take = ast.copy_location(ast.Expr(value=ast.Call(func=_of_judged("take"), args=[test], keywords=[])), at)
    says = ast.Call(func=_of_judged("says"), args=[ast.Constant(value=well)], keywords=[])
    return _within_judged(at, [take]), ast.copy_location(says, test)


def _only_complains(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or only reports: what else a test would launch does not depend on it."""
    last = block[-1]
    if isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and _calls_one_of(last.value, _COMPLAINS)):
        return True
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    return all(map(_is_report, block))


def _is_verdict(block: Sequence[ast.stmt]) -> bool:
    """Whether a block only reports, and returns True or False on each way through it."""
    *reports, last = block or [ast.Pass()]
    if isinstance(last, ast.If):
        return all(map(_is_report, reports)) and _is_verdict(last.body) and _is_verdict(last.orelse)
    if len(block) > 1 and isinstance(block[0], ast.If) and not block[0].orelse:  # what follows is the other side
        return _is_verdict(block[0].body) and _is_verdict(block[1:])
    is_truth = isinstance(last, ast.Return) and isinstance(last.value, ast.Constant) and isinstance(last.value.value, bool)
    return is_truth and all(map(_is_report, reports))


def _is_report(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _calls_one_of(statement.value, _REPORTS)


def _called(node: ast.AST) -> str:
    """Return the name of the function or method that a node calls."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _calls_one_of(node: ast.AST, names: tuple[str, ...]) -> bool:
    return _called(node) in names


# What rewritten code calls.


def negated(value: Any) -> Any:
    """Return `not value`."""
    return UnknownTruth() if lacks_numbers(value) else not value


def goes_on(left: Any, joins: bool) -> bool:
    """Whether `left and …` (`joins`), or `left or …`, depends on what follows."""
    return lacks_numbers(left) or bool(left) is joins


def combined(left: Any, right: Any, joins: bool) -> Any:
    """Return `left and right` (`joins`), or `left or right`, which depends on `right`."""
    return UnknownTruth() if lacks_numbers(left) and (lacks_numbers(right) or bool(right) is joins) else right


def meant(function: Any) -> Any:
    """Return what a call of a function of Python's calls where its arguments may be unknown; any other function is itself."""
    return _MEANT.get(id(function), function)


def _converted(kind: type, unknown: type) -> Callable[..., Any]:
    return lambda *args, **options: unknown() if args and lacks_numbers(args[0]) else kind(*args, **options)


def _chosen(choose: Callable[..., Any], *args: Any, **options: Any) -> Any:
    values = list(args[0]) if len(args) == 1 else args
    return (
        next(filter(lacks_numbers, values), None)
        if any(map(lacks_numbers, values))
        else choose(*([values] if len(args) == 1 else args), **options)
    )


def _all_or_any(wanted: bool, values: Any) -> Any:
    is_unknown = False
    for value in values:
        if lacks_numbers(value):
            is_unknown = True
        elif bool(value) is not wanted:
            return not wanted
    return UnknownTruth() if is_unknown else wanted


_MEANT = {id(kind): _converted(kind, unknown) for kind, unknown in ((bool, UnknownTruth), (int, UnknownInt), (float, UnknownFloat))}
_MEANT |= {id(choose): functools.partial(_chosen, choose) for choose in (max, min)}
_MEANT |= {id(all): functools.partial(_all_or_any, True), id(any): functools.partial(_all_or_any, False)}
_NAMES = ("bool", "int", "float", "max", "min", "all", "any")


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
