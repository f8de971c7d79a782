"""What kernels ask of the card itself (`tl.extra.cuda.smid()`, `gdc_wait()`), and what its compiler refuses, in Triton's interpreter."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl
import triton.language.extra as extra

from harness.inside.fake_gpu.torch_device import Patch
from harness.records import Architecture

WARPS = 4  # what a launch has if it does not say


def hardware(processors: int, card: Architecture) -> Iterator[Patch]:
    """Yield answers: programs run one after another, each on one of the `processors`; one launch ends before the next begins.

    The interpreter multiplies matrices of every size. The card's compiler says which one is too small for it.
    """
    from triton.runtime.interpreter import InterpreterOptions, interpreter_builder

    def smid() -> Any:
        return _number(int(np.dot(interpreter_builder.grid_idx, (1, 7, 31))) % processors, tl.int32)

    answers: dict[str, Callable[[], Any]] = {"smid": smid}
    answers |= dict.fromkeys(("globaltimer", "memrealtime"), lambda: _number(time.perf_counter_ns(), tl.int64))
    answers |= dict.fromkeys(("gdc_wait", "gdc_launch_dependents"), lambda: None)
    for module in _modules():
        for name, function in vars(module).items():
            if getattr(function, tl.core.TRITON_BUILTIN, False):
                yield module, name, answers.get(name) or _within_the_interpreter(function)
    for name, value in (("num_warps", WARPS), ("warp_size", card.warp_size)):
        if not hasattr(InterpreterOptions, name):
            yield InterpreterOptions, name, value
    of_compiler = _of_compiler(card)
    if "min_dot_size" in of_compiler:
        functions = {**interpreter_builder.codegen_fns, "min_dot_size": of_compiler["min_dot_size"]}
        yield interpreter_builder, "codegen_fns", functions


def _of_compiler(card: Architecture) -> Mapping[str, Any]:
    """Return what Triton's language asks of a card's compiler; nothing if this Triton does not compile for it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    try:
        backend = make_backend(GPUTarget(card.backend, card.arch, card.warp_size))
    except RuntimeError:
        return {}
    return backend.get_codegen_implementation(backend.parse_options({}))  # type: ignore[no-any-return]


@contextlib.contextmanager
def launched_with(options: Mapping[str, Any]) -> Iterator[None]:
    """Within, a kernel that asks (`tl.extra.cuda.num_warps()`) gets what its launch says."""
    from triton.runtime.interpreter import InterpreterOptions

    before = InterpreterOptions.num_warps
    InterpreterOptions.num_warps = options.get("num_warps", WARPS)
    try:
        yield
    finally:
        InterpreterOptions.num_warps = before


def _number(value: int, dtype: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=np.int64 if dtype is tl.int64 else np.int32), dtype), dtype)


def _modules() -> Iterator[ModuleType]:
    """Yield the vendors' folders of the language, and the modules in them beside their device libraries.

    Triton imports a vendor's folder twice: `import` finds one of the two, and `tl.extra` has the other.
    """
    for info in pkgutil.walk_packages(extra.__path__, f"{extra.__name__}."):
        if not info.name.endswith("libdevice"):
            try:
                yield (imported := importlib.import_module(info.name))
            except ImportError:  # what one vendor's Triton has and this one lacks
                continue
            if info.ispkg and (named := getattr(extra, info.name.rpartition(".")[2], imported)) is not imported:
                yield named


def _within_the_interpreter(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from triton.runtime.interpreter import interpreter_semantic

        return function(*args, **{**kwargs, "_semantic": interpreter_semantic})

    return call
