"""Triton's language in its interpreter: what kernels may write and it lacks, or means otherwise than the compiler does."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, cast

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.core import _unwrap_if_constexpr
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterError, TensorHandle, _get_np_dtype, interpreter_semantic
from triton.runtime.jit import KernelParam

from warpwave.inside.fake_gpu.arithmetic import E2M1, Array, narrowed, widened
from warpwave.inside.process.outcomes import NotPretended

# Structs of kernels (`_aggregate`), which the interpreter cannot make: constants are numbers there, and methods are not bound.


def aggregate(make: Callable[[type], Any]) -> Callable[[type], Any]:
    """Return `_aggregate`: the type has constants as the class names them, and its methods."""
    return lambda plain: _interpreted(plain, make(plain))


def _interpreted(plain: type, made: Any) -> Any:
    constexpr = cast(type, tl.constexpr)
    fields = getattr(made, "__annotations__", None) or plain.__annotations__
    assign = made.__setattr__

    def set_field(instance: Any, name: str, value: Any) -> None:
        is_constant = fields.get(name) is constexpr and not isinstance(value, constexpr)
        assign(instance, name, constexpr(value) if is_constant else value)

    made.__setattr__ = set_field
    for name in dir(plain):
        member = getattr(plain, name, None)
        if isinstance(member, InterpretedFunction):
            # A function binds to an instance; the kernel itself does not.
            setattr(made, name, lambda *args, member=member, **kwargs: member(*args, **kwargs))
    return made


# Arguments whose type a kernel names: `n: tl.int64`, `scale: tl.float16`. The compiler takes the type, the interpreter looks at the value.
# An offset from `n * n` wraps around in 32 bits, if the value decides: then a kernel that is right on a card is wrong.

_TYPES = "_warpwave_types"  # of the rewritten function, which has not the annotations that a decorator gave


def note_types(kernel: Any) -> None:
    """Remember which types a kernel names for its arguments that are no pointers, and its signature: each launch asks for it often."""
    function = kernel.rewrite()
    if not hasattr(function, _TYPES):
        function.__signature__ = inspect.signature(function)
        params = [KernelParam(0, param, False, False) for param in inspect.signature(kernel.fn).parameters.values()]
        named = {param.name: param.annotation_type for param in params if param.annotation_type}
        setattr(function, _TYPES, {name: tl.str_to_ty(kind, None) for name, kind in named.items() if not kind.startswith("*")})


def typed(executor: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a launch's arguments, with each number of the host in the type that the kernel names for it."""
    types: dict[str, Any] = getattr(executor.fn, _TYPES, {})
    if not types:
        return args, kwargs
    convert: Callable[[str, Any], Any] = functools.partial(_typed, types)
    return tuple(map(convert, executor.arg_names, args)), {name: convert(name, value) for name, value in kwargs.items()}


def _typed(types: dict[str, Any], name: str, value: Any) -> Any:
    dtype = types.get(name)
    if dtype is None or not isinstance(value, (bool, int, float)) or (isinstance(value, float) and not dtype.is_floating()):
        return value
    wide = tl.float64 if dtype.is_floating() else dtype
    number = np.array([value]).astype(_get_np_dtype(wide))
    return interpreter_semantic.cast(tl.tensor(TensorHandle(number, wide), wide), dtype)


# Triton describes the result of each operation anew: its type, and its shape as a tuple of constants. In the interpreter that takes longer
# than the operation. Equal types share what describes them.

_SHARED = "_warpwave_of_tensors"
_of_blocks: dict[tuple[Any, ...], dict[str, Any]] = {}
_of_numbers: dict[str, Any] = {}  # not kept by their types: the compiler copies `tl.int1` and its like with all that they have


def described_once(describe: Callable[..., None], block: Any, element_ty: Any, shape: Any) -> None:
    """Make a type of blocks."""
    key = (getattr(element_ty, "name", None), *map(_unwrap_if_constexpr, shape))
    if key[0] is None or not all(type(size) is int for size in key[1:]):
        describe(block, element_ty, shape)
    elif (known := _of_blocks.get(key)) is None:
        describe(block, element_ty, shape)
        _of_blocks[key] = vars(block) | {_SHARED: {}}
    else:
        vars(block).update(known, element_ty=element_ty)


def shaped_once(make: Callable[..., None], tensor: Any, handle: Any, type: Any) -> None:
    """Make a tensor of a type. Triton passes `type` by its name."""
    shared = vars(type).setdefault(_SHARED, {}) if type.is_block() else _of_numbers
    if shared:
        vars(tensor).update(shared, handle=handle, type=type, dtype=type.scalar)
        return
    make(tensor, handle, type)
    shared.update((name, value) for name, value in vars(tensor).items() if name not in ("handle", "type", "dtype"))


_of_arrays: dict[str, np.dtype[Any]] = {}


def array_type_once(find: Callable[[Any], Any], dtype: Any) -> Any:
    """Return NumPy's type for one of the language: Triton makes a table of all types each time."""
    name = dtype.scalar.name
    if name not in _of_arrays:
        _of_arrays[name] = find(dtype)
    return _of_arrays[name]


def of_one_shape(broadcast: Callable[..., Any], semantic: Any, left: Any, right: Any) -> Any:
    """Broadcast two operands: blocks of one shape stay as they are."""
    if left.type.is_block() and right.type.is_block() and [*left.type.shape] == [*right.type.shape]:
        return left, right
    return broadcast(semantic, left, right)


# What Triton's interpreter loses when it rewrites a kernel: variables of the function around it, and how a constant is annotated.


def annotated(make: Callable[..., Any], rewriter: Any, tree: ast.Module) -> Any:
    """Annotate constants as the interpreter knows them: `tl.constexpr`. The compiler also takes the class under other names."""
    made = make(rewriter, tree)
    for name, kind in {**made.__annotations__, **rewriter.fn.__annotations__}.items():
        if kind is tl.constexpr or (isinstance(kind, str) and "constexpr" in kind):
            made.__annotations__[name] = "constexpr"
    return made


def with_cells(make: Callable[..., Any], rewriter: Any, tree: ast.Module) -> Any:
    """Give a rewritten kernel the variables of the function around it."""
    own = rewriter.fn
    names = own.__code__.co_freevars
    if not names:
        return make(rewriter, tree)
    outer = ast.parse(f"def made({', '.join(names)}): pass")
    outer.body[0].body = [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]  # type: ignore[attr-defined]
    # The kernel's globals, with the names that rewritten code needs: Triton adds them when it makes a function.
    make(rewriter, ast.parse(f"def {own.__name__}(): pass"))
    plain = own.__globals__
    code = _inner(_inner(compile(ast.fix_missing_locations(outer), rewriter.filename, "exec")))
    cells = dict(zip(names, own.__closure__ or (), strict=True))
    made = FunctionType(code, plain, own.__name__, own.__defaults__, tuple(cells[name] for name in code.co_freevars))
    made.__kwdefaults__, made.__annotations__ = own.__kwdefaults__, dict(own.__annotations__)
    return made


def _inner(code: CodeType) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


# How the names in a kernel find the interpreter's language: `tl.load` means something else while a kernel runs.
#
# Triton's interpreter replaces the functions of `triton.language` before a launch, and again before each call of a function from a kernel.
# That costs more than most calls. It overlooks names of a package's own, such as `gather = tl.gather`.

_BUILTIN, _MISSING = tl.core.TRITON_BUILTIN, getattr(interpreter, "_MISSING", None)
_LANGUAGE = "_warpwave_language"


class Modules:
    """The modules that hold kernels: which parts of the language they name, and what else they call its functions."""

    def __init__(self) -> None:
        self.functions = {
            id(value): (owner, name)
            for owner in (tl.core, tl.math, tl)
            for name, value in vars(owner).items()
            if getattr(value, _BUILTIN, False)
        }
        self.seen: dict[int, tuple[dict[str, Any], int, tuple[Any, ...]]] = {}
        self.replaced: dict[tuple[Any, ...], _Replaced] = {}  # by the languages that a module names

    def forwarding(self, patch: Callable[[Any], Any], function: Any) -> Any:
        """Replace the language for a function; forward the names of its module before.

        The interpreter looks for the language among a kernel's globals. A module may import it elsewhere: as `triton.language`, which needs
        no name of its own, or in the function that makes the kernel.

        What is replaced is the same for each launch, so it is remembered: the interpreter would look through the whole language again. If
        something else is there than the last time, it does: a package has put it there, or a kernel is launched by another one.
        """
        languages = self._languages(function.__globals__)
        if not languages:
            function.__globals__[_LANGUAGE] = tl
            languages = (tl,)
        known = self.replaced.get(languages)
        if known and known.holds():
            return known.again()
        is_plain = all(getattr(language.load, _BUILTIN, False) for language in languages)
        scope = patch(function)
        if is_plain and hasattr(scope, "_changes"):
            self.replaced[languages] = _Replaced(scope)
        return scope

    def calling(self, call: Callable[..., Any], called: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function from a kernel, without replacing again what is replaced."""
        languages = self._languages(called.fn.__globals__)
        if not languages or any(getattr(language.load, _BUILTIN, False) for language in languages):
            return call(called, *args, **kwargs)
        try:
            return called.rewrite()(*args, **kwargs)
        except Exception as error:
            raise InterpreterError(repr(error)) from error

    def _languages(self, module: dict[str, Any]) -> tuple[Any, ...]:
        """Return which of the language's two modules a module names. If it is new, or has grown, forward its other names first."""
        known = self.seen.get(id(module))
        if known is not None and known[1] == len(module):
            return known[2]
        if not str(module.get("__name__")).startswith("triton."):
            for name, value in list(module.items()):
                if found := self.functions.get(id(value)):
                    module[name] = _forwarded(*found)
        languages = tuple(language for language in (tl, tl.core) if any(value is language for value in module.values()))
        self.seen[id(module)] = (module, len(module), languages)
        return languages


class _Replaced:
    """What one launch has replaced in the language."""

    def __init__(self, scope: Any) -> None:
        self._type, first = type(scope), dict[tuple[int, str], tuple[Any, str, Any]]()
        for owner, name, before in scope._changes:
            first.setdefault((id(owner), name), (owner, name, before))
        self._changes = [*first.values()]
        self._members = [(vars(owner), name, before) for owner, name, before in self._changes]
        self._now = [(owner, name, vars(owner)[name]) for owner, name, _ in self._changes]
        sizes = {id(owner): [vars(owner), len(vars(owner))] for owner, *_ in self._changes}
        for owner, _, before in self._changes:
            sizes[id(owner)][1] -= before is _MISSING
        self._sizes = [*sizes.values()]

    def holds(self) -> bool:
        """Whether all that was replaced is there again, and nothing else was added."""
        return all(members.get(name, _MISSING) is before for members, name, before in self._members) and all(
            len(members) == size for members, size in self._sizes
        )

    def again(self) -> Any:
        """Replace it, and return what restores it."""
        for owner, name, value in self._now:
            setattr(owner, name, value)
        scope = self._type()
        scope._changes = self._changes[:]
        return scope


def _forwarded(owner: Any, name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(owner, name))  # the compiler, which makes a launch's first code, takes it for Triton's own
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(owner, name)(*args, **kwargs)

    return call


# Operations of the language that Triton's interpreter lacks: reductions through descriptors, and functions of single elements.


def reduce_in_memory(builder: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> None:
    """Combine a block with what a descriptor's memory holds, as one atomic operation for each element."""
    name = str(kind).rpartition(".")[2]
    dtype = value.dtype.scalar
    if dtype.is_floating():
        if name != "ADD":
            raise NotPretended(f"the interpreter has no atomic {name.lower()} of floats through a descriptor")
        name = "FADD"
    elif name in ("MIN", "MAX") and not dtype.is_int_signed():
        name = f"U{name}"
    pointers, mask = descriptor.materialize_pointers(offsets)
    builder.create_atomic_rmw(getattr(ir.ATOMIC_OP, name), pointers, value, mask, ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU)


def map_elementwise(function: Callable[..., Any], *args: Any, pack: Any = 1) -> Any:
    """Call a function with `pack` elements of each tensor at a time; its branches depend on them."""
    pack = int(getattr(pack, "value", pack))
    tensors = interpreter_semantic.broadcast_tensors(*map(interpreter_semantic.to_tensor, args))
    shape, size = tensors[0].shape, tensors[0].handle.data.size
    calls = []
    for first in range(0, size, pack):
        places = range(first, first + pack)
        elements = ((tensor.handle.data.reshape(-1)[place : place + 1], tensor.dtype.scalar) for tensor in tensors for place in places)
        calls.append(_tensors(function(*(tl.tensor(TensorHandle(data, dtype), dtype) for data, dtype in elements))))
    is_single = isinstance(calls[0], tl.tensor)
    results = []
    for place in range(1 if is_single else len(calls[0]) // pack):
        parts = [(call,) if is_single else tuple(call)[place * pack : (place + 1) * pack] for call in calls]
        dtype = parts[0][0].dtype
        data = np.concatenate([np.ravel(part.handle.data) for some in parts for part in some]).reshape([int(n) for n in shape])
        results.append(tl.tensor(TensorHandle(data, dtype.scalar), tensors[0].type.with_element_ty(dtype.scalar)))
    return results[0] if is_single else tuple(results)


def _tensors(result: Any) -> Any:
    """Return what a function returned as tensors: it may return constants."""
    return [*map(_tensors, result)] if isinstance(result, (list, tuple, tl.tuple)) else interpreter_semantic.to_tensor(result)


# Python's `and`, `or`, `not`, `min` and `max` in kernels: the compiler works on tensors with them, element by element. And `.value`.
#
# Python's own return one of their operands, or a single truth. Triton's interpreter takes each block of more than one element for true, so
# `mask and valid` would be `valid`; and `min(BLOCKS, n)` of a constant and a tensor a number, which has no `to`.
#
# To the compiler, each argument of a function that is no tensor is a `tl.constexpr`, whose `value` a function may ask for. In the
# interpreter it is what the kernel passed: a number or a `tl.dtype`.

NAME = "_warpwave"  # of this module in rewritten kernels: the interpreter lends its own names to them
_OF_THE_LANGUAGE = ((builtins.min, "minimum"), (builtins.max, "maximum"))


def calling(transformer: ast.NodeTransformer, node: ast.Call) -> ast.AST:
    """Make `min(…)` a call of `meant(min)(…)`: a module may have a `min` of its own."""
    transformer.generic_visit(node)
    if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        node.func = _called_for(node.func, meant, node.func)
    return ast.fix_missing_locations(node)


def joining(transformer: ast.NodeTransformer, node: ast.BoolOp) -> ast.AST:
    """Make `a and b` a call with functions of no arguments: a constant that decides leaves the rest out. A name that is assigned within
    would stay in its function, so such an expression remains Python's.
    """
    transformer.generic_visit(node)
    if any(isinstance(part, ast.NamedExpr) for part in ast.walk(node)):
        return node
    decides = ast.Constant(value=isinstance(node.op, ast.Or))
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return _called_for(node, joined, decides, *(ast.Lambda(args=nothing, body=value) for value in node.values))


def negating(transformer: ast.NodeTransformer, node: ast.UnaryOp) -> ast.AST:
    """Make `not a` a call."""
    transformer.generic_visit(node)
    return _called_for(node, negated, node.operand) if isinstance(node.op, ast.Not) else node


def asking(transformer: ast.NodeTransformer, node: ast.Attribute) -> ast.AST:
    """Make `a.value` a call."""
    transformer.generic_visit(node)
    return _called_for(node, value_of, node.value) if node.attr == "value" and isinstance(node.ctx, ast.Load) else node


def _called_for(node: ast.expr, function: Callable[..., Any], *args: ast.expr) -> ast.Call:
    """Return a call of a function of this module in place of an expression."""
    named = ast.Attribute(value=ast.Name(id=NAME, ctx=ast.Load()), attr=function.__name__, ctx=ast.Load())
    return ast.fix_missing_locations(ast.copy_location(ast.Call(func=named, args=list(args), keywords=[]), node))


def meant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what the compiler would call."""
    name = next((name for own, name in _OF_THE_LANGUAGE if function is own), "")
    return functools.partial(_compared, function, name) if name else function


def _compared(function: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    args = tuple(_unwrap_if_constexpr(each) for each in args)
    if len(args) < 2 or not any(isinstance(each, tl.core.base_value) for each in args):
        return function(*args, **options)  # of constants, it is a constant
    compare = functools.partial(getattr(tl, name), **options)
    return functools.reduce(compare, args)


def joined(decides: bool, *values: Callable[[], Any]) -> Any:
    """Join values as the compiler does: by `or` if `decides` is True, by `and` if it is False.

    All tensors are computed and combined. A constant that equals `decides` is the result, and what follows it is not computed.
    """
    join = interpreter_semantic.or_ if decides else interpreter_semantic.and_
    tensors: list[Any] = []
    value: Any = None
    for compute in values:
        value = compute()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is decides:
            return value
    return functools.reduce(join, map(_truth, tensors)) if len(tensors) > 1 else tensors[0] if tensors else value


def negated(value: Any) -> Any:
    """Negate a value as the compiler does."""
    return interpreter_semantic.not_(_truth(value)) if isinstance(value, tl.tensor) else not value


def value_of(held: Any) -> Any:
    """Return the value of a constant, which is the constant itself where the interpreter passes it as it is."""
    return held if isinstance(held, (bool, int, float, str, tuple, tl.dtype)) and not hasattr(held, "value") else held.value


def _truth(value: Any) -> Any:
    """Return a tensor of truths. The compiler takes no others; a number that is 1 at a launch is a constant to it, and here a tensor."""
    return value if value.type.scalar.is_int1() else interpreter_semantic.not_equal(value, 0)


# `tl.dot_scaled` in Triton's interpreter: releases before 3.8 have none, and later ones round away the smallest numbers of fp8.
#
# Elements and scales are converted to fp32, which is exact, and so are their products as long as they are in the range of fp32.
# The formats are those of the OCP's Microscaling specification: a scale is a power of two (e8m0), or a number in e4m3.

_NARROW = (tl.bfloat16, tl.float8e5, tl.float8e4nv)
E8M0 = np.append(np.exp2(np.arange(-127.0, 128)), np.nan).astype(np.float32)  # by the byte, which stands for a power of two


def with_constant_formats(dot_scaled: Callable[..., Any], semantic: Any, *args: Any) -> Any:
    """Call the older releases' function, which asks constants of the compiler for the names of the formats."""
    return dot_scaled(semantic, *(tl.constexpr(value) if isinstance(value, str) else value for value in args))


def dot_scaled(
    builder: Any,
    left: Any,
    left_scale: Any,
    left_format: Any,
    right: Any,
    right_scale: Any,
    right_format: Any,
    fast_math: bool,
    left_k_pack: bool,
    right_k_pack: bool,
    sum_before: Any,
) -> Any:
    """Return `sum_before` plus the product of `left` (…, M, K) and `right` (…, K, N), each element times the scale of its group along K.

    Two elements of e2m1 are in a byte: neighbours along K if `…_k_pack`, else along M or N. `right_scale` is (…, N, groups).
    """
    one = _scaled(_elements(left, left_format, -1 if left_k_pack else -2), left_scale)
    other = _elements(right, right_format, -2 if right_k_pack else -1)
    other = np.swapaxes(_scaled(np.swapaxes(other, -1, -2), right_scale), -1, -2)
    return type(sum_before)(np.matmul(one, other) + sum_before.data, sum_before.dtype)


def _elements(handle: Any, format_: Any, packed_axis: int) -> Array:
    if str(format_).endswith("E2M1"):
        data = np.moveaxis(handle.data.view(np.uint8), packed_axis, -1)
        pairs = np.stack([E2M1[data & 15], E2M1[data >> 4]], axis=-1)
        return np.moveaxis(pairs.reshape(*data.shape[:-1], -1), -1, packed_axis)
    return _numbers(handle)


def _scaled(elements: Array, scale: Any) -> Array:
    if scale is None:
        return elements
    factors = E8M0[scale.data.view(np.uint8)] if scale.dtype.scalar.is_int() else _numbers(scale)
    return (elements.reshape(*factors.shape, -1) * factors[..., None]).reshape(elements.shape)


def _numbers(handle: Any) -> Array:
    dtype = handle.dtype.scalar
    return widened(handle.data, dtype) if dtype in _NARROW else handle.data.astype(np.float32)


# Numbers of the host and of loops are tensors on a card, and not in the interpreter: `scale.to(tl.bfloat16)` and `i.to(tl.int64)` are
# usual. A float is fp32 on a card, so it also decides what a narrower type becomes.


def without_overflow(options: Any) -> Any:
    """Return options by which the interpreter does not compute each sum and product of whole numbers again in 64 bits: unless it debugs,
    it drops the comparison, and half the time of a kernel's addresses goes into it.
    """
    return options if options.debug else dataclasses.replace(options, sanitize_overflow=False)


_OPERATIONS = "add sub mul truediv floordiv mod lt le gt ge eq ne and or xor lshift rshift"
BINARY = [f"__{name}__" for name in _OPERATIONS.split()]


def left_to_tensor(operation: Callable[..., Any], constant: Any, other: Any) -> Any:
    """Compute with a constant of a module, `SCALE = tl.constexpr(0.5)`: with a tensor, `SCALE * x` is the tensor's own operation.

    The interpreter makes a constant of it that holds a tensor, and then `tl.exp(SCALE * x)` is refused.
    """
    return NotImplemented if isinstance(other, tl.core.tensor) else operation(constant, other)


def numbers_too(convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert an argument of a launch. Triton leaves floats as they are, and older releases refuse `True`."""
    if isinstance(value, bool):
        return number(value, np.bool_, tl.int1)
    return number(value, np.float32, tl.float32) if isinstance(value, float) else convert(value)


def number(value: float, kind: type[np.generic], dtype: tl.dtype) -> Any:
    """Return a number of the host as a tensor of the language."""
    return tl.tensor(TensorHandle(np.array([value], dtype=kind), dtype), dtype)


def with_index(patch: Callable[..., Any], tensor: Any, scope: Any) -> None:
    """Let a loop's bounds be tensors of one element: older releases of Triton convert them in a way that NumPy refuses since 2.4."""
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data.item()))


def loop_of_tensors(transformer: ast.NodeTransformer, node: ast.For) -> ast.For:
    """Begin the body of `for i in range(…)` with `i = i`, which the interpreter makes a tensor, as it does all that is assigned.

    The variable of a `static_range` is a constant on a card, too. `range` itself gets no keywords: the compiler ignores them.
    """
    call = node.iter
    if isinstance(call, ast.Call) and isinstance(node.target, ast.Name) and ast.unparse(call.func).rpartition(".")[2] == "range":
        if isinstance(call.func, ast.Name):
            call.keywords = []
        name = node.target.id
        same = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=ast.Name(id=name, ctx=ast.Load()))
        node.body.insert(0, ast.fix_missing_locations(ast.copy_location(same, node)))
    transformer.generic_visit(node)
    return ast.fix_missing_locations(node)


def with_values(transformers: type[ast.NodeTransformer], assign: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    """Rewrite what is assigned, too: older releases of Triton leave the right side of an assignment as it is."""
    example = ast.Assign(targets=[ast.Name(id="x", ctx=ast.Store())], value=ast.Name(id="y", ctx=ast.Load()))
    seen: list[str] = []

    def note(transformer: ast.NodeTransformer, name: ast.Name) -> ast.Name:
        seen.append(name.id)
        return name

    assign(type("Noting", (transformers,), {"visit_Name": note})(), example)

    def visit(transformer: ast.NodeTransformer, node: ast.Assign) -> ast.AST:
        if "y" not in seen:
            node.value = transformer.visit(node.value)
        return assign(transformer, node)

    return visit


def comparing_constants(transformers: type[ast.NodeTransformer]) -> Callable[..., ast.AST]:
    """Let `x is None` hold for a constant that is None, as the compiler has it: `tl.constexpr(None)`, or a field of an aggregate."""
    compare = getattr(transformers, "visit_Compare", transformers.generic_visit)

    def visit(transformer: ast.NodeTransformer, node: ast.Compare) -> ast.AST:
        visited: ast.AST = compare(transformer, node)
        if isinstance(visited, ast.Compare) and isinstance(visited.ops[0], (ast.Is, ast.IsNot)):
            visited.left = _called_for(visited.left, _unwrap_if_constexpr, visited.left)
            visited.comparators = [_called_for(each, _unwrap_if_constexpr, each) for each in visited.comparators]
        return visited

    return visit


def constant_of_bf16(builder: Any, value: float) -> Any:
    """Return a constant, which Triton's interpreter has of every type but this one."""
    return TensorHandle(narrowed(np.array([value], dtype=np.float32), tl.bfloat16), tl.bfloat16)
