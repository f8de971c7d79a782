"""Everything of torch, Triton, NumPy and Python that a pretended card replaces: one row for each answer, with its reason.

A table is applied from its first row to its last one, so a row wraps what an earlier one has put there. All but `add` and `fill` leave out
what this release of a library does not have. What a card has and no row answers is *not pretended*: the last rows of `of_device` name it.

Three things are no attributes. Which device a call of torch means: `redirect.py` and `no_data.py` see every call, as a mode of torch.
Triton's active driver: `driver.py`. Kernels of torch's dispatcher, whose sums are in fp32: `sum_in_fp32` of `torch_ops.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import functools
import inspect
import json
import math
import multiprocessing.context
import os
import runpy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, ModuleType
from typing import Any, Literal

import _pytest.assertion.rewrite as pytests
import numpy as np
import pytest
import torch
import torch.distributed
import torch.utils.checkpoint
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from warpwave.inside.fake_gpu import (
    assertions,
    compiled,
    driver,
    host_side,
    no_data,
    objects,
    redirect,
    streams,
    torch_device,
    torch_ops,
    unknown,
)
from warpwave.inside.fake_gpu.allocated import memory_answers
from warpwave.inside.fake_gpu.torch_device import Patch, always, missing, nothing
from warpwave.inside.fake_gpu.tuning import Tuning
from warpwave.records import Architecture


@dataclass(frozen=True)
class Answer:
    """Attributes of a module, a class or an object, and what stands there while a card is pretended.

    `how`: `put`, `wrap` and `around` change what is there, `fill` adds what is not, `add` does either. The value of `wrap` makes the new of
    the old. That of `around` is called in its place, with the old first.
    """

    how: Literal["put", "wrap", "around", "fill", "add"]
    owner: Any
    names: str
    value: Any
    why: str


put: Callable[..., Answer] = functools.partial(Answer, "put")
wrap: Callable[..., Answer] = functools.partial(Answer, "wrap")
around: Callable[..., Answer] = functools.partial(Answer, "around")
fill: Callable[..., Answer] = functools.partial(Answer, "fill")
add: Callable[..., Answer] = functools.partial(Answer, "add")


def changes(table: Iterable[Answer]) -> Iterator[Patch]:
    """Yield each change when it is its turn: `wrap` and `around` take what the owner has then."""
    for row in table:
        for name in row.names.split():
            is_there = hasattr(row.owner, name)
            if row.how == "add" or is_there == (row.how != "fill"):
                before = getattr(row.owner, name, None)
                value = row.value(before) if row.how == "wrap" else row.value
                if row.how == "around":
                    value = torch_device.around(row.value, before)
                    if isinstance(inspect.getattr_static(row.owner, name), staticmethod):
                        value = staticmethod(value)
                yield row.owner, name, value


def each(names: Iterable[str], of_name: Callable[[str], Answer]) -> list[Answer]:
    """Return a row for each name, where what stands there depends on the name."""
    return list(map(of_name, names))


# ---- torch's module of the device (`torch.cuda`, `torch.xpu`) ----


def _of_module(card: Architecture, device: torch.device, capability: object, free_bytes: int | None) -> list[tuple[str, object, str]]:
    """The functions and classes of the module. Each of its parts (`torch.cuda.memory`) that has one of that name gets it, too."""
    properties = torch_device.properties(card, capability)
    total = properties.total_memory
    memory = memory_answers(min(total, free_bytes or total), total)
    generator = torch_device.CardGenerator(torch.device(device.type, 0), torch.default_generator)
    return [
        ("_lazy_init init", nothing, "no driver is there to be initialized"),
        ("is_available is_initialized is_bf16_supported", always(True), "there is a card, and it is ready"),
        ("device_count", always(1), "it is the only one"),
        ("current_device _exchange_device _maybe_exchange_device", always(0), "and the current one"),
        ("device device_of", torch_device.DeviceGuard, "so a guard changes nothing"),
        ("can_device_access_peer", always(False), "it has no peer"),
        ("get_device_name", always(properties.name), "from the targets file"),
        ("get_device_capability", always(capability), "from the targets file"),
        ("get_device_properties", always(properties), "from the targets file"),
        ("get_arch_list", always([card.name]), "from the targets file"),
        ("get_gencode_flags", always(""), "nothing is compiled with the vendor's compiler"),
        ("Stream", streams.Stream, "one queue, which is always empty"),
        ("ExternalStream", type("ExternalStream", (streams.Stream,), {}), "as Stream"),
        ("StreamContext", streams.StreamContext, "torch's compiler asks whether an object is one"),
        ("stream", lambda stream: streams.StreamContext(stream), "a context, as torch's"),
        ("current_stream", lambda device=None: streams.Stream.current(), "that of the innermost context"),
        ("default_stream", lambda device=None: streams.DEFAULT, "one queue"),
        ("get_stream_from_external", lambda pointer, device=None: streams.DEFAULT, "one queue"),
        ("set_stream", lambda stream: streams.Stream.make_current(stream), "packages restore the stream of before"),
        ("Event", streams.Event, "everything has run; a time is made up"),
        ("synchronize", streams.wait, "everything has run; a card refuses it while a graph is captured"),
        ("CUDAGraph", streams.Graph, "repeats on the host what was captured"),
        ("graph", streams.capture, "repeats on the host what was captured"),
        ("is_current_stream_capturing", lambda: bool(streams.Graph.capturing), "libraries must not wait in a capture"),
        ("graph_pool_handle", always((0, 0)), "a name, of memory that is not pooled"),
        ("make_graphed_callables", streams.graphed, "captured once, as a card refuses to wait there"),
        ("cudart", always(torch_device.Runtime(memory["mem_get_info"])), "packages mark there what a profiler should record"),
        ("set_device", torch_device.only_card, "it is the only one"),
        ("ipc_collect set_sync_debug_mode _sleep", nothing, "there is nothing to set"),
        ("_record_memory_history _dump_snapshot", nothing, "there is nothing to record"),
        ("reset_peak_host_memory_stats reset_accumulated_host_memory_stats", nothing, "the host's memory is not counted"),
        *((name, value, "counted on the host") for name, value in memory.items()),
        ("get_sync_debug_mode", always(0), "it does not warn"),
        ("manual_seed manual_seed_all", lambda seed: generator.manual_seed(int(seed)) and None, "the numbers are the host's"),
        ("seed seed_all", lambda: generator.seed() and None, "the numbers are the host's"),
        ("initial_seed", lambda: generator.initial_seed(), "the numbers are the host's"),
        ("get_rng_state", lambda device=None: generator.get_state(), "16 bytes, a seed and an offset, as a card has it"),
        ("get_rng_state_all", lambda: [generator.get_state()], "16 bytes, as a card has it"),
        ("set_rng_state", lambda state, device=None: generator.set_state(state) and None, "16 bytes, as a card has it"),
        ("set_rng_state_all", lambda states: generator.set_state(states[0]) and None, "16 bytes, as a card has it"),
        ("default_generators", (generator,), "kernels take their seed from it"),
    ]


def of_device(card: Architecture, device: torch.device, capability: object, free_bytes: int | None = None) -> list[Answer]:
    """What torch has for the type of device, for `torch.accelerator`, and of its version.

    `free_bytes` is what the card says of its free memory, if it is not all free.
    """
    module = getattr(torch, device.type)
    parts = [part for name in ("memory", "random", "streams", "graphs") if isinstance(part := getattr(module, name, None), ModuleType)]
    answers: dict[str, tuple[object, str]] = {}
    for names, value, why in _of_module(card, device, capability, free_bytes):
        answers |= {name: (torch_device.own(value), why) for name in names.split()}
    unanswered = [name for name in getattr(module, "__all__", ()) if name not in answers and _asks_a_card(getattr(module, name, None))]

    guards = torch._C._dynamo.guards  # type: ignore[attr-defined]

    def allocate(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)

    return [
        *(add(module, name, *answer) for name, answer in answers.items()),
        *(put(part, name, *answer) for part in parts for name, answer in answers.items()),
        *(put(getattr(module, part, None), name, torch_device.own(nothing), "nothing is profiled") for part, name in _MARKS),
        put(getattr(module, "nvtx", None), "range", contextlib.nullcontext, "nothing is profiled"),
        put(getattr(torch.backends, device.type, None), "is_built", torch_device.is_built, "packages mean the card by it"),
        put(torch, "Stream", streams.Stream, "torch's own asks a driver"),
        put(torch, "Event", streams.Event, "torch's own asks a driver"),
        around(torch.profiler.profile, "__enter__", torch_device.profiling, "there are no times of kernels"),
        put(torch.accelerator, "current_accelerator", always(torch.device(device.type)), "the card is of this type"),
        *(add(torch.version, name, version, "packages tell the vendor by it") for name, version in card.torch_version.items()),
        put(guards, f"_empty_strided_{device.type}", allocate, "code that torch.compile wrote calls it, and authors keep such code"),
        add(torch.UntypedStorage, "_share_cuda_ _new_shared_cuda", torch_device.no_handle, "not pretended: a driver makes such handles"),
        *_of_bindings(card, device, {name: value for name, (value, _) in answers.items()}),
        *each(unanswered, lambda name: put(module, name, missing(f"torch.{device.type}.{name}"), "not pretended: it would ask a card")),
    ]


def _of_bindings(card: Architecture, device: torch.device, answers: dict[str, Any]) -> list[Answer]:
    """The functions of `torch._C` below `torch.accelerator` and `torch.cuda`, with what `answers` says of torch's module for the device."""
    dtypes = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")
    version = [int(part or 0) for part in f"{card.torch_version.get('cuda', '')}..".split(".")[:2]]
    shared = {
        "getAccelerator": always(torch.device(device.type)),
        "getDeviceIndex exchangeDevice maybeExchangeDevice hooks_get_current_device": always(0),
        "hooks_exchange_device hooks_maybe_exchange_device": always(0),
        "setDeviceIndex hooks_set_current_device": torch_device.only_card,
        "emptyHostCache setAllocatorSettings": nothing,
        "hooks_device_count": always(1),
        "getStream": answers["current_stream"],
        "setStream": answers["set_stream"],
        "synchronizeDevice": streams.wait,
        "emptyCache": answers["empty_cache"],
        "isAllocatorInitialized": always(True),
        "getDeviceStats": answers["memory_stats_as_nested_dict"],
        "resetPeakStats": answers["reset_peak_memory_stats"],
        "resetAccumulatedStats": answers["reset_accumulated_memory_stats"],
        "getMemoryInfo": answers["mem_get_info"],
        "getDeviceCapability": always({"supported_dtypes": {getattr(torch, name) for name in dtypes}}),
    }
    cuda = {  # torch without a card's library has none of these
        "_cuda_getCurrentRawStream _cuda_getDevice": always(0),
        "_cuda_setStream _cuda_setDevice _cuda_clearCublasWorkspaces": nothing,
        "_cuda_getDeviceCount": always(1),
        "_cuda_isInBadFork": always(False),
        "_cuda_memoryStats": answers["memory_stats_as_nested_dict"],
        "_cuda_getCompiledVersion": always(version[0] * 1000 + version[1] * 10),  # 13000 of `13.0`
    }
    known = {f"_accelerator_{name}": value for names, value in shared.items() for name in names.split()}
    others = [name for name in dir(torch._C) if name.startswith("_accelerator_") and name not in known]
    why = "torch's Python modules ask its bindings, and launchers and torch's compiler do"
    return [
        *each(known, lambda name: put(torch._C, name, torch_device.own(known[name]), why)),
        *each(others, lambda name: put(torch._C, name, missing(f"torch._C.{name}"), "not pretended: it would ask a card")),
        put(torch._C, "_get_accelerator", always(torch.device(device.type)), why),
        *(add(torch._C, names, value, why) for names, value in cuda.items() if device.type == "cuda"),
    ]


_MARKS = [("nvtx", name) for name in ("range_push", "range_pop", "range_start", "range_end", "mark")]
_MARKS += [("profiler", name) for name in ("init", "start", "stop")]


def _asks_a_card(value: object) -> bool:
    """Return whether a function of torch's module asks the driver, by its bindings or, as `utilization` does, by vendors' tools."""
    names = value.__code__.co_names if isinstance(value, FunctionType) else ()
    return "_C" in names or any("smi" in name for name in names)


def patches(card: Architecture, device: torch.device, capability: object) -> list[Patch]:
    """Return the changes of `of_device`, for who pretends no more than that."""
    return list(changes(of_device(card, device, capability)))


# ---- what sees a device, or makes a tensor, where no mode of torch sees the call ----


def of_objects(kinds: Sequence[str]) -> list[Answer]:
    """Generators, parameters, arrays, files, threads and processes, with a pretended device of these types."""
    contexts: Any = multiprocessing.context
    by_type: Any = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    saving: Any = torch.serialization
    saving.add_safe_globals([objects.restored])  # for `weights_only`
    groups = torch.distributed if torch.distributed.is_available() and torch.distributed.is_gloo_available() else None
    return [
        around(torch_device.CardGenerator, "manual_seed seed", streams.seeding, "a card refuses another seed in a capture"),
        put(torch, "Generator", torch_device.generator_type(kinds), "one of the card has a card's state"),
        around(torch.nn.Parameter, "__new__", objects.keeping_side, "a parameter is where its data are"),
        around(torch.Tensor, "_make_subclass", objects.keeping_side, "a tensor of another class is where its data are"),
        around(torch.Tensor, "_make_wrapper_subclass", objects.wrapping, "a package's tensor of tensors is where they are"),
        around(torch, "from_numpy frombuffer", objects.from_host, "an array is on the host"),
        around(torch, "range", objects.made_there, "torch makes it before a mode sees the call"),
        around(torch.nested, "nested_tensor", objects.made_there, "torch makes it before a mode sees the call"),
        put(torch.Tensor, "record_stream", lambda tensor, stream: None, "torch looks at the stream's type before a mode sees the call"),
        put(saving, "_package_registry", objects.places(kinds, saving._package_registry), "torch writes the place of a storage"),
        around(torch.Tensor, "set_", objects.where_storage_is, "torch.load makes a tensor so"),
        around(torch.Tensor, "__reduce_ex__", objects.with_place, "pickle writes the place of a tensor"),
        around(torch.nn.Parameter, "__reduce_ex__", objects.with_place, "pickle writes the place of a tensor"),
        put(ForkingPickler, "_extra_reducers", {**by_type, **objects.reducers(by_type)}, "tensors are sent to other processes"),
        wrap(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", objects.as_they_are, "it compares devices"),
        # Private, and in each Python from 3.10 to 3.14; `run` is what subclasses replace.
        wrap(threading.Thread, "_bootstrap_inner", redirect.within, "a mode belongs to one thread"),
        put(contexts.SpawnProcess, "_Popen", staticmethod(objects.fork), "a new Python would see no card"),
        put(contexts.SpawnProcess, "_after_fork", staticmethod(contexts.ForkProcess._after_fork), "it is forked"),
        put(contexts.ForkServerProcess, "_Popen", staticmethod(objects.fork), "a new Python would see no card"),
        around(ProcessPoolExecutor, "__init__", objects.started_at_once, "its threads could hold locks that a fork copies"),
        around(groups, "init_process_group", objects.on_the_host, "gloo, whatever the package names: tensors are on the host"),
        *(add(*of_type, "torch's old name of tensors there") for of_type in objects.old_types(kinds)),
    ]


def of_every_card(card: Architecture, device: torch.device, kinds: Sequence[str], free_bytes: int | None = None) -> list[Answer]:
    """What all pretended cards answer alike."""
    return [
        *of_device(card, device, driver.capability(card), free_bytes),
        *of_objects(kinds),
        *(put(*products, "the vendors' libraries do not load without a driver") for products in driver.vendor_products(card)),
        put(triton.testing, "do_bench do_bench_cudagraph", driver.call_once, "nothing is timed"),
    ]


def in_backward(mode: torch.overrides.TorchFunctionMode) -> list[Answer]:
    """A backward runs the package's own code, which sees the card."""

    def running(run_backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with host_side.switched_on(None if compiled.has_no_modes() else mode):
            return run_backward(*args, **kwargs)

    return [around(torch.autograd, "_engine_run_backward", running, "torch turns a mode off while a function that it saw runs")]


# ---- a card whose tensors have no data (compile stage) ----


def without_data(device: torch.device) -> list[Answer]:
    """Launches, ops, comparisons and arrays."""
    ops = torch_ops.DirectOps(device.type)
    return [
        around(JITFunction, "run", driver.with_known_arguments, "a number that depends on data is some number"),
        around(Autotuner, "_bench", driver.timed, "it compares times that are made up, and the package does not"),
        put(Autotuner, "check_disk_cache", driver.without_disk_cache, "its timings are made up, and a bench must not find them there"),
        put(torch, "compile", compiled.plain, "the author's kernels are launched all the same"),
        put(torch.library, "triton_op", torch_ops.of_kernels, "torch does not look into the op"),
        put(torch.library, "wrap_triton", torch_ops.Traceable, "a launch, where torch would trace"),
        around(torch.library.Library, "impl", ops.implementing, "what is for the GPU runs where torch asks for shapes"),
        around(torch.library, _DESCRIBING, torch_ops.if_built, "packages describe operators of their compiled code when they are imported"),
        around(torch.library.Library, "_register_fake", ops.giving_shapes, "until the op has what is for the GPU"),
        # There is nothing to compare.
        put(torch, "allclose equal", lambda *args, **kwargs: unknown.UnknownTruth(), "the data are unknown"),
        put(torch.testing, "assert_close assert_allclose", nothing, "the data are unknown"),
        around(doctest.OutputChecker, "check_output", unknown.matching, "an example that shows unknown data passes"),
        put(triton.testing, "assert_close", nothing, "the data are unknown"),
        put(torch.autograd, "gradcheck gradgradcheck", no_data.differentiate, "the function and its backward launch"),
        put(torch.library, "opcheck", lambda *args, **kwargs: {}, "it traces, and compares"),
        *each(unknown.OF_MATH, lambda name: around(math, name, unknown.of_unknown, "the result is unknown, and decides nothing yet")),
        around(json, "dumps dump", unknown.lost_times, "what is read back may decide"),
        around(SourceFileLoader, "get_code", assertions.loaded, "assertions are rewritten"),
        around(runpy, "_get_code_from_file", assertions.run_as_script, "assertions are rewritten"),
        around(pytests, "rewrite_asserts", assertions.with_pytests, "assertions are rewritten"),
        put(pytests, "_read_pyc _write_pyc", nothing, "other stages load what is kept on the disk"),
        around(pytest.Config, "_mark_plugins_for_rewrite", assertions.without_plugins, "each worker would rewrite them anew"),
        # Tensors as they are, for other libraries and for modules.
        put(torch, "from_dlpack", lambda tensor, **options: tensor, "there are no data to share"),
        put(torch.utils.dlpack, "from_dlpack", lambda tensor, **options: tensor, "there are no data to share"),
        put(torch.utils.dlpack, "to_dlpack", lambda tensor: tensor, "there are no data to share"),
        around(torch, "_has_compatible_shallow_copy_type", no_data.compatible, "a parameter with data cannot become one without"),
        around(np, "array asarray asanyarray ascontiguousarray", no_data.covering, "NumPy would make zeros of what has no data"),
        around(torch, "from_numpy", no_data.from_numpy, "a tensor of such an array has no data either"),
        around(torch, "tensor as_tensor asarray", no_data.from_array, "a tensor of such an array has no data either"),
        around(torch, "tensor as_tensor asarray", unknown.lost_times, "a tensor of times has any numbers"),
    ]


# ---- a card whose tensors have data, on the CPU (test stage) ----


def autotuning(tuning: Tuning) -> list[Answer]:
    """One configuration for each launch."""
    return [
        around(Autotuner, "run", tuning.running, "a kernel may change what it is tuned on"),
        around(Autotuner, "prune_configs", tuning.choosing, "nothing can be timed: one configuration is left"),
        put(Autotuner, "_bench", always([0.0, 0.0, 0.0]), "Triton 3.6 asks for a timing also of one"),
    ]


_DESCRIBING = "register_fake impl_abstract register_kernel register_autograd register_vmap register_autocast"


def shared_ops(kinds: Iterable[str]) -> list[Answer]:
    """Custom ops: what a package registers for the GPU serves the CPU, where the tensors are."""
    ops = torch_ops.SharedOps(kinds)
    return [
        around(torch.library.Library, "impl", ops.implementing, "what is for the GPU serves the CPU, where the card's tensors are"),
        around(torch.library, _DESCRIBING, torch_ops.if_built, "packages describe operators of their compiled code when they are imported"),
        put(torch.library, "triton_op", torch_ops.of_kernels, "interpreted kernels cannot be traced: torch does not look into it"),
        wrap(torch.library, "wrap_triton", lambda traced: lambda kernel: torch_ops.Traceable(traced(kernel)), "as above"),
    ]


def of_card_alone(kinds: Sequence[str]) -> list[Answer]:
    """What torch has for cards alone, or has otherwise there. Its own compiler sees the originals."""
    autocast, on_cpu_too = torch.amp.autocast_mode.autocast, functools.partial(torch_device.on_cpu_too, kinds)
    return [
        around(autocast, "__enter__ __exit__", on_cpu_too, "the tensors are on the CPU, which has an autocast of its own"),
        around(torch, "mm bmm addmm baddbmm", torch_ops.with_out_dtype, "torch has the argument for cards alone"),
    ]


def with_data(kinds: Sequence[str], tuning: Tuning, launching: Sequence[Answer]) -> list[Answer]:
    """Ops, autotuners, `torch.compile`, and by `launching` what lets kernels run."""
    alone = of_card_alone(kinds)
    originals = [(row.owner, name, getattr(row.owner, name)) for row in alone for name in row.names.split()]
    return [
        *shared_ops(kinds),
        *autotuning(tuning),
        *launching,
        around(torch, "compile", functools.partial(compiled.by_authors_backend, originals), "torch's own backends need a card"),
        around(torch.library, "opcheck", functools.partial(compiled.without_modes, originals), "it traces"),
        *alone,
    ]


# ---- Triton's interpreter and its language ----


def before_launches() -> list[Answer]:
    """What is below all that watches launches."""
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    from warpwave.inside.fake_gpu import programs

    asks = ("create_atomic_cas", "create_atomic_rmw", "create_masked_load")
    return [
        around(GridExecutor, "__call__", programs.launching, "programs that wait for later ones take turns with them"),
        *each(asks, lambda name: around(InterpreterBuilder, name, functools.partial(programs.asking, name), "who asks in vain waits")),
    ]


def arithmetic() -> list[Answer]:
    """Numbers as cards compute them: first what differs for all types, then bf16 and fp8, which the interpreter takes for whole numbers."""
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps

    from warpwave.inside.fake_gpu import arithmetic as card

    builder = InterpreterBuilder
    return [
        *each(card.CHOICES, lambda name: put(builder, name, card.of_two(card.CHOICES[name]), "zeros and NaN as on a card")),
        around(builder, "create_fp_to_si create_fp_to_ui", card.saturating, "out of range, a card saturates"),
        around(ScanOps, "cumsum cumprod", card.of_its_type, "sums wrap around in the type of the input"),
        around(builder, "binary_op", card.of_one_bit, "comparisons and sums of truths have one bit"),
        put(builder, "get_all_ones_value", card.all_ones, "of every type"),
        around(builder, "create_umulhi", card.high_half, "signed operands take part by their bits"),
        around(builder, "create_fma", card.rounded_once, "of fp16, older releases round the product, too"),
        around(builder, " ".join(card.COMPUTED), card.computed, "narrow floats are computed in fp32"),
        around(builder, " ".join(card.CASTS), card.cast, "conversions of narrow floats round once, and saturate"),
        around(builder, "create_dot", card.operands_widened, "narrow floats are multiplied in fp32"),
        around(builder, "create_atomic_rmw", card.atomic, "narrow floats are added, and floats exchanged"),
        around(ReduceOps, "apply_impl", card.combined, "narrow floats are reduced in fp32"),
        around(ScanOps, "apply_impl", card.combined, "narrow floats are reduced in fp32"),
    ]


def language() -> list[Answer]:
    """Words of Triton's language, and of Python in kernels, that the interpreter lacks or means otherwise than the compiler."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter
    from triton.runtime.interpreter import ASTTransformer, FunctionRewriter, InterpretedFunction, InterpreterBuilder

    from warpwave.inside.fake_gpu import language as words
    from warpwave.inside.fake_gpu import ptx

    modules = words.Modules()
    return [
        around(interpreter, "_implicit_cvt", words.numbers_too, "a float of the host is fp32; older releases refuse True"),
        around(interpreter, "_patch_lang", modules.forwarding, "names of a package's own for the language's functions"),
        around(InterpretedFunction, "__call__", modules.calling, "the language is replaced once a launch, not at each call"),
        around(tl.core.constexpr, " ".join(words.BINARY), words.left_to_tensor, "a constant on the left of a tensor"),
        around(tl.core.block_type, "__init__", words.described_once, "describing a type takes longer than an operation"),
        around(tl.core.tensor, "__init__", words.shaped_once, "describing a shape takes longer than an operation"),
        around(interpreter, "_get_np_dtype", words.array_type_once, "finding a type takes longer than an operation"),
        around(TritonSemantic, "broadcast_impl_value", words.of_one_shape, "most operands have one shape"),
        wrap(tl.core, "_aggregate", words.aggregate, "structs: constants are numbers there, and methods not bound"),
        around(FunctionRewriter, "_compile_and_exec", words.with_cells, "a rewritten kernel keeps the variables of the function around it"),
        around(FunctionRewriter, "_compile_and_exec", words.annotated, "constants under other names than tl.constexpr"),
        add(interpreter, words.NAME, words, "what a rewritten kernel calls: the interpreter lends its own names to it"),
        add(ASTTransformer, "visit_Call", words.calling, "min and max of blocks, element by element"),
        add(ASTTransformer, "visit_BoolOp", words.joining, "and, or of blocks, element by element"),
        add(ASTTransformer, "visit_UnaryOp", words.negating, "not of blocks, element by element"),
        add(ASTTransformer, "visit_Attribute", words.asking, "a constant has a value"),
        add(ASTTransformer, "visit_For", words.loop_of_tensors, "a loop variable is a tensor"),
        wrap(ASTTransformer, "visit_Assign", functools.partial(words.with_values, ASTTransformer), "older releases leave the right side"),
        add(ASTTransformer, "visit_Compare", words.comparing_constants(ASTTransformer), "`x is None` of a constant"),
        fill(InterpreterBuilder, "create_descriptor_reduce", words.reduce_in_memory, "reductions through descriptors"),
        *(
            put(owner, "map_elementwise", words.map_elementwise, "functions of single elements")
            for owner in (tl, tl.core)
            if not hasattr(InterpreterBuilder, "create_map_elementwise")
        ),
        *(
            []
            if hasattr(InterpreterBuilder, "create_dot_scaled")
            else [around(TritonSemantic, "dot_scaled", words.with_constant_formats, "releases before 3.8 want constants")]
        ),
        add(InterpreterBuilder, "create_dot_scaled", words.dot_scaled, "releases before 3.8 have none, later ones round fp8 away"),
        around(interpreter, "_patch_lang_tensor", words.with_index, "a bound of one element, which NumPy 2.4 refuses"),
        put(InterpreterBuilder, "create_inline_asm", ptx.create_inline_asm, "inline PTX runs on all elements at once"),
        put(InterpreterBuilder, "get_bf16", words.constant_of_bf16, "a constant of every type but this one is there"),
        wrap(interpreter.interpreter_builder, "options", words.without_overflow, "it computes sums again, and drops the comparison"),
    ]


def device_libraries(backend: str) -> list[Answer]:
    """`libdevice`, whose functions return None or raise there. The one without a vendor becomes that of Triton's `backend`."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    from warpwave.inside.fake_gpu.device_library import Calls, functions, library, vendors

    modules = [module for module in map(library, vendors()) if module is not None]
    calls, plain, here = Calls(modules), library(), library(backend)
    return [
        put(
            InterpreterBuilder,
            "create_extern_elementwise",
            lambda builder, *args: calls.compute(*args),
            "in double precision, and rounded once",
        ),
        *(
            wrap(module, name, functools.partial(calls.named, name), "the wrapper knows only the name of a symbol")
            for module in modules
            for name in functions(module)
        ),
        put(tl.core, "extern", lambda function: calls.named("", tl.core.builtin(function)), "a package may have a library of its own"),
        *(
            put(plain, name, calls.named(name, vars(here).get(name) or functools.partial(_lacking, here, name)), "the pretended vendor's")
            for name in (functions(plain) if plain else ())
            if here
        ),
    ]


def _lacking(module: ModuleType, name: str, *args: object, **options: object) -> object:
    """Raise Python's own error for a function that the vendor's library does not have."""
    return getattr(module, name)


def hardware(processors: int, card: Architecture) -> list[Answer]:
    """What kernels ask of the card itself: programs run one after another, and one launch ends before the next begins."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, interpreter_builder

    from warpwave.inside.fake_gpu import arithmetic, interpreter

    known = interpreter.of_hardware(processors)
    functions, options = interpreter.of_compiler(card)
    smallest = {name: value for name, value in functions.items() if name == "min_dot_size"}
    precisions = {name: value for name, value in options.items() if name.endswith(("dot_input_precision", "dot_input_precisions"))}
    rows = [
        wrap(
            interpreter_builder, "options", lambda own: dataclasses.replace(own, **precisions), "each compiler takes others for a product"
        ),
        fill(InterpreterOptions, "num_warps", interpreter.WARPS, "a kernel asks how it was launched"),
        fill(InterpreterOptions, "warp_size", card.warp_size, "from the targets file"),
        wrap(interpreter_builder, "codegen_fns", lambda own: {**own, **smallest}, "the compiler refuses matrices that are too small"),
    ]
    if precisions.get("default_dot_input_precision") == "tf32" and isinstance(card.arch, int) and card.arch >= arithmetic.HAS_TF32:
        rows.append(around(InterpreterBuilder, "create_dot", arithmetic.cut_to_tf32, "matrix units leave out bits of fp32"))
    for module in interpreter.vendors_modules():
        for name in [name for name, value in vars(module).items() if getattr(value, tl.core.TRITON_BUILTIN, False)]:
            if name in known:
                rows.append(put(module, name, known[name], "one program runs at a time"))
            else:
                rows.append(around(module, name, interpreter.within_the_interpreter, "it runs in the interpreter"))
    return rows


def interpreted(processors: int, card: Architecture, whole: Architecture) -> list[Answer]:
    """Launches in Triton's interpreter, on `card` with few `processors`; `whole` has the limits of the real one."""
    from triton.compiler import compiler
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction

    from warpwave.inside.fake_gpu import interpreter

    rows = [
        *device_libraries(card.backend),
        *arithmetic(),
        *language(),
        *hardware(processors, card),
        around(type(os.environ), "__getitem__", host_side.noting_who_asks, "who asks for the interpreter may choose the host for it"),
        around(type(os.environ), "__iter__", host_side.noting_who_copies, "a copy of all variables asks for none"),
        # Host code asks what a kernel is, and reads its parameters and its source.
        add(InterpretedFunction, "__getattribute__", interpreter.own_attribute, "isinstance(kernel, triton.JITFunction) holds"),
        add(InterpretedFunction, "__getattr__", interpreter.attribute_of_compiled, "what it lacks comes from the kernel to be compiled"),
        add(InterpretedFunction, "__setattr__", interpreter.rename_too, "a package may rename it"),
        add(InterpretedFunction, "_unsafe_update_src", interpreter.with_source, "a package may write its source anew"),
        add(InterpretedFunction, "__repr__", JITFunction.__repr__, "as a compiled kernel"),
        around(JITFunction, "run", interpreter.not_interpreted, "not pretended: what Triton compiles even here would not run"),
        add(InterpretedFunction, "warmup", interpreter.warmup, "occupancy code asks for registers, and launches it"),
        around(InterpretedFunction, "__call__", interpreter.called, "the host cannot call what is a part of kernels"),
        around(InterpretedFunction, "run", interpreter.with_handle, "a launch returns the compiled kernel"),
        around(GridExecutor, "_init_args_hst", interpreter.but_pointers, "an argument with an address of its own stays as it is"),
        around(GridExecutor, "_restore_args_dev", interpreter.back_but_pointers, "an argument with an address of its own stays as it is"),
        wrap(
            GridExecutor, "__call__", functools.partial(interpreter.launched, card=whole), "a graph remembers launches; a card refuses some"
        ),
    ]
    replaced = [(row.owner, name) for row in rows for name in row.names.split()]
    compile_, first = (interpreter.compiling(replaced, each) for each in (compiler.compile, interpreter.make_first_code))
    why = "it compiles with Triton's own language, without the rows above"
    compilers = [put(owner, "compile", compile_, why) for owner in (triton, triton.compiler, compiler)]
    return [*rows, *compilers, put(interpreter, "make_first_code", first, why)]


def promised() -> list[Answer]:
    """What a kernel promises the compiler of its numbers is checked. It is above all else that the builder does."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    from warpwave.inside.fake_gpu.programs import Promises, assume, is_access

    checks, names = Promises(), [name for name in dir(InterpreterBuilder) if name.startswith("create_") and name != "create_assume"]
    return [
        around(TensorHandle, "set_attr", checks.making, "tl.multiple_of and its kin are marks of a number"),
        put(InterpreterBuilder, "create_assume", assume, "tl.assume must hold"),
        around(InterpreterBuilder, " ".join(filter(is_access, names)), checks.accessing, "an access relies on them"),
        around(InterpreterBuilder, " ".join(name for name in names if not is_access(name)), checks.computing, "what is computed of them"),
    ]


def traced() -> list[Answer]:
    """What a traced kernel calls beside the builder. It is above all of the interpreter."""
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, ReduceScanOpInterface, TensorHandle

    from warpwave.inside.fake_gpu import traces

    operations = " ".join(name for name in dir(InterpreterBuilder) if name.startswith("create_"))
    return [
        wrap(interpreter, "TritonSemantic", traces.shared, "Triton 3.6 has one for each function of the language"),
        around(InterpreterBuilder, operations, traces.passing, "what passes a trace by ends it"),
        around(ReduceScanOpInterface, "apply", traces.reducing, "a reduction is one step of a trace"),
        around(TensorHandle, "set_attr", traces.marking, "so is a mark"),
        around(interpreter, "_patch_lang_tensor", traces.deciding, "a trace branches where a kernel decides"),
    ]


# ---- the emulator ----


def emulated(watch: Callable[..., None]) -> list[Answer]:
    """Launches that the emulator executes; `watch` hears of each call of torch."""
    from triton.compiler.compiler import CompiledKernel

    from warpwave.inside.fake_gpu.emulated import with_texts_on_disk
    from warpwave.inside.fake_gpu.redirect import Redirect

    return [
        around(CompiledKernel, "__init__", with_texts_on_disk, "Triton keeps all texts of hundreds of kernels in memory"),
        put(Redirect, "watch", staticmethod(watch), "whether host code reads what a launch has made"),
    ]
