"""Take what was compiled elsewhere, and compile the rest on all cores: `python -m harness.inside.precompile job.json`.

This is a process of its own. The card stays free meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.inside.bench import precompile
from harness.inside.precompile.unpack import unpack
from harness.inside.precompile.worker import work
from harness.inside.precompile_torch import generated
from harness.inside.process.workers import as_stage
from harness.records import Job


def main() -> None:
    """Run all workers, and write `bench/ahead.json`: the bench stage then compiles nothing itself."""
    job = Job.load(Path(sys.argv[1]))
    marker = precompile.marker_of(job)
    marker.parent.mkdir(parents=True, exist_ok=True)
    if card := precompile.card_of(job):
        kernels, refused = unpack(job, card) if job.compiled else (0, "")
        told = {"handed_over": kernels, "refused": refused} if job.compiled else {}
        beside, where = generated.started(job, card, marker)
        precompile.run(job, card, marker, work, {**told, **where}, beside)


if __name__ == "__main__":
    as_stage(main)
