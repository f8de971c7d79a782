"""Comparison → input of github-action-benchmark, customBiggerIsBetter or customSmallerIsBetter: one direction per file."""

from __future__ import annotations

import json
from typing import Any

from harness.compare.model import Comparison
from harness.compare.speeds.ratios import lower_is_better
from harness.render.exports.points import Measured, sound
from harness.render.text import visible


def render_bigger(comparison: Comparison) -> str:
    """Return bandwidths and rates as JSON."""
    return _render(comparison, smaller=False)


def render_smaller(comparison: Comparison) -> str:
    """Return times as JSON."""
    return _render(comparison, smaller=True)


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
