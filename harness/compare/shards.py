"""The shards of one run → one run. Pure.

Each number keeps the card that it was measured on, with the ceiling measured there: devices are numbered through.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from harness.records import MOST_SECONDS, Facts, RunRecord, Shard, StageReport, TargetRun, Verdict, worst

_MUST_AGREE = ("torch", "triton", "runtime", "fp_fusion", "kernels_hash")


def join(runs: Iterable[TargetRun]) -> list[TargetRun]:
    """Runs that are no shards as they are; the shards of one target, commit and environment as one. Order is kept."""
    parts: dict[object, list[TargetRun]] = {}
    for position, run in enumerate(runs):
        parts.setdefault(_whole(run) or position, []).append(run)
    return [_join(found) if found[0].record.shard else found[0] for found in parts.values()]


def _whole(run: TargetRun) -> tuple[object, ...] | None:
    """What the shards of one run have in common; a shard whose environment is not known is taken for one of them."""
    if not run.record.shard:
        return None
    return run.record.target, run.record.commit, Shard.parse(run.record.shard).of


def _join(parts: Sequence[TargetRun]) -> TargetRun:
    parts = sorted(parts, key=lambda run: Shard.parse(run.record.shard).number)
    parts = [_numbered(run, first) for run, first in zip(parts, _offsets(parts), strict=True)]
    joined: dict[str, Any] = {
        field.name: tuple(entry for run in parts for entry in getattr(run, field.name))
        for field in dataclasses.fields(TargetRun)
        if isinstance(getattr(parts[0], field.name), tuple) and field.name != "stages"
    }
    known = [run.facts for run in parts if run.facts]
    facts = dataclasses.replace(known[0], devices=tuple(device for each in known for device in each.devices)) if known else None
    record, faults = _record(parts, known)
    joined["problems"] += faults
    missing = _missing([run.record for run in parts])
    return dataclasses.replace(parts[0], record=record, facts=facts, stages=_stages(parts), missing=missing, **joined)


def _record(parts: Sequence[TargetRun], known: Sequence[Facts]) -> tuple[RunRecord, tuple[str, ...]]:
    """The record of all shards: the gravest of theirs, unless one is missing, comes twice or ran in another environment."""
    told = [run.record for run in parts]
    gravest = worst([record.verdict for record in told], Verdict.INCOMPLETE)
    one = next(record for record in told if record.verdict is gravest)
    reason = f"shard {one.shard}: {one.reason}" if one.reason else ""
    faults = [*_counted(told), *_agreed(known)]
    if faults and gravest.severity < Verdict.INCOMPLETE.severity:
        gravest, reason = Verdict.INCOMPLETE, faults[0]
    seconds = max(record.seconds for record in told)
    return dataclasses.replace(one, verdict=gravest, reason=reason, seconds=seconds, shard=""), tuple(faults)


def _counted(told: Sequence[RunRecord]) -> list[str]:
    whole = Shard.parse(told[0].shard).of
    there = Counter(Shard.parse(record.shard).number for record in told)
    twice = [str(number) for number in sorted(there) if there[number] > 1]
    missing = _missing(told)
    return ([missing] if missing else []) + ([f"of {whole} shards {' and '.join(twice)} came twice"] if twice else [])


def _missing(told: Sequence[RunRecord]) -> str:
    """`of 4 shards there is no 2 and no 3`; empty where all of them are there."""
    whole = Shard.parse(told[0].shard).of
    there = {Shard.parse(record.shard).number for record in told}
    lacking = [str(number) for number in range(1, whole + 1) if number not in there]
    return f"of {whole} shards there is no {' and no '.join(lacking)}" if lacking else ""


def _agreed(known: Sequence[Facts]) -> list[str]:
    values = {name: {getattr(facts, name) for facts in known} for name in _MUST_AGREE}
    return [f"the shards' {name} differ" for name, found in values.items() if len(found) > 1]


def _stages(parts: Sequence[TargetRun]) -> tuple[StageReport, ...]:
    """A stage of each kind, over all shards; one that had nothing to do in a shard takes nothing away from the others."""
    found: dict[Any, list[StageReport]] = {}
    for run in parts:
        for report in run.stages:
            found.setdefault(report.stage, []).append(report)
    return tuple(_stage(reports) for reports in found.values())


def _stage(reports: Sequence[StageReport]) -> StageReport:
    gravest = worst([report.verdict for report in reports if report.verdict is not Verdict.NOT_RUN])
    one = next(report for report in reports if report.verdict is gravest)
    names = dict.fromkeys(name for report in reports for name in report.counts)
    counts = {name: sum(report.counts.get(name, 0) for report in reports) for name in names}
    return dataclasses.replace(
        one,
        counts=counts,
        seconds=min(sum(report.seconds for report in reports), MOST_SECONDS),
        deselected=sum(report.deselected for report in reports),
        doubts=tuple(dict.fromkeys(doubt for report in reports for doubt in report.doubts)),
        files={},  # there is no such file of all of them
    )


def _offsets(parts: Sequence[TargetRun]) -> list[int]:
    """The first number of each shard's devices: behind all that the shards before it name."""
    offsets = [0]
    for run in parts[:-1]:
        named = {entry.device for field in dataclasses.fields(run) for entry in _measured(getattr(run, field.name))}
        named |= {device.index for device in run.facts.devices} if run.facts else set()
        offsets.append(offsets[-1] + max(named, default=-1) + 1)
    return offsets


def _numbered(run: TargetRun, first: int) -> TargetRun:
    changed: dict[str, Any] = {
        field.name: tuple(dataclasses.replace(entry, device=entry.device + first) for entry in getattr(run, field.name))
        for field in dataclasses.fields(run)
        if _measured(getattr(run, field.name))
    }
    if run.facts:
        devices = tuple(dataclasses.replace(device, index=device.index + first) for device in run.facts.devices)
        changed["facts"] = dataclasses.replace(run.facts, devices=devices)
    return dataclasses.replace(run, **changed)


def _measured(value: Any) -> tuple[Any, ...]:
    """The entries of a field that were each measured on a device; none for any other field."""
    return value if isinstance(value, tuple) and value and hasattr(value[0], "device") else ()
