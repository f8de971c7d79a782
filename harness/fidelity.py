"""Whether the compile stage makes the code that the card ran: its rows against those of the JIT's real launches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.records import CompiledKernel, TargetRun, Verdict


@dataclass(frozen=True)
class Difference:
    """A launch on the card, and how the compile stage's kernel is another."""

    launched: CompiledKernel
    why: str


@dataclass(frozen=True)
class Fidelity:
    """Launches on the card whose binary the compile stage made byte for byte, and those that it did not."""

    same: int
    different: tuple[Difference, ...]


def fidelity(run: TargetRun) -> Fidelity | None:
    """Every kernel that the JIT compiled on the card, looked for in the same bundle's compile stage; None where either has nothing."""
    architectures = {row.architecture for row in run.launched}
    ours = [row for row in run.compiled if row.verdict is not Verdict.NOT_RUN and row.architecture in architectures]
    if not run.launched or not ours:
        return None
    exactly = {_key(row): row for row in ours}
    nearly = {(row.function, row.origin): row for row in ours}
    same, different = 0, []
    for row in run.launched:
        found = exactly.get(_key(row))
        if found is not None and found.binary_hash == row.binary_hash:
            same += 1
        elif found is not None:
            different.append(Difference(row, f"the same specialization gives another binary{_measured(row, found)}"))
        elif (near := nearly.get((row.function, row.origin))) is not None:
            different.append(Difference(row, f"specialized otherwise: {_differing(row, near)}"))
        else:
            different.append(Difference(row, "not launched there without a GPU"))
    return Fidelity(same, tuple(different))


_SPECIALIZATION = ("signature", "constants", "attributes", "num_warps", "num_stages")


def _key(row: CompiledKernel) -> tuple[Any, ...]:
    parts = (getattr(row, name) for name in _SPECIALIZATION)
    return (row.function, row.architecture, *(tuple(sorted(part.items())) if isinstance(part, dict) else part for part in parts))


def _measured(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    if launched.registers == compiled.registers and launched.binary_bytes == compiled.binary_bytes:
        return ", of the same size and registers"
    return f": {launched.registers} registers for {compiled.registers}, {launched.binary_bytes} bytes for {compiled.binary_bytes}"


def _differing(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    names = []
    for part in _SPECIALIZATION:
        one, other = getattr(launched, part), getattr(compiled, part)
        if isinstance(one, dict) and isinstance(other, dict):
            names += [f"{name} is {one.get(name)} for {other.get(name)}" for name in {**one, **other} if one.get(name) != other.get(name)]
        elif one != other:
            names.append(f"{part} is {one} for {other}")
    return ", ".join(names)
