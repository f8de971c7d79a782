"""The numbers of a failed comparison: how many elements differ, by how much at most, where, and what stands there.

torch's and numpy's messages have them far below their first line, or not at all; an `assert` has none. The values are still there, in the
frames that the exception passed, and are looked at once the test has failed.
"""

from __future__ import annotations

import ast
import copy
import linecache
import numbers
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

_REWRITER = sys.modules.get("_pytest.assertion.rewrite")  # not part of pytest's interface
_LIBRARIES = ("/torch/testing/", "/numpy/testing/")
_ROLES = (("actual", "expected"), ("actual", "desired"), ("x", "y"))  # what these libraries call the two
_KNOWN = ("got", "expected")
_EXACT = ("equal", "array_equal", "array_equiv")
_CLOSE = ("allclose", "isclose")
_LONGEST = 60  # characters of an expression, and of the author's own words
_MOST = 1 << 28  # elements; comparing more of them takes a while


@dataclass(frozen=True)
class _Compared:
    """Two values, what they are called, and the tolerances, relative and absolute. Without these, any difference may be allowed."""

    first: Any
    second: Any
    names: tuple[str, str]
    tolerances: tuple[float, float] | None = None
    nans_are_equal: bool = False


def with_numbers(error: BaseException | None, message: str) -> str:
    """Return the message of a failed assertion, with the numbers in its first line if it has compared two arrays."""
    if not isinstance(error, AssertionError):
        return message
    frames = list(traceback.walk_tb(error.__traceback__))
    is_library = bool(frames) and any(part in frames[-1][0].f_code.co_filename for part in _LIBRARIES)
    try:
        said, pairs = _said(frames)
        found = next(filter(None, map(_numbers, pairs)), "")
    except Exception:  # the values may be on a card that no longer answers
        said, found = "", ""
    lines = (line.strip().removeprefix("AssertionError:").strip() for line in message.splitlines())
    first, *rest = [*filter(None, lines)] or [""]
    if found:
        words = said if said and first in ("assert False", "AssertionError", "") else first
        return "\n".join([f"AssertionError: {_cut(words.rstrip('!.:'))}: {found}", *rest])
    return f"AssertionError: {'; '.join([first, *rest][:5])}" if is_library and first else message


def is_moved(error: BaseException | None) -> bool | None:
    """Return whether the two arrays that a failed assertion compared have the same values in other places; None without two such arrays."""
    if not isinstance(error, AssertionError):
        return None
    try:
        import torch

        different = next(pair for pair in _said(list(traceback.walk_tb(error.__traceback__)))[1] if _numbers(pair))
        rtol, atol = different.tolerances or (1e-5, 1e-8)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            first, second = (_plain(each).flatten().sort().values for each in (different.first, different.second))
            return bool(first.shape == second.shape and torch.allclose(first, second, rtol=rtol, atol=atol, equal_nan=True))
    except Exception:  # also without arrays
        return None


def _said(frames: list[tuple[FrameType, int]]) -> tuple[str, Iterator[_Compared]]:
    """Return what was asserted, if that is an expression, and what it compared."""
    for frame, _ in frames:
        if any(part in frame.f_code.co_filename for part in _LIBRARIES):
            compared = _by_library(frame.f_locals)
            return "", iter([compared] if compared else [])
    frame, line = frames[-1]
    if (node := _assertion(frame.f_code.co_filename, line)) is None:
        return "", iter(())
    return f"assert {ast.unparse(node.test)}", _by_assertion(frame, node)


def _by_library(known: dict[str, Any]) -> _Compared | None:
    """Return what torch's or numpy's function was given, from its variables."""
    roles = next((pair for pair in _ROLES if pair[0] in known and pair[1] in known), None)
    if roles is None:
        return None
    first, second = (known[name] for name in roles)
    for place in getattr(next(iter(known.get("error_metas") or ()), None), "id", ()):  # of two lists
        first, second = first[place], second[place]
    rtol, atol = known.get("rtol"), known.get("atol")
    if "decimal" in known:
        rtol, atol = 0.0, 1.5 * 10.0 ** -known["decimal"]
    elif "significant" in known or "nulp" in known or "maxulp" in known:
        return _Compared(first, second, _KNOWN)
    elif rtol is None and "error_metas" in known:
        from torch.testing._comparison import default_tolerances

        typed = [each for each in (first, second) if hasattr(each, "dtype")]
        rtol, atol = default_tolerances(*typed) if typed else (0.0, 0.0)
    return _Compared(
        first, second, ("got", "expected"), (rtol or 0.0, atol or 0.0), bool(known.get("equal_nan", "error_metas" not in known))
    )


def _assertion(file: str, line: int) -> ast.Assert | None:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Assert))
    return next((node for node in found if node.lineno <= line <= (node.end_lineno or 0)), None)


def _by_assertion(frame: FrameType, assertion: ast.Assert) -> Iterator[_Compared]:
    """Yield the pairs that an `assert` compares: by a function, with `==`, or by their difference.

    pytest keeps each part of the expression in a variable of its own. Which part is in which, its rewriter says.
    """
    values = _Values(frame, assertion)
    for node in ast.walk(values.tree):
        if isinstance(node, ast.Call):
            function = values.made.get(node.func.id, node.func) if isinstance(node.func, ast.Name) else node.func
            name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
            if name not in (*_EXACT, *_CLOSE):
                continue
            operands = node.args[:2]
            if isinstance(function, ast.Attribute) and _is_array(values.of(function.value)):
                operands = [function.value, *node.args[:1]]
            options = {word.arg: values.of(word.value) for word in node.keywords if word.arg}
            close = (float(options.get("rtol", 1e-5)), float(options.get("atol", 1e-8)))
            tolerances, nans = (0.0, 0.0) if name in _EXACT else close, bool(options.get("equal_nan"))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            operands, tolerances, nans = [node.left, node.comparators[0]], (0.0, 0.0), False
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            operands, tolerances, nans = [node.left, node.right], None, False
        else:
            continue
        if len(operands) == 2:
            first, second = map(values.of, operands)
            if _is_array(first) and _is_array(second):
                yield _Compared(first, second, (values.source(operands[0]), values.source(operands[1])), tolerances, nans)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple)


class _Values:
    """The values of the parts of an assertion. `tree` is what ran, and `made` the part that each of pytest's variables is for."""

    def __init__(self, frame: FrameType, assertion: ast.Assert) -> None:
        self._frame = frame
        self.tree: ast.AST = assertion
        self.made: dict[str, ast.expr] = {}
        if _REWRITER and any(name.startswith("@py_assert") for name in frame.f_locals):
            self.tree = ast.Module([copy.deepcopy(assertion)], [])
            _REWRITER.rewrite_asserts(self.tree, b"")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id.startswith("@"):
                self.made.setdefault(target.id, node.value)

    def of(self, node: ast.expr) -> Any:
        """Return the value of a variable or a number; None for anything else, as computing it again might change something."""
        if isinstance(node, ast.Name):
            return self._frame.f_locals.get(node.id, self._frame.f_globals.get(node.id))
        return node.value if isinstance(node, ast.Constant) else None

    def source(self, node: ast.expr) -> str:
        """Return a part as its author wrote it."""
        made = self.made

        class InFull(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.expr:
                found = made.get(name.id)
                return self.visit(copy.deepcopy(found)) if found is not None else name

        return ast.unparse(InFull().visit(copy.deepcopy(node)))


def _distinct(one: float, other: float) -> tuple[str, str]:
    """Write two numbers with six digits, or with as many as it takes to tell them apart."""
    written = [(f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (6, 9, 17)]
    return next((pair for pair in written if pair[0] != pair[1]), written[0])


def _numbers(compared: _Compared) -> str:
    """Return `5 of 320 elements differ; greatest difference 1.13 at [0, 3]: expected 0.692, got 1.82`; empty without two such arrays."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        first, second = _plain(compared.first), _plain(compared.second)
        if first is None or second is None:
            return ""
        if first.shape != second.shape and compared.names == _KNOWN and first.ndim and second.ndim:
            return ""
        first, second = torch.broadcast_tensors(first, second)
        both_nan = first.isnan() & second.isnan() & compared.nans_are_equal
        apart = torch.where(both_nan | (first == second), 0.0, (first - second).abs()).nan_to_num(nan=float("inf"))
        if not apart.numel() or not apart.max():
            return ""
        at = int(apart.argmax())
        text = f"greatest difference {float(apart.flatten()[at]):.6g}"
        if compared.tolerances is not None:
            rtol, atol = compared.tolerances
            wrong = int((~torch.isclose(first, second, rtol=rtol, atol=atol, equal_nan=compared.nans_are_equal)).sum())
            text = f"{wrong} of {apart.numel()} elements differ; {text}" if wrong and first.ndim else text
        text += f" at {[int(each) for each in torch.unravel_index(torch.tensor(at, device='cpu'), apart.shape)]}" if first.ndim else ""
        one, other = _distinct(*(float(each.flatten()[at]) for each in (first, second)))
    if compared.names == _KNOWN:
        return f"{text}: expected {other}, got {one}"
    where = [name if len(name) <= _LONGEST else f"the {word}" for name, word in zip(compared.names, ("first", "second"), strict=True)]
    return f"{text}: {one} in {where[0]}, {other} in {where[1]}"


def _plain(value: Any) -> Any:
    """Return an array or a number as a tensor of the host with numbers of 64 bits; None for anything else."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.is_meta or value.layout is not torch.strided or value.numel() > _MOST:
            return None
        return value.detach().to("cpu", torch.float64)
    if isinstance(value, (bool, numbers.Real)) or (type(value).__module__ == "numpy" and getattr(value, "size", _MOST + 1) <= _MOST):
        import numpy as np

        array = np.asarray(value)
        return torch.from_numpy(array.astype(np.float64)) if array.dtype.kind in "biuf" else None
    return None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
