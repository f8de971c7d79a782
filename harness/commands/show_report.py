"""Print what commands show at their end: the comparison, the records if there is no comparison, or an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from harness import console
from harness.errors import ExitCode, Outcome, WarpwaveError
from harness.render.text import visible

if TYPE_CHECKING:
    from harness.compare.comparison import Comparison
    from harness.records import RunRecord
    from harness.report import Report


def show_report(made: Report, out: Path, options: dict[str, Any], ended: Outcome | None = None) -> Outcome:
    """Print the comparison. If something `ended` the command early, that comes first and decides the outcome."""
    from harness.compare import outcome
    from harness.render.files.comparison_json import json_pieces
    from harness.render.terminal import render_terminal
    from harness.render.text import json_text

    ended = ended if ended is not None and not ended.ok else outcome(made.comparison)
    comparison = replace(made.comparison, sentence=ended.lead(made.comparison.sentence))
    if options["as_json"]:
        # Print in pieces, like the file, so that a comparison of a million tests is not copied first.
        console.document(f'{json_text({**ended.fields(), "out": str(out)})[:-1]}, "comparison": ')
        for piece in json_pieces(comparison):
            console.document(piece.replace("\n", ""))  # one line in all: a JSON string contains no line break
        console.document("}\n")
        return ended
    console.show(render_terminal(comparison, full=options["full"]))
    console.say(_list_files(made.files, _shorten(out)))
    return ended


def _list_files(files: Sequence[str], out: Path) -> str:
    """Return a line that lists the written files, such as `Reports: out/comparison.html, .md and .json, junit.xml, bandwidth.csv`."""
    endings = [f".{ending}" for ending in ("html", "md", "json") if f"comparison.{ending}" in files]
    pages = f"comparison{' and '.join(filter(None, (', '.join(endings[:-1]), endings[-1])))}" if endings else ""
    names = [name for name in (pages, "junit.xml", "bandwidth.csv") if name == pages or name in files]
    listed = ", ".join(filter(None, names))
    return f"Reports: {out}/{listed}" if listed else f"No report could be written to {out}: see above"


def draw_report(comparison: Comparison, path: Path, *, full: bool) -> None:
    """Write the terminal's view as an SVG picture, for a README or a chat. The picture names a font but loads none."""
    from harness.records import write_text
    from harness.render.terminal import render_terminal

    drawn = console.picture(render_terminal(comparison, full=full), "warpwave", width=84)
    write_text(path, re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))


def show_records(records: Sequence[RunRecord], out: Path, options: dict[str, Any], ended: Outcome) -> Outcome:
    """Print the records of the targets, without a report. The exit code is the worst target's."""
    from harness.run import exit_code_of

    code = max((exit_code_of(record.verdict) for record in records), default=ExitCode.NOTHING_RAN)
    if ended.ok and code is not ExitCode.GOOD:
        worst = [record for record in records if exit_code_of(record.verdict) is code]
        ended = Outcome(code, "; ".join(f"{each.target}: {each.verdict.value}: {each.reason}".rstrip(": .") for each in worst))
    if options["as_json"]:
        console.print_json({**ended.fields(), "out": str(out), "targets": [asdict(record) for record in records]})
        return ended
    for record in records:
        console.say(f"{record.target}: {record.verdict.value}{': ' + record.reason if record.reason else ''}".split("\n"))
        if record.hint:
            console.say(f"  {record.hint}".split("\n"))
    return ended


def _shorten(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def print_error(error: WarpwaveError) -> None:
    """Print an error on standard error: what happened, what it means, what to do."""
    happened, *more = f"{error.happened}\n  {error.meaning}\n  {error.remedy}".split("\n")
    console.show(Text.assemble(("error: ", "bold red"), visible(happened)), err=True, soft_wrap=True)
    console.say(more, err=True)
