"""A pretended card, so that unmodified kernel packages run where there is none.

`pretended_device` (compile stage): tensors are torch's meta tensors, with shapes, strides and storage sizes but no data, and say that they
are on the card's device (`cuda:0`, `xpu:0`); Triton's active driver is a stub that names the wanted architecture, so the JIT specializes
and compiles exactly as it would on that card, and launches nothing. `interpreter.interpreted_device` (test stage in Triton's interpreter):
the same card, with tensors on the CPU. (FakeTensors would be the obvious choice for the first, but on a torch built without GPU support
their autograd aborts the process: no device guard is registered for the device that they claim.)
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from harness.inside.fake_gpu.compiled import plain
from harness.inside.fake_gpu.host_side import forget, is_pinned, refused, switched_on, taken_apart, tensors_in
from harness.inside.fake_gpu.host_side import known as known_data
from harness.inside.fake_gpu.launch_limits import check_grid, check_scratch
from harness.inside.fake_gpu.no_data.comparisons import comparisons
from harness.inside.fake_gpu.no_data.direct_ops import direct_ops
from harness.inside.fake_gpu.no_data.tensors import WithoutData, arrays, exchanged, lose_data
from harness.inside.fake_gpu.no_data.unknown import UnknownInt, known_to_math, size
from harness.inside.fake_gpu.no_data.written import written
from harness.inside.fake_gpu.objects.made import objects
from harness.inside.fake_gpu.torch_device import apply, patches, torch_device
from harness.inside.fake_gpu.vendor_blas import vendor_blas
from harness.records import Architecture

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
    function()
    return [1.0] * len(quantiles) if quantiles else [1.0] if return_mode == "all" else 1.0
