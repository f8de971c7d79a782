"""The one check that is a run: it tests a small kernel on a target. It runs only on request, because it may build an image."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from harness.collect import collect
from harness.compare.verdict import summarise
from harness.config.target import Target
from harness.doctor.finding import Finding, found
from harness.options import RunOptions
from harness.out_folder import new_run_id
from harness.records import Stage, Verdict
from harness.run import run_target
from harness.starter_package import starter

_LIMIT_S = 120.0
_PATIENCE_S = 10.0  # waits for another run of warpwave that has the GPU


def run_kernel(target: Target, engine: str | None) -> Finding:
    """Check whether the starter's kernel matches PyTorch on this target."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpwave-doctor-") as folder:
        options = RunOptions(
            run_id=new_run_id(),
            out=Path(folder),
            kernels=starter() / "kernels",
            engine=engine,
            stages=(Stage.TEST,),
            test_limit_s=_LIMIT_S,
            stage_limit_s=_LIMIT_S,
            limit_s=_LIMIT_S,
            gpu_wait_s=_PATIENCE_S,
        )
        run_target(target, options, say=lambda line: None, on_event=lambda event: None)
        seen = summarise(target.name, collect(Path(folder) / "raw" / target.name))
    seconds = round(time.monotonic() - started, 1)
    evidence = f"a small kernel passed {seen.tests.get('passed', 0)} tests" if seen.verdict is Verdict.PASSED else seen.reason
    fix = seen.hint or f"`warpwave run {target.name} --kernels {starter() / 'kernels'}` shows the whole run."
    finding = found(f"{target.name}: kernel", seen.verdict is Verdict.PASSED, evidence, fix)
    return Finding(finding.check, finding.state, finding.evidence, finding.fix, seconds)
