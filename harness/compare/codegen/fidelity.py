"""Check that the compile stage makes the code that a GPU runs: compare its rows with the JIT's real launches. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.compare.model import Deviation, Fidelity, Likeness
from harness.compare.speeds.ratios import as_text, first_names
from harness.records import CompiledKernel, TargetRun

# Each target's launches are compared with every compile stage of the same Triton. For 1,000 targets that would be a million comparisons.
_MOST_LANES, _MOST_LAUNCHES = 8, 300_000
_MOST_NAMED = 20  # differences listed per launch


def compare_launches(runs: Mapping[str, TargetRun]) -> tuple[Fidelity, ...]:
    """Return a row per target with launches and per compile stage, its own or another target's, that can be compared with it."""
    found: list[Fidelity] = []
    lanes: dict[str, dict[str, TargetRun]] = {}
    compiled: dict[str, set[str]] = {}  # architectures by version of Triton
    for name, run in runs.items():
        if rows := [row for row in run.compiled if row.was_compiled]:
            lanes.setdefault(_triton(run), {})[name] = run
            compiled.setdefault(_triton(run), set()).update(row.architecture for row in rows)
    room = _MOST_LAUNCHES
    for name, run in runs.items():
        if not run.launched:
            continue
        there, held = lanes.get(_triton(run), {}), []
        for other in _chosen(name, there):
            room -= len(run.launched) + len(there[other].compiled)
            row = _held_against(name, run, other, there[other]) if room > 0 else None
            held += [row] if row else []
        reason = _why_none(run, compiled) if room > 0 else "there are too many launches and compiled kernels to compare them all"
        found += held or [Fidelity(name, "", _triton(run), len(run.launched), reason=reason)]
    return tuple(found)


def _chosen(name: str, lanes: Mapping[str, TargetRun]) -> list[str]:
    """Return the first compile stages in order, and always the target's own."""
    first = list(itertools.islice(lanes, _MOST_LANES))
    return first if name in first or name not in lanes else [*first, name]


def held_against(launched: Iterable[CompiledKernel], compiled: Sequence[CompiledKernel]) -> tuple[int, tuple[Deviation, ...]]:
    """Return how many launches were compiled to the same bytes, and how each of the others differs."""
    exactly = {_key(row): row for row in compiled}
    nearly = {(row.function, row.architecture, row.origin): row for row in compiled}
    equal, deviations = 0, []
    for row in launched:
        found = exactly.get(_key(row))
        if found is not None and found.binary_hash == row.binary_hash:
            equal += 1
            continue
        if found is not None:
            likeness, reason = Likeness.ANOTHER_BINARY, f"the same specialization gives another binary{_measured(row, found)}"
        elif (near := nearly.get((row.function, row.architecture, row.origin))) is not None:
            likeness, reason = Likeness.RESPECIALIZED, f"specialized otherwise: {_differing(row, near)}"
        else:
            likeness, reason = Likeness.NOT_SEEN, "not launched there without a GPU"
        deviations.append(Deviation(row.kernel, row.function, row.architecture, row.origin, likeness, reason))
    return equal, tuple(deviations)


def _held_against(name: str, run: TargetRun, other: str, lane: TargetRun) -> Fidelity | None:
    """Return None if the two use different versions of Triton, or have no architecture in common."""
    compiled = _usable(run, lane)
    if not compiled or _triton(run) != _triton(lane):
        return None
    equal, deviations = held_against(run.launched, compiled)
    return Fidelity(name, other, _triton(run), len(run.launched), equal, deviations)


def _usable(run: TargetRun, lane: TargetRun) -> list[CompiledKernel]:
    architectures = {row.architecture for row in run.launched}
    return [row for row in lane.compiled if row.was_compiled and row.architecture in architectures]


def _triton(run: TargetRun) -> str:
    return run.facts.triton if run.facts else "unknown"


def _why_none(run: TargetRun, compiled: Mapping[str, set[str]]) -> str:
    launched = {row.architecture for row in run.launched}
    others = sorted(triton for triton, architectures in compiled.items() if launched & architectures)
    if others:
        return f"the code compiled without a GPU is from Triton {first_names(others)}, the launches are from {_triton(run)}"
    return f"nothing was compiled for {first_names(sorted(launched))} without a GPU"


_SPECIALIZATION = ("signature", "constants", "attributes", "num_warps", "num_stages")


def _key(row: CompiledKernel) -> tuple[Any, ...]:
    parts = (getattr(row, name) for name in _SPECIALIZATION)
    return (row.function, row.architecture, *(tuple(sorted(part.items())) if isinstance(part, dict) else part for part in parts))


def _measured(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    if launched.registers == compiled.registers and launched.binary_bytes == compiled.binary_bytes:
        return ", of the same size and registers"
    registers = f"{launched.registers} registers instead of {compiled.registers}"
    return f": {registers}, {launched.binary_bytes} bytes instead of {compiled.binary_bytes}"


def _differing(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    names: list[str] = []
    for part in _SPECIALIZATION:
        one, other = getattr(launched, part), getattr(compiled, part)
        if isinstance(one, dict) and isinstance(other, dict):
            every = itertools.chain(one, (name for name in other if name not in one))
            differences = (f"{name} is {one.get(name)} instead of {other.get(name)}" for name in every if one.get(name) != other.get(name))
            names += itertools.islice(differences, _MOST_NAMED)
        elif one != other:
            names.append(f"{part} is {one} instead of {other}")
    return as_text(", ".join(names))
