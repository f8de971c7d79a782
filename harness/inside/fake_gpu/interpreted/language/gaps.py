"""What kernels may write and Triton's interpreter lacks: numbers of the host and of loops are tensors on a card, and not there.

`scale.to(tl.bfloat16)` and `i.to(tl.int64)` are usual. A float is fp32 on a card, so it also decides what a narrower type becomes.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from harness.inside.fake_gpu.interpreted.assembly.elementwise import inline_assembly
from harness.inside.fake_gpu.interpreted.language.aggregates import aggregates
from harness.inside.fake_gpu.interpreted.language.closures import closures
from harness.inside.fake_gpu.interpreted.language.names import names_of_the_language
from harness.inside.fake_gpu.interpreted.language.operations import operations
from harness.inside.fake_gpu.interpreted.language.python_words import python_words
from harness.inside.fake_gpu.interpreted.language.scaled_products import scaled_products
from harness.inside.fake_gpu.interpreted.narrow_floats import narrowed
from harness.inside.fake_gpu.torch_device import Patch

_UNWRAP = "_unwrap_if_constexpr"


def language_gaps() -> list[Patch]:
    """Return what closes the gaps, in Triton 3.6 and later."""
    from triton.runtime import interpreter

    return [
        (interpreter, "_implicit_cvt", _numbers_too(interpreter._implicit_cvt)),
        *names_of_the_language(),
        *aggregates(),
        *closures(),
        *python_words(),
        *operations(),
        *scaled_products(),
        (interpreter, "_patch_lang_tensor", _with_index(interpreter._patch_lang_tensor)),
        (interpreter.ASTTransformer, "visit_For", _loop_of_tensors),
        (interpreter.ASTTransformer, "visit_Assign", _with_values(interpreter.ASTTransformer)),
        (interpreter.ASTTransformer, "visit_Compare", _comparing_constants(interpreter.ASTTransformer)),
        (interpreter, _UNWRAP, tl.core._unwrap_if_constexpr),  # the interpreter lends its own names to kernels
        *inline_assembly(),
        (interpreter.InterpreterBuilder, "get_bf16", _constant_of_bf16),
        (interpreter.interpreter_builder, "options", _without_overflow(interpreter.interpreter_builder.options)),
    ]


def _without_overflow(options: Any) -> Any:
    """Return options by which the interpreter does not compute each sum and product of whole numbers again in 64 bits: unless it debugs,
    it drops the comparison, and half the time of a kernel's addresses goes into it.
    """
    return options if options.debug else dataclasses.replace(options, sanitize_overflow=False)


def _numbers_too(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of a launch's arguments, which leaves floats as they are. In older releases it refuses `True`."""

    def argument(value: Any) -> Any:
        if isinstance(value, bool):
            return _number(value, np.bool_, tl.int1)
        return _number(value, np.float32, tl.float32) if isinstance(value, float) else convert(value)

    return argument


def _number(value: float, kind: type[np.generic], dtype: tl.dtype) -> Any:
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=kind), dtype), dtype)


def _with_index(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a loop's bounds be tensors of one element: older releases of Triton convert them in a way that NumPy refuses since 2.4."""

    def change(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data.item()))

    return change


def _loop_of_tensors(transformer: ast.NodeTransformer, node: ast.For) -> ast.For:
    """Begin the body of `for i in range(…)` with `i = i`, which the interpreter makes a tensor, as it does all that is assigned.

    The variable of a `static_range` is a constant on a card, too. `range` itself gets no keywords: the compiler ignores them.
    """
    call = node.iter
    if isinstance(call, ast.Call) and isinstance(node.target, ast.Name) and _name(call.func) == "range":
        if isinstance(call.func, ast.Name):
            call.keywords = []
        name = node.target.id
        same = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=ast.Name(id=name, ctx=ast.Load()))
        node.body.insert(0, ast.fix_missing_locations(ast.copy_location(same, node)))
    transformer.generic_visit(node)
    return ast.fix_missing_locations(node)


def _with_values(transformers: type[ast.NodeTransformer]) -> Callable[..., ast.AST]:
    """Rewrite what is assigned, too: older releases of Triton leave the right side of an assignment as it is."""
    assign = transformers.visit_Assign
    example = ast.Assign(targets=[ast.Name(id="x", ctx=ast.Store())], value=ast.Name(id="y", ctx=ast.Load()))
    seen: list[str] = []

    def note(transformer: ast.NodeTransformer, name: ast.Name) -> ast.Name:
        seen.append(name.id)
        return name

    assign(type("Noting", (transformers,), {"visit_Name": note})(), example)

    def visit(transformer: ast.NodeTransformer, node: ast.Assign) -> ast.AST:
        if "y" not in seen:
            node.value = transformer.visit(node.value)
        visited: ast.AST = assign(transformer, node)
        return visited

    return visit


def _comparing_constants(transformers: type[ast.NodeTransformer]) -> Callable[..., ast.AST]:
    """Let `x is None` hold for a constant that is None, as the compiler has it: `tl.constexpr(None)`, or a field of an aggregate."""
    compare = getattr(transformers, "visit_Compare", transformers.generic_visit)

    def visit(transformer: ast.NodeTransformer, node: ast.Compare) -> ast.AST:
        visited: ast.AST = compare(transformer, node)
        if isinstance(visited, ast.Compare) and isinstance(visited.ops[0], (ast.Is, ast.IsNot)):
            visited.left, visited.comparators = _unwrapped(visited.left), list(map(_unwrapped, visited.comparators))
        return visited

    return visit


def _unwrapped(value: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=_UNWRAP, ctx=ast.Load()), args=[value], keywords=[])


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _constant_of_bf16(builder: Any, value: float) -> Any:
    """Return a constant, which Triton's interpreter has of every type but this one."""
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(narrowed(np.array([value], dtype=np.float32), tl.bfloat16), tl.bfloat16)
