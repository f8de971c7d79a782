"""The core of the emulator, replaced: each kernel's name says how its execution ends."""

import ctypes
import struct
import time
from pathlib import Path

from warpwave.emulator import Access
from warpwave.emulator import Check
from warpwave.emulator import Execution
from warpwave.emulator import Found
from warpwave.emulator import OutOfMemoryBounds
from warpwave.emulator import TimeLimit
from warpwave.emulator import Trap
from warpwave.emulator import Unimplemented
from warpwave.emulator.errors import Place
from warpwave.inside.fake_gpu import emulated


def send(buffer, control, form, number):
    """Print from lane 5 of a wave: begin a message, append the format and an argument."""
    headers, payloads, _, free, ready, mask = struct.unpack("<QQQQQQ", ctypes.string_at(buffer, 48))
    name = 0
    padded = form.ljust((len(form) + 7) // 8 * 8, b"\0")
    text = struct.unpack(f"<{len(padded) // 8}Q", padded)
    for first, last, words in ((1, 0, (control,)), (0, 0, text), (0, 1, (number & (1 << 64) - 1,))):
        index = free & mask
        header, slot = headers + 24 * index, payloads + 4096 * index + 5 * 64
        free = ctypes.c_uint64.from_address(header).value
        ctypes.memmove(header, struct.pack("<QQII", ready, 1 << 5, 2, 1), 24)
        ctypes.memmove(slot, struct.pack("<8Q", first | last << 1 | len(words) << 5 | name << 8, *words, *[0] * (7 - len(words))), 64)
        ready = index | (mask + 1)
        ctypes.c_uint64.from_address(buffer + 32).value = ready
        until = time.monotonic() + 30
        while ctypes.c_uint32.from_address(header + 20).value and time.monotonic() < until:
            time.sleep(0.0001)
        name = ctypes.c_uint64.from_address(slot).value >> 8


def race(kernel):
    """Make up what a check finds."""
    place = Place(kernel, 64, "ds_made_up v1", "test_ends.py:9", str(Path(__file__).with_name("test_ends.py")))
    where = {"address": 512, "size": 4, "workgroup": (0, 0, 0), "wave": 1, "lane": 3, "thread": 67, "threads": 256, "times": 2}
    return Found(Check.LDS_RACE, place, Access.LOAD, **where, other=place, other_access=Access.STORE, other_wave=2, in_flight=True)


def execute(kernel, launch, *, limit_instructions=None, limit_seconds=None, findings=None, counts=None):
    assert 0 < limit_seconds <= 120
    place = Place(kernel.name, 64, "v_made_up_b32", "test_ends.py:12")
    if kernel.name == "unknown":
        raise Unimplemented(f"v_made_up_b32 is not implemented: {place}", place)
    if kernel.name == "endless":
        raise TimeLimit(f"kernel {kernel.name} executed {limit_instructions} wave-instructions", limit_instructions)
    if kernel.name == "outside":
        raise OutOfMemoryBounds("4 bytes at 0x10 are in no tensor", place, 16, 4, 3, (0, 0, 0), 0)
    if kernel.name == "prints":
        offset = next(argument.offset for argument in kernel.arguments if argument.kind == "hidden_hostcall_buffer")
        (buffer,) = struct.unpack_from("<Q", launch.arguments, offset)
        assert buffer in [start for start, _ in launch.buffers]
        send(buffer, 1, b"made up: %d\0", -7)
        raise Trap("s_trap 2", place)
    out, value = struct.unpack_from("<Qi", launch.arguments)
    assert (launch.grid, launch.threads, [start for start, _ in launch.buffers]) == ((1, 1, 1), 256, [out])
    ctypes.memmove(out, struct.pack("<i", value), 4)
    if findings is not None and kernel.name == "good":
        findings.append(race(kernel.name))
    return Execution(instructions=100, waves=4)


emulated.execute = execute
