"""Tensors on the host: a card's launcher refuses them, and Triton's interpreter takes them."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeGuard

import torch

from harness.inside.fake_gpu.host_side import refused, taken_apart, tensors_in
from harness.inside.fake_gpu.redirect import Redirect

# How a package asks whether its kernels are interpreted. Many then choose the host: `"cpu" if is_interpreted() else "cuda"`.
_ASKS = re.compile(r"TRITON_INTERPRET|knobs\.runtime\.interpret\b|\bInterpretedFunction\b")
_OTHERS = {*sys.stdlib_module_names, "harness", "torch", "triton", "pytest", "_pytest", "pluggy", "numpy"}


def refuse_host_tensors(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what Triton's launchers raise on a card, unless the package has chosen the host for the interpreter.

    Such a package says so in its code, and has no tensor of a launch on the card.

    Raises:
        ValueError: an argument is a tensor that a card cannot reach.
    """
    given = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
    named = ((name, None if name in executor.constexprs else given.get(name)) for name in executor.arg_names)
    error = refused(taken_apart(named))
    if error and (_has_some_on_card(given) or not any(map(_asks, _files(executor.fn)))):
        raise error


def _has_some_on_card(given: Mapping[str, Any]) -> bool:
    """Return whether a launch has tensors that are on the card. In a backward that is not known of those that autograd made."""
    graph: Any = torch._C
    in_backward = graph._current_graph_task_id() != -1
    card = Redirect.current
    return not in_backward and card is not None and any(map(card.is_on_card, tensors_in(list(given.values()))))


def _files(kernel: Any) -> Iterator[str]:
    """Yield the files that may have chosen the device: of the kernel, of its callers, of conftest.py, and what those import."""
    frame: FrameType | None = sys._getframe(1)
    loaded = [sys.modules.get(kernel.__module__), *(module for name, module in list(sys.modules.items()) if name.endswith("conftest"))]
    while frame is not None:
        loaded.append(sys.modules.get(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    seen: set[str] = set()
    for module in filter(_is_its_own, loaded):
        imported = map(sys.modules.get, _imports(str(module.__file__), str(module.__package__ or "")))
        for each in (module, *filter(_is_its_own, imported)):
            if (path := str(each.__file__)) not in seen:
                seen.add(path)
                yield path


def _is_its_own(module: ModuleType | None) -> TypeGuard[ModuleType]:
    """Return whether a module is a package's: no part of torch, of Triton, of pytest, or of Python."""
    name = getattr(module, "__name__", "").partition(".")[0]
    return name not in _OTHERS and str(getattr(module, "__file__", None) or "").endswith(".py")


@functools.cache
def _asks(path: str) -> bool:
    return _ASKS.search(_text(path)) is not None


@functools.cache
def _imports(path: str, package: str) -> tuple[str, ...]:
    """Return the modules that a file names in its imports: `a.b` of `import a.b`, `a` and `a.b` of `from a import b`."""
    found: list[str] = []
    try:
        nodes = list(ast.walk(ast.parse(_text(path))))
    except (SyntaxError, ValueError):
        return ()
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
