"""Launches and what a kernel's handle tells."""

from __future__ import annotations

import enum
import inspect
import math
import os
import textwrap
import types
import typing

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add_kernel, scale, scale_kernel

BLOCK: tl.constexpr = tl.constexpr(256)


@triton.jit
def global_kernel(x_ptr, out_ptr, n):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


LAUNCHES = {
    "a list": lambda x, y, out: add_kernel[[4]](x, y, out, 1000, BLOCK=256),
    "a list by a function": lambda x, y, out: add_kernel[lambda meta: [triton.cdiv(1000, meta["BLOCK"])]](x, y, out, 1000, BLOCK=256),
    "numpy's numbers": lambda x, y, out: add_kernel[(np.int64(4), np.int32(1), 1)](x, y, out, 1000, BLOCK=256),
    "by name": lambda x, y, out: add_kernel[(4,)](x_ptr=x, y_ptr=y, out_ptr=out, n=1000, BLOCK=256, num_warps=2, num_stages=1),
    "run": lambda x, y, out: add_kernel.run(x, y, out, 1000, grid=(4,), warmup=False, BLOCK=256),
}


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_ways_to_launch(launch, pair):
    out = torch.empty_like(pair[0])
    launch(*pair, out)
    torch.testing.assert_close(out, pair[0] + pair[1])


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 5)], ids=str)
def test_a_grid_by_a_function_of_the_constants(shape):
    x, y = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]), 1, 1)  # noqa: E731
    add_kernel[grid](x, y, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    torch.testing.assert_close(out, x + y)


@pytest.mark.parametrize(
    "grid",
    [
        lambda meta: (triton.cdiv(meta["x_ptr"].numel(), 64),),
        lambda meta: (triton.cdiv(meta["out_ptr"].shape[0], 64), 1),
        lambda meta: (math.ceil(meta["n"] / 64),),
        lambda meta: (max(1, -(-meta["n"] // 64)),),
        lambda meta: [triton.next_power_of_2(meta["n"]) // 64],
    ],
    ids=["elements", "shape", "ceiling", "division", "list"],
)
def test_a_grid_by_a_function_of_the_arguments(pair, grid):
    out = torch.empty_like(pair[0])
    scale_kernel[grid](pair[0], out, pair[0].numel(), 2.0, BLOCK=64)
    torch.testing.assert_close(out, pair[0] * 2)


@triton.jit(do_not_specialize=["n"])
def unspecialized_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def _metadata(grid, kernel, args):
    return {"name": f"{kernel.name}_{args['n']}", "bytes": 8 * args["n"]}


@triton.jit(launch_metadata=_metadata, repr=lambda specialization: "named_kernel")
def described_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def test_warmup(pair):
    x, y = pair
    out = torch.empty_like(x)
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, num_warps=4, grid=(1,))
    kernel._init_handles()
    assert kernel.n_regs > 0
    assert kernel.n_spills >= 0
    assert kernel.metadata.shared >= 0
    assert kernel.metadata.num_warps == 4
    add_kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=256, grid=(1,))
    handle = scale_kernel[(4,)](x, out, 1000, 2.0, BLOCK=256)
    print(handle.n_regs, handle.n_spills, handle.metadata.shared, handle.metadata.num_warps)
    torch.testing.assert_close(out, 2 * x)
    scale_kernel[(4,)](x, out, 1000, True, BLOCK=256)
    torch.testing.assert_close(out, x)


def test_occupancy_from_a_warmed_up_kernel(pair):
    x, y = pair
    out = torch.empty_like(x)
    properties = triton.runtime.driver.active.utils.get_device_properties(x.device.index)
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, num_warps=4, grid=(1,))
    kernel._init_handles()
    programs = properties["max_num_regs"] // (max(kernel.n_regs, 1) * properties["warpSize"] * 4)
    if kernel.metadata.shared:
        programs = min(programs, properties["max_shared_mem"] // kernel.metadata.shared)
    assert programs >= 1
    add_kernel[(min(properties["multiprocessor_count"] * programs, 4),)](x, y, out, 1000, BLOCK=256, num_warps=4)
    torch.testing.assert_close(out, x + y)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter generates no code")
def test_the_generated_code(pair):
    out = torch.empty_like(pair[0])
    handle = scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256)
    assert "ttir" in handle.asm
    assert ("ptx" in handle.asm) or ("amdgcn" in handle.asm)
    torch.testing.assert_close(out, 2 * pair[0])


@triton.jit
def checked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.device_assert(x == x, "not a number")
    tl.static_assert(BLOCK >= 16, "too small")
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def launch_global(x, out):
    global_kernel[(triton.cdiv(1000, BLOCK.value),)](x, out, 1000)


INCREMENTS = {
    "a global constant": launch_global,
    "metadata of a launch": lambda x, out: described_kernel[(4,)](x, out, 1000, BLOCK=256),
    "assertions of a kernel": lambda x, out: checked_kernel[(4,)](x, out, 1000, BLOCK=256),
}


@pytest.mark.parametrize("launch", INCREMENTS.values(), ids=INCREMENTS)
def test_ways_to_write_a_kernel(launch, pair):
    out = torch.empty_like(pair[0])
    launch(pair[0], out)
    torch.testing.assert_close(out, pair[0] + 1)
    for n in (1, 16, 300):
        x = pair[0][:n].clone()
        unspecialized_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        torch.testing.assert_close(out[:n], x + 1)


def test_helpers_of_tritons_host_side(pair):
    assert triton.cdiv(1000, 256) == 4
    assert triton.next_power_of_2(1000) == 1024
    assert isinstance(triton.__version__, str)
    assert tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 0)
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


# What host code gives to kernels beside tensors and numbers.


class Mode(enum.IntEnum):
    ADD = 0
    MUL = 1


class Strides(typing.NamedTuple):
    row: int
    column: int


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply_kernel(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, FUNCTION(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def mode_kernel(x_ptr, y_ptr, out_ptr, n, MODE: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if y_ptr is not None:
        y = tl.load(y_ptr + offsets, mask=mask)
        x = x + y if MODE == 0 else x * y
    if KIND == "relu":
        x = tl.maximum(x, 0)
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def tuple_kernel(x_ptr, out_ptr, shape, strides, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * strides[0] + columns * strides[1], mask=columns < shape[1])
    tl.store(out_ptr + row * shape[1] + columns, x, mask=columns < shape[1])


@triton.jit
def named_kernel(x_ptr, out_ptr, n, strides, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * strides.row + columns * strides.column, mask=columns < n)
    tl.store(out_ptr + row * n + columns, x, mask=columns < n)


@triton.jit
def cast_kernel(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask).to(DTYPE), mask=mask)


@triton.jit
def pointers_kernel(inputs, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros((BLOCK,), tl.float32)
    for index in tl.static_range(len(inputs)):
        total += tl.load(inputs[index] + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


@pytest.mark.parametrize("function", [relu, square], ids=["relu", "square"])
def test_a_function_as_a_constant(function, pair):
    x, _ = pair
    out = torch.empty_like(x)
    apply_kernel[(triton.cdiv(1000, 256),)](x, out, 1000, FUNCTION=function, BLOCK=256)
    torch.testing.assert_close(out, x.relu() if function is relu else x * x)


@pytest.mark.parametrize("mode", list(Mode))
def test_an_enumeration_as_a_constant(mode, pair):
    x, y = pair
    out = torch.empty_like(x)
    mode_kernel[(4,)](x, y, out, 1000, MODE=mode, KIND="relu", BLOCK=256)
    torch.testing.assert_close(out, (x + y if mode is Mode.ADD else x * y).relu())
    mode_kernel[(4,)](x, None, out, 1000, MODE=mode, KIND=None, BLOCK=256)
    torch.testing.assert_close(out, x)


def test_shapes_and_strides_as_tuples(device):
    x, out = torch.randn(40, 30, device=device).t(), torch.empty(30, 40, device=device)
    for shape in (x.shape, tuple(x.shape)):
        tuple_kernel[(30,)](x, out.zero_(), shape, x.stride(), BLOCK=64)
        torch.testing.assert_close(out, x)
    named_kernel[(30,)](x, out.zero_(), 40, Strides(*x.stride()), BLOCK=64)
    torch.testing.assert_close(out, x)


def test_a_tuple_of_tensors(device):
    many = tuple(torch.randn(100, device=device) for _ in range(3))
    out = torch.empty(100, device=device)
    pointers_kernel[(1,)](many, out, 100, BLOCK=128)
    torch.testing.assert_close(out, sum(many))


@pytest.mark.parametrize(("dtype", "named"), [(torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16), (torch.int32, tl.int32)])
def test_a_dtype_as_a_constant(dtype, named, pair):
    x, _ = pair
    out = torch.empty_like(x, dtype=dtype)
    cast_kernel[(4,)](x, out, 1000, named, BLOCK=256)
    torch.testing.assert_close(out, x.to(dtype))


def test_a_tensor_seen_as_another_dtype(device):
    x = torch.arange(-128, 128, dtype=torch.int8, device=device)
    out = torch.empty(256, dtype=torch.float16, device=device)
    cast_kernel[(1,)](triton.reinterpret(x, tl.float8e5), out, 256, tl.float16, BLOCK=256)
    torch.testing.assert_close(out, x.view(torch.float8_e5m2).to(torch.float16), equal_nan=True)


class Rows:
    """As FlagGems has it: some rows of a tensor, by their address, without a tensor of their own."""

    def __init__(self, tensor, first):
        self.tensor, self.first, self.dtype = tensor, first, tensor.dtype

    def data_ptr(self):
        return self.tensor.data_ptr() + self.first * self.tensor.stride(0) * self.tensor.element_size()


def test_an_object_with_an_address(device):
    x, out = torch.randn(8, 128, device=device), torch.zeros(8, 128, device=device)
    add_kernel[(4,)](Rows(x, 4), Rows(x, 0), Rows(out, 2), 512, BLOCK=128)
    torch.testing.assert_close(out[2:6], x[4:] + x[:4])
    assert not out[:2].any()


@triton.jit
def count_kernel(out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at.to(out_ptr.dtype.element_ty))


@triton.jit
def count_second_kernel(pair, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pair[1] + at, at)


def test_what_a_kernel_writes_through_another_dtype_or_a_tuple(device):
    """A tensor that the host fills with numbers has others afterwards."""
    x, y, z = (torch.tensor(np.zeros(16, np.int16), device=device) for _ in range(3))
    count_kernel[(1,)](triton.reinterpret(x, tl.uint16), BLOCK=16)
    assert (x.cpu().numpy() == np.arange(16)).all()
    count_second_kernel[(1,)]((y, z), BLOCK=16)
    assert (z.cpu().numpy() == np.arange(16)).all()
    count_kernel[(1,)](x, BLOCK=16)


# Tensor descriptors (TMA on cards that have it), and the memory that they need.


@triton.jit
def tile_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[ROWS, COLUMNS])
    result = tl.make_tensor_descriptor(out_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    result.store([row, column], source.load([row, column]) + 1)


def test_a_descriptor_made_in_the_kernel():
    if torch.version.cuda and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs TMA")

    def allocate(size, alignment, stream):
        return torch.empty(size, device="cuda", dtype=torch.int8)

    triton.set_allocator(allocate)
    x = torch.randn(32, 64, device="cuda")
    out = torch.empty_like(x)
    tile_kernel[(2, 2)](x, out, 32, 64, ROWS=16, COLUMNS=32)
    torch.testing.assert_close(out, x + 1)


@triton.jit
def tma_kernel(source, result, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    result.store([row, column], source.load([row, column]) + 1)


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.get_device_capability()[0] < 9, reason="needs TMA")
@pytest.mark.parametrize("reinterpreted", [False, True], ids=["as it is", "seen as another dtype"])
def test_a_descriptor_made_by_the_host(reinterpreted):
    from triton.tools.tensor_descriptor import TensorDescriptor

    def described(tensor):
        if reinterpreted:
            return TensorDescriptor(triton.reinterpret(tensor, tl.uint32), [32, 64], [64, 1], [16, 32])
        return TensorDescriptor.from_tensor(tensor, [16, 32])

    x = torch.randint(0, 1000, (32, 64), device="cuda", dtype=torch.int32) if reinterpreted else torch.randn(32, 64, device="cuda")
    out = torch.empty_like(x)
    tma_kernel[(2, 2)](described(x), described(out), ROWS=16, COLUMNS=32)
    torch.testing.assert_close(out, x + 1)


@triton.jit
def scratch_kernel(x_ptr, scratch_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0)
    tl.store(scratch_ptr + program, total)
    tl.atomic_add(out_ptr, total)


def test_a_workspace_made_for_each_call():
    x = torch.ones(1000, device="cuda")
    workspace = torch.empty(triton.cdiv(1000, 256), device=x.device, dtype=torch.float32)
    out = torch.zeros(1, device=x.device)
    scratch_kernel[(workspace.numel(),)](x, workspace, out, 1000, BLOCK=256)
    torch.testing.assert_close(workspace.sum(), out[0])


def test_pointers_of_several_tensors():
    tensors = [torch.full((256,), float(i), device="cuda") for i in range(3)]
    addresses = torch.tensor([tensor.data_ptr() for tensor in tensors], device="cuda", dtype=torch.int64)
    out = torch.empty(3, 256, device="cuda")
    gather_kernel[(3,)](addresses, out, BLOCK=256)
    torch.testing.assert_close(out, torch.stack(tensors))


@triton.jit
def gather_kernel(addresses_ptr, out_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    source = tl.load(addresses_ptr + program).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + program * BLOCK + offsets, tl.load(source + offsets))


# Host code that asks what a kernel is, and kernels that a package writes from the source of another one.


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


def test_what_a_kernel_is_its_parameters_and_its_source():
    assert isinstance(times, triton.JITFunction)
    assert isinstance(times, (triton.runtime.JITFunction, triton.runtime.autotuner.Autotuner))
    assert not callable(getattr(times, "no_such_attribute", None))
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


# Structs that kernels pass around: several values with a name, and functions of their own.

aggregate = getattr(tl.core, "_aggregate", None)
if aggregate is None:
    pytest.skip("this Triton has no structs", allow_module_level=True)


@aggregate
class Part:
    start: tl.tensor
    size: tl.constexpr

    @triton.constexpr_function
    def __init__(self, start, size):
        self.start = start
        self.size = tl.constexpr(size)

    @triton.jit
    def offsets(self):
        return self.start + tl.arange(0, self.size)


@triton.jit
def double_parts(x, n, BLOCK: tl.constexpr):
    part = Part(tl.program_id(0) * BLOCK, BLOCK)
    i = part.offsets()
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def test_a_struct_with_a_constant_and_a_function(device):
    x = torch.ones(100, device=device)
    double_parts[(2,)](x, 100, BLOCK=64)
    torch.testing.assert_close(x, torch.full_like(x, 2.0))
