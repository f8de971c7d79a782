"""Comparison → strings in the formats of tools that track numbers over time."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from warpwave.compare.model import Cell, Comparison, Row, TargetSummary
from warpwave.compare.profile import largest
from warpwave.compare.speeds import lower_is_better
from warpwave.render.charts.sweeps import band
from warpwave.render.files import render_csv
from warpwave.safe_text import visible

# The numbers that exports contain: sound ones only, because the tools that read them have no column for doubts. Pure.


@dataclass(frozen=True)
class Measured:
    """One sound number and its row. `low` and `high` are its 20 to 80% band, if it has one."""

    row: Row
    cell: Cell
    value: float
    low: float | None
    high: float | None

    @property
    def name(self) -> str:
        """`softmax/fp32/N=1024 [triton] on a, Some GPU`. The name includes the GPU, so that another GPU starts another series."""
        device = f" {self.cell.device}" if self.cell.device else ""
        return visible(f"{self.row.case} [{self.row.provider}] on {self.cell.target}, {self.cell.gpu}{device}")


def sound(comparison: Comparison) -> Iterator[Measured]:
    """Yield every sound number, each name once: the kernel's tests passed and the value is not suspect."""
    seen = set()
    for row in comparison.rows:
        for cell in row.cells:
            if cell.sound and cell.value is not None:
                found = Measured(row, cell, cell.value, *band(cell))
                if (found.name, row.kernel, cell.unit) not in seen:
                    seen.add((found.name, row.kernel, cell.unit))
                    yield found


def left_out(comparison: Comparison) -> int:
    """Return how many points are not sound, measured or not."""
    return sum(not cell.sound for row in comparison.rows for cell in row.cells)


# Comparison → Bencher Metric Format (bencher.dev, `json` adapter): benchmark → measure → value with its band.

_NAME, _SLUG = 1024, 64  # Bencher's limits


def render_bencher(comparison: Comparison) -> str:
    """Return a benchmark per sound number. Its measure is the unit's slug, plus `ceiling-share` if there is a ceiling."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for point in sound(comparison):
        measure = {"value": point.value}
        if point.low is not None and point.high is not None:
            measure |= {"lower_value": point.low, "upper_value": point.high}
        measures = found.setdefault(point.name[:_NAME], {})
        measures[_slug(point.cell.unit)] = measure
        if point.cell.share is not None:
            measures["ceiling-share"] = {"value": point.cell.share}
    return json.dumps(found, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _slug(unit: str) -> str:
    """Return a slug: `gb-s` for GB/s."""
    return re.sub(r"[^a-z0-9]+", "-", unit.lower()).strip("-")[:_SLUG].strip("-") or "value"


# Comparison → input of github-action-benchmark, customBiggerIsBetter or customSmallerIsBetter: one direction per file.


def _render(comparison: Comparison, smaller: bool) -> str:
    entries = [_entry(point) for point in sound(comparison) if lower_is_better(point.cell.unit) is smaller]
    return json.dumps(entries, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _entry(point: Measured) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": point.name, "unit": visible(point.cell.unit), "value": point.value}
    if point.low is not None and point.high is not None:
        entry["range"] = f"± {(point.high - point.low) / 2:.4g}"
    share = (
        f"\nshare of {(point.cell.share_of or 'the copy').removeprefix('the ')} {point.cell.share:.1%}"
        if point.cell.share is not None
        else ""
    )
    return {**entry, "extra": f"timer {visible(point.cell.timer) or 'unknown'}\ntimings {point.cell.timings}{share}"}


# Comparison → OpenMetrics text: gauges for Prometheus. Pure, and without timestamps: the scrape has one.

_Sample = tuple[dict[str, str], float]


def render_openmetrics(comparison: Comparison) -> str:
    """Return the metric families with distinct samples, and the end mark."""
    points = [(_series(point), point) for point in sound(comparison)]
    tests = [
        ({"kernel": entry.kernel, "target": entry.target, "verdict": verdict}, float(count))
        for entry in comparison.kernels
        for verdict, count in entry.counts.items()
    ]
    compiled = [
        ({"target": target.target, "verdict": verdict}, float(count))
        for target in comparison.targets
        for verdict, count in target.compiled.items()
    ]
    devices = [(target, device) for target in comparison.targets for device in target.devices]
    copies = [
        ({"target": target.target, "gpu": device.name, "device": str(device.index)}, device.ceiling_gbps * 1e9)
        for target, device in devices
        if device.ceiling_gbps
    ]
    complete = [({"target": target.target, "verdict": target.verdict.value}, float(target.complete)) for target in comparison.targets]
    families = (
        _family("speed", "What the benchmark's author computed, in the unit of its label.", [(on, p.value) for on, p in points]),
        _family("speed_low", "The lower end of its 20 to 80 percent band.", [(on, p.low) for on, p in points if p.low is not None]),
        _family("speed_high", "The upper end of its 20 to 80 percent band.", [(on, p.high) for on, p in points if p.high is not None]),
        _family(
            "ceiling_share",
            "Its share of the ceiling (copy, or matrix product) measured in the same run.",
            [(on, p.cell.share) for on, p in points if p.cell.share],
        ),
        _family("copy_bytes_per_second", "Copy bandwidth measured on a GPU.", copies, unit="bytes_per_second"),
        _family("tests", "Tests of a kernel by what became of them.", tests),
        _family("compiled_kernels", "Compiled kernels by what became of them.", compiled),
        _family("target_complete", "Whether a target did all that it was asked to do.", complete),
    )
    return "".join(families) + "# EOF\n"


def _series(point: Measured) -> dict[str, str]:
    row, cell = point.row, point.cell
    named = {"kernel": row.kernel, "case": row.case, "provider": row.provider, "target": cell.target, "gpu": cell.gpu}
    return {**named, "device": str(cell.device), "unit": cell.unit}


def _family(name: str, text: str, samples: Iterable[_Sample], unit: str = "") -> str:
    lines = {_labels(labels): value for labels, value in samples}  # the same labels twice would make the text invalid
    if not lines:
        return ""
    full = f"warpwave_{name}"
    head = f"# TYPE {full} gauge\n" + (f"# UNIT {full} {unit}\n" if unit else "") + f"# HELP {full} {text}\n"
    return head + "".join(f"{full}{labels} {value!r}\n" for labels, value in lines.items())


def _labels(labels: dict[str, str]) -> str:
    listed = (f'{name}="{_escaped(visible(value))}"' for name, value in labels.items())
    return "{" + ",".join(listed) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Comparison → records of the PyTorch OSS benchmark database, version 3. The uploader adds the fields that are not the benchmark's.
#
# The columns are those of the table `oss_ci_benchmark_v3` in pytorch/test-infra. Its `extra_info` maps hold strings only.

_MOST = 64  # parameters per record


def render_pytorch(comparison: Comparison) -> str:
    """Return one JSON array with a record per sound number."""
    targets = {target.target: target for target in comparison.targets}
    # Convert record by record: as objects, all records take ten times the memory of their text.
    records = [_indented(_record(point, targets[point.cell.target])) for point in sound(comparison)]
    return f"[\n{','.join(records)[1:]}\n]\n" if records else "[]\n"


def _indented(record: dict[str, Any]) -> str:
    text = json.dumps(record, allow_nan=False, ensure_ascii=False, indent=1)
    return "\n" + "\n".join(f" {line}" for line in text.split("\n"))


def _record(point: Measured, target: TargetSummary) -> dict[str, Any]:
    row, cell = point.row, point.cell
    params = {visible(name): visible(str(value)) for name, value in itertools.islice(row.params.items(), _MOST)}
    figures = {"low": point.low, "high": point.high, "median_ms": cell.median_ms, "ceiling_share": cell.share}
    facts = target.facts
    found = {"torch": facts.torch, "triton": facts.triton} if facts else {}
    return {
        "benchmark": {
            "name": "warpwave",
            "mode": "",
            "dtype": params.get("dtype", ""),
            "extra_info": {"timer": visible(cell.timer), "flush_bytes": str(cell.flush_bytes), "commit": visible(target.commit)},
        },
        "model": {
            "name": visible(row.case),
            "type": "kernel",
            "backend": visible(row.provider),
            "origins": [visible(row.kernel)],
            "extra_info": params,
        },
        "metric": {
            "name": visible(cell.unit) or "value",
            "benchmark_values": [point.value],
            "extra_info": {name: repr(value) for name, value in figures.items() if value is not None},
        },
        "runners": [_runner(cell.device, target)],
        "dependencies": {name: {"version": visible(version), "extra_info": {}} for name, version in found.items()},
    }


def _runner(index: int, target: TargetSummary) -> dict[str, Any]:
    device = next((device for device in target.devices if device.index == index), None)
    return {
        "name": visible(target.target),
        "type": visible(target.label),
        "gpu_info": visible(device.name if device else ""),
        "gpu_count": 1,
        "avail_gpu_mem_in_gb": device.memory_bytes >> 30 if device else 0,
        "extra_info": {"architecture": visible(device.architecture if device else "")},
    }


# Comparison → speedscope (speedscope.app): a profile a kernel, whose weights are the instructions of each line.


def render_speedscope(comparison: Comparison) -> str:
    """Return the wave-instructions that emulated kernels executed, by line of the source: counts, not times."""
    frames: dict[tuple[str, str, int], int] = {}
    profiles = []
    for one in largest(comparison.profiles):
        samples, weights = [], []
        for line in one.profile.lines:
            name = visible(f"{line.place or one.profile.function} {line.text}".strip())
            kernel = frames.setdefault((visible(one.profile.function), "", 0), len(frames))
            samples.append([kernel, frames.setdefault((name, visible(line.file), line.line), len(frames))])
            weights.append(line.counters.get("instructions", 0))
        name = visible(f"{one.profile.function} on {one.target}, {one.profile.case}: wave-instructions")
        ends = {"startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights}
        profiles.append({"type": "sampled", "name": name, "unit": "none", **ends})
    shared = [{"name": name, "file": file, "line": line} if file else {"name": name} for name, file, line in frames]
    schema = "https://www.speedscope.app/file-format-schema.json"
    return json.dumps({"$schema": schema, "shared": {"frames": shared}, "profiles": profiles}, indent=1) + "\n"


FORMATS: dict[str, Callable[[Comparison], str]] = {
    # github-action-benchmark has a tool for each direction: customBiggerIsBetter and customSmallerIsBetter.
    "benchmark-action": lambda comparison: _render(comparison, smaller=False),
    "benchmark-action-times": lambda comparison: _render(comparison, smaller=True),
    "bencher": render_bencher,
    "pytorch": render_pytorch,
    "openmetrics": render_openmetrics,
    "csv": render_csv,
    "speedscope": render_speedscope,
}
