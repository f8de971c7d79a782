"""A pretended card in Triton's interpreter: tensors live on the CPU, and kernels run there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import OutOfResources

from harness.inside.fake_gpu.driver import PretendedDriver
from harness.inside.fake_gpu.interpreted.compiling import compiling
from harness.inside.fake_gpu.interpreted.device_library import library
from harness.inside.fake_gpu.interpreted.hardware import WARPS, hardware, launched_with
from harness.inside.fake_gpu.interpreted.host_tensors import refuse_host_tensors
from harness.inside.fake_gpu.interpreted.language.annotations import note_types, typed
from harness.inside.fake_gpu.interpreted.language.gaps import language_gaps
from harness.inside.fake_gpu.interpreted.language.members import language_members
from harness.inside.fake_gpu.interpreted.looking_compiled import compiled, looking_compiled
from harness.inside.fake_gpu.interpreted.narrow_floats import narrow_floats
from harness.inside.fake_gpu.interpreted.promises import promises
from harness.inside.fake_gpu.interpreted.waiting import waiting_programs
from harness.inside.fake_gpu.launch_limits import check_grid
from harness.inside.fake_gpu.streams import Graph
from harness.inside.fake_gpu.torch_device import Patch, apply
from harness.inside.fake_gpu.tuner import Tuning, has_threads
from harness.inside.fake_gpu.with_data import card_with_data
from harness.inside.process.exceptions import NotPretended
from harness.records import Architecture

# The number of multiprocessors only sizes grids, and a grid-stride loop is right for every size. A small one is fast.
_PROCESSORS = 4


def interpreted_device(card: Architecture, kinds: Sequence[str], more: Sequence[Patch] = ()) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `more` is changed first, below all else.

    `warmup` answers with an object that has the attributes which occupancy code asks for and that launches through the interpreter.
    """
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction
    from triton.runtime.jit import JITFunction

    below = contextlib.ExitStack()
    apply(list(more), below)
    apply(list(waiting_programs()), below)
    whole, card = card, replace(card, properties={**card.properties, "multiprocessor_count": _PROCESSORS})
    launching: list[Patch] = [
        *library(card.backend),
        *narrow_floats(),
        *language_gaps(),
        *language_members(),
        *hardware(_PROCESSORS, card),
        *looking_compiled(),
        (JITFunction, "run", _not_interpreted(JITFunction.run)),
        (InterpretedFunction, "warmup", _warmup),
        (InterpretedFunction, "run", _with_handle(InterpretedFunction.run)),
        (GridExecutor, "_init_args_hst", _but_pointers(GridExecutor._init_args_hst)),
        (GridExecutor, "_restore_args_dev", _back_but_pointers(GridExecutor._restore_args_dev)),
        (GridExecutor, "__call__", _captured(GridExecutor.__call__, whole)),
    ]
    tuning, undo = card_with_data(card, kinds, _driver, [*launching, *compiling(launching)])
    tuning.fits = has_threads(card)
    below.callback(undo)
    apply(promises(), below)
    return tuning, below.close


def _driver(card: Architecture, device: torch.device) -> PretendedDriver:
    return PretendedDriver(card, device, card.properties, lambda binary: (32, 0, card.program_threads))


def _warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
    return _InterpretedKernel(self, args, kwargs)


def _not_interpreted(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch that refuses what Triton compiles even here: nothing would run, and a test that only launches it would pass."""

    def launch(self: Any, *args: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if warmup:
            return run(self, *args, warmup=warmup, **kwargs)
        what = "a Gluon kernel" if self.is_gluon() else "made for a card alone"
        raise NotPretended(f"{self.fn.__name__} is {what}, which Triton's interpreter cannot run; an emulated target can")

    return launch


def _with_handle(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a launch returns on a card: the compiled kernel. What the language refuses is the compiler's error there."""
    from triton.runtime.errors import InterpreterError

    from harness.inside.fake_gpu.interpreted.refusals import as_compiled

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_types(self)
        try:
            run(self, *args, **kwargs)
        except InterpreterError as error:
            raise as_compiled(error) from error.__cause__
        return _InterpretedKernel(self, args, kwargs)

    return launch


_OF_COMPILED = ("asm", "kernel", "name", "src")


class _Metadata(SimpleNamespace):
    """What host code reads of a compiled kernel's metadata."""


class _InterpretedKernel:
    """A kernel in the interpreter: it can be launched, and has a compiled kernel's public attributes."""

    n_regs, n_spills = 32, 0

    def __init__(self, function: Any, args: Any, options: dict[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options
        self.metadata = _Metadata(shared=1024, num_warps=options.get("num_warps", 4), num_stages=options.get("num_stages", 1))

    @property
    def hash(self) -> str:
        """What a compiled kernel is found by: another source or other options have another."""
        return hashlib.sha256(f"{self.function.cache_key} {self.options}".encode()).hexdigest()

    @functools.cached_property
    def compiled(self) -> Any:
        """What Triton compiles for the pretended card. It compiles when it is asked."""
        options = {name: value for name, value in self.options.items() if name not in ("grid", "warmup")}
        return compiled(self.function).warmup(*self.args, grid=(1,), **options)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_COMPILED:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
        return getattr(self.compiled, name)

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]  # type: ignore[no-any-return]


def _captured(launch: Callable[..., Any], card: Architecture) -> Callable[..., Any]:
    """Let a graph that is being captured remember a launch, and none of the calls of torch within it.

    The interpreter has one current program, so threads launch one after another. NumPy warns where numbers overflow, and a package may
    make errors of warnings; a card does not warn.
    """
    one_at_a_time = threading.RLock()

    def interpret(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with one_at_a_time, launched_with(kwargs), np.errstate(all="ignore"), torch._C.DisableTorchFunction():
            return launch(executor, *args, **kwargs)

    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_host_tensors(executor, args, kwargs)
        executor.grid = _as_on_a_card(executor, card, args, kwargs)
        args, kwargs = typed(executor, args, kwargs)
        return Graph.run(interpret, (executor, *args), kwargs)

    return run


def _is_pointer(value: Any) -> bool:
    """Whether an argument is an object of the package with an address, as launchers take it: no tensor, and none that wraps one."""
    return hasattr(value, "data_ptr") and not isinstance(value, torch.Tensor) and not hasattr(value, "base")


def _but_pointers(bring: Callable[..., Any]) -> Callable[..., Any]:
    """Bring a launch's tensors to the host, as the interpreter does. What only has an address points there already."""

    def brought(self: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        args_host, kwargs_host = bring(self, _without_pointers(args), dict(zip(kwargs, _without_pointers(kwargs.values()), strict=True)))
        kept = [given if _is_pointer(given) else found for given, found in zip(args, args_host, strict=True)]
        return kept, {name: value if _is_pointer(value) else kwargs_host[name] for name, value in kwargs.items()}

    return brought


def _back_but_pointers(restore: Callable[..., Any]) -> Callable[..., Any]:
    def restored(self: Any, args: Any, args_host: Any, kwargs: dict[str, Any], kwargs_host: dict[str, Any]) -> Any:
        named = dict(zip(kwargs, _without_pointers(kwargs.values()), strict=True))
        return restore(self, _without_pointers(args), args_host, named, kwargs_host)

    return restored


def _without_pointers(values: Iterable[Any]) -> list[Any]:
    return [None if _is_pointer(value) else value for value in values]


def _as_on_a_card(executor: Any, card: Architecture, args: Any, kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return a launch's grid as Triton's own launchers read it: a tuple of integers, also of a list. They read three and no more.

    A function of the grid gets what the host passed. The interpreter gives it tensors of the language instead, which compute otherwise.

    Raises:
        OutOfResources: a program has more threads than the card launches.
        LaunchRefusedError: the driver of the card refuses the grid.
    """
    grid, names = executor.grid, executor.arg_names
    if callable(grid):
        grid = grid(inspect.getcallargs(executor.fn, *args, **{name: value for name, value in kwargs.items() if name in names}))
    sizes = tuple(map(operator.index, grid))[:3]
    options = {"num_warps": WARPS, **{name: value for name, value in kwargs.items() if name not in names and value is not None}}
    if (threads := options["num_warps"] * card.warp_size) > card.program_threads:
        raise OutOfResources(threads, card.program_threads, "threads")
    check_grid(card, executor.fn.__name__, sizes, SimpleNamespace(**options))
    return sizes
