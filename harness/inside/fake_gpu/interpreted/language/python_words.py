"""Python's `and`, `or`, `not`, `min` and `max` in kernels: the compiler works on tensors with them, element by element. And `.value`.

Python's own return one of their operands, or a single truth. Triton's interpreter takes each block of more than one element for true, so
`mask & valid`, written as `mask and valid`, would be `valid`; and `min(BLOCKS, n)` of a constant and a tensor a number, which has no `to`.

To the compiler, each argument of a function that is no tensor is a `tl.constexpr`, whose `value` a function may ask for. In the interpreter
it is what the kernel passed: a number or a `tl.dtype`.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch

_MEANT, _JOINED, _NEGATED, _VALUE = "_warpwave_meant", "_warpwave_joined", "_warpwave_negated", "_warpwave_value"
_OF_THE_LANGUAGE = ((builtins.min, "minimum"), (builtins.max, "maximum"))


def python_words() -> list[Patch]:
    """Return what rewrites them, and what rewritten kernels call instead: the interpreter lends its own names to kernels."""
    from triton.runtime import interpreter

    transformers = interpreter.ASTTransformer
    return [
        (interpreter, _MEANT, _meant),
        (interpreter, _JOINED, _joined),
        (interpreter, _NEGATED, _negated),
        (interpreter, _VALUE, _value),
        (transformers, "visit_Call", _calling),
        (transformers, "visit_BoolOp", _joining),
        (transformers, "visit_UnaryOp", _negating),
        (transformers, "visit_Attribute", _asking),
    ]


def _calling(transformer: ast.NodeTransformer, node: ast.Call) -> ast.AST:
    """Make `min(…)` a call of `_warpwave_meant(min)(…)`: a module may have a `min` of its own."""
    transformer.generic_visit(node)
    if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        node.func = _call(_MEANT, node.func)
    return ast.fix_missing_locations(node)


def _joining(transformer: ast.NodeTransformer, node: ast.BoolOp) -> ast.AST:
    """Make `a and b` a call with functions of no arguments: a constant that decides leaves the rest out. A name that is assigned within
    would stay in its function, so such an expression remains Python's.
    """
    transformer.generic_visit(node)
    if any(isinstance(part, ast.NamedExpr) for part in ast.walk(node)):
        return node
    decides = ast.Constant(value=isinstance(node.op, ast.Or))
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    call = _call(_JOINED, decides, *(ast.Lambda(args=nothing, body=value) for value in node.values))
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _negating(transformer: ast.NodeTransformer, node: ast.UnaryOp) -> ast.AST:
    transformer.generic_visit(node)
    if not isinstance(node.op, ast.Not):
        return node
    return ast.fix_missing_locations(ast.copy_location(_call(_NEGATED, node.operand), node))


def _asking(transformer: ast.NodeTransformer, node: ast.Attribute) -> ast.AST:
    transformer.generic_visit(node)
    if node.attr != "value" or not isinstance(node.ctx, ast.Load):
        return node
    return ast.fix_missing_locations(ast.copy_location(_call(_VALUE, node.value), node))


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(args), keywords=[])


def _meant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what the compiler would call."""
    name = next((name for own, name in _OF_THE_LANGUAGE if function is own), "")
    return functools.partial(_compared, function, name) if name else function


def _compared(function: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    args = tuple(tl.core._unwrap_if_constexpr(each) for each in args)
    if len(args) < 2 or not any(isinstance(each, tl.core.base_value) for each in args):
        return function(*args, **options)  # of constants, it is a constant
    compare = functools.partial(getattr(tl, name), **options)
    return functools.reduce(compare, args)


def _joined(decides: bool, *values: Callable[[], Any]) -> Any:
    """Join values as the compiler does: by `or` if `decides` is True, by `and` if it is False.

    All tensors are computed and combined. A constant that equals `decides` is the result, and what follows it is not computed.
    """
    from triton.runtime.interpreter import interpreter_semantic

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


def _negated(value: Any) -> Any:
    from triton.runtime.interpreter import interpreter_semantic

    return interpreter_semantic.not_(_truth(value)) if isinstance(value, tl.tensor) else not value


def _value(held: Any) -> Any:
    """Return the value of a constant, which is the constant itself where the interpreter passes it as it is."""
    return held if isinstance(held, (bool, int, float, str, tuple, tl.dtype)) and not hasattr(held, "value") else held.value


def _truth(value: Any) -> Any:
    """Return a tensor of truths. The compiler takes no others; a number that is 1 at a launch is a constant to it, and here a tensor."""
    from triton.runtime.interpreter import interpreter_semantic

    return value if value.type.scalar.is_int1() else interpreter_semantic.not_equal(value, 0)
