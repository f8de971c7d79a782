"""What Triton's interpreter loses when it rewrites a kernel: variables of the function around it, and how a constant is annotated."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch


def closures() -> list[Patch]:
    """Return what gives a rewritten kernel the variables and the annotations of the one that the package made."""
    from triton.runtime.interpreter import FunctionRewriter

    return [(FunctionRewriter, "_compile_and_exec", _annotated(_with_cells(FunctionRewriter._compile_and_exec)))]


def _annotated(make: Callable[..., Any]) -> Callable[..., Any]:
    """Annotate constants as the interpreter knows them: `tl.constexpr`. The compiler also takes the class under other names."""

    def compile_and_exec(rewriter: Any, tree: ast.Module) -> Any:
        made = make(rewriter, tree)
        for name, kind in {**made.__annotations__, **rewriter.fn.__annotations__}.items():
            if kind is tl.constexpr or (isinstance(kind, str) and "constexpr" in kind):
                made.__annotations__[name] = "constexpr"
        return made

    return compile_and_exec


def _with_cells(make: Callable[..., Any]) -> Callable[..., Any]:
    def compile_and_exec(rewriter: Any, tree: ast.Module) -> Any:
        own = rewriter.fn
        names = own.__code__.co_freevars
        if not names:
            return make(rewriter, tree)
        outer = ast.parse(f"def made({', '.join(names)}): pass")
        outer.body[0].body = [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]  # type: ignore[attr-defined]
        plain = _of_globals(rewriter, make)
        code = _inner(_inner(compile(ast.fix_missing_locations(outer), rewriter.filename, "exec")))
        cells = dict(zip(names, own.__closure__ or (), strict=True))
        made = FunctionType(code, plain, own.__name__, own.__defaults__, tuple(cells[name] for name in code.co_freevars))
        made.__kwdefaults__, made.__annotations__ = own.__kwdefaults__, dict(own.__annotations__)
        return made

    return compile_and_exec


def _of_globals(rewriter: Any, make: Callable[..., Any]) -> dict[str, Any]:
    """Return the kernel's globals with the names that rewritten code needs, which Triton adds to them when it makes a function."""
    make(rewriter, ast.parse(f"def {rewriter.fn.__name__}(): pass"))
    return rewriter.fn.__globals__  # type: ignore[no-any-return]


def _inner(code: CodeType) -> CodeType:
    """Return the code of the one function that is made in some code."""
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))
