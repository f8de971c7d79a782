"""Host code that asks what a kernel is, and kernels that a package writes from the source of another one."""

import inspect
import textwrap
import types

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def times(x, y, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if FUNCTION is not None:
        value = FUNCTION(value)
    tl.store(y + at, value * 2, mask=at < n)


@triton.jit
def plus_three(value):
    return value + 3


def test_what_a_kernel_is():
    assert isinstance(times, triton.JITFunction)
    assert isinstance(times, (triton.runtime.JITFunction, triton.runtime.autotuner.Autotuner))
    assert not callable(getattr(times, "no_such_attribute", None))


def test_its_parameters_and_its_source():
    assert [(param.name, param.is_constexpr) for param in times.params][-3:] == [("n", False), ("FUNCTION", True), ("BLOCK", True)]
    assert times.signature.parameters.keys() == dict.fromkeys(times.arg_names).keys()
    assert times.src.startswith("def times(")
    assert times.__name__ == times.fn.__name__ == "times"
    assert len(times.cache_key) > 32
    assert times.cache_key != plus_three.cache_key
    assert times.__globals__ is globals()
    assert (times.__module__, times.__qualname__) == (__name__, "times")


def written_with(function):
    """As triton_kernels does it: the same kernel, with a function in its source instead of a parameter."""
    source = textwrap.dedent(inspect.getsource(times.fn))
    source = source[source.index("def ") :].replace("FUNCTION: tl.constexpr, ", "")
    head, body = source.split("\n", 1)
    source = f"{head}\n    FUNCTION: tl.constexpr = {function.__name__ if function else None}\n{body}"

    def empty():
        pass

    names = {**globals(), "plus_three": plus_three}
    made = types.FunctionType(empty.__code__, names)
    exec(f"{source}\nmade_by_source = times", names)
    made.__signature__ = inspect.signature(names["made_by_source"])
    made.__module__, made.__name__ = __name__, "times"
    parameters = list(inspect.signature(triton.JITFunction.__init__).parameters)[2:]
    kernel = type(times)(made, **{name: getattr(times, name) for name in parameters if hasattr(times, name)})
    kernel._unsafe_update_src(source)
    return kernel


@pytest.mark.parametrize("function", [None, plus_three])
def test_a_kernel_with_a_source_of_its_own(function):
    if not hasattr(triton.JITFunction, "_unsafe_update_src"):
        pytest.skip("this Triton cannot change a source")
    x = torch.randn(50, device="cuda")
    y = torch.empty_like(x)
    written_with(function)[(1,)](x, y, 50, BLOCK=64)
    torch.testing.assert_close(y, (x + 3 if function else x) * 2)


NOTHING = tl.constexpr(None)


@triton.jit
def without(x, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if NOTHING is None:
        value += 1
    if SCALE is not NOTHING:
        value *= SCALE
    tl.store(x + at, value, mask=at < n)


@pytest.mark.parametrize("scale", [None, 2])
def test_a_constant_that_is_none(scale):
    x = torch.zeros(50, device="cuda")
    without[(1,)](x, 50, scale, BLOCK=64)
    torch.testing.assert_close(x, torch.full_like(x, scale or 1))


@triton.jit
def spread(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    tl.store(x + at, plus_three(total), mask=at < n)


def test_what_a_launched_kernel_was_compiled_to():
    x = torch.ones(60, device="cuda")
    for kernel in (spread[(1,)](x, 60, BLOCK=64, num_warps=2), spread.warmup(torch.float16, 60, BLOCK=64, num_warps=2, grid=(1,))):
        assert "tt.reduce" in kernel.asm["ttir"]
        assert '"ttg.num-warps" = 2' in kernel.asm["ttgir"]
        assert {"llir", "ptx"} <= kernel.asm.keys() or {"llir", "amdgcn"} <= kernel.asm.keys()
    assert (x == 63).all()
