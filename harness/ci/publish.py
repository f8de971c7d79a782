"""The report over whatever the legs of a workflow brought, in the files that a runner reads and that other tools take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.ci.artifacts import latest
from harness.ci.workflow_commands import COMMENT_BYTES, MARKER, cut
from harness.compare import compare
from harness.compare.comparison import Comparison
from harness.errors import InvalidInputError
from harness.out_folder import check_writable
from harness.records import write_text
from harness.render.exports import FORMATS
from harness.render.exports.points import sound
from harness.render.markdown import render_markdown
from harness.report import write_files, write_report

_IN_ARTIFACT = "All of it is in the artifact of this run."


def merge(folders: Sequence[Path], out: Path, expected: Sequence[str]) -> Comparison:
    """Write the report over what is there. That no leg brought anything is a report, too: every target absent."""
    check_writable(out)
    try:
        return write_report(latest(folders), out, expected)
    except InvalidInputError:
        return write_files(compare([], expected), out).comparison


def export(comparison: Comparison, out: Path) -> list[Path]:
    """The numbers for each tool that keeps them over time, a file a tool; none where nothing sound was measured. (CSV is in the report.)"""
    if not any(sound(comparison)):
        return []
    paths = [out / f"{name}{'.txt' if name == 'openmetrics' else '.json'}" for name in FORMATS if name != "csv"]
    for path in paths:
        write_text(path, FORMATS[path.stem](comparison))
    return paths


def summary(comparison: Comparison, changes: str, limit: int) -> str:
    """The job's summary: the comparison, what changed since the base branch, and no more bytes than the runner takes."""
    changes = cut(changes, limit // 2, _IN_ARTIFACT)
    return cut(render_markdown(comparison, limit - len(changes.encode())) + changes, limit, _IN_ARTIFACT)


def comment(comparison: Comparison, changes: str = "") -> str:
    """A pull request's comment; GitHub takes 65,535 bytes of it."""
    return MARKER + "\n" + summary(comparison, changes, COMMENT_BYTES - len(MARKER) - 1)
