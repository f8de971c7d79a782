"""The report over whatever the legs of a workflow brought, and over the base branch's last one, in the files that a runner reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.ci.words import COMMENT_BYTES, MARKER, cut
from harness.collect import collect, find_raw
from harness.compare import compare
from harness.compare.bundles import bundle, check_comparable
from harness.compare.codegen import diff
from harness.compare.comparison import Comparison
from harness.compare.deltas import Concern
from harness.compare.joining import join
from harness.errors import InvalidInputError, WarpwaveError
from harness.records import TargetRun
from harness.render.codegen import diff_sections, sentence
from harness.render.markdown import plain, render_markdown, render_page
from harness.report import WRITERS, write_report

_IN_ARTIFACT = "All of it is in the artifact of this run."


def merge(folders: Sequence[Path], out: Path, expected: Sequence[str]) -> Comparison:
    """Write the report over what is there. That no leg brought anything is a report, too: every target absent."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        return write_report(folders, out, expected)
    except InvalidInputError:
        comparison = compare([], expected)
        for name, write in WRITERS.items():
            write(comparison, out / name)
        return comparison


def against_base(base: Path, head: Sequence[Path], failing: Sequence[Concern]) -> tuple[str, bool]:
    """What changed since the base branch's last run, as Markdown, and whether something got worse that may not.

    Whatever stands in the way of comparing is said, and is no regression: the first run of a branch has no base.
    """
    try:
        before, after = (join([collect(raw) for raw in find_raw(folders)]) for folders in ([base], head))
    except WarpwaveError as error:
        return _not_compared(error), False
    pages = [_generated_code(before, after, failing)]
    return "".join(text for text, _ in pages), any(worse for _, worse in pages)


def _generated_code(base: Sequence[TargetRun], head: Sequence[TargetRun], failing: Sequence[Concern]) -> tuple[str, bool]:
    try:
        sides = bundle("the base branch", base), bundle("this run", head)
        check_comparable(*sides)
    except WarpwaveError as error:
        return _not_compared(error), False
    found = diff(sides[0].kernels, sides[1].kernels)
    worse = any(change.worse_in(failing) for change in found.changes)
    return "\n" + render_page(sentence(found, failing), diff_sections(*sides, found, failing, False), good=not worse), worse


def _not_compared(error: WarpwaveError) -> str:
    return f"\n_Not compared with the base branch: {plain(error.happened)}_\n"


def summary(comparison: Comparison, changes: str, limit: int) -> str:
    """The job's summary: the comparison, what changed since the base branch, and no more bytes than the runner takes."""
    room = limit - len(changes.encode())
    return cut(render_markdown(comparison, min(room, limit)) + changes, limit, _IN_ARTIFACT)


def comment(comparison: Comparison) -> str:
    """A pull request's comment; GitHub takes 65,535 bytes of it."""
    return MARKER + "\n" + render_markdown(comparison, COMMENT_BYTES - len(MARKER) - 1)
