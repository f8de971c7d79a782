"""Tuned configurations, such as the JSON files that packages keep for each card: which are stale under a new toolchain. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.codegen.changed_code import Change, Diff, dead
from harness.compare.codegen.deltas import Concern, Delta, Trend
from harness.records import CompiledKernel, Scalar

_OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class Tuned:
    """One entry of a file: the constants of a launch, with `num_warps` and `num_stages`. `function` is a kernel's name; empty for any."""

    file: str
    entry: str
    values: dict[str, Scalar]
    function: str = ""


@dataclass(frozen=True)
class Stale:
    """An entry that should be tuned again for one architecture, or one card, and why."""

    file: str
    entry: str
    architecture: str
    why: str


def matches(tuned: Tuned, row: CompiledKernel) -> bool:
    """Return whether a compiled configuration is this entry: every constant that the kernel has, and the options, are equal."""
    if tuned.function and tuned.function != row.function:
        return False
    known = {name: row.constants[name] for name in tuned.values if name in row.constants}
    options = {name: getattr(row, name) for name in _OPTIONS if name in tuned.values}
    found = {**known, **options}
    return bool(known) and all(found[name] == tuned.values[name] for name in found)


def stale(entries: Sequence[Tuned], diff: Diff) -> tuple[Stale, ...]:
    """Return the entries that no longer compile, spill more, or fit less often than before. An entry that no launch uses is not judged."""
    found: dict[tuple[str, str, str], str] = {}
    for change in diff.changes:
        why = _why(change)
        for tuned in entries if why else ():
            if change.after is not None and matches(tuned, change.after):
                found.setdefault((tuned.file, tuned.entry, change.architecture), why)
    return tuple(Stale(file, entry, architecture, why) for (file, entry, architecture), why in found.items())


def used(entries: Sequence[Tuned], rows: Sequence[CompiledKernel]) -> int:
    """Return how many of the entries a launch of this run uses."""
    return sum(any(matches(tuned, row) for row in rows) for tuned in entries)


def _why(change: Change) -> str:
    old, new = change.before, change.after
    if new is None or (old is not None and dead(old)):
        return ""
    if dead(new):
        return f"it no longer compiles: {new.reason}"
    if new.is_discarded and not (old and old.is_discarded):
        return f"an autotuner would discard it now: {new.reason}"
    worse = [delta for delta in change.deltas if delta.trend is Trend.WORSE and delta.concern in (Concern.SPILLS, Concern.OCCUPANCY)]
    return "; ".join(map(_text, worse))


def _text(delta: Delta) -> str:
    return f"{delta.what} {delta.before} → {delta.after}"
