"""One launch: what goes in, what comes out, and how the C core is called for it."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Union

from warpwave.emulator.checks import Found, Pair, Reversal, Room
from warpwave.emulator.code_object import Kernel, set_up
from warpwave.emulator.counts import Counts
from warpwave.emulator.errors import Deadlock, EmulatorError, OutOfMemoryBounds, Place, TimeLimit, Trap, Unimplemented
from warpwave.emulator.program import Program, at_fixed_address, program

MOST_SWITCHES = 1 << 14  # of one launch: programs that wait for a lock switch again and again
_SLICE = 200_000  # wave-instructions before another wave or workgroup has its turn
_RESIDENT_BYTES = 512 << 20  # of waves' registers: workgroups that wait for each other are all resident up to here
_FINE, _UNIMPLEMENTED, _OUT_OF_BOUNDS, _OUT_OF_LDS, _TRAPPED, _LIMIT, _DEADLOCK = range(7)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    `grid` counts workgroups, not threads. `threads` is the size of a workgroup in x (warps times lanes); y and z are 1.
    `arguments` is the packed kernarg segment, at the offsets of `Kernel.arguments`; pointers in it are addresses of this process.
    `lds` is the LDS of a workgroup in bytes; the kernel's own fixed size is used if it is larger.
    `buffers` lists (address, bytes) of all memory that the kernel may touch. Any access outside ends in `OutOfMemoryBounds`; no
    access is made there. The caller keeps that memory alive. Kernarg segment, scratch and the code object's constants need no entry.
    """

    grid: tuple[int, int, int]
    threads: int
    arguments: bytes
    lds: int = 0
    buffers: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Execution:
    """What was executed: `instructions` counts wave-instructions, `waves` the waves of all workgroups.

    With checks, `pairs` are accesses of two waves that nothing orders. `rounds` says whether atomics may round all results in the order in
    which they come; if not, they may round what is in `added` (from, to). `decides` says whether an atomic gave back a value, or a load
    waited for one, which may decide which program adds up. `reversed` says whether a pair came in the other order. `switches` counts how
    often a random order held a program near an atomic, the last time behind `switched_at`.
    """

    instructions: int
    waves: int
    pairs: Sequence[Pair] = ()
    rounds: bool = False
    added: Sequence[tuple[int, int]] = ()
    decides: bool = False
    reversed: bool = False
    switches: int = 0
    switched_at: Union[Callable[[], Place], None] = None


_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


class _Machine(ctypes.Structure):
    """`struct machine` of core/machine.h, without its last two members."""

    _fields_ = (
        ("code", ctypes.c_void_p), ("index_of", ctypes.c_void_p), ("ranges", ctypes.c_void_p),
        ("image", _U64), ("kernarg", _U64), ("packet", _U64), ("limit", _U64), ("slice", _U64), ("until", _U64), ("random", _U64),
        ("most_switches", _U64),
        ("count_code", _U32), ("count_ranges", _U32), ("words", _U32), ("lds_bytes", _U32), ("scratch_bytes", _U32), ("rows", _U32),
        ("accumulators", _U32), ("grid", _U32 * 3), ("threads", _U32), ("entry", _U32), ("mode", _U32), ("user_sgprs", _U32),
        ("kernarg_at", _U32), ("packet_at", _U32), ("preload_at", _U32), ("preload_words", _U32), ("enable_id", _U32), ("resident", _U32),
        ("ids_in_ttmp", _U32), ("generation", _U32), ("packed_ids", _U32), ("sgpr_ids", _U32 * 3), ("private_at", _U32),
        ("findings", _U64), ("pairs", _U64), ("reversal", _U64), ("most_findings", _U32), ("most_pairs", _U32), ("lds_unit", _U32),
        ("global_unit", _U32), ("counting", _U64), ("count_findings", _U32), ("count_pairs", _U32),
        ("switches", _U64), ("executed", _U64), ("waves", _U64), ("fault_address", _U64), ("added", _U64),
        ("fault", _U32), ("fault_index", _U32), ("fault_lane", _U32), ("fault_size", _U32), ("fault_wave", _U32), ("fault_store", _U32),
        ("fault_group", _U32 * 3), ("last_switch", _U32), ("rounds", _U32), ("decides", _U32),
    )  # fmt: skip


def execute(
    kernel: Kernel,
    launch: Launch,
    *,
    limit_instructions: Union[int, None] = None,
    limit_seconds: Union[float, None] = None,
    findings: Union[list[Found], None] = None,
    order: int = 0,
    switches: int = MOST_SWITCHES,
    reverse: Union[Pair, None] = None,
    counts: Union[Counts, None] = None,
) -> Execution:
    """Execute all workgroups of one launch, to their end, before returning. Results are in the buffers.

    Deterministic: the same launch gives the same bits. Raise an `EmulatorError` if it did not end well; what was stored until then
    stays stored. `limit_instructions` bounds the wave-instructions of the launch, `limit_seconds` its time (`TimeLimit`). With a list of
    `findings`, the launch is checked for races and the like, and what is found is appended; that takes longer. An `order` other than 0
    seeds a random order of waves and workgroups. It holds programs near their atomics, at most `switches` times. `reverse` is a pair of an
    earlier execution without an order: its second access is to come before its first; `TimeLimit` if that is impossible. What each
    instruction did is added to the kernel's `counts`.
    """
    made = program(kernel)
    _check(kernel, launch)
    if not all(launch.grid):
        return Execution(0, 0)
    # All that C reads lives until the call returns.
    image, arguments = at_fixed_address(kernel.image), at_fixed_address(launch.arguments.ljust(kernel.kernarg_bytes, b"\0"))
    packet = at_fixed_address(_dispatch_packet(kernel, launch, ctypes.addressof(arguments)))
    own = [(ctypes.addressof(kept), len(kept)) for kept in (image, arguments, packet)]
    ranges = _ranges([*launch.buffers, *own])
    storage = ctypes.create_string_buffer(made.core.machine_bytes)
    machine = _Machine.from_buffer(storage)
    machine.code, machine.index_of, machine.ranges = (ctypes.addressof(kept) for kept in (made.records, made.index_of, ranges))
    machine.image, machine.kernarg, machine.packet = (ctypes.addressof(kept) for kept in (image, arguments, packet))
    machine.limit, machine.slice = limit_instructions or 0, min(_SLICE, limit_instructions or _SLICE)
    machine.count_code, machine.count_ranges, machine.words = made.count, len(ranges) // 16, len(kernel.image) // 4
    waves = -(-launch.threads // kernel.wavefront)
    wave_bytes = 512 * kernel.wavefront * 4 + kernel.scratch * kernel.wavefront
    machine.resident = max(1, min(_RESIDENT_BYTES // (wave_bytes * waves), 1024))
    machine.grid, machine.threads = (_U32 * 3)(*launch.grid), launch.threads
    machine.lds_bytes, machine.scratch_bytes = (max(launch.lds, kernel.lds) + 3) & ~3, kernel.scratch
    machine.entry, machine.random, machine.most_switches = made.entry, order, switches
    room = Room(machine, made, launch.threads) if findings is not None else None
    reversal = Reversal(machine, reverse) if reverse else None
    if counts is not None:
        machine.counting = counts.begin(ranges)
    set_up(kernel, machine)
    if limit_seconds is not None:  # C looks at the clock after each turn of a wave
        machine.until = time.monotonic_ns() + max(1, int(limit_seconds * 1e9))
    fault = made.core.library.execute_launch(ctypes.byref(machine))
    if findings is not None and room:
        findings += room.findings()
    if fault != _FINE:
        _raise(fault, made, machine)
    if counts is not None:
        counts.end(launch.grid, machine.waves, machine.executed)
    return Execution(
        machine.executed,
        machine.waves,
        pairs=tuple(room.pairs()) if room else (),
        rounds=bool(machine.rounds),
        added=[each for n, each in enumerate(struct.iter_unpack("<QQ", ranges)) if machine.added >> n & 1],
        decides=bool(machine.decides),
        reversed=bool(reversal and reversal.done),
        switches=machine.switches,
        switched_at=partial(made.place, machine.last_switch) if machine.switches else None,
    )


def _dispatch_packet(kernel: Kernel, launch: Launch, arguments: int) -> bytes:
    """Return the packet that starts a launch (HSA 1.2, "kernel dispatch packet"): kernels may read sizes from it."""
    threads = (launch.grid[0] * launch.threads & 0xFFFFFFFF, launch.grid[1], launch.grid[2])
    sizes = (kernel.scratch, max(launch.lds, kernel.lds))
    return struct.pack("<HHHHHHIIIIIQQQQ", 2, 3, launch.threads, 1, 1, 0, *threads, *sizes, 0, arguments, 0, 0)


def _ranges(buffers: Sequence[tuple[int, int]]) -> Any:
    """Return the ranges sorted and joined where they overlap or touch."""
    joined: list[list[int]] = []
    for start, size in sorted((start, size) for start, size in buffers if size > 0):
        if joined and start < joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], start + size)
        else:
            joined.append([start, start + size])
    return at_fixed_address(b"".join(struct.pack("<QQ", *pair) for pair in joined))


def _check(kernel: Kernel, launch: Launch) -> None:
    if not 1 <= launch.threads <= 1024 or any(not 0 <= n < 2**32 for n in launch.grid) or len(launch.arguments) < kernel.kernarg_bytes:
        raise EmulatorError(
            f"Kernel {kernel.name} was launched with {launch.threads} threads, grid {launch.grid} and {len(launch.arguments)} bytes of "
            f"arguments. A workgroup has 1 to 1024 threads, and this kernel {kernel.kernarg_bytes} bytes of arguments. Correct the launch."
        )


def _raise(fault: int, made: Program, machine: _Machine) -> NoReturn:
    kernel = made.kernel.name
    if fault == _LIMIT:
        message = f"Kernel {kernel} executed {machine.executed} instructions, its limit. Raise the limit, or launch less work."
        raise TimeLimit(message, machine.executed)
    place = made.place(min(machine.fault_index, made.count - 1))
    group = (machine.fault_group[0], machine.fault_group[1], machine.fault_group[2])
    where = f"lane {machine.fault_lane} of wave {machine.fault_wave}, workgroup {group}"
    verb = "stored" if machine.fault_store else "loaded"
    if fault in (_OUT_OF_BOUNDS, _OUT_OF_LDS):
        what = "LDS" if fault == _OUT_OF_LDS else "all buffers of the launch"
        message = (
            f"{place} {verb} {machine.fault_size} bytes at {machine.fault_address:#x}, outside of {what} ({where}). "
            "Usually a mask or a stride is wrong. Check the index in that line."
        )
        raise OutOfMemoryBounds(message, place, machine.fault_address, machine.fault_size, machine.fault_lane, group, machine.fault_wave)
    if fault == _TRAPPED:
        raise Trap(f"{place} trapped (workgroup {group}). Usually a device_assert failed. Check the assertion in that line.", place)
    if fault == _DEADLOCK:
        raise Deadlock(f"{place} waits for ever (workgroup {group}). Usually a barrier lacks its other half.", place)
    raise Unimplemented(f"{place} is not implemented. The emulator never guesses a result. Report the instruction.", place)
