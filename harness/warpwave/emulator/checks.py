"""What the checks of a launch find: defects of instructions, and pairs of accesses that may come the other way."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union

from warpwave.emulator.errors import Place
from warpwave.emulator.program import Program

_MOST = 64  # pairs of instructions of one launch
_MOST_PAIRS = 1024  # of accesses, examples of the same two instructions among them
_REVERSED = 2  # `enum reversal_state` of core/checks/checks.h
_ROWS, _ACCUMULATORS = 512, 256
_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


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


@dataclass(frozen=True)
class Pair:
    """Accesses to global memory by two waves that nothing orders. `found` names both; the other one came first.

    `instructions` are their indices in the code, `steps` how many instructions their waves had executed then; the first one's first.
    """

    found: Found
    instructions: tuple[int, int]
    steps: tuple[int, int]


class _Found(ctypes.Structure):
    """`struct finding` of core/checks/checks.h."""

    _fields_ = (
        ("address", _U64), ("kind", _U32), ("index", _U32), ("other", _U32), ("access", _U32), ("other_access", _U32),
        ("wave", _U32), ("other_wave", _U32), ("lane", _U32), ("size", _U32), ("times", _U32), ("in_flight", _U32),
        ("group", _U32 * 3), ("other_group", _U32 * 3),
    )  # fmt: skip


class Room:
    """Memory for what C finds in one launch of so many `threads` a workgroup. It switches the checks on, and lives as long as C runs."""

    def __init__(self, machine: Any, program: Program, threads: int) -> None:
        self._machine, self._program, self._threads = machine, program, threads
        self._found, self._pairs = (_Found * _MOST)(), (_Pair * _MOST_PAIRS)()
        machine.findings, machine.most_findings = ctypes.addressof(self._found), _MOST
        machine.pairs, machine.most_pairs = ctypes.addressof(self._pairs), _MOST_PAIRS
        machine.lds_unit, machine.global_unit = program.units

    def findings(self) -> list[Found]:
        """Return what is wrong."""
        return [_read(self._found[n], self._program, self._threads) for n in range(self._machine.count_findings)]

    def pairs(self) -> list[Pair]:
        """Return the pairs of accesses that nothing orders."""
        return [_pair(self._pairs[n], self._program, self._threads) for n in range(self._machine.count_pairs)]


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


class _Pair(ctypes.Structure):
    """`struct pair` of core/checks/checks.h."""

    _fields_ = (
        ("address", _U64), ("first_step", _U64), ("second_step", _U64), ("first_index", _U32), ("second_index", _U32),
        ("first_wave", _U32), ("second_wave", _U32), ("first_access", _U32), ("second_access", _U32), ("lane", _U32), ("size", _U32),
        ("in_flight", _U32), ("latest", _U32), ("first_group", _U32 * 3), ("second_group", _U32 * 3),
    )  # fmt: skip


class _Reversal(ctypes.Structure):
    """`struct reversal` of core/checks/checks.h."""

    _fields_ = (
        ("first_step", _U64), ("second_step", _U64), ("kept", _U64), ("first_index", _U32), ("second_index", _U32), ("first_wave", _U32),
        ("second_wave", _U32), ("in_flight", _U32), ("first_group", _U32 * 3), ("second_group", _U32 * 3), ("state", _U32),
    )  # fmt: skip


def _pair(one: _Pair, program: Program, threads: int) -> Pair:
    found = _Found(
        one.address, Check.GLOBAL_RACE.value, one.second_index, one.first_index, one.second_access, one.first_access,
        one.second_wave, one.first_wave, one.lane, one.size, 1, one.in_flight, one.second_group, one.first_group,
    )  # fmt: skip
    return Pair(_read(found, program, threads), (one.first_index, one.second_index), (one.first_step, one.second_step))


class Reversal:
    """Makes a launch execute the accesses of a pair in the other order; it lives as long as C runs."""

    def __init__(self, machine: Any, pair: Pair) -> None:
        found = pair.found
        waves, groups = (found.other_wave, found.wave), (found.other_workgroup, found.workgroup)
        self._asked = _Reversal(*pair.steps, 0, *pair.instructions, *waves, found.in_flight, *groups)
        machine.reversal = ctypes.addressof(self._asked)

    @property
    def done(self) -> bool:
        """Whether they came in the other order: a wave may be unable to go so far alone."""
        return bool(self._asked.state == _REVERSED)
