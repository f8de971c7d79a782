"""Tuned configurations that are no longer the fastest that was measured: a sweep or an autotuner prefers a neighbour now. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from harness.compare.model import Change
from harness.compare.speeds.changed_speeds import SpeedChanges
from harness.compare.speeds.speedup import speedup
from harness.compare.toolchains.tuned import Stale, Tuned
from harness.records import Sample, Scalar, TargetRun, Verdict

_PAIR = re.compile(r"(\w+): ([^,]*)")  # of `str(triton.Config(…))`


def outrun(entries: Sequence[Tuned], old: Sequence[TargetRun], new: Sequence[TargetRun], speeds: SpeedChanges) -> tuple[Stale, ...]:
    """Return the entries that a measured neighbour beats on the new toolchain, and did not beat on the old one.

    A neighbour is another point of the same sweep that differs in values of the entry alone, or what an autotuner chooses for the same
    point. Each entry is reported once for a card.
    """
    before = {run.record.target: run for run in old}
    found: dict[tuple[str, str, str], str] = {}
    for pair in speeds.pairs if entries else ():
        for run in new if not pair.barriers else ():
            if run.record.target == pair.target:
                sides = before[pair.target], run
                for tuned, device, why in (*_chosen(entries, *sides), *_beaten(entries, *sides, pair.threshold)):
                    found.setdefault((tuned.file, tuned.entry, _card(run, device)), why)
    return tuple(Stale(*place, why) for place, why in found.items())


def _chosen(entries: Sequence[Tuned], old: TargetRun, new: TargetRun) -> Iterator[tuple[Tuned, int, str]]:
    """Yield the entries that an autotuner chose for a point, and does not choose any more."""
    earlier = {_key(sample): sample.tuned for sample in old.samples}
    for sample in new.samples:
        for function, text in sample.tuned.items():
            was = earlier.get(_key(sample), {}).get(function, "")
            for tuned in entries if was and was != text else ():
                if tuned.function in ("", function) and _is(tuned, was) and not _is(tuned, text):
                    better = ", ".join(f"{name}: {_values(text).get(name, '?')}" for name in tuned.values)
                    yield tuned, sample.device, f"the autotuner now chooses {better} for {sample.case}"


def _beaten(entries: Sequence[Tuned], old: TargetRun, new: TargetRun, threshold: float) -> Iterator[tuple[Tuned, int, str]]:
    """Yield the entries whose point is slower than a neighbour, where it was not slower on the old toolchain."""
    earlier = {_key(sample): sample for sample in old.samples}
    measured = [sample for sample in new.samples if sample.verdict is Verdict.PASSED]
    for tuned in entries:
        for sample in measured:
            known = {name: value for name, value in tuned.values.items() if name in sample.params}
            if not known or any(str(sample.params[name]) != str(value) for name, value in known.items()):
                continue
            for other in measured:
                if _sweep(other, known) != _sweep(sample, known) or other is sample:
                    continue
                now = speedup(sample, other, threshold)
                was = [earlier.get(_key(one)) for one in (sample, other)]
                if now.change is not Change.FASTER or now.interval is None or was[0] is None or was[1] is None:
                    continue
                if speedup(was[0], was[1], threshold).change is not Change.FASTER:
                    yield tuned, sample.device, f"{other.case} is {now.interval.value:.2f} times as fast as {sample.case}"


def _sweep(sample: Sample, values: Mapping[str, Scalar]) -> tuple[object, ...]:
    """Return what two points have in common if they differ in these parameters alone."""
    rest = sorted((name, str(value)) for name, value in sample.params.items() if name not in values)
    return sample.kernel, sample.provider, sample.device, tuple(rest), frozenset(values) & frozenset(sample.params)


def _is(tuned: Tuned, chosen: str) -> bool:
    """Return whether a tuner's choice is this entry: all values that the choice has are equal, and it has some."""
    values = _values(chosen)
    known = [name for name in tuned.values if name in values]
    return bool(known) and all(values[name] == str(tuned.values[name]) for name in known)


def _values(chosen: str) -> dict[str, str]:
    return dict(_PAIR.findall(chosen))


def _key(sample: Sample) -> tuple[str, str, str, int]:
    return sample.kernel, sample.case, sample.provider, sample.device


def _card(run: TargetRun, device: int) -> str:
    devices = run.facts.devices if run.facts else ()
    return next((one.name for one in devices if one.index == device), run.record.target)
