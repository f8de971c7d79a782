"""Write the report over the results of a workflow's jobs: the files for the runner and the exports for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.ci.artifacts import latest
from harness.ci.workflow_commands import COMMENT_BYTES, MARKER, cut
from harness.compare import compare
from harness.compare.model import Comparison
from harness.errors import InvalidInputError
from harness.out_folder import check_writable
from harness.records import write_text
from harness.render.exports import FORMATS
from harness.render.exports.points import sound
from harness.render.markdown import render_markdown
from harness.report import write_files, write_report

_IN_ARTIFACT = "The artifact of this run contains the whole text."


def merge(folders: Sequence[Path], out: Path, expected: Sequence[str]) -> Comparison:
    """Write the report over the results in `folders`. If there are none, the report lists every expected target as absent."""
    check_writable(out)
    try:
        return write_report(latest(folders), out, expected)
    except InvalidInputError:
        return write_files(compare([], expected), out).comparison


def export(comparison: Comparison, out: Path) -> list[Path]:
    """Write one file of numbers for each tool that tracks them over time, or none if no number is sound. (CSV is in the report.)"""
    if not any(sound(comparison)):
        return []
    paths = [out / f"{name}{'.txt' if name == 'openmetrics' else '.json'}" for name in FORMATS if name != "csv"]
    for path in paths:
        write_text(path, FORMATS[path.stem](comparison))
    return paths


def summary(comparison: Comparison, changes: str, limit: int) -> str:
    """Return the job's summary: the comparison and the changes since the base branch, within the runner's limit in bytes."""
    changes = cut(changes, limit // 2, _IN_ARTIFACT)
    return cut(render_markdown(comparison, limit - len(changes.encode())) + changes, limit, _IN_ARTIFACT)


def comment(comparison: Comparison, changes: str = "") -> str:
    """Return the comment on a pull request, within GitHub's limit of 65,535 bytes."""
    return MARKER + "\n" + summary(comparison, changes, COMMENT_BYTES - len(MARKER) - 1)
