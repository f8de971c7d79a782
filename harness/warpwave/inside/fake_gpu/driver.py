"""Triton's driver of a pretended card, what it refuses to launch, and the vendors' matrix products that come with a real one."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton._C import libtriton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from warpwave.inside.fake_gpu.host_side import forget, is_pinned, known, refused, tensors_in
from warpwave.inside.fake_gpu.launches import LaunchRefusedError, UnreachableError, allocator, check_descriptors, check_grid, check_scratch
from warpwave.inside.fake_gpu.no_data import lose_data, written
from warpwave.inside.fake_gpu.streams import wait
from warpwave.inside.fake_gpu.torch_device import always, missing, nothing
from warpwave.inside.fake_gpu.unknown import Judged, MadeUpTime, UnknownInt, size
from warpwave.inside.process.outcomes import Pretended
from warpwave.records import Architecture

_BEFORE_ARGUMENTS = 9  # what a launcher gets before a kernel's own: the grid, the stream, the function, its metadata, two hooks
# Registers, spilled registers and threads of a loaded binary, found by its bytes.
Loader = Callable[[bytes], tuple[int, int, int]]
# Gets a kernel's source and metadata as Triton has them, and the grid and the arguments of a launch.
OnLaunch = Callable[[Any, Any, "tuple[Any, ...]", "tuple[Any, ...]"], None]


class PretendedDriver(DriverBase):  # type: ignore[misc]
    """A Triton driver without a device: it answers what a card would answer and launches nothing."""

    def __init__(
        self, card: Architecture, device: torch.device, properties: dict[str, int], load: Loader, launched: OnLaunch | None = None
    ) -> None:
        super().__init__()
        self._launched = launched
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
            check_descriptors(self.card, metadata.name, arguments)
            check_grid(self.card, metadata.name, args[:3], metadata)
            scratch(self.card, metadata.name, metadata, self, args[:3], args[3])
            if self._launched:
                self._launched(source, metadata, args[:3], arguments)
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

    get_current_device = get_current_stream = always(0)  # the only device, and its default stream
    set_current_device = clear_cache = nothing

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

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        """Return the memory for a profile, which has no allocator of the package's."""
        return torch.zeros(size, dtype=torch.int8, device=self._device)


def refuse(signature: dict[Any, Any], arguments: Iterable[Any]) -> None:
    """Raise what Triton's launchers raise if a compiled kernel of this signature gets a tensor that a card cannot reach."""
    named = ((str(name), None if kind == "constexpr" else value) for (name, kind), value in zip(signature.items(), arguments, strict=False))
    if error := refused(named):
        raise error


def scratch(card: Architecture, function: str, metadata: Any, driver: Any, grid: Sequence[Any], stream: int) -> list[Any]:
    """Return the memory that a launch has beside its arguments, from the allocators that the package has set; None where it needs none.

    Raise `LaunchRefusedError` for memory that a card cannot use. The size of an axis may be unknown, if it depends on data.
    """
    found: list[Any] = []
    for purpose in ("global", "profile"):
        one = getattr(metadata, f"{purpose}_scratch_size", 0)
        if not one or not all(isinstance(axis, Integral) and int(axis) > 0 for axis in grid):
            found.append(None)
            continue
        needed, align = math.prod(grid) * getattr(metadata, "num_ctas", 1) * one, getattr(metadata, f"{purpose}_scratch_align", 1)
        found.append(memory := allocator(purpose, driver)(needed, align, stream))
        kind, why, usual = LaunchRefusedError, "", "a card reads and writes beyond it, an illegal memory access"
        if memory is None:
            why, usual = "None", "a card reads and writes at address 0, an illegal memory access"
        elif isinstance(memory, torch.Tensor) and (has := memory.numel() * memory.element_size()) < needed:
            why = f"{has} bytes"
        elif refused([("scratch", memory)]):
            kind, why, usual = UnreachableError, "memory of the host", "Triton's launcher raises ValueError for that (cpu tensor?)"
        if why:
            what = f"it needs {needed} bytes of scratch memory, and the allocator returned {why}: {usual}. Let what "
            what += f"triton.set_allocator gets return torch.empty(size, dtype=torch.int8, device={card.torch_device!r})"
            raise kind(card, function, what, getattr(metadata, "hash", ""))
    return found


def capability(card: Architecture) -> Any:
    """Return what torch says of a card's generation: `(9, 4)`; for an architecture that is a mapping, the mapping."""
    said = card.torch_properties
    if "major" in said:
        return int(said["major"]), int(said.get("minor", 0))
    return divmod(card.arch, 10) if isinstance(card.arch, int) else card.arch if isinstance(card.arch, dict) else (0, 0)


def call_once(function: Callable[[], object], *args: Any, quantiles: Any = None, return_mode: str = "mean", **kwargs: Any) -> Any:
    """Stand in for `do_bench`: call the function once, and return a millisecond, because callers divide by it."""
    wait()
    function()  # what it raises, no answer of ours has decided
    Pretended.asked.update(("do_bench", "do_bench_cudagraph"))
    time = MadeUpTime(1)
    return [time] * len(quantiles) if quantiles else [time] if return_mode == "all" else time


# A launch without data.

SOME_NUMBER = 1234567  # the JIT compiles another kernel for 1 and for multiples of 16: of 16 numbers, 15 are neither


def with_known_arguments(run: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch with some number in place of one that depends on data, such as a seed. A constant of a kernel, such as a size, decides."""

    def some(value: Any, parameter: Any) -> Any:
        if not isinstance(value, UnknownInt):
            return value
        return size() if parameter is None or parameter.is_constexpr else SOME_NUMBER

    Judged.refuse_launch()
    named = {parameter.name: parameter for parameter in self.params}
    given = [some(value, parameter) for value, parameter in zip(args, self.params, strict=False)]
    launched = run(self, *given, *args[len(given) :], **{name: some(value, named.get(name)) for name, value in kwargs.items()})
    _forget_written(launched, {**dict(zip(named, args, strict=False)), **kwargs})
    return launched


def _forget_written(launched: Any, arguments: dict[str, Any]) -> None:
    """Forget the numbers of tensors to which a kernel writes: counters, indices that it sorts."""
    numbers: dict[str, list[torch.Tensor]] = {}
    for name, value in arguments.items():
        base = None if isinstance(value, torch.Tensor) else getattr(value, "base", None)  # of a descriptor, or a view of another type
        if found := [each for each in tensors_in(base if isinstance(base, torch.Tensor) else value) if known(each) is not None]:
            numbers[name] = found
    if numbers and "ttir" in (binary := getattr(launched, "asm", {})):
        for argument in written(binary["ttir"]):
            name = argument.partition(".")[0]  # of a tuple, the third tensor is `name.2`; Triton 3.6 does not say of which tuple
            for tensor in numbers.get(name, ()) if name in arguments else itertools.chain(*numbers.values()):
                forget(tensor)


def timed(bench: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Time one configuration. An autotuner compares the times, and the package has decided nothing by them."""
    found = bench(*args, **kwargs)
    return list(map(float.__pos__, found)) if isinstance(found, list) else found


def without_disk_cache(self: Any, key: Any, configs: Any, bench: Callable[[], object]) -> bool:
    """Neither read nor write an autotuner's cache on disk."""
    bench()
    return False


# The vendors' matrix products that Triton brings (`CublasLt`, `HipblasLt`): benches and tests compare kernels with them. Their libraries
# come with a driver or a GPU build of torch, and do not load where there is no card.


def vendor_products(card: Architecture) -> Iterator[tuple[Any, str, Any]]:
    """Yield the module, the name and what stands for the class of each vendor's products on a card."""
    target = GPUTarget(card.backend, card.arch, card.warp_size)
    for vendor in backends:
        for name, module in vars(getattr(libtriton, vendor, object)).items():
            for each, real in list(vars(module).items()) if name.endswith("blas") else ():
                if isinstance(real, type):
                    here = backends[vendor].compiler.supports_target(target)
                    yield module, each, _standing_for(real) if here else functools.partial(_refuse_other_vendor, each, card)


class Products:
    """Stands for a handle of such a library: torch computes the products, or only the shapes where tensors have no data.

    Sums are of fp32, as those libraries have them.
    """

    def __init__(self, workspace: torch.Tensor) -> None:
        """Take a card's scratch memory, which nothing here needs."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write `a @ b.T` to `c`. Shapes: (M, K), (N, K) and (M, N)."""
        c.copy_(a.float() @ b.float().t())

    def gemm(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float) -> None:
        """Write `alpha * a @ b.T + beta * c` to `d`. Shapes: (M, K), (N, K) and twice (M, N)."""
        d.copy_(alpha * (a.float() @ b.float().t()) + beta * c.float())


def _standing_for(real: type) -> type:
    """Return `Products`, which refuses whatever else the real class offers."""
    others = [name for name in vars(real) if not name.startswith("_") and not hasattr(Products, name)]
    return type(real.__name__, (Products,), {name: missing(f"{real.__name__}.{name}") for name in others})


def _refuse_other_vendor(name: str, card: Architecture, *args: object) -> object:
    raise RuntimeError(f"{name}: a machine with {card.name} does not have the library of another vendor")
