"""Join the shards of one run into one run. Pure.

Devices are renumbered, so that each number keeps the GPU it was measured on and the ceiling of that GPU.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from harness.records import MOST_SECONDS, Facts, RunRecord, Shard, StageReport, TargetRun, Verdict, worst

_MUST_AGREE = ("torch", "triton", "runtime", "fp_fusion", "kernels_hash")


def join(runs: Iterable[TargetRun]) -> list[TargetRun]:
    """Join shards of one target and commit into one run. Runs that are no shards stay as they are. Order is kept."""
    parts: dict[object, list[TargetRun]] = {}
    for position, run in enumerate(runs):
        parts.setdefault(_whole(run) or position, []).append(run)
    return [_join(found) if found[0].record.shard else found[0] for found in parts.values()]


def _whole(run: TargetRun) -> tuple[object, ...] | None:
    """Return a key that all shards of one run share, or None if the run is no shard."""
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
    joined["peers"] = tuple(dict.fromkeys(joined["peers"]))
    missing = _missing([run.record for run in parts])
    return dataclasses.replace(parts[0], record=record, facts=facts, stages=_stages(parts), missing=missing, **joined)


def _record(parts: Sequence[TargetRun], known: Sequence[Facts]) -> tuple[RunRecord, tuple[str, ...]]:
    """Return one record for all shards:

    the gravest one, or `incomplete` if a shard is missing, duplicated or ran in another environment.
    """
    records = [run.record for run in parts]
    lost = next((record for record in records if record.verdict is Verdict.ABSENT), None)
    gravest = worst([record.verdict for record in records], Verdict.INCOMPLETE)
    one = next(record for record in records if record.verdict is gravest)
    reason = f"shard {one.shard}: {one.reason}" if one.reason else ""
    faults = [*_counted(records), *_agreed(known), *_divided(parts)]
    if faults and gravest.severity < Verdict.INCOMPLETE.severity:
        gravest, reason = Verdict.INCOMPLETE, f"{faults[0]}: {lost.reason}" if lost and lost.reason else faults[0]
    if all(record.verdict is Verdict.ABSENT for record in records):
        gravest = Verdict.ABSENT
    seconds = max(record.seconds for record in records)
    return dataclasses.replace(one, verdict=gravest, reason=reason, seconds=seconds, shard=""), tuple(faults)


def _counted(records: Sequence[RunRecord]) -> list[str]:
    whole = Shard.parse(records[0].shard).of
    numbers = Counter(Shard.parse(record.shard).number for record in records)
    twice = [str(number) for number in sorted(numbers) if numbers[number] > 1]
    missing = _missing(records)
    return ([missing] if missing else []) + ([f"{_shards(twice, whole)} given more than once"] if twice else [])


def _missing(records: Sequence[RunRecord]) -> str:
    """`shards 2 and 3 of 4 are missing`; empty if all are present."""
    whole = Shard.parse(records[0].shard).of
    numbers = {Shard.parse(record.shard).number for record in records if record.verdict is not Verdict.ABSENT}
    lacking = [str(number) for number in range(1, whole + 1) if number not in numbers]
    return f"{_shards(lacking, whole)} missing" if lacking else ""


def _shards(numbers: Sequence[str], whole: int) -> str:
    """`shard 2 of 4 is`, `shards 2 and 3 of 4 are`."""
    return f"shard{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)} of {whole} {'are' if len(numbers) > 1 else 'is'}"


def _agreed(known: Sequence[Facts]) -> list[str]:
    values = {name: {getattr(facts, name) for facts in known} for name in _MUST_AGREE}
    return [f"the shards' {name} differ" for name, found in values.items() if len(found) > 1]


def _stages(parts: Sequence[TargetRun]) -> tuple[StageReport, ...]:
    """Join the stages by kind. A shard in which a stage had nothing to do does not change the joined verdict."""
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
        left_out=sum(report.left_out for report in reports),
        doubts=tuple(dict.fromkeys(doubt for report in reports for doubt in report.doubts)),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        files={},  # each shard has its own files
    )


def _divided(parts: Sequence[TargetRun]) -> list[str]:
    """Return a fault if the shards do not add up to one package: a test may be in two of them, or in none."""
    divisions = {run.division for run in parts if run.division}
    asked = {run.narrowed for run in parts if run.division}
    found = ["the shards were divided differently: by other times (--shard-times), or of another package"] if len(divisions) > 1 else []
    return [*found, *(["the shards were asked for different tests"] if len(asked) > 1 and not found else [])]


def _offsets(parts: Sequence[TargetRun]) -> list[int]:
    """Return the first device number of each shard: after all devices that earlier shards name."""
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
    """Return the entries of a field whose entries name a device; empty for any other field."""
    return value if isinstance(value, tuple) and value and hasattr(value[0], "device") else ()
