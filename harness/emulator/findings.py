"""What the checks of a launch find: pairs of instructions that race, values that are used before they are there, or that nobody wrote."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union

from harness.emulator.errors import Place
from harness.emulator.program import Program

_MOST = 64  # pairs of instructions of one launch
_ROWS, _ACCUMULATORS = 512, 256
_U32 = ctypes.c_uint32


class Check(Enum):
    """What was found, `enum found` of core/checks/checks.h."""

    LDS_RACE = 1
    GLOBAL_RACE = 2
    LDS_UNWRITTEN = 3
    REGISTER_UNWRITTEN = 4
    USED_EARLY = 5
    LDS_USED_EARLY = 6
    OUT_OF_RANGE = 7


class Access(Enum):
    """How an instruction touches memory; an update is an atomic."""

    LOAD = 0
    STORE = 1
    ATOMIC = 2


@dataclass(frozen=True)
class Found:
    """One defect of an instruction, or of a pair, with its first example.

    `address` is that of global memory, an offset in LDS, or nothing for a register, which `register` names. `other` is the earlier
    instruction of a race; `in_flight` says that its wave had not waited for it. `thread` is the lane in the workgroup of `threads`.
    `times` counts how often it came.
    """

    check: Check
    place: Place
    access: Access
    address: int
    size: int
    workgroup: tuple[int, int, int]
    wave: int
    lane: int
    thread: int
    threads: int
    times: int
    register: str = ""
    other: Union[Place, None] = None
    other_access: Access = Access.LOAD
    other_workgroup: tuple[int, int, int] = (0, 0, 0)
    other_wave: int = 0
    in_flight: bool = False


class _Found(ctypes.Structure):
    """`struct finding` of core/checks/checks.h."""

    _fields_ = (
        ("address", ctypes.c_uint64), ("kind", _U32), ("index", _U32), ("other", _U32), ("access", _U32), ("other_access", _U32),
        ("wave", _U32), ("other_wave", _U32), ("lane", _U32), ("size", _U32), ("times", _U32), ("in_flight", _U32),
        ("group", _U32 * 3), ("other_group", _U32 * 3),
    )  # fmt: skip


def room(machine: Any, program: Program) -> Any:
    """Make room for findings, and switch the checks on; the caller keeps what is returned alive."""
    found = (_Found * _MOST)()
    machine.findings, machine.most_findings = ctypes.addressof(found), _MOST
    machine.lds_unit, machine.global_unit = program.units
    return found


def told(found: Any, count: int, program: Program, threads: int) -> list[Found]:
    """Return what C found."""
    return [_read(found[n], program, threads) for n in range(count)]


def _read(one: _Found, program: Program, threads: int) -> Found:
    check = Check(one.kind)
    is_pair = check in (Check.LDS_RACE, Check.GLOBAL_RACE, Check.LDS_USED_EARLY)
    is_register = check in (Check.REGISTER_UNWRITTEN, Check.USED_EARLY)
    return Found(
        check=check,
        place=program.place(one.index),
        access=Access(one.access),
        address=0 if is_register else one.address,
        size=one.size,
        workgroup=tuple(one.group),
        wave=one.wave,
        lane=one.lane,
        thread=one.wave * program.kernel.wavefront + one.lane,
        threads=threads,
        times=one.times,
        register=_register(one.address) if is_register else "",
        other=program.place(one.other) if is_pair else None,
        other_access=Access(one.other_access),
        other_workgroup=tuple(one.other_group),
        other_wave=one.other_wave,
        in_flight=bool(one.in_flight),
    )


def _register(row: int) -> str:
    if row >= _ROWS:
        return f"s{row - _ROWS}"
    return f"a{row - _ACCUMULATORS}" if row >= _ACCUMULATORS else f"v{row}"
