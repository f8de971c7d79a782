"""What torch's compiler does before the card is held: it generates and compiles."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from warpwave.inside.benchmarks import Point
from warpwave.inside.environment import devices_here, enter_links, names_any, package_folders, python_path, temporary_home
from warpwave.inside.imports import enter_package
from warpwave.inside.precompile.ahead import points_of
from warpwave.inside.process.workers import Worker, forked
from warpwave.records import AHEAD_FILE, Architecture, Job, Stage


class Reached(BaseException):
    """A point has come to what it times, or something would run on the card. No `except Exception` may catch it and go on otherwise."""


def without_card(job: Job, card: Architecture, undo: contextlib.ExitStack) -> None:
    """Until `undo` is closed, torch's compiler finds the card of the facts stage, generates and compiles for it, and launches nothing."""
    import triton

    from warpwave.inside.fake_gpu.answers import patches
    from warpwave.inside.fake_gpu.driver import PretendedDriver, capability
    from warpwave.inside.fake_gpu.torch_device import apply, follow_in_compiler, torch_device

    device = torch_device(card.torch_device)
    name = devices_here(job)[0]["name"]
    named = {"gcnArchName": card.torch_properties.get("name", card.name), **card.torch_properties, "name": name}
    card = dataclasses.replace(card, torch_properties=named)
    triton.runtime.driver.set_active(PretendedDriver(card, device, card.properties, lambda binary: (32, 0, card.program_threads)))
    apply([*patches(card, device, capability(card)), *_of_compiler(), *stops()], undo)
    importlib.import_module("torch._dynamo.device_interface")
    follow_in_compiler(device, undo)
    for settings, values in (("torch._inductor.config", _SETTINGS), ("torch._functorch.config", {"enable_autograd_cache": False})):
        undo.enter_context(importlib.import_module(settings).patch(**values))
    importlib.import_module("torch._inductor.runtime.compile_tasks")._set_triton_ptxas_path()  # as torch's own compile workers do


_SETTINGS = {"compile_threads": 1, "fx_graph_cache": True, "fx_graph_remote_cache": False, "autotune_remote_cache": False}
Change = tuple[Any, str, Any]


def at_what_is_timed(function: Callable[[], object], *args: Any, **kwargs: Any) -> None:
    """Call what a point times, once, and stop there: raise `Reached`."""
    function()
    raise Reached


def stops() -> Iterator[Change]:
    """Stop a point where it launches a kernel of its own, or times something; and torch's compiler where it does."""
    import triton

    benchmarking: Any = importlib.import_module("torch._inductor.runtime.benchmarking")

    def launch(*args: Any, **kwargs: Any) -> None:
        raise Reached

    yield triton.runtime.jit.JITFunction, "run", launch
    yield triton.testing, "do_bench", at_what_is_timed
    yield triton.testing, "do_bench_cudagraph", at_what_is_timed
    for name in ("TritonBenchmarker", "InductorBenchmarker"):
        yield getattr(benchmarking, name), "benchmark_gpu", launch


def _of_compiler() -> Iterator[Change]:
    """Compile everything, and load nothing."""
    heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    yield from graphs_without_data()
    yield heuristics.CachingAutotuner, "_make_launchers", _know_registers
    yield importlib.import_module("torch._inductor.runtime.triton_helpers"), "set_driver_to_gpu", lambda: None
    yield importlib.import_module("torch._subclasses.fake_tensor"), "init_gpu_context", lambda device: None
    yield importlib.import_module("triton"), "compile", functools.partial(_kept, importlib.import_module("triton").compile)


def graphs_without_data() -> Iterator[Change]:
    """Return tensors without data from what torch's compiler made."""
    import torch

    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")
    graph: Any = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
    inner, whole = compile_fx.compile_fx_inner, compile_fx.compile_fx
    results: dict[int, tuple[Any, list[Any]]] = {}

    def compile_inner(module: Any, inputs: Any, **options: Any) -> Any:
        empty = _results(module)
        compiled = inner(module, inputs, **options)
        results[id(compiled)] = compiled, empty
        return compiled

    def call(self: Any, inputs: list[Any]) -> list[Any]:
        if torch._guards.active_fake_mode() is None:  # its results would be on the card
            raise Reached
        inputs.clear()
        return [make() if callable(make) else make for make in results[id(self)][1]]

    yield compile_fx, "compile_fx", lambda *args, **options: whole(*args, **{"inner_compile": compile_inner, **options})
    yield graph, "__call__", call


def _results(module: Any) -> list[Any]:
    """Return what a graph returns: for each tensor a function that makes one without data, anything else as it is."""
    import torch

    def as_made(value: Any) -> Any:
        found = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
        if not isinstance(found, torch.Tensor):
            return found
        return functools.partial(torch.empty_strided, found.size(), found.stride(), dtype=found.dtype, device=found.device)

    (returned,) = next(node for node in module.graph.nodes if node.op == "output").args
    return [as_made(value) for value in returned]


_compiled: dict[str, Any] = {}


def _kept(compile_alone: Callable[..., Any], *args: Any, **options: Any) -> Any:
    compiled = compile_alone(*args, **options)
    _compiled[compiled.hash] = compiled
    return compiled


def _know_registers(self: Any) -> None:
    """Stand in for loading: of a loop's candidates, torch wants to know the registers, and compiles smaller ones if they are many."""
    from warpwave.inside.codegen.recorder import read_once

    if "REDUCTION" not in str(self.heuristic_type) or self.inductor_meta.get("persistent_reduction"):
        return
    for result in self.compile_results:
        with contextlib.suppress(Exception):
            result.kernel.n_regs = read_once(_compiled[result.kernel.hash]).registers


# Let `torch.compile` generate and compile its code before the card is taken: each point runs once on tensors without data. torch's compiler
# sees a pretended card with the facts of the real one. Its output goes to a cache of this run, under torch's own keys and Triton's. Nothing
# has run by then, so no choice of an autotuner is in it: the worker that measures loads every candidate, and tunes on the card. If a part
# of torch that this needs is missing, nothing is generated, and first calls compile on the card.
#
# One thing would change what is measured: torch's key of a backward graph leaves out which saved tensors it may overwrite, and the graph of
# `retain_graph=True` may overwrite none. `tell_apart` adds that to the key.

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_NAME = "torch.compile"
_PREFIX = "warpwave-torch-compile-"
FOLDER = "generated"  # the key in `bench/ahead.json`
_READY_S = 120  # for torch's compile workers to start
# torch's autograd makes a context on the card in a process that traces a gradient. A few take less memory than marks another run's points.
_MOST = 3


def folder_of(job: Job) -> Path | None:
    """Return the folder of what was generated for this run; None if nothing was."""
    try:
        return Path(json.loads((Path(job.output) / AHEAD_FILE).read_text(encoding="utf-8"))[FOLDER])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def started(job: Job, card: Architecture, log: Path) -> tuple[list[Worker], dict[str, str]]:
    """Start to generate, if that is worth it on this card and the sweep has something for torch's compiler.

    Return the processes, and what the bench stage must know.

    The user's own cache is used if there is one. Otherwise it is a folder that no other user can write to: torch executes what is in it.
    """
    if not card.torch_compile_ahead or Stage.BENCH not in job.what.stages or not names_any(job, _NAME):
        return [], {}
    os.environ[_VARIABLE] = os.environ.get(_VARIABLE) or tempfile.mkdtemp(prefix=_PREFIX)
    workers = [forked(generate, job, card, share, _MOST)(log, log.with_name("log-torch-compile.txt")) for share in range(_MOST)]
    return workers, {FOLDER: os.environ[_VARIABLE]}


def name_folder(job: Job) -> None:
    """Name the folder to the processes that this one starts. torch reads it when it is imported."""
    if folder := folder_of(job):
        os.environ[_VARIABLE] = str(folder)


def remove(job: Job) -> None:
    """Delete what was generated for this run alone."""
    folder = folder_of(job)
    if folder is not None and folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def use(job: Job) -> None:
    """In the worker that measures: take what was generated, if anything was, and be ready to compile the rest."""
    if folder_of(job) is None:
        return
    with contextlib.suppress(Exception):
        tell_apart()
        importlib.import_module("torch._inductor.compile_fx")
        workers = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        workers.wait_pool_ready(_READY_S)


def tell_apart() -> None:
    """Add to torch's keys of graphs which of the saved tensors a backward graph may overwrite."""
    details = importlib.import_module("torch._inductor.codecache").FxGraphHashDetails
    donated = importlib.import_module("torch._inductor.utils").get_donated_idxs
    begin = details.__init__

    def begin_with(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.donated = donated()

    details.__init__ = begin_with


def generate(job: Job, card: Architecture, share: int, shares: int) -> None:
    """Run a share of all points once, up to what they time. This process launches nothing, and ends afterwards."""
    own = os.environ.get("TRITON_CACHE_DIR")
    with contextlib.ExitStack() as undo:
        undo.enter_context(temporary_home(Path(job.output) / Stage.BENCH.value))
        if own is None:  # then torch's compiler has Triton's cache in its own
            del os.environ["TRITON_CACHE_DIR"]
        without_card(job, card, undo)
        tell_apart()
        enter_links(job)
        enter_package(package_folders(job), first=python_path(job))
        for point in share_of(points_of(job), share, shares):
            run(point)


def run(point: Point) -> None:
    """Run one point on tensors without data, up to what it times. The sweep reports the point's own errors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(Reached, Exception):
        point.run()


def share_of(found: Iterable[Point], share: int, shares: int) -> list[Point]:
    """Return a share of the points, in their order. Those of a kernel with equal parameters stay together: they may share a graph."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in found:
        groups.setdefault((point.kernel, str(sorted(map(str, point.params.values())))), []).append(point)
    return list(itertools.chain.from_iterable(list(groups.values())[share::shares]))
