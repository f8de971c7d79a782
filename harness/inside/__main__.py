"""Where the inside begins: read the job, run each stage as a process of its own, always leave `stages.json`.

`python -m harness.inside OUTPUT/job.json`. Exit code 0 means that every stage was brought to an end, whatever the tests said; the verdicts
are in the files. On standard output there are only events, one JSON object a line.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness.inside.events import PIPE_VARIABLE
from harness.inside.supervise import describe_exit
from harness.records import Job, Stage, StageReport, Stages, Verdict, dump

_MODULES = {Stage.FACTS: "facts", Stage.TEST: "verify", Stage.BENCH: "measure", Stage.COMPILE: "compile"}
_GRACE_S = 20.0


def run(job: Job, job_path: Path) -> None:
    """All stages in order; what is not reached is reported as not run, with the reason."""
    reports = [StageReport(stage, Verdict.NOT_RUN, reason="the run ended before this stage") for stage in (Stage.FACTS, *job.stages)]
    _save(job, reports, finished=False)
    for position, planned in enumerate(reports):
        _say({"event": "stage", "stage": planned.stage.value})
        report = _run_stage(job, job_path, planned.stage)
        reports[position] = report
        if report.stage is Stage.FACTS and report.verdict is not Verdict.PASSED:
            why = f"the environment is not usable: {report.reason}"
            reports[1:] = [StageReport(later.stage, Verdict.NOT_RUN, reason=why) for later in reports[1:]]
            break
        _save(job, reports, finished=False)
        _say({"event": "stage-end", "stage": report.stage.value, "verdict": report.verdict.value, "seconds": report.seconds})
    _save(job, reports, finished=True)


def _run_stage(job: Job, job_path: Path, stage: Stage) -> StageReport:
    """One stage in one process group, within its limit; its own report, or one that says how it died."""
    folder = Path(job.output) / stage.value
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "TRITON_INTERPRET": "1"} if job.interpret and stage is Stage.TEST else dict(os.environ)
    reading, writing = os.pipe()
    environment[PIPE_VARIABLE] = str(writing)
    command = [sys.executable, "-m", f"harness.inside.{_MODULES[stage]}", str(job_path)]
    started = time.monotonic()
    with open(folder / "log.txt", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, pass_fds=(writing,), start_new_session=True)
    os.close(writing)
    relay = threading.Thread(target=_relay, args=(reading,), daemon=True)
    relay.start()
    limit = 300.0 if stage is Stage.FACTS else job.stage_limit_s
    timed_out = False
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _stop(process)
    relay.join(1.0)
    seconds = round(time.monotonic() - started, 3)
    report = _load(folder / "report.json")
    if report is not None and process.returncode == 0:
        return dataclasses.replace(report, seconds=seconds, exit_code=0)
    hint = f"The end of {stage.value}/log.txt says more."
    if timed_out:
        return StageReport(stage, Verdict.TIMEOUT, seconds, f"the stage ran longer than {limit:g} s", hint, process.returncode)
    return StageReport(stage, Verdict.CRASHED, seconds, f"its process {describe_exit(process.returncode)}", hint, process.returncode)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, so that a GPU runtime can tear down and results are written; then SIGKILL to the whole group."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _relay(pipe: int) -> None:
    """Pass a stage's events on to the host."""
    with open(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()


def _say(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _load(path: Path) -> StageReport | None:
    try:
        raw = json.loads(path.read_text())
        return StageReport(**{**raw, "stage": Stage(raw["stage"]), "verdict": Verdict(raw["verdict"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _save(job: Job, reports: list[StageReport], *, finished: bool) -> None:
    dump(Stages(job.run_id, job.target, finished, tuple(reports)), Path(job.output) / "stages.json")


def main() -> int:
    """Entry; SIGTERM is treated as SIGINT so that both end a run in good order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    path = Path(sys.argv[1])
    try:
        run(Job.load(path), path)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
