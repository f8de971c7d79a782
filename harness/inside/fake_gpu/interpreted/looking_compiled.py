"""Lets an interpreted kernel look like a compiled one to host code, which asks what it is and reads its parameters and its source."""

from __future__ import annotations

import textwrap
from typing import Any

from harness.inside.fake_gpu.torch_device import Patch

_COMPILED = "_compiled"
_OF_FUNCTION = ("__globals__", "__qualname__", "__module__", "__doc__")  # what a compiled kernel takes over from its function


def looking_compiled() -> list[Patch]:
    """Return what makes `isinstance(kernel, triton.JITFunction)` hold. What an interpreted kernel lacks comes from a compiled one."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return [
        (InterpretedFunction, "__getattribute__", _own),
        (InterpretedFunction, "__getattr__", _of_compiled),
        (InterpretedFunction, "__setattr__", _rename_too),
        (InterpretedFunction, "_unsafe_update_src", _with_source),
        (InterpretedFunction, "__repr__", JITFunction.__repr__),
    ]


def _own(self: Any, name: str) -> Any:
    if name == "__class__":  # what `isinstance` asks for beside the type itself
        from triton.runtime.jit import JITFunction

        return JITFunction
    if name in _OF_FUNCTION and "fn" in (own := object.__getattribute__(self, "__dict__")):
        return getattr(own["fn"], name)
    return object.__getattribute__(self, name)


def _of_compiled(self: Any, name: str) -> Any:
    """Return an attribute of the kernel that Triton would compile: its `params`, `src`, `cache_key` or `signature`.

    Raises:
        AttributeError: It has none of that name. Names of Python's own, such as `__wrapped__`, are not looked for: who asks for one wants
            to know what the object is.
    """
    if (name.startswith("__") and name.endswith("__")) or "fn" not in vars(self):
        raise AttributeError(f"'InterpretedFunction' object has no attribute '{name}'", name=name, obj=self)
    return getattr(compiled(self), name)


def compiled(kernel: Any) -> Any:
    """Return the kernel that Triton would compile."""
    if _COMPILED not in vars(kernel):
        from triton.runtime.jit import JITFunction

        vars(kernel)[_COMPILED] = JITFunction(kernel.fn, **kernel.kwargs)
    return vars(kernel)[_COMPILED]


def _rename_too(self: Any, name: str, value: Any) -> None:
    """Set an attribute. A compiled kernel has a name of its own; here it is the function's."""
    object.__setattr__(*((self.fn, name, value) if name == "__name__" else (self, name, value)))


def _with_source(self: Any, source: str) -> None:
    """Let a kernel have another source than its file: a package writes kernels so that are the same but for a function within."""
    rewriter = self.rewriter

    def rewrite() -> Any:
        code = self.fn.__code__
        rewriter.filename, rewriter.def_file_lineno = code.co_filename, code.co_firstlineno
        tree = rewriter._transform_ast(textwrap.dedent(source))
        tree.body[0].name = self.fn.__name__  # the package may have renamed it
        return rewriter._compile_and_exec(tree)

    rewriter.rewrite_ast = rewrite
    self.rewritten_fn.pop(self.fn, None)
    _of_compiled(self, "_unsafe_update_src")(source)
