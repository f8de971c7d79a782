"""Remember which members of Triton's language the interpreter has to replace: it looks through all of them before each launch."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from harness.inside.fake_gpu.torch_device import Patch


def language_members() -> Iterator[Patch]:
    """Yield what replaces the search; nothing for a Triton whose interpreter has no such function."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    if hasattr(interpreter, "_patch_builtin") and hasattr(interpreter, "_patch_attr"):
        yield interpreter, "_patch_builtin", remembering(interpreter)


def remembering(interpreter: Any) -> Callable[..., None]:
    """Return `_patch_builtin`, which replaces the builtin members of a module or class, with the names of each kept."""
    kept: dict[Any, tuple[int, list[str]]] = {}
    is_builtin = importlib.import_module("triton.language.core").is_builtin

    def patch_builtin(owner: Any, *rest: Any) -> None:
        size, names = kept.get(owner, (-1, []))
        if size != len(vars(owner)):
            members = inspect.getmembers(owner)
            names = [name for name, member in members if is_builtin(member)]
            if not any(map(_is_replaced, members)):  # a kernel that is launched by another one finds them replaced
                kept[owner] = len(vars(owner)), names
        for name in names:
            member = getattr(owner, name, None)
            if is_builtin(member):
                interpreter._patch_attr(owner, name, member, *rest)

    return patch_builtin


def _is_replaced(member: tuple[str, Any]) -> bool:
    return str(getattr(member[1], "__qualname__", "")).startswith("_patch_attr.")
