"""Find the generated code of one run that compiles for one vendor only. Pure.

The letters at the start of an architecture's name are the vendor: `sm_90` and `sm_100`, `gfx942` and `gfx1201`.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from harness.compare.codegen.changed_code import dead
from harness.compare.codegen.pairing import telling, variant
from harness.records import CompiledKernel, Verdict


@dataclass(frozen=True)
class Split:
    """A launch that compiles on all tried architectures of one vendor, `lives`, and fails on those of another, `dies`.

    `reason` is the first failure's. `variant` distinguishes it from the launch's other configurations; empty if it is the only one.
    """

    kernel: str
    function: str
    origin: str
    variant: str
    lives: tuple[str, ...]
    dies: tuple[str, ...]
    verdict: Verdict
    reason: str


def one_vendor(rows: Iterable[CompiledKernel]) -> tuple[Split, ...]:
    """Return each launch that fails on an architecture of one vendor and compiles on every one of another."""
    run = _Run(rows)
    splits: dict[tuple[object, ...], tuple[tuple[str, ...], str, list[CompiledKernel]]] = {}
    tells: dict[tuple[str, str, str, str], frozenset[str]] = {}
    for row in filter(dead, run.rows):
        if lives := _lives(row, run):
            launch = (row.kernel, row.function, row.architecture, row.origin)
            if launch not in tells:
                tells[launch] = telling(run.launches[launch])
            text = variant(row, tells[launch])
            splits.setdefault((row.kernel, row.function, text, lives), (lives, text, []))[2].append(row)
    return tuple(
        Split(
            kernel=dying[0].kernel,
            function=dying[0].function,
            origin=dying[0].origin,
            variant=text,
            lives=lives,
            dies=tuple(dict.fromkeys(row.architecture for row in dying)),
            verdict=dying[0].verdict,
            reason=dying[0].reason,
        )
        for lives, text, dying in splits.values()
    )


_MOST_ARCHITECTURES = 128  # where a launch is looked up: the first ones that were compiled for


class _Run:
    """The kernels of one run, indexed for look-ups."""

    def __init__(self, rows: Iterable[CompiledKernel]) -> None:
        self.rows = [row for row in rows if row.verdict is not Verdict.NOT_RUN]
        self.architectures = tuple(itertools.islice(dict.fromkeys(row.architecture for row in self.rows), _MOST_ARCHITECTURES))
        self.launches: dict[tuple[str, str, str, str], list[CompiledKernel]] = defaultdict(list)
        self.cases: dict[tuple[str, str, str], list[CompiledKernel]] = defaultdict(list)
        self.constants: dict[tuple[object, ...], list[CompiledKernel]] = defaultdict(list)
        self._fates: dict[tuple[Any, ...], bool | None] = {}
        for row in self.rows:
            self.launches[row.kernel, row.function, row.architecture, row.origin].append(row)
            self.cases[row.kernel, row.architecture, row.origin].append(row)
            self.constants[self.key(row)].append(row)

    def key(self, row: CompiledKernel, architecture: str = "") -> tuple[object, ...]:
        """Return a configuration without its stages: each vendor's backend has its own default."""
        constants = tuple(sorted((name, repr(value)) for name, value in row.constants.items()))
        return row.kernel, row.function, architecture or row.architecture, constants, row.num_warps, tuple(sorted(row.signature.items()))

    def died(self, row: CompiledKernel, architecture: str) -> bool | None:
        """Return whether the same kernel failed on another architecture; None if it was not tried there.

        If the compiler crashed its process, only the case's name is known: compare by that. Otherwise compare the configuration with the
        same types, constants and warps. If each vendor has its own tile, and the launch has one configuration on each, compare those.
        """
        if not row.signature and not row.constants:
            return self._fate((row.kernel, architecture, row.origin), lambda key: self.cases.get(key, []))
        fate = self._fate((*self.key(row, architecture), row.num_stages), lambda key: _nearest(self.constants.get(key[:-1], []), row))
        if fate is not None:
            return fate
        mine = self.launches[row.kernel, row.function, row.architecture, row.origin]
        theirs = self.launches.get((row.kernel, row.function, architecture, row.origin), [])
        return dead(theirs[0]) if len(mine) == len(theirs) == 1 else None

    def _fate(self, key: tuple[Any, ...], find: Callable[[Any], list[CompiledKernel]]) -> bool | None:
        """Return whether any kernel that `find` returns failed. Equal keys are looked up once."""
        if key not in self._fates:
            same = find(key)
            self._fates[key] = any(map(dead, same)) if same else None
        return self._fates[key]


def _nearest(found: list[CompiledKernel], row: CompiledKernel) -> list[CompiledKernel]:
    """Return those with the same number of stages if there are any, else all: each vendor's backend has its own default."""
    return [other for other in found if row.num_stages is None or other.num_stages in (None, row.num_stages)] or found


def _lives(row: CompiledKernel, run: _Run) -> tuple[str, ...]:
    """Return the architectures of the other vendors on which it compiles. A vendor with one failure is left out."""
    fates: dict[str, dict[str, bool]] = defaultdict(dict)
    for architecture in run.architectures:
        if _vendor(architecture) != _vendor(row.architecture) and (died := run.died(row, architecture)) is not None:
            fates[_vendor(architecture)][architecture] = not died
    return tuple(name for found in fates.values() if all(found.values()) for name in found)


def _vendor(architecture: str) -> str:
    return re.sub(r"\d.*", "", architecture)
