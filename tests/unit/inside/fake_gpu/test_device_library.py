"""The vendors' device libraries in Triton's interpreter, against Python's own mathematics."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction

import command
import pytest

from warpwave.config.targets import load_targets
from warpwave.records import to_json

np = pytest.importorskip("numpy")
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.device_library import FUNCTIONS, functions, library

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
MISSING = {"jn", "yn", "rcp64h"}
LIBRARIES = ["cuda", "hip", ""]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 3.7e4, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("vendor", LIBRARIES)
def test_every_function_of_a_library_is_known(vendor):
    """A new release of Triton may bring more: this names them."""
    assert set(functions(library(vendor))) - set(FUNCTIONS) <= MISSING


def _guarded(function):
    def call(*args):
        try:
            return function(*args)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None  # Python refuses what IEEE 754 defines; the edge tests below have those

    return call


UNARY = {
    **{
        name: getattr(math, name)
        for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "exp", "expm1"]
    },
    **{name: getattr(math, name) for name in ["log", "log2", "log10", "log1p", "sqrt", "erf", "erfc", "lgamma", "ceil", "floor", "trunc"]},
    "isnan": math.isnan,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "fast_expf": math.exp,
    "fast_tanhf": math.tanh,
    "tgamma": math.gamma,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "rint": round,
    "nearbyint": round,
    "abs": abs,
    "sinpi": lambda x: math.sin(math.pi * math.fmod(x, 2)),
    "cospi": lambda x: math.cos(math.pi * math.fmod(x, 2)),
    "normcdf": lambda x: math.erfc(-x / math.sqrt(2)) / 2,
    "erfcx": lambda x: math.exp(x * x) * math.erfc(x),
    "saturatef": lambda x: min(max(x, 0.0), 1.0),
    "round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
    "logb": lambda x: math.frexp(x)[1] - 1,
    "ilogb": lambda x: math.frexp(x)[1] - 1,
    "isinf": math.isinf,
    "finitef": math.isfinite,
    "signbit": lambda x: math.copysign(1, x) < 0,
}
BINARY = {
    "pow": math.pow,
    "fast_powf": math.pow,
    "atan2": math.atan2,
    "hypot": math.hypot,
    "fmod": math.fmod,
    "remainder": math.remainder,
    "copysign": math.copysign,
    "fast_dividef": lambda x, y: x / y,
    "fdim": lambda x, y: max(x - y, 0.0),
    "rhypot": lambda x, y: 1 / math.hypot(x, y),
}


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_floats_agree_with_python(name):
    """fp32, within a unit of the last place or so of the exact result."""
    draws = np.random.default_rng(1)
    several = [np.concatenate([draws.normal(0, scale, 200) for scale in (0.3, 3.0)]).astype(np.float32) for _ in range(2)]
    reference, args = (UNARY[name], several[:1]) if name in UNARY else (BINARY[name], several)
    whole = name in ("isnan", "isinf", "finitef", "signbit", "ilogb")
    found = FUNCTIONS[name](*args, dtype=np.dtype(np.int32 if whole else np.float32))
    expected = [_guarded(reference)(*map(float, row)) for row in zip(*args, strict=True)]
    checked = [(mine, np.float32(theirs)) for mine, theirs in zip(found.tolist(), expected, strict=True) if theirs is not None]

    assert len(checked) > 50
    for mine, theirs in checked:
        assert mine == pytest.approx(theirs, rel=2e-6, abs=1e-37, nan_ok=True)


def test_zeros_infinities_and_no_numbers():
    """What IEEE 754 and C say, where Python raises."""
    f32 = np.dtype(np.float32)
    edges = np.array(EDGES, np.float32)
    for name in ("exp", "log", "tanh", "rsqrt", "ceil"):
        assert math.isnan(FUNCTIONS[name](edges, dtype=f32)[-1])
    assert FUNCTIONS["exp"](edges, dtype=f32)[-3:-1].tolist() == [math.inf, 0]
    assert FUNCTIONS["log"](edges, dtype=f32)[:2].tolist() == [-math.inf, -math.inf]
    assert FUNCTIONS["rsqrt"](edges, dtype=f32)[0] == math.inf
    assert FUNCTIONS["round"](edges, dtype=f32).tolist()[4:9] == [1.0, -1.0, 2.0, 3.0, -3.0]
    assert FUNCTIONS["rint"](edges, dtype=f32).tolist()[4:9] == [0.0, -0.0, 2.0, 2.0, -2.0]
    assert FUNCTIONS["saturatef"](edges, dtype=f32)[-3:].tolist() == [1, 0, 0]
    assert FUNCTIONS["tgamma"](edges, dtype=f32)[:2].tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize(("name", "exact"), [("add", lambda x, y: x + y), ("mul", lambda x, y: x * y), ("div", lambda x, y: x / y)])
def test_rounding_modes_against_fractions(name, exact, mode):
    """Each result is the neighbour of the exact fraction that the mode asks for."""
    draws = np.random.default_rng(2)
    x, y = (draws.normal(size=300).astype(np.float32) for _ in range(2))
    found = FUNCTIONS[f"{name}_{mode}"](x, y, dtype=np.dtype(np.float32))
    for a, b, result in zip(x.tolist(), y.tolist(), found, strict=True):
        true, got = exact(Fraction(a), Fraction(b)), Fraction(float(result))
        below = Fraction(float(np.nextafter(result, np.float32(-np.inf))))
        above = Fraction(float(np.nextafter(result, np.float32(np.inf))))
        if mode == "rn":
            assert abs(got - true) <= min(abs(below - true), abs(above - true))
        elif mode == "rd" or (mode == "rz" and true > 0):
            assert got <= true < above
        else:
            assert below < true <= got


def test_conversions_and_casts():
    """Whole numbers saturate, and a cast keeps the bits."""
    x = np.array([1.5, -1.5, 2.5, 3e9, -3e9, math.nan], np.float32)
    i32, u32 = np.dtype(np.int32), np.dtype(np.uint32)
    assert FUNCTIONS["float2int_rn"](x, dtype=i32).tolist() == [2, -2, 2, 2**31 - 1, -(2**31), 0]
    assert FUNCTIONS["float2int_rz"](x, dtype=i32).tolist()[:3] == [1, -1, 2]
    assert FUNCTIONS["float2int_rd"](x, dtype=i32).tolist()[:3] == [1, -2, 2]
    assert FUNCTIONS["float2int_ru"](x, dtype=i32).tolist()[:3] == [2, -1, 3]
    assert FUNCTIONS["float2uint_rz"](x, dtype=u32).tolist() == [1, 0, 2, 3_000_000_000, 0, 0]
    assert FUNCTIONS["float_as_int"](np.array([1.0], np.float32), dtype=i32).tolist() == [0x3F800000]
    assert FUNCTIONS["int_as_float"](np.array([0x3F800000], np.int32), dtype=np.dtype(np.float32)).tolist() == [1.0]
    pi = np.array([math.pi])
    high, low = FUNCTIONS["double2hiint"](pi, dtype=i32), FUNCTIONS["double2loint"](pi, dtype=i32)
    assert FUNCTIONS["hiloint2double"](high, low, dtype=np.dtype(np.float64)).tolist() == [math.pi]
    assert FUNCTIONS["int2float_rz"](np.array([2**24 + 3], np.int32), dtype=np.dtype(np.float32)).tolist() == [2.0**24 + 2]


def test_whole_numbers():
    """Bits, high products and averages of signed 32-bit numbers."""
    x, y = np.array([0, 1, -1, 0x12345678, -(2**31)], np.int32), np.array([5, -3, -1, 0x7ABCDEF0, 2], np.int32)
    i32 = np.dtype(np.int32)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert FUNCTIONS["popc"](x, dtype=i32).tolist() == [(n & 0xFFFFFFFF).bit_count() for n in x.tolist()]
    assert FUNCTIONS["clz"](x, dtype=i32).tolist() == [32 - (n & 0xFFFFFFFF).bit_length() for n in x.tolist()]
    assert FUNCTIONS["ffs"](x, dtype=i32).tolist() == [0, 1, 1, 4, 32]
    assert FUNCTIONS["brev"](x, dtype=i32).tolist() == [0, -(2**31), -1, 0x1E6A2C48, 1]
    assert FUNCTIONS["mulhi"](x, y, dtype=i32).tolist() == [a * b >> 32 for a, b in pairs]
    assert FUNCTIONS["hadd"](x, y, dtype=i32).tolist() == [(a + b) >> 1 for a, b in pairs]
    assert FUNCTIONS["rhadd"](x, y, dtype=i32).tolist() == [(a + b + 1) >> 1 for a, b in pairs]
    assert FUNCTIONS["mul24"](np.array([0xFFFFFF], np.int32), np.array([3], np.int32), dtype=i32).tolist() == [-3]
    a, b = np.array([0x44332211], np.int32), np.array([0x08776655 - 2**32 + 2**32], np.int32)
    assert FUNCTIONS["byte_perm"](a, b, np.array([0x7510], np.int32), dtype=i32).tolist() == [0x08662211]
    assert FUNCTIONS["byte_perm"](a, b, np.array([0x000F], np.int32), dtype=i32).tolist() == [0x11111100]


KERNELS = """
import json, sys, torch, triton, triton.language as tl
from warpwave.inside.fake_gpu.card import interpreted_device
from warpwave.records import Architecture, from_json
interpreted_device(from_json(Architecture, sys.argv[1]), ["cuda"])
import importlib
from triton.language.extra import libdevice
from triton.language.extra.libdevice import erf
vendors = importlib.import_module(f"triton.language.extra.{sys.argv[2]}.libdevice")

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, libdevice.tanh(v) + erf(v), mask=i < n)
    tl.store(y + n + i, tl.extra.libdevice.pow(v, 2.0) + vendors.exp(v), mask=i < n)
    tl.store(y + 2 * n + i, libdevice.isnan(v).to(tl.float32), mask=i < n)

SYMBOL = {"cuda": "__nv_powf", "hip": "__ocml_pow_f32"}[sys.argv[2]]

@tl.core.extern
def own_pow(x, y, _semantic=None):
    fp32 = tl.core.dtype("fp32")
    return tl.core.extern_elementwise("", "", [x, y], {(fp32, fp32): (SYMBOL, fp32)}, is_pure=True, _semantic=_semantic)

@triton.jit
def with_its_own_library(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, own_pow(tl.load(x + i), tl.load(x + i)))

@triton.jit
def halves(x):
    tl.store(x, libdevice.tanh(tl.load(x)))

@triton.jit
def unknown(x):
    tl.store(x, libdevice.jn(2, tl.load(x)))

x = torch.randn(100, device="cuda")
x[7] = float("nan")
y = torch.empty(300, device="cuda")
kernel[(1,)](x, y, 100, BLOCK=128)
torch.testing.assert_close(y, torch.cat([x.tanh() + x.erf(), x**2 + x.exp(), x.isnan().float()]), equal_nan=True)
base = torch.rand(64, device="cuda")
with_its_own_library[(1,)](base, y, BLOCK=64)
torch.testing.assert_close(y[:64], base**base)
said = []
for wrong, value in ((halves, x.half()), (unknown, x)):
    try:
        wrong[(1,)](value)
        said.append("nothing")
    except Exception as error:
        said.append(repr(error))
print(json.dumps(said))
"""


@pytest.mark.parametrize("name", ["sm_90", "gfx942"])
def test_kernels_call_the_library_of_the_pretended_vendor(tmp_path, name):
    """By the name without a vendor, by the vendor's, and by a package's own copy. What the vendor's lacks is refused, as in compiling."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    card = next(card for card in load_targets()["cpu"].architectures if card.name == name)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = command.python(tmp_path / "kernels.py", to_json(card), card.backend, env=environment)

    assert done.returncode == 0, done.stderr
    halves, unknown = json.loads(done.stdout.splitlines()[-1])
    assert "KeyError" in halves
    assert "NotPretended" in unknown if name == "sm_90" else "has no attribute" in unknown
