"""Take what was compiled elsewhere, and compile the rest on all cores: `python -m warpwave.inside.precompile job.json`.

This is a process of its own. The card stays free meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from warpwave.inside.handed_over import unpack
from warpwave.inside.precompile import ahead, torch_ahead
from warpwave.inside.precompile.worker import work
from warpwave.inside.process.workers import as_stage
from warpwave.records import Job


def main() -> None:
    """Run all workers, and write `bench/ahead.json`: the bench stage then compiles nothing itself."""
    job = Job.load(Path(sys.argv[1]))
    marker = ahead.marker_of(job)
    marker.parent.mkdir(parents=True, exist_ok=True)
    if card := ahead.card_of(job):
        kernels, refused = unpack(job, card) if job.what.compiled else (0, "")
        told = {"handed_over": kernels, "refused": refused} if job.what.compiled else {}
        beside, where = torch_ahead.started(job, card, marker)
        ahead.run(job, card, marker, work, {**told, **where}, beside)


if __name__ == "__main__":
    as_stage(main)
