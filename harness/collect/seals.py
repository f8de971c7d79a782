"""Check that files are the ones their run wrote, and that their counts agree."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.collect.untrusted_files import opened
from harness.collect.untrusted_records import MAX_LINES_BYTES, guarded
from harness.records import STAGES, CaseResult, RunRecord, Stage, StageReport

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
