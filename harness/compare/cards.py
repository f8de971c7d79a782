"""The GPUs of one target that shared its work or its shards: what each GPU did, and where they disagree. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from harness.compare.model import DeviceSummary
from harness.compare.speeds.ceilings import copies_gbps
from harness.compare.speeds.noise import SMALLEST
from harness.records import GPU_PROPERTY, Ceiling, DeviceFacts, TargetRun
from harness.stats import measurable

_GIB = 1 << 30
_CARDS = 512  # GPUs compared with each other: 64 shards of eight
_MOST, _LONGEST = 30, 400  # facts listed, and characters of each: a file from elsewhere may hold any number


def devices(run: TargetRun) -> tuple[DeviceSummary, ...]:
    """Return every GPU that the run reported, with the numbers of tests and points that ran on it."""
    tests = Counter(case.properties.get(GPU_PROPERTY, "") for case in run.cases)
    points = Counter(sample.device for sample in run.samples)
    copies = copies_gbps(run.ceilings)
    lost = {share.device: share.lost for share in run.shares if share.lost}
    return tuple(
        DeviceSummary(
            index=device.index,
            name=device.name,
            architecture=device.architecture,
            memory_bytes=device.memory_bytes,
            ceiling_gbps=copies.get(device.index),
            derived_gbps=device.derived_gbps,
            uuid=device.uuid,
            tests=tests[str(device.index)],
            points=points[device.index],
            lost=lost.get(device.index, ""),
        )
        for device in (run.facts.devices if run.facts else ())
    )


def disagreements(run: TargetRun) -> tuple[str, ...]:
    """Return the facts and copy bandwidths that differ between the GPUs that were used. Empty if only one GPU was used."""
    used = {share.device for share in run.shares} | {sample.device for sample in run.samples}
    found = [device for device in (run.facts.devices if run.facts else ()) if device.index in used][:_CARDS]
    if len(found) < 2:
        return ()
    facts = {device.index: _facts(device) for device in found}
    names = dict.fromkeys(name for known in facts.values() for name in known)
    differing = [name for name in names if len({known.get(name) for known in facts.values()}) > 1]
    return (*(_each(name, facts)[:_LONGEST] for name in differing[:_MOST]), *_copies(run.ceilings, [device.index for device in found]))


def _facts(device: DeviceFacts) -> dict[str, str]:
    facts: dict[str, Union[str, None]] = {
        "name": device.name,
        "architecture": device.architecture,
        "memory": f"{device.memory_bytes / _GIB:.1f} GiB",
        "multiprocessors": str(device.multiprocessors),
        "clock": f"{device.clock_mhz:.0f} MHz" if device.clock_mhz else None,
        "bandwidth by its driver's figures": f"{device.derived_gbps:.0f} GB/s" if device.derived_gbps else None,
        **device.told,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _each(name: str, facts: Mapping[int, Mapping[str, str]]) -> str:
    return f"{name}: " + ", ".join(f"{known.get(name, 'unknown')} on GPU {index}" for index, known in facts.items())


def _copies(ceilings: Iterable[Ceiling], indices: Sequence[int]) -> tuple[str, ...]:
    """Compare the slowest and the fastest GPU by their best copies.

    Report them only if the difference is at least `SMALLEST` and the p20 to p80 ranges do not overlap.
    """
    best: dict[int, Ceiling] = {}
    wanted = set(indices)
    for entry in ceilings:
        sound = entry.device in wanted and copies_gbps([entry]) and measurable(entry.p20_ms) and measurable(entry.p80_ms)
        if sound and (entry.device not in best or best[entry.device].gbps < entry.gbps):
            best[entry.device] = entry
    if len(best) < 2:
        return ()
    slow, fast = (pick(best.values(), key=lambda entry: entry.gbps) for pick in (min, max))
    apart = fast.gbps * (fast.median_ms / fast.p80_ms) > slow.gbps * (slow.median_ms / slow.p20_ms)
    behind = 1 - slow.gbps / fast.gbps
    if not apart or behind < SMALLEST:
        return ()
    return (f"copy: GPU {slow.device} is {behind:.1%} slower than GPU {fast.device}, {slow.gbps:.4g} against {fast.gbps:.4g} GB/s",)
