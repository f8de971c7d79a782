"""`raw/<target>/` → `TargetRun`. A broken file affects only its part of the run, and adds a line to `problems`."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from warpwave.collect.cases import read_cases
from warpwave.collect.untrusted import MAX_LINES_BYTES, Fault, Room, clip, guarded, opened, read_lines, read_record
from warpwave.errors import InvalidInputError
from warpwave.records import (
    EMULATED,
    STAGES,
    Architecture,
    CaseResult,
    CompiledKernel,
    Hardware,
    Job,
    Narrowed,
    Output,
    RunRecord,
    Stage,
    StageReport,
    Stages,
    TargetRun,
    Verdict,
    Waiver,
    What,
    worst,
)
from warpwave.records.selection import narrowed
from warpwave.records.words import host_copy

# Check that files are the ones their run wrote, and that their counts agree.

_PIECE = 1 << 20


def was_changed(folder: Path, name: str, digest: str) -> str:
    """Say what is wrong with a file that should have this SHA-256; empty if it matches, or if no hash is known.

    A file that is missing or cannot be opened is reported elsewhere.
    """
    found, _ = guarded(name, lambda: _digest(folder, name))
    return "it was changed after it was written" if digest and found and found != digest else ""


def broken_seals(folder: Path, record: RunRecord | None, reports: Sequence[StageReport]) -> Iterator[tuple[Stage | None, str, str]]:
    """Yield each changed file: its stage (None if it concerns all of them), its name, and what is wrong."""
    if record and (wrong := was_changed(folder, "stages.json", record.stages_hash)):
        yield None, "stages.json", wrong
    for report in reports:
        for output in STAGES[report.stage].outputs:  # of any other file nothing is read
            if wrong := was_changed(folder, output.path, report.files.get(output.path, "")):
                yield report.stage, output.path, wrong


def miscounted(report: StageReport, cases: Sequence[CaseResult]) -> str:
    """Say how the tests in the file differ from the stage's counts; empty if they agree, or nothing was counted."""
    if not report.counts:
        return ""
    found = Counter(case.verdict.value for case in cases)
    if sum(report.counts.values()) != len(cases):
        return f"{len(cases)} tests are in the file, the stage counted {sum(report.counts.values())}"
    for verdict in sorted({*found, *report.counts}):
        if found[verdict] != report.counts.get(verdict, 0):
            return f"{found[verdict]} tests in the file are {verdict}, the stage counted {report.counts.get(verdict, 0)}"
    return ""


def _digest(folder: Path, name: str) -> str:
    digest = hashlib.sha256()
    with opened(folder, name, MAX_LINES_BYTES) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


_MARKERS = ("run.json", "job.json", "stages.json")
MAX_FOLDERS = 10_000  # searched at most
_SEARCH_DEPTH = 3  # <given>/<artifact>/raw/<target>
_TESTS = "test/junit.xml"
_LOG = re.compile(rf"(?<![\w/])(?:(?:{'|'.join(stage.value for stage in Stage)})/log\.txt|engine\.log)\b(?!\.\w)")  # as hints name them
_FILES = (*_MARKERS, *(output.path for entry in STAGES.values() for output in entry.outputs), "bench/journal.jsonl")
_COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)
_MAX_WAIVERS, _MAX_PATTERNS = 200, 1000  # each is matched against each compiled kernel
_SPEEDS = ("samples", "again", "ceilings", "launched")  # fields of TargetRun
_MAX_ARCHITECTURES = 64  # one column each
_MOST_OF_A_NAME = 40  # characters

Own = TypeVar("Own", Job, RunRecord)
Judged = TypeVar("Judged", RunRecord, StageReport)


@dataclasses.dataclass(frozen=True)
class _Event:
    """A line of the bench stage's journal. Only the plan is used: the ids of the points that the stage was going to measure."""

    event: str
    points: dict[str, Any] = dataclasses.field(default_factory=dict)


def find_raw(paths: Iterable[Path]) -> list[Path]:
    """Return the raw folders at or below `paths`, sorted and distinct.

    A path may be a `raw/<target>` folder, a folder that contains `raw/`, a run, or a folder of downloaded artifacts.

    Raises:
        InvalidInputError: there is none.
    """
    given = [Path(path) for path in paths]
    looked: list[Path] = []
    found = {folder for path in given if path.is_dir() for folder in _search(path.resolve(), _SEARCH_DEPTH, looked)}
    if not found and (absent := [path for path in given if not path.exists()]):
        raise InvalidInputError.absent(absent)
    if not found:
        raise InvalidInputError(
            f"There is no raw folder in {', '.join(map(str, given)) or 'an empty list of paths'}.",
            "A raw folder is what one target's run leaves behind: raw/<target> with run.json in it; here the run has not started, or the "
            "artifact was unpacked elsewhere.",
            "Give the folder of a run, or the folder into which the artifacts were downloaded.",
        )
    return sorted(found)


def collect_all(folders: Sequence[Path], known: Mapping[Path, RunRecord] = MappingProxyType({})) -> list[TargetRun]:
    """Return the runs in raw folders, in order. Small folders are read first, so that a huge one does not use up the shared room.

    `known` are the records of runs that this process made: after a full disk, the files may be older or missing.
    """
    room = Room()
    runs = {folder: collect(folder, room, known.get(folder)) for folder in sorted(folders, key=_size)}
    return [runs[folder] for folder in folders]


def collect(folder: Path, room: Room | None = None, known: RunRecord | None = None) -> TargetRun:
    """Read, validate and join everything in one raw folder.

    Never raises because of its content. `room` is the rest of the report's budget.
    """
    room = room or Room()
    job, job_fault = _of_host(folder, "job.json", Job, room)
    record, record_fault = (known, None) if known else _of_host(folder, "run.json", RunRecord, room)
    stages, stages_fault = read_record(folder, "stages.json", Stages, room)
    values, faults = _read_outputs(folder, room)
    run = record or _stand_in(folder.name, job, stages)
    problems: list[str] = []
    for fault in (record_fault, job_fault, stages_fault):
        if fault and (fault.verdict is Verdict.INVALID or run.verdict in _COMPLETE or fault is record_fault):
            run = _lower(run, fault.verdict, str(fault))
            problems.append(str(fault))

    reports = {report.stage: report for report in stages.reports} if stages else {}
    for stage, fault in faults:
        if _matters(fault, reports.get(stage), run):
            reports[stage] = _lower(reports.get(stage, StageReport(stage, Verdict.NOT_RUN)), fault.verdict, str(fault))
            problems.append(str(fault))

    for verdict, text in (*_disagreements(record, job, stages), *_unmarked(record, job, any(values[field] for field in _SPEEDS))):
        run = _lower(run, verdict, text)
        problems.append(f"{verdict.value}: {text}")
    if record and record.emulated:
        values |= dict.fromkeys(_SPEEDS, ())
    if stages and not stages.finished and (progress := _measured(folder, len(values["samples"]), room)):
        run = dataclasses.replace(run, reason=f"{run.reason}; {progress}" if run.reason else progress)
    for stage in job.what.stages if job else ():
        if stage not in reports and not (stage is Stage.FACTS and values["facts"]):
            reports[stage] = StageReport(stage, Verdict.NOT_RUN, reason="asked for, but there is no report of it")
            run = _lower(run, Verdict.INCOMPLETE, f"the stage {stage.value} was asked for, but there is no report of it")
    for sealed, name, text in broken_seals(folder, record, tuple(reports.values())):
        problems.append(f"{name}: {Verdict.INVALID.value}: {text}")
        if sealed is None:
            run = _lower(run, Verdict.INVALID, f"{name}: {text}")
        else:
            reports[sealed] = _lower(reports[sealed], Verdict.INVALID, f"{name}: {text}")
    readable = Stage.TEST in reports and not any(fault.name == _TESTS for _, fault in faults)
    if readable and (text := miscounted(reports[Stage.TEST], values["cases"])):
        reports[Stage.TEST] = _lower(reports[Stage.TEST], Verdict.INVALID, text)
        problems.append(f"{_TESTS}: {Verdict.INVALID.value}: {text}")
    gates = job.what.gates if job else None
    if gates and (len(gates.waivers) > _MAX_WAIVERS or sum(map(_patterns, gates.waivers)) > _MAX_PATTERNS):
        problems.append(f"job.json: more than {_MAX_WAIVERS} waivers or {_MAX_PATTERNS} patterns in them, so waivers are not reported")
        gates = None
    return TargetRun(
        record=with_logs(run, folder),
        stages=tuple(with_logs(reports[stage], folder) for stage in Stage if stage in reports),
        gates=gates,
        peers=job.what.peers if job else (),
        division=job.division if job else "",
        narrowed=narrowed(job.what.chosen, job.what.quick, job.what.pytest_args, any(report.out_of_time for report in reports.values()))
        if job
        else Narrowed(),
        some_launches=job is not None
        and (job.what.benches != What.benches or set(job.what.launches) != set(What.launches) or job.files is not None),
        hardware=tuple(_hardware(card) for card in job.architectures) if job else (),
        sanitized=bool(job and job.sanitizes),
        problems=tuple(problems),
        **values,
    )


def _hardware(card: Architecture) -> Hardware:
    """Return what people call a card. torch's name of it begins with its vendor, on every card."""
    vendor, _, name = str(card.torch_properties.get("name", "")).partition(" ")
    return Hardware(card.name, vendor[:_MOST_OF_A_NAME], card.cards[0] if card.cards else name[:_MOST_OF_A_NAME])


def with_logs(judged: Judged, folder: Path) -> Judged:
    """Return a record or a report whose hint has the path of a log. What it says of a log that is not there is left out."""
    said = []
    for part in re.split(r"(?<=[.;]) ", judged.hint):
        named = _LOG.findall(part)
        if all((folder / name).is_file() for name in named):
            said.append(_LOG.sub(lambda found: str(folder / found[0]), part))
    hint = " ".join(said)
    return dataclasses.replace(judged, hint=f"{hint[:-1]}." if hint.endswith(";") else hint)


def _of_host(folder: Path, name: str, kind: type[Own], room: Room) -> tuple[Own | None, Fault | None]:
    """Read a record of the host: its own copy, if it is there. If the host was killed, code under test may have replaced the other one."""
    own = host_copy(folder, name)
    kept = folder.parent.name == "raw" and os.path.lexists(own)  # elsewhere, that folder may be another artifact
    found, fault = read_record(own.parent, own.name, kind, room) if kept else read_record(folder, name, kind, room)
    return found, fault and dataclasses.replace(fault, name=name)


def _read_outputs(folder: Path, room: Room) -> tuple[dict[str, Any], list[tuple[Stage, Fault]]]:
    """Return what the stages wrote, by field of `TargetRun`, and the faults."""
    values: dict[str, Any] = {}
    faults = []
    for stage, entry in STAGES.items():
        for output in entry.outputs:
            found, fault = _read(folder, output, room)
            values[output.field] = (*values.get(output.field, ()), *found) if isinstance(found, tuple) else found
            if fault and not (output.optional and fault.missing):
                faults.append((stage, fault))
    return values, faults


def _read(folder: Path, output: Output, room: Room) -> tuple[Any, Fault | None]:
    if output.path.endswith(".json"):
        return read_record(folder, output.path, output.record, room)
    if output.path.endswith(".xml"):
        cases, fault = guarded(output.path, lambda: read_cases(folder, output.path, room))
        return cases or (), fault
    rows: tuple[Any, ...]
    rows, fault = read_lines(folder, output.path, output.record, room)
    return _few_architectures(rows, fault, output.path) if output.record is CompiledKernel else (rows, fault)


def _size(folder: Path) -> int:
    """Return the total bytes of the files that are read."""
    return sum(path.lstat().st_size for path in (folder / name for name in _FILES) if path.exists())


def _search(folder: Path, depth: int, looked: list[Path]) -> list[Path]:
    # Whatever bears the name: if code under test replaced run.json by a folder, what it put below is still no target.
    if any(os.path.lexists(folder / marker) for marker in _MARKERS):
        return [folder]
    try:
        below = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    looked += below
    if len(looked) > MAX_FOLDERS:
        raise InvalidInputError(
            f"There are more than {MAX_FOLDERS} folders to look into, {folder} among them.",
            "A few targets leave a few folders; this folder holds something else, or was made to take forever.",
            "Give the folder of a run, or the folder into which the artifacts were downloaded.",
        )
    if folder.name == "raw":  # a target that crashed before it wrote anything is still a target
        return below
    return [hit for child in below for hit in _search(child, depth - 1, looked)] if depth else []


def _patterns(waiver: Waiver) -> int:
    """Return how many patterns a waiver has, except those that match everything."""
    return sum(len(patterns) for patterns in vars(waiver.which).values() if patterns != ("*",))


def _few_architectures(rows: tuple[CompiledKernel, ...], fault: Fault | None, name: str) -> tuple[tuple[CompiledKernel, ...], Fault | None]:
    """Return the rows of the first architectures, and a fault if there are unreasonably many."""
    first = set(itertools.islice(dict.fromkeys(row.architecture for row in rows), _MAX_ARCHITECTURES))
    kept = tuple(row for row in rows if row.architecture in first)
    if len(kept) == len(rows):
        return rows, fault
    text = f"more than {_MAX_ARCHITECTURES} architectures; the first {_MAX_ARCHITECTURES} are kept"
    return kept, fault if fault and fault.verdict is Verdict.INVALID else Fault(name, Verdict.INVALID, text)


def _lower(judged: Judged, verdict: Verdict, text: str) -> Judged:
    """Return `judged` with a worse verdict. A missing file adds nothing if the stage is known to have crashed or timed out."""
    if verdict is Verdict.INCOMPLETE and judged.verdict not in _COMPLETE:
        return judged
    reason = f"{judged.reason}; {text}" if judged.reason and judged.reason != text else text
    return dataclasses.replace(judged, verdict=worst([judged.verdict, verdict]), reason=reason)


def _matters(fault: Fault, report: StageReport | None, run: RunRecord) -> bool:
    """A broken file always matters. A missing one matters if its stage claims to have completed. Devices may have no ceiling."""
    if fault.verdict is Verdict.INVALID:
        return True
    if fault.name == "bench/ceilings.jsonl" and fault.missing:
        return False
    if fault.name == "facts.json" and report is None:
        return run.verdict in _COMPLETE
    # A stage that crashed, that could not run here, or that was never reached, has said why.
    said_why = (Verdict.NOT_RUN, Verdict.INFRA)
    return report is not None and (report.verdict in _COMPLETE or report.exit_code == 0) and report.verdict not in said_why


def _disagreements(record: RunRecord | None, job: Job | None, stages: Stages | None) -> list[tuple[Verdict, str]]:
    """Find files of different runs (dates are never compared), and a run whose inside never reported its end."""
    found: list[tuple[Verdict, str]] = []
    for name, other in (("job.json", job), ("stages.json", stages)):
        if record and other and (other.run_id, other.target) != (record.run_id, record.target):
            mine, theirs = (f"{clip(page.target, 40)} of run {clip(page.run_id, 40)}" for page in (record, other))
            found.append((Verdict.STALE, f"{name} is about {theirs}, run.json about {mine}"))
    # If the host itself recorded a failure, an unfinished stages.json is expected.
    if stages and not stages.finished and (record is None or record.verdict in _COMPLETE):
        found.append((Verdict.INCOMPLETE, "stages.json says that the run was not finished"))
    return found


def _unmarked(record: RunRecord | None, job: Job | None, measured: bool) -> list[tuple[Verdict, str]]:
    """Find results of an emulator that could be taken for those of a card: unmarked ones, and measured ones."""
    if record is None:
        return []
    asked = card.name if job and (card := job.emulate or job.rocjitsu) else ""
    found = []
    if job and asked != record.emulated:
        found.append(f"job.json says that {asked or 'nothing'} was emulated, run.json {record.emulated or 'nothing'}")
    if record.emulated and EMULATED not in record.target:
        found.append(f"{record.emulated} was emulated, but the target's name does not say so")
    if record.emulated and measured:
        found.append("it holds speeds, and emulated targets measure nothing")
    return [(Verdict.INVALID, text) for text in found]


def _measured(folder: Path, there: int, room: Room) -> str:
    """`83 of 108 points were measured`, if a run ended during its benchmarks; empty if the plan is unknown."""
    events, _ = read_lines(folder, "bench/journal.jsonl", _Event, room)
    planned = max((len(event.points) for event in events if event.event == "collected"), default=0)
    return f"{there} of {planned} points were measured" if planned > there else ""


def _stand_in(name: str, job: Job | None, stages: Stages | None) -> RunRecord:
    """Return a record for a folder without run.json: the host was stopped early, or the file is broken."""
    known = job or stages
    # A folder's name is bytes from an artifact, and untrusted too.
    name = clip(os.fsencode(name).decode("utf-8", "replace"), 100)
    return RunRecord(
        run_id=known.run_id if known else "",
        target=name,
        label=name,
        verdict=Verdict.PASSED,  # lowered at once by the fault of run.json
        reason="",
        hint="Run the target again: the host was stopped before it could write run.json.",
        started="",
        seconds=0.0,
        commit="",
        kernels=job.kernels if job else "",
        command=(),
    )
