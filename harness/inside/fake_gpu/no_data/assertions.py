"""Which code only judges the data of tensors: an assertion, a branch that only complains, and a line that only reports.

Tests compare what kernels computed. Nothing is computed on a pretended card, so what judges it is answered as if all were well, and the
test goes on to its next launch.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType

_UNITTEST = ("assertTrue", "assertFalse")
_COMPLAINS = ("fail", "exit", "_exit")
_REPORTS = ("print", "log", "debug", "info", "warning", "warn", "error", "write", "echo", "record_property", "append")
_TABLES = ("tabulate", "prettytable", "texttable", "beautifultable", "terminaltables")  # libraries that only turn values into text
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
    A library that draws tables asks whether something is a number, and how long it is.
    """
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _TABLES:
        return True
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
        flipped = max((_nesting(judgement.judged, node) for node in ast.walk(judgement.judged) if _calls(node, (called,))), default=0)
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
        elif isinstance(node, ast.Expr) and _calls(node.value, _REPORTS):
            found.append(_Judgement(node, node, True))
        elif isinstance(node, ast.Expr) and _calls(node.value, _UNITTEST) and node.value.args:  # type: ignore[attr-defined]
            found.append(_Judgement(node, node.value.args[0], _calls(node.value, _UNITTEST[:1])))  # type: ignore[attr-defined]
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
    return all(_calls(node, (*_REPORTS, *_NUMBERS)) for node in calls)


def _only_complains(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or only reports: what else a test would launch does not depend on it."""
    last = block[-1]
    if isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and _calls(last.value, _COMPLAINS)):
        return True
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    return all(isinstance(statement, ast.Expr) and _calls(statement.value, _REPORTS) for statement in block)


def _calls(node: ast.AST, names: tuple[str, ...]) -> bool:
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
