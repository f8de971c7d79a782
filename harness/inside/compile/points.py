"""All points of a job's benchmarks, loaded for what is compiled ahead. What does not load is reported by the sweep."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.inside.benchmarks import Point, load_module, points
from harness.inside.scripts.script import benches_of
from harness.records import Job


def points_of(job: Job) -> list[Point]:
    """Return all points, in the order of the sweep."""
    root = Path(job.kernels)
    found: list[Point] = []
    for path in benches_of(job):
        try:
            found += points(load_module(path, root), path, job)
        except Exception:
            traceback.print_exc()
    return found
