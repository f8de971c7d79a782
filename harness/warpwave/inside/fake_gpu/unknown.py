"""Numbers and truths that depend on the data of a tensor which has none, and times that are made up.

A package may print them, log them, record them, compare them and calculate with them. Only a decision is refused: a branch, a size or an
index could lead to launches that would not happen with real data. `assertions.py` says which branches are no decisions.

A time may decide. It is only noted: what the package raises afterwards may be the fault of the time.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch.utils._pytree import tree_leaves

from warpwave.inside.fake_gpu.host_side import forget
from warpwave.inside.process.outcomes import DecidedByData, NotPretended, Pretended

_WHY = "the host's code depends on the data of a tensor, and without a GPU there is none"
_thread = threading.local()


class Judged:
    """Within, the package only judges by data, or with `is_assertion` False only reports numbers. Truths are guessed in turns there.

    What an assertion raises after a guess is its consequence, and does not count. A launch after a guess is refused.
    """

    def __init__(self, is_assertion: bool) -> None:
        self.is_assertion, self.guesses, self._truth = is_assertion, 0, True

    def __enter__(self) -> Judged:
        self.outer, _thread.judged = Judged.innermost(), self
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        _thread.judged = self.outer
        is_of_guess = isinstance(error, Exception) and not isinstance(error, (DecidedByData, NotPretended))
        return self.is_assertion and self.guesses > 0 and is_of_guess

    def take(self, value: Any) -> None:
        """Keep the truth of a value."""
        self._truth = bool(value)

    def says(self, well: bool) -> bool:
        """Return the truth that was taken; `well` if it depends on unknown data."""
        return well if self.guesses else self._truth

    @staticmethod
    def innermost() -> Judged | None:
        """Return what this thread is in."""
        return getattr(_thread, "judged", None)

    @staticmethod
    def refuse_launch() -> None:
        """Raise `DecidedByData` for a launch if the code that makes it has guessed."""
        judged = Judged.innermost()
        while judged is not None:
            if judged.guesses:
                raise DecidedByData(_WHY)
            judged = judged.outer


class _Unknown:
    """What depends on data: what is calculated with it or compared with it is unknown, too."""

    def _compare(self, other: object = None) -> UnknownTruth:
        return UnknownTruth()

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare  # type: ignore[assignment]

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return decide()

    def __repr__(self) -> str:
        return "unknown"

    def __format__(self, spec: str) -> str:
        return "unknown"


class UnknownTruth(_Unknown):
    """Whether something holds that depends on data."""

    def __init__(self) -> None:
        Asked.since_begin = True

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _Unknown._compare


class _UnknownNumber(_Unknown):
    def __int__(self) -> int:
        return zero_if_only_judged()

    def __round__(self, digits: int | None = None) -> _Unknown:
        return UnknownInt() if digits is None else self

    def __floor__(self) -> _Unknown:
        return UnknownInt()

    __ceil__ = __trunc__ = __floor__

    def __float__(self) -> float:
        return float(zero_if_only_judged())


class UnknownFloat(_UnknownNumber, float):  # type: ignore[misc]
    """An unknown number that may be passed wherever a float is taken. There it is zero: most often it is an error."""


class UnknownInt(_UnknownNumber):
    """An unknown whole number. It is no `int`: C code would take an `int` as a size without asking it."""

    def __index__(self) -> int:
        return size()


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


_OPERATIONS = ("add", "sub", "mul", "mod", "pow", "floordiv", "truediv")
_BITWISE = ("and", "or", "xor", "lshift", "rshift")
for _kind, _names in ((UnknownFloat, _OPERATIONS), (UnknownInt, _OPERATIONS + _BITWISE)):
    for _name in _names:
        _result = UnknownFloat if _name == "truediv" else _kind
        setattr(_kind, f"__{_name}__", _calculate(_name, _result))
        setattr(_kind, f"__r{_name}__", _calculate(_name, _result, reflected=True))
    for _name in ("neg", "pos", "abs"):
        setattr(_kind, f"__{_name}__", _calculate(_name, _kind))


class MadeUpTime(float):
    """A time that was not measured. Arithmetic with it gives another one. A comparison or a branch sets `Pretended.by_time`."""

    def __float__(self) -> float:
        Pretended.by_time = True
        return super().__float__()


def _of_times(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that keeps times made up. Where it gives anything else than a `float`, or raises, they decide."""

    @functools.wraps(function)
    def calculate(*args: Any) -> Any:
        try:
            result = function(*args)
        except (ArithmeticError, ValueError):
            Pretended.by_time = True
            raise
        if isinstance(result, float):
            return MadeUpTime(result)
        Pretended.by_time |= result is not NotImplemented
        return result

    return calculate


_CALCULATE = (*_OPERATIONS, "divmod", *(f"r{each}" for each in (*_OPERATIONS, "divmod")), "neg", "pos", "abs", "round")
for _name in (*_CALCULATE, "int", "trunc", "floor", "ceil", "bool", "hash", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(MadeUpTime, f"__{_name}__", _of_times(getattr(float, f"__{_name}__")))

OF_MATH = [name for name, function in vars(math).items() if callable(function) and name[0] != "_"]
_WHOLE = ("floor", "ceil", "trunc", "isqrt", "gcd", "lcm", "comb", "perm", "factorial")


def of_unknown(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of Python's `math`, which would take an unknown number for the zero that it looks like, and a time for any number."""
    if not any(isinstance(each, _UnknownNumber) for each in args):
        has_time = any(isinstance(each, MadeUpTime) for each in args)
        return _of_times(function)(*args) if has_time else function(*args, **kwargs)
    name = function.__name__
    result = UnknownTruth if name.startswith("is") and name != "isqrt" else UnknownInt if name in _WHOLE else UnknownFloat
    return (result(), result()) if name in ("frexp", "modf") else result()


def lost_times(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what takes a time for any number, and gives plain ones: what they decide is not seen."""
    Pretended.by_time |= any(isinstance(each, MadeUpTime) for each in tree_leaves((args, kwargs)))
    return function(*args, **kwargs)


_SHOWS_UNKNOWN = re.compile(r"\bunknown\b|tensor\(\.\.\.")  # as texts of unknown numbers and of tensors without data do


def matching(check: Callable[..., bool], checker: Any, want: str, got: str, flags: int) -> bool:
    """Let doctest take what shows unknown data for what its author expects."""
    return bool(_SHOWS_UNKNOWN.search(got)) or check(checker, want, got, flags)


def explained(error: BaseException) -> BaseException:
    """Convert an error that an unknown value caused to `DecidedByData`: torch refused it as a number, or an assertion compared it."""
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
    made = 0


def unknown(dtype: torch.dtype) -> _Unknown:
    """Return what `item()` gives of a tensor of this dtype that has no data."""
    Asked.since_begin = True
    return UnknownTruth() if dtype is torch.bool else UnknownFloat() if dtype.is_floating_point or dtype.is_complex else UnknownInt()


def unknown_list(tensor: torch.Tensor) -> Any:
    """Return what `tolist()` gives of a tensor that has no data: its shape is known."""

    def nested(shape: tuple[int, ...]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0])] if shape else unknown(tensor.dtype)

    return nested(tuple(tensor.shape))


def decide() -> bool:
    """Return true and false in turns where that is a guess, so that a loop that waits for either ends; else raise `DecidedByData`."""
    judged = Judged.innermost()
    if judged is not None and judged.is_assertion:
        judged.guesses += 1
        return judged.guesses % 2 == 1
    if not Guesses.allowed:
        raise DecidedByData(_WHY)
    Guesses.made += 1
    return Guesses.made % 2 == 0


def size() -> int:
    """Raise `DecidedByData` for a size or an index, also in an assertion: what is launched depends on it. Return 1 if a guess will do."""
    if Guesses.allowed:
        return 1
    raise DecidedByData(_WHY)


def zero_if_only_judged() -> int:
    """Return zero to code that only judges or reports; else raise `DecidedByData`: what a plain number decides would not be seen."""
    judged = Judged.innermost()
    if judged is not None:
        judged.guesses += 1
    elif not Guesses.allowed:
        raise DecidedByData(_WHY)
    return 0


_FOLDERS = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_FOLDERS += [str(Path(str(module.__file__)).parents[1]) for module in (torch, triton)] + [str(Path(__file__).parents[2])]
_OTHERS = ("<", *(f"{folder}/" for folder in _FOLDERS))


def is_the_packages(path: str) -> bool:
    """Whether a file is neither Python's, nor of an installed library, nor of warpwave."""
    return not path.startswith(_OTHERS)
