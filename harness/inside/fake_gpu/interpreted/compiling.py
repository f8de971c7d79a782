"""Let Triton compile in a process whose kernels run in its interpreter: for `kernel.asm`, and for what is made for a card alone.

The interpreter replaces the functions of `triton.language`, and does not put all of them back: what a call from a kernel replaces stays. So
do warpwave's own additions. The compiler gets the language without either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch

_REPLACED = (tl, tl.core, tl.math, tl.core.dtype, tl.core.tensor, tl.core.tensor_descriptor_base)


def compiling(additions: Sequence[Patch]) -> list[Patch]:
    """Return what compiles a kernel with Triton's own language; `additions` are warpwave's, which are not there yet."""
    import triton
    from triton.compiler import compiler

    ours = {(id(owner), name) for owner, name, _ in additions}
    owners: dict[int, Any] = {id(owner): owner for owner in (*_REPLACED, *(owner for owner, *_ in additions if _is_of_the_language(owner)))}
    own = [(owner, dict(vars(owner))) for owner in owners.values()]
    compile_kernel: Any = compiler.compile

    def run(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as undo:
            for owner, members in own:
                for name, value in list(vars(owner).items()):
                    if value is not members.get(name) and ((id(owner), name) in ours or _is_the_interpreters(value)):
                        setattr(owner, name, members[name]) if name in members else delattr(owner, name)
                        undo.callback(setattr, owner, name, value)
            return compile_kernel(*args, **kwargs)

    return [(owner, "compile", run) for owner in (triton, triton.compiler, compiler)]


def _is_of_the_language(owner: Any) -> bool:
    """Whether it is a module or class of `triton.language`."""
    return str(getattr(owner, "__module__", None) or getattr(owner, "__name__", "")).startswith("triton.language")


def _is_the_interpreters(value: Any) -> bool:
    """Whether the interpreter has put it into the language. A package may put something there, too."""
    function = value.fget if isinstance(value, property) else value
    return function is print or getattr(function, "__module__", "") == "triton.runtime.interpreter"
