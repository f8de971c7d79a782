"""What the instructions of a kernel did when they were executed: counted in C, reported by line of the source.

Counts are facts about machine code. Which bank of LDS a word is in, how many cycles a matrix instruction takes, and how many lanes a
cycle serves, is what AMD and LLVM publish:

- Banks of LDS: LLVM, AMDGPU.td (FeatureLDSBankCount): 32 of 4 bytes, 64 on gfx950. Lanes go in phases that fill all banks once: AMD, "LDS
  examples" of ROCm Compute Profiler (MI250), and "Avoiding LDS Bank Conflicts on AMD GPUs" (ROCm blogs). Which lanes of ds_read_b128 go
  together was measured on MI300X, MI350X, W7900 and RX 9070 XT: nod-ai/amd-shark-ai, docs/empirical-lds. For gfx90a, MI300X's are assumed;
  lanes of accesses of 96 bits, and of writes, are assumed to go in order.
- Passes of matrix instructions, of 4 cycles each: LLVM, SISchedule.td (SIDPFullSpeedModel for gfx90a, SIDPGFX942FullSpeedModel for gfx942,
  SIDPGFX950FullSpeedModel for gfx950). WMMA: AMD's matrix instruction calculator.
- Cycles of vector instructions: a wave of 64 lanes takes 4 on a SIMD of 16 lanes (CDNA), a wave of 32 lanes 1 on one of 32 (RDNA);
  transcendental ones have a quarter of that rate (SISchedule.td, WriteTrans32), and others may be issued beside them.
- Issue: each cycle, a CU issues at most five instructions, of different waves and kinds, one of them scalar (ROCm Compute Profiler,
  "Pipeline descriptions", scheduler). Each SIMD of RDNA has a scheduler of its own; the same limit is taken for it.

A bound is no speed. It is what the busiest unit needs if nothing else costs time and all units share the work evenly. Caches, latency and
clocks below the highest are not modelled.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from warpwave.emulator.code_object import Kernel, Line, source
from warpwave.emulator.decode.instruction import Instruction, operation_name
from warpwave.emulator.program import program

_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64
_PIECE = 32  # bytes: the smallest part of a line that is read from memory
_ONLY, _GLOBAL, _SCRATCH, _SHARED, _PAIR = range(5)
_READS, _WRITES, _UPDATES = range(3)
_IN_ORDER = ("gfx1201",)  # neighbouring lanes of ds_read_b128 are served together
_MEASURED = ("bytes", "lines64", "least64", "lines128", "least128", "cycles", "least_cycles")


class _Count(ctypes.Structure):
    """`struct count` of core/counts/counts.h."""

    _fields_ = (
        ("kind", _U32), ("size", _U32), ("access", _U32), ("unused", _U32), ("times", _U64), ("lanes", _U64),
        *((name, _U64) for name in _MEASURED),
    )  # fmt: skip


class _Counting(ctypes.Structure):
    """`struct counting` of core/counts/counts.h."""

    _fields_ = (
        ("of", ctypes.c_void_p), ("first", ctypes.c_void_p), ("seen", ctypes.c_void_p), ("banks", _U32), ("crossed", _U32),
        ("read", _U64), ("written", _U64),
    )  # fmt: skip


class Counts:
    """The counts of one kernel, over all launches that were given them.

    `launches`, `groups`, `waves` and `instructions` are sums; `most_groups` and `most_waves` are those of the largest launch. `read_bytes`
    and `written_bytes` are those of the pieces of 32 bytes that a launch read before it wrote them, and that it wrote, each once: less
    cannot come from memory, or go there.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.launches = self.groups = self.waves = self.instructions = self.read_bytes = self.written_bytes = 0
        self.most_groups = self.most_waves = 0
        self._code = program(kernel).instructions
        self._of = (_Count * (len(self._code) + 1))()
        for one, of in zip(self._code, self._of, strict=False):
            of.kind, of.size, of.access = _access(operation_name(one.name))
        self._now = _Counting()

    def begin(self, ranges: Any) -> int:
        """Prepare for one launch, which may touch `ranges` (pairs of addresses, as C reads them). Return what C needs."""
        pairs = memoryview(ranges).cast("B").cast("Q")
        pieces = [(pairs[n + 1] - pairs[n]) // _PIECE + 2 for n in range(0, len(pairs) - 1, 2)]
        self._first = (_U64 * (len(pieces) + 1))(*(sum(pieces[:n]) for n in range(len(pieces))))
        self._seen = (ctypes.c_uint8 * (sum(pieces) + 1))()
        of, first, seen = (ctypes.addressof(kept) for kept in (self._of, self._first, self._seen))
        architecture = self.kernel.architecture
        self._now = _Counting(of, first, seen, 64 if architecture == "gfx950" else 32, architecture not in _IN_ORDER)
        return ctypes.addressof(self._now)

    def end(self, grid: tuple[int, int, int], waves: int, instructions: int) -> None:
        """Add a launch that ended well."""
        self.launches += 1
        groups = grid[0] * grid[1] * grid[2]
        self.groups, self.waves = self.groups + groups, self.waves + waves
        self.most_groups, self.most_waves = max(self.most_groups, groups), max(self.most_waves, waves)
        self.instructions += instructions
        self.read_bytes += self._now.read * _PIECE
        self.written_bytes += self._now.written * _PIECE
        self._seen = (ctypes.c_uint8 * 0)()

    @cached_property
    def _places(self) -> list[Line]:
        return [source(self.kernel.elf, one.pc) for one in self._code]

    def by_line(self) -> dict[Line, Counter[str]]:
        """Return the counters of each line that was executed. All names are in docs/guides/profile.md."""
        found: dict[Line, Counter[str]] = {}
        seconds = {id(one.second) for one in self._code if one.second is not None}
        for one, of, place in zip(self._code, self._of, self._places, strict=False):
            if of.times:
                found.setdefault(place, Counter()).update(self._counters(one, of, id(one) in seconds))
        return found

    def _counters(self, one: Instruction, of: Any, is_second: bool) -> Counter[str]:
        """Return the counters of one instruction; the second half of a dual one takes no time of its own."""
        name, counters = operation_name(one.name), Counter[str]()
        counters["instructions"] = of.times * (not is_second)
        kind = "scratch" if of.kind == _SCRATCH else kind_of(name)  # gfx90a has its scratch in a buffer
        counters[kind] = of.times
        wide = self.kernel.wavefront == 64
        if name.startswith("v_"):
            counters["vector_lanes"] = of.times * self.kernel.wavefront
            counters["lanes_off"] = of.times * self.kernel.wavefront - of.lanes
        if kind == "matrix":
            counters["matrix_cycles"] = of.times * (matrix_cycles(name, self.kernel.architecture, one.shuffle) or 0)
            counters["flop"] = of.times * products(name)
        elif kind in ("valu", "transcendental"):
            counters["vector_cycles"] = of.times * (4 if wide else 1) * (not is_second)
            counters["flop"] = of.lanes * _flop(name)
        if of.kind in (_SHARED, _PAIR):
            counters["lds_bytes"], counters["lds_cycles"], counters["least_lds_cycles"] = of.bytes, of.cycles, of.least_cycles
        elif of.kind == _SCRATCH:
            counters["scratch_bytes"] = of.bytes
        elif of.kind == _GLOBAL:
            counters["atomics"] = of.times * (of.access == _UPDATES)
            counters["asked_bytes"] = of.bytes
            counters.update({name: getattr(of, name) for name in ("lines64", "least64", "lines128", "least128")})
        return +counters

    def matrix(self) -> Counter[str]:
        """Return how often each matrix instruction ran, by its name."""
        found = Counter[str]()
        for one, of in zip(self._code, self._of, strict=False):
            if of.times and kind_of(one.name) == "matrix":
                found[one.name] += of.times
        return found


_SIZES = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
_NO_BANKS = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")  # lanes exchange values without LDS


def _access(name: str) -> tuple[int, int, int]:
    """Return kind, bytes a lane and access of an operation, as `struct count` has them."""
    if found := re.match(r"(global|flat|buffer|scratch)_(load|store)_(?:lds_)?([a-z]+?(?:x\d)?)(?:_|$)", name):
        kind = _SCRATCH if found[1] == "scratch" else _GLOBAL
        return kind, _SIZES.get(found[3], 4), _WRITES if found[2] == "store" else _READS
    if re.match(r"(global|flat|buffer)_atomic_", name):
        return _GLOBAL, 8 if name.endswith(("_x2", "_f64")) else 4, _UPDATES
    if name.startswith("ds_") and not name.startswith(_NO_BANKS):
        bits = re.search(r"_[buif](8|16|32|64|96|128)(?:_|$)", name)
        size = 4 if "_pk_" in name or bits is None else int(bits[1]) // 8
        kind = _PAIR if re.match(r"ds_(read|write)2", name) else _SHARED
        return kind, size, _READS if "_read" in name else _WRITES if "_write" in name else _UPDATES
    return _ONLY, 0, 0


_KINDS = (
    (r"v_(mfma|smfmac|wmma|swmmac)", "matrix"),
    (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", "transcendental"),
    (r"v_nop", "waits"),
    (r"v_", "valu"),
    (r"(global|flat|buffer)_(load|store|atomic)", "memory"),
    (r"scratch_", "scratch"),
    (r"s_(buffer_)?load", "scalar_memory"),
    (r"ds_", "lds"),
    (r"s_barrier(_wait)?$", "barriers"),
    (r"s_(c?branch|setpc|swappc|call)", "branches"),
    (r"s_(wait|nop|sleep|delay|barrier)|(buffer|global)_(inv|wb|gl)", "waits"),
)


def kind_of(name: str) -> str:
    """Return the counter that an instruction of this name belongs to."""
    return next((kind for pattern, kind in _KINDS if re.match(pattern, name)), "salu")


_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?")


def products(name: str) -> int:
    """Return the floating point (or integer) operations of one matrix instruction: two a product, those with zeros of a sparse one too."""
    found = _SHAPE.search(name)
    return 2 * int(found[1]) * int(found[2]) * int(found[3]) * int(found[4] or 1) if found else 0


# Passes of 4 cycles, by architecture: the first pattern that matches. For gfx90a those of full rate double precision.
_PASSES = {
    "gfx90a": ((r"f64_4x4", 4), (r"f64_16x16", 8), (r"4x4x", 2), (r"16x16x", 8), (r"32x32x", 16)),
    "gfx942": (
        (r"f64_4x4", 4), (r"f64_16x16", 8), (r"smfmac_\w+_16x16x", 4), (r"smfmac_\w+_32x32x", 8), (r"4x4x", 2),
        (r"16x16x[14](_4b)?_", 8), (r"16x16x", 4), (r"32x32x([12](_2b)?|4_2b)_", 16), (r"32x32x", 8),
    ),
}  # fmt: skip
_NARROW = (2, 3, 4)  # formats of 6 and 4 bits


def matrix_cycles(name: str, architecture: str, formats: int = 0) -> int | None:
    """Return the cycles for which a matrix instruction occupies its unit; None if none are published that are known here.

    `formats` are the bits of `cbsz` and `blgp`, which say of which formats the operands of an MX instruction are.
    """
    if architecture in ("gfx1100", "gfx1201"):
        flop = products(name) // (2 if "swmmac" in name else 1)
        narrow = 2 if re.search(r"_i?u4", name) else 1
        if architecture == "gfx1100":  # 16 rows, columns and k: 32 cycles, 16 of 4-bit integers
            return 32 * flop // 8192 // narrow
        eight = 2 if re.search(r"_(i?u|fp|bf)[48](_|$)", name) else 1
        return max(8, 16 * flop // 8192 // eight // narrow)
    if architecture == "gfx950":
        if "f8f6f4" in name:  # half as long if both operands have fewer than 8 bits
            both = formats & 7 in _NARROW and formats >> 7 & 7 in _NARROW
            return (32 if "_32x32x" in name else 16) * (1 if both else 2)
        if "f64_16x16" in name:
            return 64
    passes = _PASSES.get("gfx942" if architecture == "gfx950" else architecture, ())
    return next((4 * number for pattern, number in passes if re.search(pattern, name)), None)


def _flop(name: str) -> int:
    """Return the floating point operations of a vector instruction in one lane."""
    if not re.search(r"_(f16|f32|f64|bf16)", name) or re.match(r"v_(cvt|cmp|cmpx|mov|pack|cndmask|accvgpr|frexp|class)", name):
        return 0
    if "dot2" in name:
        return 4
    return (2 if re.search(r"_(fma|fmac|mad|mac|fmaak|fmamk|mad_mix|fma_mix)", name) else 1) * (2 if "_pk_" in name else 1)


_ISSUED = 5  # instructions a cycle


def bounds(counts: Counts, has: Counter[str], card: Mapping[str, int], schedulers: int) -> dict[str, float]:
    """Return the least time in microseconds by resource. `card` is what Triton's get_device_properties says of one, with `schedulers` SIMDs
    in a multiprocessor, which is a CU, or a WGP of two CUs where waves have 32 lanes."""
    if not all(card.get(name) for name in ("multiprocessor_count", "sm_clock_rate", "mem_clock_rate", "mem_bus_width")):
        return {}
    is_pair = counts.kernel.wavefront == 32
    units = min(card["multiprocessor_count"], counts.most_groups) * (2 if is_pair else 1)
    simds = min(card["multiprocessor_count"] * schedulers, counts.most_waves)
    scalar = has["salu"] + has["scalar_memory"] + has["branches"]
    cycles = {
        "LDS": has["lds_cycles"] / units,
        "matrix": has["matrix_cycles"] / simds,
        "vector": has["vector_cycles"] / simds,
        "transcendental": has["transcendental"] * (4 if is_pair else 16) / simds,
        "issue": max(has["instructions"] / _ISSUED, scalar) / (simds if is_pair else units),
    }
    bytes_per_us = 2 * card["mem_clock_rate"] * card["mem_bus_width"] / 8 / 1e3
    found = {"memory": (counts.read_bytes + counts.written_bytes) / bytes_per_us}
    found |= {name: number / (card["sm_clock_rate"] / 1e3) for name, number in cycles.items()}
    return {name: round(value, 6) for name, value in found.items() if value}
