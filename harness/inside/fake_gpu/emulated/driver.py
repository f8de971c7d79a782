"""A Triton driver that executes: it loads code objects, and runs each launch on the CPU over the tensors that it was given."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from harness.emulator import Check, EmulatorError, Found, Kernel, Launch, OutOfMemoryBounds, execute, load
from harness.inside.fake_gpu.driver import PretendedDriver, refuse
from harness.inside.fake_gpu.emulated.account import Account
from harness.inside.fake_gpu.emulated.arguments import PRINTS, LaunchError, flatten, pack
from harness.inside.fake_gpu.emulated.findings import Collected, Given, given
from harness.inside.fake_gpu.emulated.intermediate_code import TEXTS_ON_DISK
from harness.inside.fake_gpu.emulated.memory import buffers
from harness.inside.fake_gpu.emulated.printing import Printer
from harness.inside.fake_gpu.emulated.reordered import Orders
from harness.inside.fake_gpu.launch_limits import allocator, check_grid, check_scratch
from harness.inside.fake_gpu.launched import Launched
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.streams import Graph
from harness.inside.fake_gpu.tuner import Tuning, fits_on
from harness.inside.fake_gpu.with_data import card_with_data
from harness.records import Architecture


def emulated_device(
    card: Architecture, kinds: Sequence[str], account: Account, checks: Collected | None = None
) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`, and execute what is launched there.

    Return what autotuners choose, and what undoes it all. `account` counts what is executed. With `checks`, launches are
    checked for more than their results, and `checks` collects what is found.
    """
    launching = [TEXTS_ON_DISK, (Redirect, "watch", staticmethod(account.watch))]
    tuning, undo = card_with_data(card, kinds, partial(EmulatedDriver, account, checks), launching)
    tuning.fits = fits_on(card)
    return tuning, undo


class EmulatedDriver(PretendedDriver):
    """A driver of a card whose machine code a CPU executes."""

    def __init__(self, account: Account, checks: Collected | None, card: Architecture, device: torch.device) -> None:
        super().__init__(card, device, card.properties, lambda binary: (0, 0, card.program_threads))
        self._account, self._checks, self._threads = account, checks, card.program_threads
        self.utils.load_binary = self._load

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Return what Triton calls to launch."""
        return _Launcher(self, source, metadata, self._account, self._checks)

    def _load(self, name: str, binary: bytes, *rest: object) -> tuple[object, Kernel, int, int, int]:
        """Return a module, the kernel, its registers, its spilled registers and its largest number of threads."""
        try:
            kernel = load(binary)
        except EmulatorError as error:
            self._account.fail(error)
            raise
        return object(), kernel, kernel.registers, kernel.spills, self._threads


class _Launcher:
    """Launches one compiled kernel, with the arguments that Triton gives to every backend's launcher."""

    def __init__(self, driver: EmulatedDriver, source: Any, metadata: Any, account: Account, checks: Collected | None) -> None:
        self._driver, self._signature, self._metadata = driver, dict(source.signature), metadata
        self._account, self._checks = account, checks

    def __call__(
        self, x: int, y: int, z: int, stream: int, kernel: Kernel, packed: object, told: object, enter: Any, leave: Any, *args: Any
    ) -> None:
        """Execute all programs of the grid to their end; a launch of no program does nothing.

        Raises:
            ValueError: an argument is a tensor that a card cannot reach.
            LaunchRefusedError: the driver of the card refuses the grid, or the kernel needs memory that nobody gives.
        """
        refuse(self._signature, args)
        x, y, z = map(operator.index, (x, y, z))  # NumPy's numbers count, too
        check_scratch(self._driver.card, kernel.name, self._metadata, self._driver)
        check_grid(self._driver.card, kernel.name, (x, y, z), self._metadata)
        Graph.run(self._launch, ((x, y, z), stream, kernel, told, enter, leave, *args), {})

    def _launch(self, grid: tuple[int, int, int], stream: int, kernel: Kernel, told: object, enter: Any, leave: Any, *args: Any) -> None:
        if not math.prod(grid):
            return
        scratch = self._scratch(math.prod(grid), stream)
        if enter is not None:
            enter(told)
        with torch._C.DisableTorchFunction():
            tensors = given(self._signature.items(), args) if self._checks else []
            self._execute(kernel, grid, [*flatten(self._signature.values(), args), *scratch], tensors)
        if leave is not None:
            leave(told)

    def _execute(self, kernel: Kernel, grid: tuple[int, int, int], values: list[tuple[str, Any]], tensors: list[Given]) -> None:
        found: list[Found] | None = None if self._checks is None else []
        threads = self._metadata.num_warps * self._metadata.warp_size
        waves = grid[0] * grid[1] * grid[2] * self._metadata.num_warps
        printer = Printer(waves) if any(argument.kind == PRINTS for argument in kernel.arguments) else None
        shared = [printer.buffer] if printer else []
        try:
            packed = pack(kernel.arguments, kernel.kernarg_bytes, values, grid, threads, shared[0][0] if shared else 0)
            launch = Launch(grid, threads, packed, self._metadata.shared, [*buffers(values), *shared])
            orders = Orders(launch) if found is not None and printer is None else None
            with printer or nullcontext():
                account = self._account
                limit, seconds = account.left, account.seconds_left
                account.add(execute(kernel, launch, limit_instructions=limit, limit_seconds=seconds, findings=found))
            if orders and self._checks is not None and account.seconds_left > account.seconds / 2:  # else the test itself may need the time
                again = partial(_execute_again, kernel, launch, limit, account)
                different = orders.compare(again, tensors, Launched.again(kernel.name))
                if not any(one.check is Check.GLOBAL_RACE for one in found or ()):  # the race says why, and where
                    self._checks.reordered(kernel, different)
        except EmulatorError as error:
            self._account.fail(error, printer.complaints if printer else "")
            if self._checks is not None and isinstance(error, OutOfMemoryBounds):
                self._checks.outside(error, tensors, kernel.wavefront, threads)
            raise
        except LaunchError as error:
            self._account.refuse(kernel.name, error)
            raise
        finally:
            if self._checks is not None:
                self._checks.add(found or (), tensors, max(self._metadata.shared, kernel.lds))
            if printer:
                sys.stdout.write(printer.printed)
                sys.stderr.write(printer.complaints)

    def _scratch(self, programs: int, stream: int) -> list[tuple[str, Any]]:
        """Return the pointers to memory that a kernel asks for beside its arguments, from the allocators that the package has set."""
        found: list[tuple[str, Any]] = []
        for purpose in ("global", "profile"):
            memory = None
            if size := getattr(self._metadata, f"{purpose}_scratch_size", 0):
                allocate = allocator(purpose, self._driver)
                memory = allocate(programs * size, getattr(self._metadata, f"{purpose}_scratch_align"), stream)
            found.append(("*i8", memory))
        return found


def _execute_again(kernel: Kernel, launch: Launch, limit: int, account: Account, seed: int) -> None:
    execute(kernel, launch, limit_instructions=limit, limit_seconds=account.seconds_left, order=seed)
