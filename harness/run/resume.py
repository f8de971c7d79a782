"""A run that was ended before its time, found again: what is recorded of it, whether it is the run that is asked for, what is left to do.

Its folder was open to the code under test. So nothing in it is obeyed: the run is what the command line says, and the folder is only
held against that.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from harness.collect.guard import read_record
from harness.errors import InvalidInputError, UsageError
from harness.records import Attempt, Job, RunRecord, Stages, Verdict

# What may be another at the second attempt: where things lie, and how long one waits for them.
_FREE = (
    "kernels",
    "output",
    "driver_file",
    "probe",
    "test_limit_s",
    "stage_limit_s",
    "workers",
    "probe_limit_s",
    "device_faults",
    "card_query",
    "card_rows",
    "schema_version",
)
_MAX_ATTEMPTS = 100
_UNFINISHED = (Verdict.INFRA, Verdict.INCOMPLETE, Verdict.STALE, Verdict.INVALID)


def recorded_run_id(run: Path) -> str:
    """The id of the run in a folder.

    Raises:
        UsageError: there is no run in it.
        InvalidInputError: there is, and its records cannot be read.
    """
    folders = sorted(path for path in (run / "raw").glob("*") if path.is_dir())
    if not folders:
        raise UsageError(
            f"There is no run to take up again in {run}.",
            "A run leaves a folder `raw` there, with a folder for each target in it.",
            "Give the folder that was its --out (by default reports/runs/RUN_ID).",
        )
    for folder in folders:
        record = read_record(folder, "run.json", RunRecord)[0] or read_record(folder, "job.json", Job)[0]
        if record and re.fullmatch(r"[\w.-]{1,80}", record.run_id):
            return record.run_id
    raise InvalidInputError(
        f"No run.json or job.json in {run}/raw can be read.", "They were damaged, or are those of another warpwave.", "Start a new run."
    )


def earlier_attempts(raw: Path) -> tuple[Attempt, ...]:
    """What is recorded of the attempts so far; none where nothing can be read."""
    record, _ = read_record(raw, "run.json", RunRecord)
    if record is None:
        return ()
    last = Attempt(record.started, record.seconds, record.verdict, record.reason)
    return (*record.attempts, last)[-_MAX_ATTEMPTS:]


def finished(raw: Path) -> RunRecord | None:
    """The record of a target that has nothing left to do; None where something is."""
    record, stages = read_record(raw, "run.json", RunRecord)[0], read_record(raw, "stages.json", Stages)[0]
    if record is None or stages is None or record.exit is None or record.verdict in _UNFINISHED or record.run_id != stages.run_id:
        return None
    ended = record.exit
    undisturbed = ended.code == 0 and not (ended.timed_out or ended.interrupted or ended.error or ended.exceeded)
    return record if undisturbed and stages.finished and all(report.exit_code == 0 for report in stages.reports) else None


def check_same(raw: Path, job: Job) -> None:
    """Refuse to mix two jobs in one folder.

    Raises:
        UsageError: the recorded job differs from `job` in what is run.
    """
    recorded, _ = read_record(raw, "job.json", Job)
    if recorded is None:
        return
    for entry in dataclasses.fields(Job):
        before, now = getattr(recorded, entry.name), getattr(job, entry.name)
        if entry.name not in _FREE and before != now:
            raise UsageError(
                f"The run in {raw} is another one: its {entry.name.replace('_', ' ')} was {_short(before)}, now it is {_short(now)}.",
                "A run is taken up again as it was begun; otherwise its results would be those of two.",
                "Give the options of its first command (`command` in run.json), or start a new run.",
            )


def _short(value: object) -> str:
    plain = [getattr(item, "value", item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
    text = " ".join(map(str, plain)) if isinstance(plain, list) else str(plain)
    return repr(text if len(text) <= 80 else f"{text[:80]} …")
