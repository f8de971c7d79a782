"""Comparison → records of the PyTorch OSS benchmark database, version 3. The uploader adds the fields that are not the benchmark's.

The columns are those of the table `oss_ci_benchmark_v3` in pytorch/test-infra. Its `extra_info` maps hold strings only.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from harness.compare.model import Comparison, TargetSummary
from harness.render.exports.points import Measured, sound
from harness.render.text import visible

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
        "dependencies": _dependencies(target),
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


def _dependencies(target: TargetSummary) -> dict[str, Any]:
    facts = target.facts
    found = {"torch": facts.torch, "triton": facts.triton} if facts else {}
    return {name: {"version": visible(version), "extra_info": {}} for name, version in found.items()}
