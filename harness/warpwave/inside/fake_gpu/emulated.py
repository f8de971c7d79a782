"""A Triton driver that executes: it loads code objects, and runs each launch on the CPU over the tensors that it was given."""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from warpwave.emulator import Argument, Check, EmulatorError, Execution, Found, Kernel, Launch, OutOfMemoryBounds, execute, load
from warpwave.inside.fake_gpu.driver import PretendedDriver, refuse, scratch
from warpwave.inside.fake_gpu.emulated_findings import Collected, Given, Printer, given
from warpwave.inside.fake_gpu.lanes import address, behind, buffers, first_code_of, flatten, lanes_of
from warpwave.inside.fake_gpu.launches import Account, Launched, check_grid, check_scratch
from warpwave.inside.fake_gpu.orders import Orders, was_tried
from warpwave.inside.fake_gpu.streams import Graph
from warpwave.records import Architecture

# A launch's Python values → the bytes that a kernel reads its arguments from.
#
# The order is that of Triton's own launchers: the arguments without the constants, tuples taken apart, then the two scratch pointers.
# Where each one belongs, and what the runtime adds, is in the code object's metadata (LLVM, "User Guide for AMDGPU Backend", V5).

_FORMATS = {"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
_FLOATS = {"fp32": "f", "f32": "f", "fp64": "d", "fp16": "e"}
_HIDDEN = "hidden_"
PRINTS = "hidden_hostcall_buffer"


class LaunchError(TypeError):
    """A kernel wants an argument that warpwave cannot pass. The message names it."""


def pack(
    layout: Sequence[Argument], size: int, values: Sequence[tuple[str, Any]], grid: tuple[int, int, int], threads: int, printer: int = 0
) -> bytes:
    """Return the kernarg segment of `size` bytes. `values` are all explicit arguments, the scratch pointers among them.

    `printer` is the address of the memory shared with the service that prints for a kernel. Raise `LaunchError` if the kernel wants other
    arguments, or one that warpwave does not know.
    """
    explicit = [argument for argument in layout if not argument.kind.startswith(_HIDDEN)]
    if len(explicit) != len(values):
        raise LaunchError(f"the kernel has {len(explicit)} arguments, the launch {len(values)}: this Triton passes them in another way")
    segment = bytearray(size)
    for argument, (kind, value) in zip(explicit, values, strict=True):
        data = encode(kind, value)
        if len(data) != argument.size:
            raise LaunchError(f"an argument of type {kind} has {len(data)} bytes, the kernel reads {argument.size}")
        segment[argument.offset : argument.offset + argument.size] = data
    # What the runtime tells a kernel of its launch. Whole workgroups only, so nothing remains.
    added = {f"block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
    added |= {"group_size_x": threads, "group_size_y": 1, "group_size_z": 1, "grid_dims": 3, PRINTS.removeprefix(_HIDDEN): printer}
    for argument in layout:
        if argument.kind.startswith(_HIDDEN):
            value = added.get(argument.kind.removeprefix(_HIDDEN), 0)
            segment[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
    return bytes(segment)


def encode(kind: str, value: Any) -> bytes:
    """Return a value as the kernel reads it. A pointer is a tensor, something else with `data_ptr`, an address, or None."""
    if kind.startswith("*"):
        return struct.pack("<Q", address(value))
    if kind == "bf16":
        return struct.pack("<H", torch.tensor(float(value), dtype=torch.bfloat16, device="cpu").view(torch.uint16).item())
    if kind in _FLOATS:
        try:
            return struct.pack(f"<{_FLOATS[kind]}", float(value))
        except OverflowError:  # C rounds such a number to infinity
            return struct.pack(f"<{_FLOATS[kind]}", math.copysign(math.inf, value))
    if kind not in _FORMATS:
        raise LaunchError(f"warpwave cannot pass an argument of type {kind}")
    letter = _FORMATS[kind]
    bits = 8 * struct.calcsize(letter)
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


# The texts of compiled kernels stay on the disk: Triton keeps all intermediate code of each kernel in memory, and a suite has hundreds.


class Texts(Mapping[str, Any]):
    """What Triton has as `kernel.asm`, but texts that are in `files` are read each time that somebody asks for one."""

    def __init__(self, asm: Any, files: Mapping[str, Path]) -> None:
        self._asm = asm  # which knows more than it holds
        self._asm.update({key: files[key] for key, text in asm.items() if isinstance(text, str) and key in files})

    def __getitem__(self, key: str) -> Any:
        found = self._asm[key]
        return found.read_text(encoding="utf-8") if isinstance(found, Path) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._asm)

    def __len__(self) -> int:
        return len(self._asm)


def with_texts_on_disk(init: Callable[..., None], kernel: Any, *args: Any, **kwargs: Any) -> None:
    """Make a compiled kernel."""
    init(kernel, *args, **kwargs)
    kernel.asm = Texts(kernel.asm, {Path(file).suffix[1:]: Path(file) for file in kernel.metadata_group.values()})


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
        self._source = source

    def __call__(
        self, x: int, y: int, z: int, stream: int, kernel: Kernel, packed: object, metadata: object, enter: Any, leave: Any, *args: Any
    ) -> None:
        """Execute all programs of the grid to their end; a launch of no program does nothing.

        Raise what a card's launcher and its driver raise: `ValueError` for a tensor of the host, `LaunchRefusedError`.
        """
        refuse(self._signature, args)
        x, y, z = map(operator.index, (x, y, z))  # NumPy's numbers count, too
        check_scratch(self._driver.card, kernel.name, self._metadata, self._driver)
        check_grid(self._driver.card, kernel.name, (x, y, z), self._metadata, kernel.registers, kernel.lds)
        Graph.run(self._launch, ((x, y, z), stream, kernel, metadata, enter, leave, *args), {})

    def _launch(
        self, grid: tuple[int, int, int], stream: int, kernel: Kernel, metadata: object, enter: Any, leave: Any, *args: Any
    ) -> None:
        if not math.prod(grid):
            return
        memory = scratch(self._driver.card, kernel.name, self._metadata, self._driver, grid, stream)
        if enter is not None:
            enter(metadata)
        with torch._C.DisableTorchFunction():
            tensors = given(self._signature.items(), args) if self._checks else []
            if self._checks:
                kinds = zip(self._signature.items(), args, strict=False)
                named = [(name, *each) for (name, kind), value in kinds for each in flatten([kind], [value])]
                tensors += [Given(name, tensor) for name, tensor in behind(named)]
            if self._checks is not None:
                self._checks.undefined(lanes_of(first_code_of(self._source.name, self._metadata.hash), self._signature, args, grid))
            values, passes = [*flatten(self._signature.values(), args)], self._account.passes
            after = passes.before(kernel.name, self._metadata.hash, values, grid) if passes else None
            self._execute(kernel, grid, [*values, *(("*i8", each) for each in memory)], tensors)
            if after:
                after()
        if leave is not None:
            leave(metadata)

    def _execute(self, kernel: Kernel, grid: tuple[int, int, int], values: list[tuple[str, Any]], tensors: list[Given]) -> None:
        found: list[Found] | None = None if self._checks is None else []
        threads = self._metadata.num_warps * self._metadata.warp_size
        waves = grid[0] * grid[1] * grid[2] * self._metadata.num_warps
        printer = Printer(waves) if any(argument.kind == PRINTS for argument in kernel.arguments) else None
        shared = [printer.buffer] if printer else []
        try:
            packed = pack(kernel.arguments, kernel.kernarg_bytes, values, grid, threads, shared[0][0] if shared else 0)
            launch = Launch(grid, threads, packed, self._metadata.shared + kernel.lds, [*buffers(values), *shared])
            orders = Orders(launch, kernel.wavefront) if found is not None and printer is None else None
            account = self._account
            limit, seconds = account.left, account.seconds_left
            counts = account.profiles.of(kernel, self._metadata) if account.profiles else None
            with printer or nullcontext():
                execution = execute(kernel, launch, limit_instructions=limit, limit_seconds=seconds, findings=found, counts=counts)
            account.add(execution)
            if orders and account.seconds_left > account.seconds / 2:  # else the test itself may need the time
                found = self._execute_in_other_orders(kernel, launch, limit, execution, orders, tensors, found or [])
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
                self._checks.add(found or (), tensors, self._metadata.shared + kernel.lds)
            if printer:
                sys.stdout.write(printer.printed)
                sys.stderr.write(printer.complaints)

    def _execute_in_other_orders(
        self, kernel: Kernel, launch: Launch, limit: int, first: Execution, orders: Orders, tensors: list[Given], found: list[Found]
    ) -> list[Found]:
        """Collect what depends on the order of waves and workgroups. Return what was found before, without what was tried here."""

        def again(**how: Any) -> Execution:
            seconds = self._account.seconds_left / 2
            return execute(kernel, launch, limit_instructions=limit, limit_seconds=seconds, **how)

        launched = Launched.again(kernel.name)
        races = orders.races(again, first, tensors, launched)
        different = orders.compare(again, first, tensors, launched)
        if orders.worth:
            found = [one for one in found if not was_tried(one)]
        if self._checks is not None:
            self._checks.raced(races, tensors)
            if not races and not any(one.check is Check.GLOBAL_RACE for one in found):  # a race says why, and where
                self._checks.reordered(kernel, different, [pair.found for pair in first.pairs])
        return found
