"""What a failed statement judges: numbers that only a card knows, or the values of tensors. Read from its source; nothing runs again.

A test may measure time or memory, and then compare tensors. Only the first of these needs a card.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import linecache
import re
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
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
    names = re.compile("|".join(map(re.escape, asked)) or "(?!)")
    said = (_about(frame, line, names) for frame, line in reversed(frames[-_DEEPEST:]))
    return next((about for about in said if about), "")


def _about(frame: FrameType, line: int, asked: re.Pattern[str]) -> About:
    function, statement = _found(frame, line)
    if statement is None:
        return ""
    if _OF_ELEMENTS & set(_called(statement)):
        return "tensors"
    nodes, known = list(_origin(statement, function)), _known(frame)
    if any(_asks(node, known, asked) for node in nodes):
        return "asked"
    values = (_value(node, known) for node in nodes if isinstance(node, ast.Name))
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


def _known(frame: FrameType) -> dict[str, Any]:
    return {**frame.f_globals, **frame.f_locals}


def _asks(node: ast.AST, known: Mapping[str, Any], asked: re.Pattern[str]) -> bool:
    """Return whether a name or an attribute is a function that only a card can answer, or one of the package that calls such a one."""
    if isinstance(node, ast.Attribute) and asked.fullmatch(node.attr):
        return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    value = _value(node, known)
    if isinstance(node, ast.Name) and asked.fullmatch(node.id) and callable(value):
        return True
    return any(value is clock for clock in _CLOCKS) or (isinstance(value, FunctionType) and _calls(value, asked, _DEEPEST))


def _value(node: ast.AST, known: Mapping[str, Any]) -> Any:
    """Return the value of a variable, or of an attribute of a module; None for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = _value(node.value, known)
        return vars(owner).get(node.attr) if isinstance(owner, ModuleType) else None
    return None


@functools.lru_cache(maxsize=1024)
def _calls(function: FunctionType, asked: re.Pattern[str], depth: int) -> bool:
    """Return whether the code of a function, or of others of its module that it calls, names one that only a card can answer."""
    names = set(_names(function.__code__))
    known = function.__globals__
    if "site-packages" in function.__code__.co_filename:
        return False
    if any(map(asked.fullmatch, names)) or any(known.get(name) is clock for name in names for clock in _CLOCKS):
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


# Whether a line of the package raises for sure, or the machine that it runs on may have decided so.

# What the machine, the user or another process answers. Vendors call one card by several names.
_OF_MACHINE = "environ|getenv|argv|parse_args|exists|is_?file|is_?dir|returncode|exitcode|find_spec|get_world_size|get_device_name"
# Which card it is. An author refuses some on purpose, and takes others than those that are compiled for. What asks for a capability has
# another name in each package.
_OF_CARD = (
    r"device_count|\w*capability\w*|get_device_properties|get_current_target|is_bf16_supported|get_arch_list|gcnArchName|total_memory"
)
_WRONG_ARGUMENTS = re.compile(r"\w\(\) (got an unexpected keyword|got multiple values|missing \d+ required|takes .+ positional argument)")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_certain(error: BaseException) -> bool:
    """Return whether no answer of a card decides that this is raised: a name that its file nowhere has, or a call with wrong arguments."""
    if isinstance(error, NameError) and error.__traceback__ is not None and not isinstance(error, UnboundLocalError):
        (frame, _) = list(traceback.walk_tb(error.__traceback__))[-1]
        return not any(_binds(node, str(error.name)) for node in ast.walk(_tree(frame.f_code.co_filename)))
    return isinstance(error, TypeError) and bool(_WRONG_ARGUMENTS.search(str(error)))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == name
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    return getattr(node, "name", None) == name or getattr(node, "arg", None) == name


def may_be_the_machines(error: BaseException, root: Path) -> bool:
    """Return whether a file, an option, another process, a clock or the card may have decided that a line of the package at `root` raises.

    A question about the card counts only where the package refuses on purpose. A table that lacks a card is wrong on that card.
    """
    if isinstance(error, (NotImplementedError, OSError, ImportError)):
        return True
    passed = traceback.walk_tb(error.__traceback__)
    frames = [(frame, line) for frame, line in passed if is_own(frame.f_code.co_filename, root)][-_DEEPEST:]
    asked = re.compile(f"{_OF_MACHINE}|{_OF_CARD}" if frames and _refuses(*frames[-1]) else _OF_MACHINE)
    for place, (frame, line) in enumerate(reversed(frames)):
        statement = _found(frame, line)[1]
        # `if not ready(): fail("…")` calls what raises.
        checks = _checks(frame, line) if _refuses(frame, line) or (place == 1 and not _checks(*frames[-1])) else []
        for node, known in _origins([*checks, *([statement] if statement else [])], frame, line, root):
            if isinstance(node, (ast.Name, ast.Attribute)) and asked.fullmatch(getattr(node, "attr", getattr(node, "id", ""))):
                return True
            value = _value(node, known)
            if any(value is clock for clock in _CLOCKS):
                return True
            called = inspect.unwrap(value) if callable(value) else None  # it may be cached
            if not isinstance(called, FunctionType) or called.__code__ in [frame.f_code for frame, _ in frames]:
                continue
            if is_own(called.__code__.co_filename, root) and _calls(called, asked, _DEEPEST):
                return True
    return False


def is_own(file: str, root: Path) -> bool:
    """Return whether a file is of the package at `root`, not of another one that is installed there."""
    return Path(file).is_relative_to(root) and "site-packages" not in Path(file).relative_to(root).parts


def _around(frame: FrameType, line: int) -> list[ast.AST]:
    """Return the statements around a line, the outermost first."""
    tree = _tree(frame.f_code.co_filename)
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]


def refuses(error: BaseException) -> bool:
    """Return whether the line that raised an error does so on purpose."""
    return any(_refuses(frame, line) for frame, line in list(traceback.walk_tb(error.__traceback__))[-1:])


def _refuses(frame: FrameType, line: int) -> bool:
    """Return whether a line raises on purpose."""
    return any(isinstance(node, (ast.Raise, ast.Assert)) for node in _around(frame, line))


def _checks(frame: FrameType, line: int) -> list[ast.AST]:
    """Return the conditions under which a function comes to a line: those around it, and those that return before."""
    around = _around(frame, line)
    function = next((node for node in reversed(around) if isinstance(node, _FUNCTIONS)), _tree(frame.f_code.co_filename))
    tests: list[ast.AST] = [node.test for node in around if isinstance(node, (ast.If, ast.Assert))]
    before = (node for node in ast.walk(function) if isinstance(node, ast.If) and node.lineno < line)
    return tests + [node.test for node in before if any(isinstance(inner, ast.Return) for inner in ast.walk(node))]


def _origins(nodes: list[ast.AST], frame: FrameType, line: int, root: Path) -> Iterator[tuple[ast.AST, Mapping[str, Any]]]:
    """Yield the nodes, and those that their variables come from: in the function, at the top of its file, or in a module that it imports.

    A tensor comes from nothing: what a package makes one of says little about it.
    """
    function: ast.AST | None = next((node for node in reversed(_around(frame, line)) if isinstance(node, _FUNCTIONS)), None)
    left: list[tuple[ast.AST, Mapping[str, Any], ast.AST | None, str]]
    left = [(node, _known(frame), function, frame.f_code.co_filename) for node in nodes]
    seen: set[tuple[str, str]] = set()
    while left:
        node, known, function, file = left.pop()
        yield from ((each, known) for each in ast.walk(node))
        for name in {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}:
            if (file, name) in seen or type(known.get(name)).__name__ in ("Tensor", "Parameter"):
                continue
            seen.add((file, name))
            if function is not None and (given := list(_given([function], name))):
                left += [(each, known, function, file) for each in given]
            elif function is None or not any(isinstance(each, ast.arg) and each.arg == name for each in ast.walk(function)):
                top = [each for each in _tree(file).body if not isinstance(each, (*_FUNCTIONS, ast.ClassDef))]
                left += [(each, known, None, file) for each in _given(top, name)]
                if module := _imported_from(name, file, known, root):
                    left.append((ast.Name(module[1], ast.Load()), vars(module[0]), None, str(module[0].__file__)))


def _given(scopes: list[Any], name: str) -> Iterator[ast.AST]:
    """Yield what gives a variable its value, and the conditions of it."""
    for node in (node for scope in scopes for node in ast.walk(scope)):
        yield from _sources(node, {name})
        if isinstance(node, ast.If) and any(list(_sources(inner, {name})) for inner in ast.walk(node)):
            yield node.test


def _imported_from(name: str, file: str, known: Mapping[str, Any], root: Path) -> tuple[ModuleType, str] | None:
    """Return the module of the package that a file imports a name from, and its name there."""
    for node in (node for node in ast.walk(_tree(file)) if isinstance(node, ast.ImportFrom)):
        for alias in (alias for alias in node.names if (alias.asname or alias.name) == name):
            path = "." * node.level + (node.module or "")
            try:
                module = sys.modules.get(importlib.util.resolve_name(path, known.get("__package__") or ""))
            except ImportError:
                return None
            if isinstance(module, ModuleType) and is_own(str(getattr(module, "__file__", None)), root):
                return module, alias.name
    return None


def substituted_module(error: BaseException, root: Path) -> str:
    """Return the module for which a package at `root` goes on without it, and now raises for want of it; empty if there is none.

    `try: import apex`, `except ImportError: apex = None`, and later `if apex is None: raise …`, `apex.norm(x)`, or its name.
    """
    frames = list(traceback.walk_tb(error.__traceback__))[-1:]
    statement = _found(*frames[0])[1] if frames else None
    if statement is None or not is_own(frames[0][0].f_code.co_filename, root):
        return ""
    (frame, line) = frames[0]
    if isinstance(error, NameError):
        names = [str(error.name)]
    elif "'NoneType' object" in str(error) and isinstance(error, (AttributeError, TypeError)):
        names = [each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and _value(each, _known(frame)) is None]
    elif _refuses(frame, line):
        tests = [node.test for node in _around(frame, line) if isinstance(node, (ast.If, ast.Assert))]
        names = [each.id for test in tests for each in ast.walk(test) if isinstance(each, ast.Name)]
    else:
        return ""
    guarded = [_guarded(name, frame.f_code.co_filename, _known(frame), root) for name in names]
    return next(filter(None, guarded), "") if not isinstance(error, AssertionError) or all(guarded) else ""


def _guarded(name: str, file: str, known: Mapping[str, Any], root: Path) -> str:
    """Return what is imported in a `try` that gives a name its value, at the top of a file or of one that it imports the name from."""
    for block in (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Try) and node.handlers):
        imports = [node for part in block.body for node in ast.walk(part) if isinstance(node, (ast.Import, ast.ImportFrom))]
        if imports and any(_binds(node, name) for node in ast.walk(block)):
            paths = [each.module or "" if isinstance(each, ast.ImportFrom) else each.names[0].name for each in imports]
            if path := next((path for path in paths if path and not _is_there(path.partition(".")[0])), ""):
                return path
    module = _imported_from(name, file, known, root)
    return _guarded(module[1], str(module[0].__file__), vars(module[0]), root) if module else ""


def _is_there(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None
