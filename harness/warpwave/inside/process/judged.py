"""What a failed statement judges: numbers that only a card knows, or the values of tensors. Read from its source; nothing runs again.

A test may measure time or memory, and then compare tensors. Only the first of these needs a card.
"""

from __future__ import annotations

import ast
import functools
import linecache
import time
import traceback
from collections.abc import Collection, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Literal

About = Literal["asked", "tensors", ""]

_CLOCKS = tuple(getattr(time, name) for name in ("time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns"))
# Their answer is about the elements of tensors, whatever else is in the statement.
_OF_ELEMENTS = frozenset({"equal", "allclose", "isclose", "array_equal", "array_equiv", "all", "any", "assert_close", "assert_allclose"})
_ASSERTING = ("/unittest/", "/_pytest/")  # `self.assertLess(ms, 3)`, `pytest.fail(text)`
_COLLECTING = frozenset({"append", "extend", "add", "insert", "update"})
_DEEPEST = 3  # functions of the package that call each other


def judged(error: BaseException, asked: Collection[str]) -> About:
    """Return what the package's statement that raised an error is about, or else the call of the function that it is in; empty if neither
    says.

    Args:
        error: An error with a traceback.
        asked: Names of functions and attributes whose answer only a card knows.
    """
    passed = traceback.walk_tb(error.__traceback__)
    frames = [(frame, line) for frame, line in passed if not any(part in frame.f_code.co_filename for part in _ASSERTING)]
    said = (_about(frame, line, frozenset(asked)) for frame, line in reversed(frames[-_DEEPEST:]))
    return next((about for about in said if about), "")


def _about(frame: FrameType, line: int, asked: frozenset[str]) -> About:
    function, statement = _found(frame, line)
    if statement is None:
        return ""
    if _OF_ELEMENTS & set(_called(statement)):
        return "tensors"
    nodes = list(_origin(statement, function))
    if any(_asks(node, frame, asked) for node in nodes):
        return "asked"
    values = (_value(node, frame) for node in nodes if isinstance(node, ast.Name))
    return "tensors" if any(type(value).__name__ in ("Tensor", "Parameter", "ndarray") for value in values) else ""


def _found(frame: FrameType, line: int) -> tuple[ast.AST, ast.stmt | ast.expr | None]:
    """Return the function around a line, and what is judged there: of `assert ms < 3, text` and of `if ms > 3: raise …`, the comparison."""
    tree = _tree(frame.f_code.co_filename)
    if frame.f_code.co_name == "<lambda>":
        body = next((node.body for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno <= line <= _end(node)), None)
        return tree, body
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    functions = [node for node in around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    function = functions[-1] if functions else tree
    inner = next((node for node in reversed(around) if not hasattr(node, "body")), None)
    if isinstance(inner, ast.Assert):
        return function, inner.test
    tests = [node.test for node in around if isinstance(node, ast.If)]
    gives_up = isinstance(inner, ast.Raise) or (inner is not None and "fail" in _called(inner))
    return function, tests[-1] if tests and gives_up else inner


@functools.lru_cache(maxsize=8)
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _end(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _origin(statement: ast.AST, function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, and of those of the function that its variables come from."""
    seen: set[str] = set()
    left = [statement]
    while left:
        node = left.pop()
        yield from ast.walk(node)
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - seen
        seen |= names
        left += [source for other in ast.walk(function) for source in _sources(other, names)]


def _sources(node: ast.AST, names: Collection[str]) -> Iterator[ast.AST]:
    """Yield what gives one of the variables its value, where a node does so: `t = …`, `for t in …`, `times.append(…)`."""
    targets: list[ast.AST] = []
    value: ast.AST | None = None
    if isinstance(node, ast.Assign):
        targets, value = [*node.targets], node.value
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets, value = [node.target], node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        targets, value = [node.target], node.iter
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COLLECTING:
        targets, value = [node.func.value], node
    if value is not None and any(isinstance(each, ast.Name) and each.id in names for target in targets for each in ast.walk(target)):
        yield value


def _called(statement: ast.AST) -> Iterator[str]:
    """Yield the names of the functions and methods that are called, but for Python's own `all` and `any`."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in ("all", "any"):
            yield node.func.id


def _asks(node: ast.AST, frame: FrameType, asked: frozenset[str]) -> bool:
    """Return whether a name or an attribute is a function that only a card can answer, or one of the package that calls such a one."""
    if isinstance(node, ast.Attribute) and node.attr in asked:
        return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    value = _value(node, frame)
    if isinstance(node, ast.Name) and node.id in asked and callable(value):
        return True
    return any(value is clock for clock in _CLOCKS) or (isinstance(value, FunctionType) and _calls(value, asked, _DEEPEST))


def _value(node: ast.AST, frame: FrameType) -> Any:
    """Return the value of a variable, or of an attribute of a module; None for anything else."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = _value(node.value, frame)
        return vars(owner).get(node.attr) if isinstance(owner, ModuleType) else None
    return None


@functools.lru_cache(maxsize=1024)
def _calls(function: FunctionType, asked: frozenset[str], depth: int) -> bool:
    """Return whether the code of a function, or of others of its module that it calls, names one that only a card can answer."""
    names = set(_names(function.__code__))
    known = function.__globals__
    if "site-packages" in function.__code__.co_filename:
        return False
    if names & asked or any(known.get(name) is clock for name in names for clock in _CLOCKS):
        return True
    if known.get("time") is time and {clock.__name__ for clock in _CLOCKS} & names:
        return True
    own = (known.get(name) for name in names)
    return depth > 0 and any(
        isinstance(each, FunctionType) and each is not function and each.__globals__ is known and _calls(each, asked, depth - 1)
        for each in own
    )


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
