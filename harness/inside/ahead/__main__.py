"""Take what was compiled elsewhere, and compile the rest on all cores: `python -m harness.inside.ahead job.json`.

This is a process of its own. The card stays free meanwhile.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness.inside.ahead import generated
from harness.inside.ahead.launches import work
from harness.inside.ahead.unpack import unpack
from harness.inside.bench import precompile
from harness.inside.process.workers import as_stage
from harness.records import Job, Stage


def main() -> None:
    """Run all workers, and write `bench/ahead.json`: the bench stage then compiles nothing itself."""
    job = Job.load(Path(sys.argv[1]))
    marker = precompile.marker_of(job)
    marker.parent.mkdir(parents=True, exist_ok=True)
    if card := precompile.card_of(job):
        told: dict[str, object] = {}
        if job.compiled:
            told["handed_over"], told["refused"] = unpack(job, card)
        if Stage.BENCH in job.stages and generated.is_used(job):
            generated.name_folder(job)
            started = time.monotonic()
            ended = precompile.in_parallel(job, card, marker, generated.generate)
            told["generated"] = {"seconds": round(time.monotonic() - started, 3), "exit_codes": ended}
        precompile.run(job, card, marker, work, told)


if __name__ == "__main__":
    as_stage(main)
