"""Numbers and truths that depend on the data of a tensor which has none.

A package may print them, log them, record them, compare them and calculate with them. Only a decision is refused: a branch, a size or an
index could lead to launches that would not happen with real data. `assertions` says which branches are no decisions.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from warpwave.inside.fake_gpu.host_side import forget
from warpwave.inside.fake_gpu.torch_device import Patch
from warpwave.inside.process.outcomes import DecidedByData

# Which code only judges the data of tensors: an assertion, a branch that only complains, and a line that only reports.
#
# Tests compare what kernels computed. Nothing is computed on a pretended card, so what judges it is answered as if all were well, and the
# test goes on to its next launch.

_UNITTEST = ("assertTrue", "assertFalse")
_COMPLAINS = ("fail", "exit", "_exit")
_REPORTS = ("print", "log", "debug", "info", "warning", "warn", "error", "write", "echo", "record_property")
_NUMBERS = ("abs", "approx", "isclose", "isfinite", "isnan", "max", "min", "round", "str", "format")

Place = tuple[int, int, int, int]  # first line, last line, first column, last column: as `co_positions` gives them


@dataclass(frozen=True)
class _Judgement:
    """A statement that judges, the expression it judges by, and the truth with which all is well."""

    statement: ast.stmt
    judged: ast.AST
    wanted: bool

    def covers(self, line: int) -> bool:
        return bool(self.judged.lineno <= line <= (self.judged.end_lineno or self.judged.lineno))  # type: ignore[attr-defined]


def agreed(frame: FrameType) -> bool | None:
    """Return the truth with which all is well for the code that runs in a frame; None if it is not judging, but deciding.

    A helper judges if it returns its verdict to an assertion, and does nothing else with it: `assert close(out, expected)`.
    """
    own = _wanted(frame, _judgements(frame.f_code.co_filename), "bool")
    if own is not None or frame.f_back is None:
        return own
    verdicts = [each for each in _verdicts(frame.f_code.co_filename) if each.covers(frame.f_lineno)]
    asked = _wanted(frame.f_back, _judgements(frame.f_back.f_code.co_filename), frame.f_code.co_name) if verdicts else None
    return None if asked is None else _wanted(frame, tuple(verdicts), "bool") == asked


def _wanted(frame: FrameType, judgements: tuple[_Judgement, ...], called: str) -> bool | None:
    """Return the truth that the innermost of the judgements wants of what runs in a frame, which may be a call of that name."""
    known = [judgement for judgement in judgements if judgement.covers(frame.f_lineno)]
    if not known:
        return None
    judgement = known[-1]
    name, place = at(frame)
    flipped = sum(_contains(node.operand, place) for node in _nots(judgement.judged)) + (name == "UNARY_NOT")
    if name.startswith("CALL") and _is_rewritten(judgement, place):
        flipped = max(
            (_nesting(judgement.judged, node) for node in ast.walk(judgement.judged) if _calls_one_of(node, (called,))), default=0
        )
    return judgement.wanted != bool(flipped % 2)


@functools.cache
def _judgements(filename: str) -> tuple[_Judgement, ...]:
    """Return what judges in a file, outer statements before those within."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(_Judgement(node, node, True))
        elif isinstance(node, ast.If) and _only_complains(node.body):
            found.append(_Judgement(node, node.test, False))
        elif isinstance(node, ast.If) and node.orelse and _only_complains(node.orelse):
            found.append(_Judgement(node, node.test, True))
        elif isinstance(node, ast.Expr) and _calls_one_of(node.value, _REPORTS):
            found.append(_Judgement(node, node, True))
        elif isinstance(node, ast.Expr) and _calls_one_of(node.value, _UNITTEST) and node.value.args:  # type: ignore[attr-defined]
            found.append(_Judgement(node, node.value.args[0], _calls_one_of(node.value, _UNITTEST[:1])))  # type: ignore[attr-defined]
    for function in _functions(filename):
        found += _only_judged(function, found)
    return tuple(found)


@functools.cache
def _verdicts(filename: str) -> tuple[_Judgement, ...]:
    """Return what decides the truth that a function of the file returns; `wanted` is the truth with which it returns `True`."""
    found = []
    for function in _functions(filename):
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                verdict = _verdict_of(node.body)
                other = _verdict_of(node.orelse) if node.orelse else None
                if verdict is not None or other is not None:
                    found.append(_Judgement(node, node.test, bool(verdict) if verdict is not None else not other))
            elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
                found.append(_Judgement(node, node.value, True))
    return tuple(found)


def _verdict_of(block: list[ast.stmt]) -> bool | None:
    """Return the truth that a block returns, if it only reports before; None if it does anything else."""
    *before, last = block
    if not (isinstance(last, ast.Return) and isinstance(last.value, ast.Constant) and isinstance(last.value.value, bool)):
        return None
    return last.value.value if not before or _only_complains(before) else None


def _functions(filename: str) -> Iterator[ast.AST]:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _only_judged(function: ast.AST, judgements: list[_Judgement]) -> list[_Judgement]:
    """Return the assignments `error = float(…)` of a function whose name is only read where something is judged by it."""
    nodes = list(ast.walk(function))
    found = []
    for node in nodes:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        reads = [read for read in nodes if isinstance(read, ast.Name) and read.id == name and isinstance(read.ctx, ast.Load)]
        by = [next((each for each in judgements if _judges(each, read)), None) for read in reads]
        wanted = {each and each.wanted != bool(_nesting(each.judged, read) % 2) for each, read in zip(by, reads, strict=True)}
        if len(wanted) == 1 and None not in wanted:
            found.append(_Judgement(node, node.value, bool(wanted.pop())))
    return found


def _judges(judgement: _Judgement, read: ast.Name) -> bool:
    """Whether a name that is read there is compared or reported, and not given to a function that may launch something."""
    if not _contains(judgement.judged, place_of(read)):
        return False
    calls = [node for node in ast.walk(judgement.judged) if isinstance(node, ast.Call) and _contains(node, place_of(read))]
    return all(_calls_one_of(node, (*_REPORTS, *_NUMBERS)) for node in calls)


def _only_complains(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or only reports: what else a test would launch does not depend on it."""
    last = block[-1]
    if isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and _calls_one_of(last.value, _COMPLAINS)):
        return True
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    return all(isinstance(statement, ast.Expr) and _calls_one_of(statement.value, _REPORTS) for statement in block)


def _calls_one_of(node: ast.AST, names: tuple[str, ...]) -> bool:
    """Whether a node is a call of a function, or of a method, with one of the names."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else "") in names


def at(frame: FrameType) -> tuple[str, Place | None]:
    """Return the instruction that a frame is at. While it calls, Python counts in the call's caches, which stand behind it."""
    known = _instructions(frame.f_code)
    return next((known[offset] for offset in range(frame.f_lasti, -1, -2) if offset in known), ("", None))


@functools.cache
def _instructions(code: CodeType) -> dict[int, tuple[str, Place | None]]:
    """Return by offset the name and the place of each instruction. `TO_BOOL` (Python 3.13) is called what it is made for."""
    places: Iterator[tuple[int | None, ...]] = getattr(code, "co_positions", lambda: iter(()))()
    found: dict[int, tuple[str, Place | None]] = {}
    instructions = list(dis.get_instructions(code))
    by_unit = list(places)
    for position, instruction in enumerate(instructions):
        following = instructions[position + 1].opname if position + 1 < len(instructions) else ""
        name = following if instruction.opname == "TO_BOOL" else instruction.opname
        place = by_unit[instruction.offset // 2] if instruction.offset // 2 < len(by_unit) else (None,)
        found[instruction.offset] = (name, None if None in place else place)  # type: ignore[assignment]
    return found


def place_of(node: ast.AST) -> Place:
    """Return where a node is, as `co_positions` would give it."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined, no-any-return]


def _contains(node: ast.AST, place: Place | None) -> bool:
    if place is None:
        return False
    first, last, start, end = place_of(node)
    return (first, start) <= (place[0], place[2]) and (place[1], place[3]) <= (last, end)


def _nots(node: ast.AST) -> list[ast.UnaryOp]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not)]


def _nesting(root: ast.AST, node: ast.AST) -> int:
    return sum(_contains(inner.operand, place_of(node)) for inner in _nots(root))


def _is_rewritten(judgement: _Judgement, place: Place | None) -> bool:
    """Whether pytest has rewritten this assertion: then all of its instructions have the place of the whole statement."""
    return isinstance(judgement.statement, ast.Assert) and place == place_of(judgement.statement)


# Python's `math`, `max` and `min` of numbers that depend on the data of a tensor which has none.
#
# Host code computes scales with them: `2 ** math.floor(math.log2(x.abs().max().item()))`, `max(amax.item(), 1e-12)`. Their results depend
# on
# the data as well, and nothing is decided yet. C code would take such a number for the zero that it looks like.

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


_SHOWN = "unknown"
_WHY = "the host's code depends on the data of a tensor, and without a GPU there is none"


class UnknownTruth:
    """Whether something holds that depends on data."""

    def __init__(self, comparison: str = "") -> None:
        self._comparison = comparison  # which made it, of an unknown number with another one

    def __bool__(self) -> bool:
        return decide(self._comparison)

    def _combine(self, other: object = None) -> UnknownTruth:
        return self

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __eq__ = __ne__ = _combine  # type: ignore[assignment]

    def __invert__(self) -> UnknownTruth:
        return self

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    __hash__ = object.__hash__


class _Unknown:
    """What unknown numbers share: comparisons are unknown truths, and what is calculated with them is unknown, too."""

    def _compare(self, other: object) -> UnknownTruth:
        return UnknownTruth()

    __eq__ = __ne__ = __le__ = __ge__ = _compare  # type: ignore[assignment]

    def __lt__(self, other: object) -> UnknownTruth:
        return UnknownTruth("lt")

    def __gt__(self, other: object) -> UnknownTruth:
        return UnknownTruth("gt")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return decide()

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    def __int__(self) -> int:
        return whole()

    def __round__(self, digits: int | None = None) -> _Unknown:
        return UnknownInt() if digits is None else self

    def __floor__(self) -> _Unknown:
        return UnknownInt()

    __ceil__ = __trunc__ = __floor__


class UnknownFloat(_Unknown, float):  # type: ignore[misc]
    """An unknown number that may be passed wherever a float is taken. There it is zero: most often it is an error."""

    def __float__(self) -> float:
        return float(whole())


class UnknownInt(_Unknown):
    """An unknown whole number. It is no `int`: C code would take an `int` as a size without asking it."""

    def __index__(self) -> int:
        return size()

    def __float__(self) -> float:
        return float(whole())


def _calculate(name: str, kind: type[_Unknown], reflected: bool = False) -> Callable[..., Any]:
    """Return what an operator does. With a tensor it makes a tensor, of the type that it has with any such number."""
    of_tensors = getattr(operator, f"__{name}__")

    def calculate(self: _Unknown, *others: object) -> Any:
        if any(isinstance(other, torch.Tensor) for other in others):
            number = 1.0 if isinstance(self, UnknownFloat) else 1
            result = of_tensors(others[0], number) if reflected else of_tensors(number, others[0])
            forget(result)
            return result
        return kind()

    return calculate


def known_to_math() -> list[Patch]:
    """Return what lets Python's `math` take unknown numbers."""
    return mathematics((UnknownFloat, UnknownInt, UnknownTruth))


_OPERATIONS = ("add", "sub", "mul", "mod", "pow", "floordiv", "truediv")
_BITWISE = ("and", "or", "xor", "lshift", "rshift")
for _kind, _names in ((UnknownFloat, _OPERATIONS), (UnknownInt, _OPERATIONS + _BITWISE)):
    for _name in _names:
        _result = UnknownFloat if _name == "truediv" else _kind
        setattr(_kind, f"__{_name}__", _calculate(_name, _result))
        setattr(_kind, f"__r{_name}__", _calculate(_name, _result, reflected=True))
    for _name in ("neg", "pos", "abs"):
        setattr(_kind, f"__{_name}__", _calculate(_name, _kind))


def explained(error: BaseException) -> BaseException:
    """Return why a test ended: an error of an unknown number, which torch takes for no number, or of a comparison with one, is no fault."""
    if isinstance(error, TypeError) and re.search(r"\bUnknown(Int|Float|Truth)\b", str(error)):
        return DecidedByData(_WHY)
    if isinstance(error, AssertionError) and Asked.since_begin:
        return DecidedByData("an assertion compares the data of a tensor, and without a GPU there is none")
    return error


class Asked:
    """Whether anything has asked for data since a test began."""

    since_begin = False


class Guesses:
    """The answers for code that decides by data. Only compiling ahead guesses: a wrong guess compiles a kernel that nobody launches."""

    allowed = False
    _latest = True

    @classmethod
    def truth(cls) -> bool:
        """Return false and true in turns, so that a loop that waits for either ends."""
        cls._latest = not cls._latest
        return cls._latest


def unknown(dtype: torch.dtype) -> UnknownTruth | UnknownFloat | UnknownInt:
    """Return what `item()` gives of a tensor of this dtype that has no data."""
    Asked.since_begin = True
    if dtype is torch.bool:
        return UnknownTruth()
    return UnknownFloat() if dtype.is_floating_point or dtype.is_complex else UnknownInt()


def unknown_list(tensor: torch.Tensor) -> Any:
    """Return what `tolist()` gives of a tensor that has no data: its shape is known."""

    def nested(shape: tuple[int, ...]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0])] if shape else unknown(tensor.dtype)

    return nested(tuple(tensor.shape))


def decide(comparison: str = "") -> bool:
    """Return the truth with which the code that asks goes on, if it is no decision. `comparison` is what it asks for: `lt`, `gt`.

    Raises:
        DecidedByData: the code decides by data.
    """
    asking = _asking()
    agreeable = agreed(asking)
    if agreeable is None and comparison:
        agreeable = picked(asking, comparison)
    if agreeable is not None:
        return agreeable
    if Guesses.allowed:
        return Guesses.truth()
    raise DecidedByData(_WHY)


def alike() -> bool | UnknownTruth:
    """Return whether tensors without data are equal: yes, unless what judges it wants them to differ.

    In an assertion that pytest has rewritten, a `not` is only seen where it is executed.
    """
    asking = _asking()
    line = linecache.getline(asking.f_code.co_filename, asking.f_lineno).lstrip()
    if "@pytest_ar" in asking.f_globals and line.startswith("assert"):
        return UnknownTruth()
    return agreed(asking) is not False


def size() -> int:
    """Refuse a size or an index, also in an assertion: what is launched depends on it.

    Raises:
        DecidedByData: always, unless a guess will do.
    """
    if Guesses.allowed:
        return 1
    raise DecidedByData(_WHY)


def whole() -> int:
    """Return zero to an assertion, or to a line that only reports: it most often counts mistakes.

    Raises:
        DecidedByData: Python makes a plain number of it, and what that decides would not be seen.
    """
    if agreed(_asking()) is None and not Guesses.allowed:
        raise DecidedByData(_WHY)
    return 0


def _asking() -> FrameType:
    """Return the frame of the code that asks: the first one that is neither of this folder nor of torch's tensors."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame


_PYTEST = str(Path(sys.modules["_pytest"].__file__ or "").parent) if "_pytest" in sys.modules else __file__  # `approx` compares numbers
_BETWEEN = (str(Path(__file__).parent), torch._tensor.__file__, torch.overrides.__file__, _PYTEST)
