"""How the names in a kernel find the interpreter's language: `tl.load` means something else while a kernel runs.

Triton's interpreter replaces the functions of `triton.language` before a launch, and again before each call of a function from a kernel,
although they are replaced by then. That costs more than most calls. It overlooks names of a package's own, such as `gather = tl.gather`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch

_BUILTIN = tl.core.TRITON_BUILTIN
_LANGUAGE = "_warpwave_language"


def names_of_the_language() -> list[Patch]:
    """Return what replaces the language once a launch, and forwards names of a package's own."""
    from triton.runtime import interpreter

    modules = _Modules()
    return [
        (interpreter, "_patch_lang", modules.forwarding(interpreter._patch_lang)),
        (interpreter.InterpretedFunction, "__call__", modules.calling(interpreter.InterpretedFunction.__call__)),
    ]


class _Modules:
    """The modules that hold kernels: which parts of the language they name, and what else they call its functions."""

    def __init__(self) -> None:
        self.functions = {
            id(value): (owner, name)
            for owner in (tl.core, tl.math, tl)
            for name, value in vars(owner).items()
            if getattr(value, _BUILTIN, False)
        }
        self.seen: dict[int, tuple[dict[str, Any], int, tuple[Any, ...]]] = {}

    def forwarding(self, patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what replaces the language for a function, and forwards the names of its module before.

        The interpreter looks for the language among a kernel's globals. A module may import it elsewhere: as `triton.language`, which needs
        no name of its own, or in the function that makes the kernel.
        """

        def replace(function: Any) -> Any:
            if not self._languages(function.__globals__):
                function.__globals__[_LANGUAGE] = tl
            return patch(function)

        return replace

    def calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls a function from a kernel, without replacing again what is replaced."""

        def run(called: Any, *args: Any, **kwargs: Any) -> Any:
            from triton.runtime.interpreter import InterpreterError

            languages = self._languages(called.fn.__globals__)
            if not languages or any(getattr(language.load, _BUILTIN, False) for language in languages):
                return call(called, *args, **kwargs)
            try:
                return called.rewrite()(*args, **kwargs)
            except Exception as error:
                raise InterpreterError(repr(error)) from error

        return run

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


def _forwarded(owner: Any, name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(owner, name)(*args, **kwargs)
