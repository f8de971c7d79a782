"""Print what commands show at their end: the comparison, the records if there is no comparison, or an error."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from warpwave import console
from warpwave.errors import ExitCode, Outcome, UsageError, WarpwaveError
from warpwave.safe_text import visible

if TYPE_CHECKING:
    from warpwave.cli.options import Json
    from warpwave.compare.model import Comparison
    from warpwave.records import RunRecord, TargetRun
    from warpwave.render.sections.model import Section
    from warpwave.report import Report


def check_expected(names: Sequence[str], overlay: Path | None, folders: Sequence[Path]) -> None:
    """Refuse an expected target that exists nowhere: neither in a targets file nor in the folders. Raises
    UsageError if a name is in none of them."""
    from warpwave.collect import find_raw
    from warpwave.config.targets import load_targets

    known = set(load_targets(overlay)) if names else set()
    if any(name not in known for name in names):
        known |= {folder.name for folder in find_raw(folders)}
    for name in names:
        if name not in known:
            meaning = "It is in no targets file and in none of the folders, so it would be `absent` for ever."
            remedy = f"Choose from {', '.join(sorted(known))}, or give the file that defines it: --targets FILE."
            raise UsageError(f"--expect names {name!r}, and there is no such target.", meaning, remedy)


def read_runs(folders: Sequence[Path]) -> list[TargetRun]:
    """Return the runs in the raw folders at or below these; the shards of one are joined."""
    from warpwave.collect import collect_all, find_raw
    from warpwave.compare.runs import join

    return join(collect_all(find_raw(folders)))


def show_report(
    made: Report, out: Path, folders: Sequence[Path], options: dict[str, Any], ended: Outcome | None = None, *, next_too: bool = False
) -> Outcome:
    """Print the comparison of `folders`. If something `ended` the command early, that comes first and decides the outcome. With `next_too`,
    the command that most users type next comes at the end."""
    from warpwave.compare import outcome
    from warpwave.compare.answer import headline, overview
    from warpwave.render.commands import next_commands, show_page
    from warpwave.render.files import json_pieces
    from warpwave.render.terminal import render_terminal
    from warpwave.safe_text import json_text

    ended = ended if ended is not None and not ended.ok else outcome(made.comparison, strict=options.get("strict", False))
    comparison = replace(made.comparison, sentence=ended.lead(made.comparison.sentence))
    # In pieces, like the report's own file, so that a comparison of a million tests is not copied first; and on one line.
    said = headline(comparison, overview(comparison)).text if options["json"] else ""
    head = f'{json_text({**ended.fields(), "headline": said, "out": str(out)})[:-1]}, "comparison": '
    if print_answer(options["json"], itertools.chain([head], (piece.replace("\n", "") for piece in json_pieces(comparison)), ["}\n"])):
        return ended
    console.show(render_terminal(comparison, options["full"], again=_show_all(out, folders, options)))
    endings = [f".{ending}" for ending in ("html", "md", "json") if f"comparison.{ending}" in made.files]
    pages = f"comparison{' and '.join(filter(None, (', '.join(endings[:-1]), endings[-1])))}" if endings else ""
    names = ", ".join(name for name in (pages, "junit.xml", "bandwidth.csv") if name and (name == pages or name in made.files))
    console.say(f"Reports: {_shorten(out)}/{names}" if names else f"No report could be written to {_shorten(out)}: see above")
    if next_too and "comparison.html" in made.files:
        page, (command, *listing) = show_page(_shorten(out)), next_commands(made.comparison, _shorten(out))
        known = [f"Known failures: {each}" for each in listing]
        console.say([f"Next: {command}", *known, *([f"Page: {page}"] if command != page else [])])
    elif comparison.known and comparison.known.unneeded:
        console.say(f"Known failures: {shlex.join(['warpwave', 'known', 'update', *map(str, map(_shorten, folders)), '--prune'])}")
    return replace(ended, shown=ended.reason in made.comparison.sentence)


def _show_all(out: Path, folders: Sequence[Path], options: dict[str, Any]) -> str:
    """Return the shell command that makes the same report again and shows all of it."""
    words = ["warpwave", "report", *map(_shorten, folders), *(["--out", _shorten(out)] if list(folders) != [out] else [])]
    named = {"expect": "--expect", "base": "--base", "overlay": "--targets", "known": "--known", "known_base": "--known-base"}
    for key, option in {**named, "fail_on": "--fail-on", "strict": "--strict", "known_strict": "--known-strict"}.items():
        value = options.get(key)
        for each in value if isinstance(value, tuple) else [value] if value else []:
            words += [option] if each is True else [option, each]
    return shlex.join([*map(str, words), "--full"])


def show_page(
    lead: str,
    sections: Sequence[Section],
    ended: Outcome,
    body: dict[str, Any],
    *,
    kind: str,
    json: Json,
    markdown: Path | None,
    html: Path | None = None,
) -> Outcome:
    """Write the pages that were asked for, and print the page or its `body` as JSON."""
    from warpwave.records import SCHEMA_VERSION, write_text
    from warpwave.render.html import render_sections
    from warpwave.render.markdown import render_page
    from warpwave.render.terminal import draw_page
    from warpwave.safe_text import json_text

    source = f"what `{kind} --json` prints"
    if markdown is not None:
        write_text(markdown, render_page(lead, sections, good=ended.ok, all_in=source))
    if html is not None:
        write_text(html, render_sections(lead, sections, exit_code=int(ended.code), kind=kind, source=source))
    document = {**ended.fields(), "sentence": lead, **body, "schema_version": SCHEMA_VERSION}
    if not print_answer(json, [json_text(document, indent=1) + "\n"]):
        console.show(draw_page(lead, sections, good=ended.ok))
    return ended


def print_answer(asked: Json, pieces: Iterable[str]) -> bool:
    """Write the document that `--json` asked for to standard output or to its file. Return whether nothing else is printed."""
    from warpwave.records import write_text

    if asked is True:
        for piece in pieces:
            console.document(piece)
    elif isinstance(asked, Path):
        write_text(asked, pieces)
    return asked is True


def draw_report(comparison: Comparison, path: Path, *, full: bool) -> None:
    """Write the terminal's view as an SVG picture, for a README or a chat. The picture names a font but loads none."""
    from warpwave.records import write_text
    from warpwave.render.terminal import render_terminal

    drawn = console.picture(render_terminal(comparison, full=full), "warpwave", width=106)
    write_text(path, re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))


def show_records(
    records: Sequence[RunRecord], out: Path, options: dict[str, Any], ended: Outcome, judged: Outcome | None = None
) -> Outcome:
    """Print the records of the targets, without a report. The exit code is the worst target's, or what a report was `judged` to have."""
    from warpwave.run import exit_code_of
    from warpwave.safe_text import json_text

    code = max((exit_code_of(record.verdict) for record in records), default=ExitCode.NOTHING_RAN)
    if ended.ok and judged is not None:
        ended = judged
    elif ended.ok and code is not ExitCode.GOOD:
        worst = [record for record in records if exit_code_of(record.verdict) is code]
        ended = Outcome(code, "; ".join(f"{each.target}: {each.verdict.value}: {each.reason}".rstrip(": .") for each in worst))
    document = {**ended.fields(), "out": str(out), "targets": [asdict(record) for record in records]}
    if print_answer(options["json"], [json_text(document, default=str) + "\n"]):
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
