"""Numbers and truths that depend on the data of a tensor which has none.

A package may print them, log them, record them, compare them and calculate with them. Only a decision is refused: a branch, a size or an
index could lead to launches that would not happen with real data. `assertions` says which branches are no decisions.
"""

from __future__ import annotations

import linecache
import operator
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from harness.inside.fake_gpu.host_side import forget
from harness.inside.fake_gpu.no_data.assertions import agreed
from harness.inside.fake_gpu.no_data.mathematics import mathematics, picked
from harness.inside.fake_gpu.torch_device import Patch
from harness.inside.process.exceptions import DecidedByData

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
    if asking.f_code.co_filename == _SCALER:
        return False
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
_SCALER = torch.amp.grad_scaler.__file__  # it asks whether a gradient is infinite, and steps if none is
_BETWEEN = (str(Path(__file__).parents[1]), torch._tensor.__file__, torch.overrides.__file__, _PYTEST)
