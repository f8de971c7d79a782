"""Run torch's compiler without a card: it sees a pretended one, generates and compiles for it, and loads and launches nothing.

torch's own compile workers use the assembler that torch brings, so this module uses it, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.records import Architecture, Job


class Reached(BaseException):
    """A point has come to what it times, or something would run on the card. No `except Exception` may catch it and go on otherwise."""


def without_card(job: Job, card: Architecture, undo: contextlib.ExitStack) -> None:
    """Until `undo` is closed, torch's compiler finds the card of the facts stage, generates and compiles for it, and launches nothing."""
    import torch
    import triton

    from harness.inside.fake_gpu.driver import PretendedDriver, capability
    from harness.inside.fake_gpu.torch_device import apply, patches, torch_device

    device = torch_device(card.torch_device)
    told = json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))["devices"][0]
    named = {"gcnArchName": card.torch_properties.get("name", card.name), **card.torch_properties, "name": told["name"]}
    card = dataclasses.replace(card, torch_properties=named)
    triton.runtime.driver.set_active(PretendedDriver(card, device, card.properties, lambda binary: (32, 0, card.program_threads)))
    of_torch = patches(card, device, capability(card))
    apply([*of_torch, *_of_compiler(), *stops()], undo)
    interface: Any = importlib.import_module("torch._dynamo.device_interface").get_interface_for_device(device.type)
    known: dict[str, Any] = {name: value for owner, name, value in of_torch if owner is getattr(torch, device.type)}
    for name, bound in list(vars(interface).items()):  # what it took from torch's module of the device, when it was made
        if isinstance(bound, staticmethod) and name in known:
            undo.callback(setattr, interface, name, bound)
            setattr(interface, name, staticmethod(known[name]))
    for settings, values in (("torch._inductor.config", _SETTINGS), ("torch._functorch.config", {"enable_autograd_cache": False})):
        undo.enter_context(importlib.import_module(settings).patch(**values))
    importlib.import_module("torch._inductor.runtime.compile_tasks")._set_triton_ptxas_path()


_SETTINGS = {"compile_threads": 1, "fx_graph_cache": True, "fx_graph_remote_cache": False, "autotune_remote_cache": False}
Change = tuple[Any, str, Any]


def at_what_is_timed(function: Callable[[], object], *args: Any, **kwargs: Any) -> None:
    """Call what a point times, once, and stop there.

    Raises:
        Reached: always.
    """
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
    yield importlib.import_module("triton"), "compile", _kept(importlib.import_module("triton").compile)


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


def _kept(compile_alone: Callable[..., Any]) -> Callable[..., Any]:
    def compile_and_keep(*args: Any, **options: Any) -> Any:
        compiled = compile_alone(*args, **options)
        _compiled[compiled.hash] = compiled
        return compiled

    return compile_and_keep


def _know_registers(self: Any) -> None:
    """Stand in for loading: of a loop's candidates, torch wants to know the registers, and compiles smaller ones if they are many."""
    from harness.inside.codegen.jit_recorder import read_once

    if "REDUCTION" not in str(self.heuristic_type) or self.inductor_meta.get("persistent_reduction"):
        return
    for result in self.compile_results:
        with contextlib.suppress(Exception):
            result.kernel.n_regs = read_once(_compiled[result.kernel.hash]).registers
