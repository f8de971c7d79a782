"""A run that was ended before its time, found again: what is recorded of it, whether it is the run that is asked for, what is left to do.

Its folder was open to the code under test. So nothing in it is obeyed: the run is what the command line says, and the folder is only
held against that. What decides results is held against what it was when the run began, too; see `inputs`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from harness.collect.guard import read_record
from harness.errors import InvalidInputError, UsageError
from harness.options import RunOptions
from harness.records import Attempt, Inputs, Job, RunRecord, Stages, Verdict
from harness.run.inputs import harness_code, package

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
        if found := run_id_of(folder):
            return found
    raise InvalidInputError(
        f"No run.json or job.json in {run}/raw can be read.", "They were damaged, or are those of another warpwave.", "Start a new run."
    )


def run_id_of(raw: Path) -> str | None:
    """The id of the run that a target's folder is of; None where it does not tell."""
    record = read_record(raw, "run.json", RunRecord)[0] or read_record(raw, "job.json", Job)[0]
    return record.run_id if record and re.fullmatch(r"[\w.-]{1,80}", record.run_id) else None


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


def check_run(options: RunOptions) -> None:
    """Refuse to go on with a run of which any target was run with other kernels, or by another warpwave: one run is one state of them.

    Raises:
        UsageError: one was, or nobody knows.
    """
    files, code = package(options), harness_code()
    for raw in sorted(path for path in (options.out / "raw").glob("*") if path.is_dir() and not path.is_symlink()):
        if before := _recorded(raw):
            _refuse(raw, _code_changed(before, code) or _files_changed(before.files, files))


def check_inputs(raw: Path, now: Inputs, *, may_grow: bool = False) -> None:
    """Refuse to mix results that were made of different things. Where the package `may_grow`, files that are new in it are accepted.

    Raises:
        UsageError: something that decides results is not as it was when the run began.
    """
    if before := _recorded(raw):
        files = {path: digest for path, digest in now.files.items() if path in before.files or not may_grow}
        _refuse(raw, _code_changed(before, now.harness) or _files_changed(before.files, files) or _facts_changed(before.facts, now.facts))


def _recorded(raw: Path) -> Inputs | None:
    """What the results in a folder were made of; None where there are none."""
    before, _ = read_record(raw, "inputs.json", Inputs)
    if before is None and any((raw / name).exists() for name in ("inputs.json", "job.json", "stages.json", "facts.json")):
        _refuse(raw, "what it was made of is not on record: its inputs.json is missing or damaged, or an older warpwave made it")
    return before


def _refuse(raw: Path, why: str) -> None:
    if why:
        raise UsageError(
            f"The run in {raw} was not resumed: {why}.",
            "What is finished there was made before that change, so new results would be mixed with stale ones. The run stays as it is.",
            "Start a new run, with another --out; or undo the change, then resume.",
        )


def _code_changed(before: Inputs, now: str) -> str:
    return "" if before.harness == now else f"warpwave has changed: it was {_short(before.harness)}, now it is {_short(now)}"


def _files_changed(before: dict[str, str], now: dict[str, str]) -> str:
    """`softmax/softmax.py has changed, and 2 more files of the kernel package`."""
    told = {True: {True: "has changed", False: "is gone"}, False: {True: "is new"}}
    paths = [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
    if not paths:
        return ""
    more = f", and {len(paths) - 1} more file{'s' if len(paths) > 2 else ''}" if len(paths) > 1 else ""
    return f"the kernels have changed: {_short(paths[0])} {told[paths[0] in before][paths[0] in now]}{more}"


def _facts_changed(before: dict[str, str], now: dict[str, str]) -> str:
    for name in dict.fromkeys([*before, *now]):
        one, two = (told.get(name, "") for told in (before, now))
        if one != two:
            return f"{_short(name)[1:-1]} has changed: it was {_short(one or 'none')}, now it is {_short(two or 'none')}"
    return ""


def check_same(raw: Path, job: Job) -> None:
    """Refuse to mix two jobs in one folder.

    Raises:
        UsageError: the recorded job differs from `job` in what is run.
    """
    recorded, _ = read_record(raw, "job.json", Job)
    if recorded is None:
        return
    for entry in dataclasses.fields(Job):
        before, now = (getattr(each, entry.name) for each in (_placeless(recorded), _placeless(job)))
        if entry.name not in _FREE and before != now:
            raise UsageError(
                f"The run in {raw} is another one: its {entry.name.replace('_', ' ')} was {_short(before)}, now it is {_short(now)}.",
                "A run is taken up again as it was begun; otherwise its results would be those of two.",
                "Give the options of its first command (`command` in run.json), or start a new run.",
            )


def _placeless(job: Job) -> Job:
    """The job without the place of the package, which options of pytest name where only a shard of it is run."""
    return dataclasses.replace(job, pytest_args=tuple(word.replace(f"={job.kernels}/", "=") for word in job.pytest_args))


def _short(value: object) -> str:
    plain = [getattr(item, "value", item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
    text = " ".join(map(str, plain)) if isinstance(plain, list) else str(plain)
    return repr(text if len(text) <= 80 else f"{text[:80]} …")
