"""Find a run that was stopped: read its records, check that it is the run that the user asked for, and see what is left to do. The code
under test could write to its folder. So the host reads its own copies of what it wrote, and the command line alone decides what runs: the
records are only compared with it. The inputs that decide results are compared too, with those from the start of the run; see `inputs`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from warpwave.collect.untrusted import read_record
from warpwave.errors import InvalidInputError, UsageError
from warpwave.options import RunOptions
from warpwave.records import Attempt, Inputs, Job, RunRecord, Stages, Verdict
from warpwave.records.words import HOST_FOLDER, host_copy
from warpwave.run.inputs import harness_code, package

# Fields of a job that may differ when a run is resumed: paths, limits on time and workers, and groups, whose fields are compared.
_FREE = {
    *("lease", "compiled", "limits", "kernels", "package_root", "names", "variables", "output", "driver_file", "probe", "workers"),
    *("probe_limit_s", "device_faults", "card_query", "card_rows", "schema_version", "what", "declared"),
}
_NAMES = {"chosen": "choice of tests", "files": "part of the package (--shard)", "division": "division into shards"}
_MAX_ATTEMPTS = 100
Record = TypeVar("Record", RunRecord, Job, Inputs)
_UNFINISHED = (Verdict.INFRA, Verdict.INCOMPLETE, Verdict.STALE, Verdict.INVALID)


def recorded_run_id(run: Path) -> str:
    """Return the id of the run in a folder. Raises UsageError if the folder contains no run, and InvalidInputError if the folder contains a
    run, but its records cannot be read."""
    folders = sorted(path for pattern in ("raw/*", "shards/*/raw/*") for path in run.glob(pattern) if path.is_dir())
    if not folders:
        happened = f"There is no run to resume in {run}."
        meaning = "A run leaves a folder `raw` there, which has a folder for each target."
        raise UsageError(happened, meaning, "Give the folder that was the run's --out (by default reports/runs/RUN_ID).")
    for folder in folders:
        if found := run_id_of(folder):
            return re.sub(r"-\d+of\d+$", "", found)  # of a shard
    meaning = "warpwave keeps its own records there. They are missing or damaged, or another version made the run."
    raise InvalidInputError(f"No run.json or job.json in {run}/{HOST_FOLDER} can be read.", meaning, "Start a new run.")


def _own(raw: Path, name: str, kind: type[Record]) -> Record | None:
    path = host_copy(raw, name)
    return read_record(path.parent, path.name, kind)[0]


def run_id_of(raw: Path) -> str | None:
    """Return the run id recorded in a target's folder, or None if no valid one is recorded."""
    record = _own(raw, "run.json", RunRecord) or _own(raw, "job.json", Job)
    return record.run_id if record and re.fullmatch(r"[\w.-]{1,80}", record.run_id) else None


def earlier_attempts(raw: Path) -> tuple[Attempt, ...]:
    """Return the recorded attempts so far; none if the record cannot be read."""
    record = _own(raw, "run.json", RunRecord)
    return with_last(record) if record else ()


def with_last(record: RunRecord) -> tuple[Attempt, ...]:
    """Return the attempts of a record, and the one that it is about."""
    last = Attempt(record.started, record.seconds, record.verdict, record.reason)
    return (*record.attempts, last)[-_MAX_ATTEMPTS:]


def finished(raw: Path) -> RunRecord | None:
    """Return the record of a target that has nothing left to do, or None if something is left."""
    record, stages = _own(raw, "run.json", RunRecord), read_record(raw, "stages.json", Stages)[0]
    if record is None or stages is None or record.exit is None or record.verdict in _UNFINISHED or record.run_id != stages.run_id:
        return None
    ended = record.exit
    undisturbed = ended.code == 0 and not (ended.timed_out or ended.interrupted or ended.error or ended.exceeded)
    whole = all(report.exit_code == 0 and not report.out_of_time for report in stages.reports)
    return record if undisturbed and stages.finished and whole else None


def check_run(options: RunOptions) -> None:
    """Refuse to resume a run if the kernels or warpwave have changed since any of its targets ran. Raises UsageError if they have changed,
    or their old state is not recorded."""
    files, code = package(options), harness_code()
    for raw in sorted(path for path in (options.where.out / "raw").glob("*") if path.is_dir() and not path.is_symlink()):
        if before := _recorded(raw):
            _refuse(raw, _code_changed(before, code) or _files_changed(before.files, files))


def check_inputs(raw: Path, now: Inputs, *, may_grow: bool = False) -> None:
    """Refuse to mix results of different inputs. If the package `may_grow`, new files in it are accepted. Raises UsageError if an input has
    changed since the run started."""
    if before := _recorded(raw):
        files = {path: digest for path, digest in now.files.items() if path in before.files or not may_grow}
        why = _code_changed(before, now.harness) or _files_changed(before.files, files)
        for name in dict.fromkeys([*before.facts, *now.facts]) if not why else ():
            one, two = (facts.get(name, "") or "none" for facts in (before.facts, now.facts))
            if one != two:
                why = why or f"{_short(name)[1:-1]} has changed: it was {_short(one)}, now it is {_short(two)}"
        _refuse(raw, why)


def _recorded(raw: Path) -> Inputs | None:
    before = _own(raw, "inputs.json", Inputs)
    if before is None and any((raw / name).exists() for name in ("inputs.json", "job.json", "stages.json", "facts.json")):
        kept = f"{HOST_FOLDER}/{host_copy(raw, 'inputs.json').name}"
        _refuse(raw, f"its inputs are not on record: {kept} is missing or damaged, or an older warpwave made the run")
    return before


def _refuse(raw: Path, why: str) -> None:
    if why:
        happened = f"The run in {raw} was not resumed: {why}."
        meaning = "Its finished results are from before that change, and new results would be mixed with them. The run stays as it is."
        raise UsageError(happened, meaning, "Start a new run, with another --out; or undo the change, then resume.")


def _code_changed(before: Inputs, now: str) -> str:
    return "" if before.harness == now else f"warpwave has changed: it was {_short(before.harness)}, now it is {_short(now)}"


def _files_changed(before: dict[str, str], now: dict[str, str]) -> str:
    """Return a phrase such as `the kernels have changed: 'softmax/softmax.py' has changed, and 2 more files`, or an empty string."""
    words = {True: {True: "has changed", False: "is gone"}, False: {True: "is new"}}
    paths = [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
    if not paths:
        return ""
    more = f", and {len(paths) - 1} more file{'s' if len(paths) > 2 else ''}" if len(paths) > 1 else ""
    return f"the kernels have changed: {_short(paths[0])} {words[paths[0] in before][paths[0] in now]}{more}"


def check_same(raw: Path, job: Job) -> None:
    """Refuse to mix two jobs in one folder. Raises UsageError if the recorded job and `job` run different things."""
    recorded = _own(raw, "job.json", Job)
    if recorded is None:
        return
    earlier, later = ({**vars(each.what), **vars(each.declared), **vars(each)} for each in (recorded, job))
    for name in later:
        before, now = earlier[name], later[name]
        if name not in _FREE and before != now:
            what = _NAMES.get(name) or name.replace("_", " ")
            happened = f"The run in {raw} is another one: its {what} was {_short(before)}, now it is {_short(now)}."
            meaning = "A run is resumed with the options that it was started with; otherwise two runs would be mixed."
            raise UsageError(happened, meaning, "Give the options of its first command (`command` in run.json), or start a new run.")


def _short(value: object) -> str:
    plain = [getattr(item, "value", item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
    text = " ".join(map(str, plain)) if isinstance(plain, list) else str(plain)
    return repr(text if len(text) <= 80 else f"{text[:80]} …")
