"""Comparison → Bencher Metric Format (bencher.dev, `json` adapter): benchmark → measure → value with its band."""

from __future__ import annotations

import json
import re

from harness.compare.model import Comparison
from harness.render.exports.points import sound

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
