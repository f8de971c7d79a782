"""Stand-ins for a GPU, so that unmodified kernel packages run where there is none.

`pretended_device` (compile stage): tensors are torch's meta tensors, with shapes, strides and storage sizes but no data, and claim to live
on `cuda:0`; Triton's active driver is a stub that names the wanted architecture, so the JIT specializes and compiles exactly as it would
on that card, and launches nothing. `interpreted_device` (test stage in Triton's interpreter): tensors live on the CPU, and a hard-coded
`device="cuda"` is redirected to it. (FakeTensors would be the obvious choice for the first, but on a torch built without GPU support
their autograd aborts the process: no device guard is registered for the device that they claim.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from harness.inside.fake_gpu.custom_ops import direct_op, plain
from harness.inside.fake_gpu.redirect import Redirect
from harness.records import Architecture

# Registers, spilled registers and threads of a loaded binary, found by its bytes.
Loader = Callable[[bytes], tuple[int, int, int]]


class PretendedDriver(DriverBase):  # type: ignore[misc]
    """A Triton driver without a device: it answers what a card would answer and launches nothing."""

    def __init__(self, target: GPUTarget, device: torch.device, properties: dict[str, int], load: Loader) -> None:
        super().__init__()
        self._target, self._device = target, device
        self.utils = SimpleNamespace(
            get_device_properties=lambda index: dict(properties),
            load_binary=lambda name, binary, shared, index: (object(), object(), *load(binary)),
            unload_module=lambda module: None,
        )

    @classmethod
    def is_active(cls) -> bool:
        """Never chosen by Triton itself, only set."""
        return False

    def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
        """What Triton calls to launch."""
        return lambda *args, **kwargs: None

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only a real launcher needs C types."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """The architecture asked for."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """Where the package's tensors claim to be."""
        return self._device

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default stream."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """`(9, 0)` for architecture 90; zeros where the architecture is no number."""
        return divmod(self._target.arch, 10) if isinstance(self._target.arch, int) else (0, 0)

    def get_device_interface(self) -> Any:
        """torch's module for the device."""
        return getattr(torch, self._device.type)

    def get_benchmarker(self) -> Callable[..., Any]:
        """What autotuning times its configurations with."""
        return triton.testing.do_bench  # type: ignore[no-any-return]

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Nothing is timed, so nothing need be flushed."""
        return torch.empty(1, device=self._device)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing to clear."""


class _Stream:
    """The default stream, whichever is asked for. A class, as torch's is: libraries annotate with `torch.cuda.Stream | None`."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """There is no device to make one on."""


@contextlib.contextmanager
def pretended_device(card: Architecture, load: Loader) -> Iterator[None]:
    """Within, kernels are compiled for `card` and launched nowhere; every `do_bench` calls its function once."""
    device = torch.device("cuda", 0)
    target = GPUTarget(card.backend, card.arch, card.warp_size)
    driver = PretendedDriver(target, device, card.properties, load)
    triton.runtime.driver.set_active(driver)
    properties = SimpleNamespace(
        name=card.name,
        multi_processor_count=card.properties["multiprocessor_count"],
        warp_size=card.warp_size,
        shared_memory_per_block_optin=card.properties["max_shared_mem"],
        regs_per_multiprocessor=card.properties["max_num_regs"],
        max_threads_per_multi_processor=card.properties["max_threads_per_sm"],
        gcnArchName=card.name,
        total_memory=64 << 30,
    )
    capability = driver.get_device_capability()
    properties.major, properties.minor = capability

    with contextlib.ExitStack() as undo:
        for owner, name, value in (
            (torch.cuda, "_lazy_init", lambda: None),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "set_device", lambda index: None),
            (torch.cuda, "synchronize", lambda device=None: None),
            (torch.cuda, "get_device_name", lambda device=None: card.name),
            (torch.cuda, "get_device_capability", lambda device=None: capability),
            (torch.cuda, "get_device_properties", lambda device=None: properties),
            (torch.cuda, "mem_get_info", lambda device=None: (properties.total_memory, properties.total_memory)),
            (torch.cuda, "Stream", _Stream),
            (torch.cuda, "current_stream", lambda device=None: _Stream()),
            (torch.cuda, "set_stream", lambda stream: None),
            (torch.cuda, "device", contextlib.nullcontext),
            *((torch.version, name, version) for name, version in card.torch_version.items()),
            # There is no data to compare; what is checked here is the code.
            (torch, "allclose", lambda *args, **kwargs: True),
            (torch, "equal", lambda *args, **kwargs: True),
            (torch.testing, "assert_close", lambda *args, **kwargs: None),
            (triton.testing, "assert_close", lambda *args, **kwargs: None),
            (triton.testing, "do_bench", call_once),
            (triton.testing, "do_bench_cudagraph", call_once),
            # What it times here is nothing, and must not be found by a bench that looks there for the fastest.
            (triton.runtime.autotuner.Autotuner, "check_disk_cache", _tune_anew),
            (torch, "compile", plain),
            (torch.library, "custom_op", direct_op),
            (torch.library, "triton_op", direct_op),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name, None))
            setattr(owner, name, value)
        redirect = undo.enter_context(Redirect(torch.device("meta"), claim=device))
        _keep_in_backward(redirect, undo)
        yield


def _keep_in_backward(redirect: Redirect, undo: contextlib.ExitStack) -> None:
    """A mode is off while a function that it has seen runs, and `backward` is one: the package's own code runs in there."""
    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        with redirect:
            return run_backward(*args, **kwargs)

    undo.callback(setattr, autograd, "_engine_run_backward", run_backward)
    autograd._engine_run_backward = run


def _tune_anew(self: Any, key: Any, configs: Any, bench: Callable[[], object]) -> bool:
    """An autotuner's cache on disk, neither read nor written."""
    bench()
    return False


def call_once(function: Callable[[], object], *args: Any, quantiles: Any = None, return_mode: str = "mean", **kwargs: Any) -> Any:
    """`do_bench` where nothing can be timed: one call, and a millisecond for whoever divides by it."""
    function()
    return [1.0] * len(quantiles) if quantiles else [1.0] if return_mode == "all" else 1.0
