"""A pretended card, so that unmodified kernel packages run where there is none.

`pretended_device` (compile stage): tensors are torch's meta tensors, with shapes, strides and storage sizes but no data, and say that they
are on the card's device (`cuda:0`, `xpu:0`); Triton's active driver is a stub that names the wanted architecture, so the JIT specializes
and compiles exactly as it would on that card, and launches nothing. `interpreter.interpreted_device` (test stage in Triton's interpreter):
the same card, with tensors on the CPU. (FakeTensors would be the obvious choice for the first, but on a torch built without GPU support
their autograd aborts the process: no device guard is registered for the device that they claim.)
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import os
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, SimpleNamespace
from typing import Any

import torch
import triton
from triton._C import libtriton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner

from warpwave.inside.fake_gpu.compiled import followed, plain
from warpwave.inside.fake_gpu.contents import Contents
from warpwave.inside.fake_gpu.direct_ops import direct_ops
from warpwave.inside.fake_gpu.generated_code import without_code
from warpwave.inside.fake_gpu.host_side import forget, is_pinned, refused, switched_on, taken_apart, tensors_in
from warpwave.inside.fake_gpu.host_side import known as known_data
from warpwave.inside.fake_gpu.launches import check_grid, check_scratch
from warpwave.inside.fake_gpu.no_data import WithoutData, arrays, comparisons, exchanged, lose_data, written
from warpwave.inside.fake_gpu.objects import objects
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.streams import Graph
from warpwave.inside.fake_gpu.torch_device import Patch, apply, missing, of_card, patches, torch_device
from warpwave.inside.fake_gpu.torch_ops import shared_ops, sum_in_fp32
from warpwave.inside.fake_gpu.unknown import UnknownInt, known_to_math, size
from warpwave.inside.fake_gpu.vendor_tools import pretend_tools
from warpwave.inside.process.outcomes import Pretended
from warpwave.records import Architecture

# The vendors' matrix products that Triton brings (`CublasLt`, `HipblasLt`): benches and tests compare kernels with them.
#
# Their libraries come with a driver or a GPU build of torch, and do not load where there is no card.

_PRODUCTS = ("matmul", "gemm")


class Products:
    """Stands for a handle of such a library: torch computes the products, or only the shapes where tensors have no data."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """Take a card's scratch memory, which nothing here needs."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write `a @ b.T` to `c`. Shapes: (M, K), (N, K) and (M, N)."""
        c.copy_(_product(a, b))

    def gemm(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float) -> None:
        """Write `alpha * a @ b.T + beta * c` to `d`. Shapes: (M, K), (N, K) and twice (M, N)."""
        d.copy_(alpha * _product(a, b) + beta * c.float())


def vendor_blas(card: Architecture) -> list[Patch]:
    """Return what gives the backend of `card` such a handle. Those of other vendors say that their library is not there."""
    target = GPUTarget(card.backend, card.arch, card.warp_size)
    return [
        (module, name, _standing_for(getattr(module, name)) if backends[vendor].compiler.supports_target(target) else _absent(name, card))
        for vendor, module, name in _handles()
    ]


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a product whose sums are of fp32, as those libraries have them."""
    return a.float() @ b.float().t()


def _handles() -> Iterator[tuple[str, Any, str]]:
    """Yield each backend's name, its module of products, and the name of the class there."""
    for vendor in backends:
        for name, module in vars(getattr(libtriton, vendor, object)).items():
            if name.endswith("blas"):
                yield from ((vendor, module, each) for each, value in vars(module).items() if isinstance(value, type))


def _standing_for(real: type) -> type:
    """Return `Products`, which refuses whatever else the real class offers."""
    public = {name for name in vars(real) if not name.startswith("_")}
    return type(real.__name__, (Products,), {name: missing(f"{real.__name__}.{name}") for name in public - set(_PRODUCTS)})


def _absent(name: str, card: Architecture) -> Callable[..., object]:
    def fail(*args: object, **kwargs: object) -> object:
        raise RuntimeError(f"{name}: a machine with {card.name} does not have the library of another vendor")

    return fail


_SOME_NUMBER = 1234567
_BEFORE_ARGUMENTS = 9  # what a launcher gets before a kernel's own: the grid, the stream, the function, its metadata, two hooks
# Registers, spilled registers and threads of a loaded binary, found by its bytes.
Loader = Callable[[bytes], tuple[int, int, int]]


class PretendedDriver(DriverBase):  # type: ignore[misc]
    """A Triton driver without a device: it answers what a card would answer and launches nothing."""

    def __init__(self, card: Architecture, device: torch.device, properties: dict[str, int], load: Loader) -> None:
        super().__init__()
        self._target, self._device = GPUTarget(card.backend, card.arch, card.warp_size), device
        self._capability, self.card = capability(card), card
        self.utils = SimpleNamespace(
            get_device_properties=lambda index: dict(properties),
            # Between the binary and the device, backends pass what they need.
            load_binary=lambda name, binary, *rest: (object(), object(), *load(binary)),
            unload_module=lambda module: None,
        )

    @classmethod
    def is_active(cls) -> bool:
        """Return False: Triton must not choose it by itself."""
        return False

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Return what Triton calls to launch: nothing happens, but what a card's driver refuses is refused."""
        signature = dict(source.signature)

        def launch(*args: Any) -> None:
            arguments = args[_BEFORE_ARGUMENTS:]
            refuse(signature, arguments)
            check_scratch(self.card, metadata.name, metadata, self)
            check_grid(self.card, metadata.name, args[:3], metadata)
            for tensor in filter(is_pinned, tensors_in(arguments)):
                lose_data(tensor)  # the kernel may write to it, and does not run

        return launch

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only a real launcher needs C types."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """Return the architecture asked for."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """Return the device that the package's tensors claim to be on."""
        return self._device

    def get_current_device(self) -> int:
        """Return the only one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return the default stream."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_device_capability(self, device: int = 0) -> Any:
        """Return what torch's module for the device says."""
        return self._capability

    def get_device_interface(self) -> Any:
        """Return torch's module for the device."""
        return getattr(torch, self._device.type)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return what autotuning times its configurations with."""
        return triton.testing.do_bench  # type: ignore[no-any-return]

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return a small tensor: nothing is timed, so no cache is flushed."""
        return torch.empty(1, device=self._device)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing to clear."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        """Return the memory that a profile is written to if nobody has set an allocator for it."""
        return torch.zeros(size, dtype=torch.int8, device=self._device)


@contextlib.contextmanager
def pretended_device(card: Architecture, load: Loader, kinds: Iterable[str] = ("cuda",)) -> Iterator[None]:
    """Within, kernels are compiled for `card` and launched nowhere; every `do_bench` calls its function once.

    Whatever asks for a device of the card's own type, or of one of `kinds`, gets the pretended one.
    """
    device = torch_device(card.torch_device)
    triton.runtime.driver.set_active(PretendedDriver(card, device, card.properties, load))
    changes = [
        *patches(card, device, capability(card)),
        *objects((device.type, *kinds)),
        *vendor_blas(card),
        *direct_ops(device.type),
        *comparisons(),
        *known_to_math(),
        (triton.testing, "do_bench", call_once),
        (triton.testing, "do_bench_cudagraph", call_once),
        # Its timings are made up here, and must not be found by a bench that looks there for the fastest configuration.
        (triton.runtime.autotuner.Autotuner, "check_disk_cache", _tune_anew),
        (triton.runtime.jit.JITFunction, "run", _known_arguments(triton.runtime.jit.JITFunction.run)),
        (torch, "compile", plain),
    ]
    with contextlib.ExitStack() as undo:
        apply(changes, undo)
        apply([*exchanged(), *arrays()], undo)
        pretend_tools(card, getattr(torch, device.type).get_device_properties(), capability(card), undo)
        without_code(undo)
        redirect = undo.enter_context(WithoutData(torch.device("meta"), (device.type, *kinds), device))
        keep_in_backward(redirect, undo)
        yield


def refuse(signature: dict[Any, Any], arguments: Iterable[Any]) -> None:
    """Raise what Triton's launchers raise if a compiled kernel of this signature gets a tensor that a card cannot reach."""
    named = ((str(name), None if kind == "constexpr" else value) for (name, kind), value in zip(signature.items(), arguments, strict=False))
    if error := refused(taken_apart(named)):
        raise error


def capability(card: Architecture) -> Any:
    """Return what torch says of a card's generation: `(9, 4)`; for an architecture that is a mapping, the mapping."""
    said = card.torch_properties
    if "major" in said:
        return int(said["major"]), int(said.get("minor", 0))
    return divmod(card.arch, 10) if isinstance(card.arch, int) else card.arch if isinstance(card.arch, dict) else (0, 0)


def keep_in_backward(redirect: torch.overrides.TorchFunctionMode, undo: contextlib.ExitStack) -> None:
    """Keep the mode on during `backward`, which runs the package's own code. torch turns a mode off while a function that it saw runs."""
    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        with switched_on(redirect):
            return run_backward(*args, **kwargs)

    undo.callback(setattr, autograd, "_engine_run_backward", run_backward)
    autograd._engine_run_backward = run


def _known_arguments(run: Callable[..., Any]) -> Callable[..., Any]:
    """Launch with some number in place of one that depends on data, such as a seed; but a constant of a kernel, such as a size, decides.

    The JIT compiles another kernel for 1 and for multiples of 16: of 16 numbers, 15 are not such.
    """

    def some(value: Any, parameter: Any) -> Any:
        if not isinstance(value, UnknownInt):
            return value
        return size() if parameter is None or parameter.is_constexpr else _SOME_NUMBER

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = {parameter.name: parameter for parameter in self.params}
        known = [some(value, parameter) for value, parameter in zip(args, self.params, strict=False)]
        launched = run(self, *known, *args[len(known) :], **{name: some(value, named.get(name)) for name, value in kwargs.items()})
        _forget_written(launched, {**dict(zip(named, args, strict=False)), **kwargs})
        return launched

    return launch


def _forget_written(launched: Any, arguments: dict[str, Any]) -> None:
    """Forget the numbers of tensors to which a kernel writes: counters, indices that it sorts."""
    known = {name: found for name, value in arguments.items() if (found := [each for each in _tensors_of(value) if _is_known(each)])}
    if known and "ttir" in (binary := getattr(launched, "asm", {})):
        for argument in written(binary["ttir"]):
            name = argument.partition(".")[0]  # of a tuple, the third tensor is `name.2`; Triton 3.6 does not say of which tuple
            for tensor in known.get(name, ()) if name in arguments else itertools.chain(*known.values()):
                forget(tensor)


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument, also the one below a descriptor or a view of another type."""
    base = None if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else list(tensors_in(value))


def _is_known(tensor: torch.Tensor) -> bool:
    return known_data(tensor) is not None


def _tune_anew(self: Any, key: Any, configs: Any, bench: Callable[[], object]) -> bool:
    """Neither read nor write an autotuner's cache on disk."""
    bench()
    return False


def call_once(function: Callable[[], object], *args: Any, quantiles: Any = None, return_mode: str = "mean", **kwargs: Any) -> Any:
    """Stand in for `do_bench`: call the function once, and return a millisecond, because callers divide by it."""
    Pretended.timing = True
    function()
    return [1.0] * len(quantiles) if quantiles else [1.0] if return_mode == "all" else 1.0


# Autotuning without a card: nothing can be timed, so each launch takes one configuration, and the test says which.
#
# A card runs every configuration on the memory of the first call. Here that call runs once more before its own, with the tuner's hooks.


class Tuning:
    """Takes one of the configurations that an autotuner's own pruning leaves: the first, or number `turn`, or else the last.

    Those that break the kernel's own static assertions are left out, and where `fits` can say so, those that do not fit the card, as an
    autotuner leaves out what it cannot launch.
    `chosen` names those taken since `begin`, by kernel. `most` is the largest number that a kernel had to choose from since then.
    `in_place` says which kernels changed what they were tuned on.
    """

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        self.in_place: list[str] = []
        self.turn, self.most = 0, 0
        self.fits: Callable[[Any, dict[str, Any], Any], bool] | None = None  # tuner, arguments of the launch, configuration
        self._tuners: list[Autotuner] = []
        self._tuned: set[Any] = set()  # before the test
        self._tuned_now: set[Any] = set()
        self._call = threading.local()  # the innermost one of a tuner: its arguments, and how it was tuned

    def begin(self) -> None:
        """Forget what was chosen: every test names its own configurations."""
        for tuner in self._tuners:
            # An author's own autotuner may have a cache that cannot be emptied: a database of earlier runs. It names what it chooses once.
            getattr(tuner.cache, "clear", lambda: None)()
        self._tuners.clear()
        self.chosen, self.most, self.in_place = {}, 0, []
        # On a card, what fixtures and earlier tests tuned is tuned. The next turn of a test has another configuration to tune.
        if self.turn == 0:
            self._tuned |= self._tuned_now
        self._tuned_now = set()

    def patches(self) -> list[Patch]:
        """Return what makes every autotuner do so."""
        return [
            (Autotuner, "run", self._compared(Autotuner.run)),
            (Autotuner, "prune_configs", self._one(Autotuner.prune_configs)),
            (Autotuner, "_bench", _untimed),
        ]

    def _compared(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def launch(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._call, "innermost", None)
            self._call.innermost = call = _Call(tuner, args)
            try:
                launched = run(tuner, *args, **kwargs)
            finally:
                self._call.innermost = outer
            if call.tuned and (names := call.tuned.in_place()):
                self.in_place.append(_told(tuner.base_fn.__name__, names))
            return launched

        return launch

    def _one(self, prune: Callable[..., Any]) -> Callable[..., Any]:
        def one(tuner: Any, kwargs: Any) -> Any:
            left = list(prune(tuner, kwargs))
            number = self._first_that_fits(tuner, kwargs, left)
            self._tuners.append(tuner)
            self.most = max(self.most, len(left))
            self.chosen[tuner.base_fn.__name__] = f"{left[number]} ({number + 1} of {len(left)})"
            call = getattr(self._call, "innermost", None)
            if len(left) > 1 and call and call.tuner is tuner and not Graph.capturing and self._is_new(_key(tuner, kwargs)):
                call.tuned = _Tuned(tuner, call.args, kwargs, left[number])
            return left[number : number + 1]

        return one

    def _is_new(self, key: Any) -> bool:
        if key in self._tuned or key in self._tuned_now:
            return False
        self._tuned_now.add(key)
        return True

    def _first_that_fits(self, tuner: Any, kwargs: Any, left: list[Any]) -> int:
        asked = min(self.turn, len(left) - 1)
        if len(left) == 1:
            return asked
        possible = [number for number in range(asked, len(left)) if _keeps_assertions(tuner, kwargs, left[number])]
        return next((number for number in possible if self.fits is None or self.fits(tuner, kwargs, left[number])), asked)


class _Call:
    """A call of a tuner. `tuned` is there if the call is the first one for its key."""

    def __init__(self, tuner: Any, args: Any) -> None:
        self.tuner, self.args = tuner, args
        self.tuned: _Tuned | None = None


class _Tuned:
    """A launch as a tuner measures it, with its hooks, on the memory of the call. It is made before the call itself."""

    def __init__(self, tuner: Any, args: Any, kwargs: dict[str, Any], config: Any) -> None:
        named = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        self._launch: Callable[[], object] = lambda: tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        self._prepare: Callable[[], object] = lambda: config.pre_hook(named) if config.pre_hook else None
        self._memory = Contents(named)
        self._prepare()
        tuner.pre_hook(named)
        self._before = self._memory.copy()
        try:
            self._launch()
        except Exception as error:  # the call itself says what is wrong
            self._memory.put(self._before)
            tuner.post_hook(named, exception=error)
            self._first = None
            return
        self._first = self._memory.copy()
        tuner.post_hook(named, exception=None)
        tuner.pre_hook(named, reset_only=True)
        self._left = self._memory.copy()

    def in_place(self) -> list[str]:
        """Return the arguments that the kernel reads and then writes, if that changed the result of the call, which has just ended.

        What is only written changes no result. So the launch is repeated on what it had, with one changed argument at a time.
        """
        end = self._memory.copy()
        if self._first is None or end == self._first:
            return []
        try:
            if self._changes({}):  # the launch is never the same: a clock
                return []
            changed = {start: data for start, data in self._left.items() if data != self._before[start]}
            return [
                name
                for start, data in changed.items()
                if self._changes({start: data})
                for name in self._memory.changed(start, self._before[start], data)
            ]
        except Exception:  # of a launch on what no call had
            return []
        finally:
            self._memory.put(end)

    def _changes(self, other: dict[int, bytes]) -> bool:
        self._memory.put({**self._before, **other})
        self._prepare()
        self._launch()
        return self._memory.copy() != self._first


def _key(tuner: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a launch is tuned for, as Triton does: the arguments that the author names, and the types of all."""
    given = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (tuner, *(given[name] for name in tuner.keys if name in given), *types)


def _told(kernel: str, names: list[str]) -> str:
    return (
        f"autotuning changed {' and '.join(f'`{name}`' for name in names)}: `{kernel}` reads and then writes there, and the first call on "
        f"a card runs every configuration on the same memory. Give @triton.autotune restore_value={names}, or reset_to_zero for a sum that "
        "starts at zero"
    )


def _keeps_assertions(tuner: Any, kwargs: dict[str, Any], config: Any) -> bool:
    """Return whether `tl.static_assert` at the top of a kernel holds for a configuration, as far as constants decide it.

    The compiler refuses a configuration for which it does not, and an autotuner leaves that one out.
    """
    function = tuner.base_fn
    if not inspect.isfunction(function):
        return True
    defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    values = {**function.__globals__, **defaults, **(getattr(tuner, "nargs", None) or {}), **kwargs, **config.all_kwargs()}
    for condition in _assertions(function):
        with contextlib.suppress(Exception):  # it needs what only a launch knows
            if not eval(condition, values):  # noqa: S307 - the package's own code, in its own module
                return False
    return True


@functools.cache
def _assertions(function: Callable[..., Any]) -> list[CodeType]:
    """Return the conditions that a kernel asserts at its top, compiled."""
    try:
        kernel = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, IndexError):
        return []
    calls = [each.value for each in getattr(kernel, "body", ()) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    asserted = [call.args[0] for call in calls if call.args and ast.unparse(call.func).rpartition(".")[2] == "static_assert"]
    return [compile(ast.Expression(condition), function.__code__.co_filename, "eval") for condition in asserted]


def has_threads(card: Architecture) -> Callable[[Any, dict[str, Any], Any], bool]:
    """Return what says whether the programs of a configuration have no more threads than the card launches."""
    return lambda tuner, kwargs, config: config.num_warps * card.warp_size <= card.program_threads


def fits_on(card: Architecture) -> Callable[[Any, dict[str, Any], Any], bool]:
    """Return what compiles a configuration, and says whether the card has the threads and the shared memory that it needs."""

    def fits(tuner: Any, kwargs: dict[str, Any], config: Any) -> bool:
        given = {name: value for name, value in kwargs.items() if name != "warmup"}
        try:
            kernel = tuner.fn.warmup(*tuner.nargs.values(), **{**given, **config.all_kwargs(), "grid": (1,)})
            threads = kernel.metadata.num_warps * card.warp_size
            return bool(threads <= card.program_threads and kernel.metadata.shared <= card.properties["max_shared_mem"])
        except Exception:  # the launch itself says what is wrong
            return True

    return fits


def _untimed(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Stand in for the timing, which Triton 3.6 asks for even if only one configuration is left."""
    return [0.0, 0.0, 0.0]


# A pretended card whose tensors have data: they live on the CPU, and say that they are on the card.

# Tests that ask whether there is room for a tensor of gigabytes would fill the host's memory, and take hours.
_FREE_BYTES = 8 << 30
_OF_TORCH = ("inductor", "cudagraphs", "eager", "aot_eager", "aot_eager_decomp_partition")


def card_with_data(
    card: Architecture, kinds: Sequence[str], driver: Callable[[Architecture, torch.device], PretendedDriver], launching: Sequence[Patch]
) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `driver` makes Triton's driver for the card; `launching` is what else has to change so that kernels run.
    """
    device = torch_device(card.torch_device)
    triton.runtime.driver.set_active(driver(card, device))
    free = min(_FREE_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    tuning = Tuning()
    autocast = of_card(kinds)
    products: list[Patch] = [(torch, name, _with_out_dtype(getattr(torch, name))) for name in ("mm", "bmm", "addmm", "baddbmm")]
    originals: list[Patch] = [(owner, name, getattr(owner, name)) for owner, name, _ in (*autocast, *products)]
    changes: list[Patch] = [
        *patches(card, device, capability(card), free),
        *objects(kinds),
        *vendor_blas(card),
        *shared_ops(kinds),
        *tuning.patches(),
        (triton.testing, "do_bench", call_once),
        (triton.testing, "do_bench_cudagraph", call_once),
        *launching,
        (torch, "compile", _compile(torch.compile, originals)),
        (torch.library, "opcheck", _without_mode(torch.library.opcheck, originals)),
        *autocast,
        *products,
    ]
    undo = contextlib.ExitStack()
    undo.callback(sum_in_fp32())  # before `shared_ops` changes what a library does
    apply(changes, undo)
    pretend_tools(card, getattr(torch, device.type).get_device_properties(), capability(card), undo)
    without_code(undo)
    keep_in_backward(undo.enter_context(Redirect(torch.device("cpu"), kinds, device)), undo)
    return tuning, undo.close


def _compile(compile_: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Leave code as it is for torch's own backends: their kernels need a card, and their tracer sees no launch in the interpreter.

    Other backends are the author's.
    """

    def chosen(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(chosen, **options)
        if options.get("backend", "inductor") in _OF_TORCH:
            return followed(plain(model, **options))
        return _without_mode(compile_(model, **options), originals)

    return chosen


def _with_out_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a product of narrow numbers the `out_dtype` that torch has for cards alone: sums are not rounded to the operands' type."""

    @functools.wraps(function)
    def product(*args: Any, out_dtype: torch.dtype | None = None, out: torch.Tensor | None = None, **options: Any) -> Any:
        if args and isinstance(args[-1], torch.dtype):
            *args, out_dtype = args  # type: ignore[assignment]
        if out_dtype is None:
            return function(*args, **options) if out is None else function(*args, out=out, **options)
        made = function(*(each.to(out_dtype) if isinstance(each, torch.Tensor) else each for each in args), **options)
        return made if out is None else out.copy_(made)

    return product


def _without_mode(function: Callable[..., Any], originals: list[Patch]) -> Callable[..., Any]:
    """Let torch's own compiler see tensors as they are, and the functions that it has rules for."""
    if isinstance(function, torch.nn.Module):
        module: Callable[..., Any] = function
        return module

    def run(*args: Any, **kwargs: Any) -> Any:
        with _modes_taken_off(), contextlib.ExitStack() as undo:
            apply(originals, undo)
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def _modes_taken_off() -> Iterator[None]:
    """Take all modes off. Those that torch's compiler enters itself work: it indexes with tensors by one."""
    modes = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
    for _ in modes:
        torch._C._pop_torch_function_stack()
    try:
        with torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        for mode in modes:
            torch._C._push_on_torch_function_stack(mode)
