"""Comparison → strings in the formats of tools that track numbers over time."""

from __future__ import annotations

from collections.abc import Callable

from harness.compare.model import Comparison
from harness.render.exports.bencher import render_bencher
from harness.render.exports.benchmark_action import render_bigger, render_smaller
from harness.render.exports.openmetrics import render_openmetrics
from harness.render.exports.pytorch import render_pytorch
from harness.render.report_files.bandwidth_csv import render_csv

FORMATS: dict[str, Callable[[Comparison], str]] = {
    "benchmark-action": render_bigger,  # github-action-benchmark, tool customBiggerIsBetter
    "benchmark-action-times": render_smaller,  # the same with tool customSmallerIsBetter: the tool takes one direction per file
    "bencher": render_bencher,
    "pytorch": render_pytorch,
    "openmetrics": render_openmetrics,
    "csv": render_csv,
}

__all__ = ["FORMATS"]
