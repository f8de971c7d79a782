"""Turn a list of TargetRun into a Comparison. Pure: no I/O, clock or environment, so a report can be drawn again at any time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from warpwave.compare import known as known_failures
from warpwave.compare import verdict
from warpwave.compare.answer import side_by_side
from warpwave.compare.changed_speeds import since_base
from warpwave.compare.codegen import compare_codegen, compare_launches, use_of_waivers
from warpwave.compare.grid import make_grid
from warpwave.compare.known import Known
from warpwave.compare.model import Change, Comparison, Difference, KnownFailures, ParityRow, Since, TargetSummary, TestFinding, TestProfile
from warpwave.compare.speeds import benched, compare_speeds, condense, geomeans, is_bandwidth, noise, portabilities, refusals
from warpwave.compare.tests import compare_tests, count_tests, mistyped
from warpwave.compare.unchecked import not_checked
from warpwave.errors import ExitCode, Outcome
from warpwave.records import MOST_SECONDS, Facts, RunRecord, Shard, StageReport, TargetRun, Verdict, grouped, worst

_NOT_PORTED = "performance portability is not computed: {} targets, with their kernels, are too many"


def compare(
    runs: Iterable[TargetRun], expected: Sequence[str] = (), base: Sequence[TargetRun] = (), known: Known | None = None
) -> Comparison:
    """Compare the targets. `expected` targets come first and in that order, whether or not they have a run.

    `base` is an earlier run of the same targets, since which speeds may have changed. What `known` lists does not fail.
    """
    failures = None
    if known is not None:
        runs, failures = known_failures.apply(list(runs), known)
    named = _named(runs, expected)
    given = {name: run for name, run in named.items() if run}
    tests = compare_tests(given)
    suspected = Counter(name for row in tests for name in row.suspected)
    targets = tuple(
        verdict.summarise(name, given[name], suspected[name]) if name in given else verdict.absent(name, given.values()) for name in named
    )
    noises = {name: noise(name, run) for name, run in given.items()}
    baseline, rows = compare_speeds(given, noises)
    asked = benched(given)
    since, refused = since_base(base, list(given.values()))
    ported = portabilities(rows, asked)
    too_many = () if ported or len(asked) < 2 or not any(is_bandwidth(row.unit) for row in rows) else (_NOT_PORTED.format(len(asked)),)
    codegen = compare_codegen(given)
    # What all runs compiled for, in the order of the run with the most.
    hardware = [card for run in sorted(given.values(), key=lambda run: -len(run.hardware)) for card in run.hardware]
    comparison = Comparison(
        sentence=verdict.sentence(targets),
        exit_code=int(_outcome(targets, tests, failures, since).code),
        targets=targets,
        baseline=baseline,
        differences=_differences(targets),
        kernels=count_tests(given),
        tests=tests,
        findings=tuple(TestFinding(name, found) for name, run in given.items() for found in run.findings),
        profiles=tuple(TestProfile(name, found) for name, run in given.items() for found in run.profiles),
        speeds=condense(rows),
        geomeans=geomeans(rows),
        portabilities=ported,
        noise=tuple(found for found in noises.values() if found),
        rows=rows,
        codegen=codegen,
        waivers=use_of_waivers(given),
        fidelity=compare_launches(given),
        refusals=refusals(rows),
        problems=(*(f"{name}: {problem}" for name, run in given.items() for problem in run.problems), *too_many, *refused),
        since=since,
        known=failures,
        grid=make_grid(targets, tests, codegen, hardware),
    )
    return dataclasses.replace(comparison, side_by_side=side_by_side(comparison))


def outcome(comparison: Comparison, *, strict: bool = False) -> Outcome:
    """Return the exit code with its reason: what the targets' verdicts say, or else which report could not be written.

    With `strict`, what could not be checked makes a good comparison an incomplete one.
    """
    found = _outcome(comparison.targets, comparison.tests, comparison.known, comparison.since)
    if found.code == comparison.exit_code:
        wanting = [words for target in comparison.targets if (words := not_checked(target))] if strict and found.ok else []
        return Outcome(ExitCode.INCOMPLETE, f"--strict: {'; '.join(wanting)}") if wanting else found
    return Outcome(ExitCode(comparison.exit_code), comparison.problems[-1] if comparison.problems else comparison.sentence.rstrip("."))


def _outcome(targets: Sequence[TargetSummary], tests: Sequence[ParityRow], known: KnownFailures | None, since: Sequence[Since]) -> Outcome:
    """Return what the verdicts say, unless only the options that chose tests are wrong."""
    if words := mistyped(targets, tests):
        return Outcome(ExitCode.USAGE, words)
    slower = sum(one.changes.get(Change.SLOWER.value, 0) for one in since)
    return known_failures.decide(verdict.outcome(targets), known, slower)


def _named(runs: Iterable[TargetRun], expected: Sequence[str]) -> dict[str, TargetRun | None]:
    """Name each run: expected targets in their order, then the others. Two runs of one target both stay."""
    seen: Counter[str] = Counter()
    named: dict[str, TargetRun | None] = dict.fromkeys(expected)
    order = {name: position for position, name in enumerate(named)}
    for run in sorted(runs, key=lambda run: order.get(run.record.target, len(order))):
        target = run.record.target
        seen[target] += 1
        name = target if seen[target] == 1 else f"{target} ({seen[target]})"
        while named.get(name) is not None:  # another target may itself be called `x (2)`
            seen[target] += 1
            name = f"{target} ({seen[target]})"
        named[name] = _usable(run)
    return named


def _usable(run: TargetRun) -> TargetRun:
    """Drop the results of a stale run: its folder holds files of two runs, so they belong to neither."""
    if run.record.verdict is not Verdict.STALE:
        return run
    return dataclasses.replace(run, cases=(), findings=(), profiles=(), samples=(), again=(), ceilings=(), compiled=(), launched=())


def _differences(targets: Sequence[TargetSummary]) -> tuple[Difference, ...]:
    facts = {target.target: _facts(target, target.facts) for target in targets if target.facts}
    names = dict.fromkeys(name for known in facts.values() for name in known)
    found = [Difference(name, {target: known[name] for target, known in facts.items()}, name in _REFUSING) for name in names]
    return tuple(difference for difference in found if len(set(difference.values.values())) > 1)


_REFUSING = ("kernel sources", "FP fusion")


def _facts(target: TargetSummary, facts: Facts) -> Mapping[str, str]:
    found = {
        "torch": facts.torch,
        "triton": facts.triton,
        "runtime": facts.runtime,
        "driver": facts.driver,
        "python": facts.python,
        "platform": facts.platform,
        "FP fusion": facts.fp_fusion,
        "kernel sources": facts.kernels_hash,
        "commit": target.commit,
        "snapshot": target.snapshot,
    }
    return {name: value or "unknown" for name, value in found.items()}


_MUST_AGREE = ("torch", "triton", "runtime", "fp_fusion", "kernels_hash")


def join(runs: Iterable[TargetRun]) -> list[TargetRun]:
    """Join shards of one target and commit into one run. Runs that are no shards stay as they are. Order is kept.

    Devices are renumbered, so that each number keeps the GPU it was measured on and the ceiling of that GPU.
    """

    def whole(run: TargetRun, position: int) -> tuple[object, ...]:
        record = run.record
        return (record.target, record.commit, Shard.parse(record.shard).of) if record.shard else (position,)

    parts = grouped((whole(run, position), run) for position, run in enumerate(runs))
    return [_join(found) if found[0].record.shard else found[0] for found in parts.values()]


def _join(parts: Sequence[TargetRun]) -> TargetRun:
    parts = sorted(parts, key=lambda run: Shard.parse(run.record.shard).number)
    # Each shard's devices are numbered on from all that earlier shards name.
    offsets = [0]
    for run in parts[:-1]:
        named = {entry.device for field in dataclasses.fields(run) for entry in _measured(getattr(run, field.name))}
        named |= {device.index for device in run.facts.devices} if run.facts else set()
        offsets.append(offsets[-1] + max(named, default=-1) + 1)
    parts = [_numbered(run, first) for run, first in zip(parts, offsets, strict=True)]
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
    narrowed = max((run.narrowed for run in parts), key=lambda each: len(each.by))
    # A shard in which a stage had nothing to do does not change the joined verdict.
    found = grouped((report.stage, report) for run in parts for report in run.stages)
    return dataclasses.replace(
        parts[0], record=record, facts=facts, stages=tuple(map(_stage, found.values())), missing=missing, narrowed=narrowed, **joined
    )


def _record(parts: Sequence[TargetRun], known: Sequence[Facts]) -> tuple[RunRecord, tuple[str, ...]]:
    """Return the gravest record for all shards, or `incomplete` if a shard is missing, given twice or ran in another environment."""
    records = [run.record for run in parts]
    lost = next((record for record in records if record.verdict is Verdict.ABSENT), None)
    gravest = worst([record.verdict for record in records], Verdict.INCOMPLETE)
    one = next(record for record in records if record.verdict is gravest)
    reason = f"shard {one.shard}: {one.reason}" if one.reason else ""
    facts = {name: {getattr(each, name) for each in known} for name in _MUST_AGREE}
    differing = [f"the shards' {name} differ" for name, values in facts.items() if len(values) > 1]
    faults = [*_counted(records), *differing, *_divided(parts)]
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
        left_out_s=sum(filter(None, (report.left_out_s for report in reports))) or None,
        out_of_time=any(report.out_of_time for report in reports),
        functions=sum(report.functions for report in reports),
        untried=sum(report.untried for report in reports),
        doubts=tuple(dict.fromkeys(doubt for report in reports for doubt in report.doubts)),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        files={},  # each shard has its own files
    )


def _divided(parts: Sequence[TargetRun]) -> list[str]:
    """Return a fault if the shards do not add up to one package: a test may be in two of them, or in none."""
    if len({run.division for run in parts if run.division}) > 1:
        return ["the shards were divided differently: by other times (--shard-times), or of another package"]
    # Apart from the budget: one shard may have had time for everything, another not.
    narrowed = [(run.narrowed, tuple(option for option in run.narrowed.by if option != "--budget")) for run in parts if run.division]
    asked = {dataclasses.replace(each, by=options) for each, options in narrowed}
    return ["the shards were asked for different tests"] if len(asked) > 1 else []


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
