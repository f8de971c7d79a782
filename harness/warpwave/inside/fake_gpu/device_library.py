"""What the functions of the vendors' device libraries compute, by the name that Triton gives them, over arrays.

A function takes arrays of one shape and the type of its result. Floats are computed in double precision and rounded once, so they are at
least as exact as a card's; the fast variants are those of full precision. Source: the vendors' public documentation of their libraries.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
import triton.language.extra as extra
from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic

from warpwave.inside.fake_gpu.arithmetic import saturated
from warpwave.inside.fake_gpu.ptx import ON_INTEGERS
from warpwave.inside.process.outcomes import NotPretended

Array = Any  # np.ndarray; the numbers' types change from call to call
Function = Callable[..., Array]


def _rounded(function: Function) -> Function:
    """Return a function of floats, computed in double precision and rounded once."""

    def call(*args: Array, dtype: np.dtype[Any]) -> Array:
        wide = [arg.astype(np.float64) if arg.dtype.kind == "f" else arg for arg in args]
        return np.asarray(function(*wide)).astype(dtype)

    return call


def _exact(function: Function) -> Function:
    def call(*args: Array, dtype: np.dtype[Any]) -> Array:
        return np.asarray(function(*args)).astype(dtype)

    return call


def _bits(*args: Array, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(args[0]).view(dtype)


def _of_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _of_math(function: Callable[..., float]) -> Function:
    """Return a function of Python's `math` over arrays; what it refuses is not a number."""

    def one(*args: float) -> float:
        try:
            return function(*args)
        except (ValueError, OverflowError):
            return math.nan

    vectorized: Function = np.vectorize(one, otypes=[np.float64])
    return vectorized


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return math.inf if x > 171.7 else math.gamma(x)


def _away_from_zero(x: Array) -> Array:
    whole = np.trunc(x)
    return np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0), x)  # -0.3 becomes -0


def _half_turns(function: Function) -> Function:
    """Return sin(πx) or cos(πx), with `x` reduced exactly first."""
    return lambda x: function(np.pi * (x - 2 * np.round(x / 2)))


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _ints(operation: Callable[..., int], signed: bool = False) -> Function:
    """Return a function of Python's integers, with the number of bits first; what is above the width of the result is cut off."""

    def call(*args: Array, dtype: np.dtype[Any]) -> Array:
        numbers = args if signed else [_unsigned(arg) for arg in args]
        made: Array = np.frompyfunc(functools.partial(operation, 8 * args[0].dtype.itemsize), len(args), 1)(*numbers)
        return (made & (1 << 64) - 1).astype(np.uint64).astype(dtype)

    return call


def _low_24(x: Array) -> Array:
    """Return the low 24 bits, with their sign if the type has one."""
    wide = x.astype(np.int64) & 0xFFFFFF
    return np.where(wide >> 23, wide - (1 << 24), wide) if x.dtype.kind == "i" else wide


def _towards(mode: str, function: Function) -> Function:
    """Return a function of floats with the rounding of `mode`: to nearest (rn), to zero (rz), down (rd) or up (ru)."""

    def call(*args: Array, dtype: np.dtype[Any]) -> Array:
        exact = np.asarray(function(*(arg.astype(np.longdouble) for arg in args)))
        near = exact.astype(dtype)
        if mode == "rn":
            return near
        low, high = np.nextafter(near, dtype.type(-np.inf)), np.nextafter(near, dtype.type(np.inf))
        down, up = np.where(near > exact, low, near), np.where(near < exact, high, near)
        if mode == "rz":
            return np.where(exact < 0, up, down).astype(dtype)
        return (down if mode == "rd" else up).astype(dtype)

    return call


def _to_whole(mode: str) -> Function:
    """Return the conversion of floats to whole numbers; what does not fit becomes the nearest one that does, and NaN becomes 0."""
    rounded: Function = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]
    return lambda x, dtype: saturated(rounded(x.astype(np.float64)), dtype)


_OF_NUMPY = ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt"]
_OF_NUMPY += ["ceil", "floor", "trunc", "rint", "hypot", "copysign", "fmod"]
_INVERSES = ["asin", "acos", "atan", "asinh", "acosh", "atanh"]
_FAST = ["sin", "cos", "tan", "exp", "log", "log2", "log10", "tanh"]
_OF_TORCH = ["erf", "erfc", "erfinv", "erfcx", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"]
_CASTS = ["int_as_float", "uint_as_float", "float_as_int", "float_as_uint", "longlong_as_double", "double_as_longlong"]
_WHOLE = ["int", "uint", "ll", "ull"]
_ROUNDED = [f"{whole}2{wide}" for whole in _WHOLE for wide in ("float", "double")] + ["double2float"]
_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda x, y, z: x * y + z,
}


def _named() -> Iterator[tuple[str, Function]]:
    """Yield the functions that another library has under the same name, or nearly so, and the families of rounding modes."""
    yield from ((name, _rounded(getattr(np, name))) for name in _OF_NUMPY)
    yield from ((name, _rounded(getattr(np, name.replace("a", "arc", 1)))) for name in _INVERSES)
    yield from ((f"fast_{name}f", _rounded(getattr(np, name))) for name in _FAST)
    yield from ((name.removeprefix("bessel_"), _rounded(_of_torch(getattr(torch.special, name)))) for name in _OF_TORCH)
    yield from ((name, _bits) for name in _CASTS)
    yield "fma", _towards("rn", _ARITHMETIC["fma"])
    for mode in ("rn", "rz", "rd", "ru"):
        yield from ((f"{name}_{mode}", _towards(mode, function)) for name, function in _ARITHMETIC.items())
        yield from ((f"{wide}2{whole}_{mode}", _to_whole(mode)) for wide in ("float", "double") for whole in _WHOLE)
        yield from ((f"{name}_{mode}", _towards(mode, np.positive)) for name in _ROUNDED)


FUNCTIONS: dict[str, Function] = {
    **dict(_named()),
    "abs": _exact(np.abs),
    "exp10": _rounded(lambda x: 10.0**x),
    "fast_exp10f": _rounded(lambda x: 10.0**x),
    "rsqrt": _rounded(lambda x: 1 / np.sqrt(x)),
    "rcbrt": _rounded(lambda x: 1 / np.cbrt(x)),
    "sinpi": _rounded(_half_turns(np.sin)),
    "cospi": _rounded(_half_turns(np.cos)),
    "cyl_bessel_i0": _rounded(_of_torch(torch.special.i0)),
    "cyl_bessel_i1": _rounded(_of_torch(torch.special.i1)),
    "lgamma": _rounded(_of_torch(torch.lgamma)),
    "tgamma": _rounded(_of_math(_gamma)),
    "normcdf": _rounded(lambda x: _of_torch(torch.special.erfc)(-x / np.sqrt(2)) / 2),
    "normcdfinv": _rounded(_of_torch(torch.special.ndtri)),
    "erfcinv": _rounded(lambda x: -_of_torch(torch.special.ndtri)(x / 2) / np.sqrt(2)),
    "saturatef": _rounded(lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1)),
    "atan2": _rounded(np.arctan2),
    "pow": _rounded(np.power),
    "fast_powf": _rounded(np.power),
    "fast_dividef": _rounded(np.divide),
    "remainder": _rounded(_of_math(math.remainder)),
    "rhypot": _rounded(lambda x, y: 1 / np.hypot(x, y)),
    **dict.fromkeys(("norm3d", "norm4d"), _rounded(lambda *xs: np.sqrt(sum(x * x for x in xs)))),
    **dict.fromkeys(("rnorm3d", "rnorm4d"), _rounded(lambda *xs: 1 / np.sqrt(sum(x * x for x in xs)))),
    "fdim": _rounded(lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0))),
    "nextafter": _exact(np.nextafter),
    "ldexp": _rounded(np.ldexp),
    "scalbn": _rounded(np.ldexp),
    "logb": _rounded(lambda x: np.where(np.isinf(x), np.inf, np.frexp(x)[1] - 1.0)),
    "ilogb": _exact(lambda x: np.frexp(x)[1] - 1),
    "nearbyint": _rounded(np.rint),
    "round": _rounded(_away_from_zero),
    "llrint": _exact(np.rint),
    "llround": _exact(_away_from_zero),
    "isnan": _exact(np.isnan),
    "isinf": _exact(np.isinf),
    "finitef": _exact(np.isfinite),
    "isfinited": _exact(np.isfinite),
    "signbit": _exact(np.signbit),
    **{name: _ints(ON_INTEGERS[name][1]) for name in ("popc", "clz", "brev")},
    "ffs": _ints(lambda bits, x: (x & -x).bit_length()),
    "byte_perm": _ints(ON_INTEGERS["prmt"][1]),
    "mulhi": _ints(ON_INTEGERS["mul.hi"][1], signed=True),
    "mul24": _exact(lambda x, y: _low_24(x) * _low_24(y)),
    "sad": _ints(lambda bits, x, y, z: abs(x - y) + z, signed=True),
    "hadd": _ints(lambda bits, x, y: x + y >> 1, signed=True),
    "rhadd": _ints(lambda bits, x, y: x + y + 1 >> 1, signed=True),
    "double2hiint": _exact(lambda x: x.view(np.int64) >> 32),
    "double2loint": lambda x, dtype: x.view(np.int64).astype(np.uint32).view(dtype),
    "hiloint2double": lambda high, low, dtype: ((high.astype(np.int64) << 32) | _unsigned(low).astype(np.int64)).view(dtype),
}


# The libraries (`libdevice`) in Triton's interpreter, which has none. A call still goes through the pretended vendor's own wrapper, so a
# function takes and returns the types that it has there.


def vendors() -> list[str]:
    """Return the vendors that Triton's language has a folder of."""
    return [info.name for info in pkgutil.iter_modules(extra.__path__) if info.ispkg]


def library(vendor: str = "") -> ModuleType | None:
    """Return a vendor's library, or the one that is no vendor's; None if there is none."""
    try:
        return importlib.import_module(".".join(filter(None, (extra.__name__, vendor, "libdevice"))))
    except ImportError:
        return None


def functions(module: ModuleType) -> list[str]:
    """Return the names of the public functions that a library defines itself."""
    public = {name: value for name, value in vars(module).items() if isinstance(value, FunctionType) and not name.startswith("_")}
    return [name for name, value in public.items() if value.__module__ in (module.__name__, "triton.language.core")]


class Calls:
    """Remembers which function of a library a kernel is in: the vendor's wrapper knows only the name of a symbol.

    `symbols` has the function of each symbol, for those that a package calls by itself.
    """

    name: ClassVar[str] = ""

    def __init__(self, libraries: Iterable[ModuleType]) -> None:
        texts = [text for library in libraries for text in re.split(r"^def ", inspect.getsource(library), flags=re.MULTILINE)[1:]]
        self.symbols = {symbol: text.partition("(")[0] for text in texts for symbol in re.findall(r"\(\s*[\"'](__\w+)[\"']", text)}

    def named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as kernels call it in the interpreter, with the marks of a built-in, which a kernel's hash looks for."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            outer, Calls.name = Calls.name, name
            try:
                return function(*args, **{**kwargs, "_semantic": kwargs.get("_semantic") or interpreter_semantic})
            finally:
                Calls.name = outer

        return call

    @classmethod
    def again(cls, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that finds, whenever it is called, the name that is known now."""
        name = cls.name

        def call(*args: Any) -> Any:
            outer, cls.name = cls.name, name
            try:
                return function(*args)
            finally:
                cls.name = outer

        return call

    def compute(self, library: str, path: str, symbol: str, args: list[Any], returned: Any, pure: bool) -> Any:
        """Stand in for the call of a symbol: the handles of the arguments have one shape and the types of the symbol."""
        name = self.name or self.symbols.get(symbol, symbol)
        if (function := FUNCTIONS.get(name)) is None:
            raise NotPretended(f"{name} of the device library has no counterpart in the interpreter")
        numbers = np.broadcast_arrays(*(arg.data for arg in args))
        with np.errstate(all="ignore"):
            result = function(*numbers, dtype=np.dtype(_get_np_dtype(returned.scalar)))
        return TensorHandle(result, returned.scalar)
