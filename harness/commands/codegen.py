"""`warpwave codegen diff BASE HEAD`: show what changed in generated code between two runs. Needs no GPU and no container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import console
from harness.commands.options.common import FILE, Json, JsonCommand, complete_list, json_option
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome, UsageError

if TYPE_CHECKING:
    from harness.compare.codegen.bundles import Bundle
    from harness.compare.codegen.changed_code import Diff
    from harness.compare.codegen.deltas import Concern

_FOLDER = click.Path(path_type=Path)
_DEFAULT = "verdict,matrix,spills,occupancy"


@click.group()
def codegen() -> None:
    """Compare generated code: registers, spills, occupancy and instructions, read from binaries. Needs no GPU."""


@codegen.command(cls=JsonCommand)
@click.argument("base", type=_FOLDER)
@click.argument("head", type=_FOLDER)
@click.option(
    "--fail-on",
    metavar="WHAT,WHAT",
    default=_DEFAULT,
    show_default=True,
    shell_complete=complete_list(lambda: [*_concerns(), "any", "nothing"]),
    help="What must not get worse; or `any`, or `nothing`.",
)
@click.option("--markdown", type=FILE, help="Also write it as Markdown, for a pull request or a job's summary.")
@click.option("--html", "html_file", type=FILE, help="Also write it as one HTML page.")
@json_option()
@click.option("--full", is_flag=True, help="Show every change, not only the ten worst of each kind.")
def diff(base: Path, head: Path, fail_on: str, markdown: Path | None, html_file: Path | None, json: Json, full: bool) -> Outcome:
    """Show what changed in generated code from the run BASE to the run HEAD, the worst changes first.

    BASE and HEAD are folders of two runs (or of their artifacts) with a compile stage. Targets are joined.
    """
    from harness.compare.codegen.bundles import check_comparable
    from harness.compare.codegen.changed_code import diff as compare
    from harness.records import write_text
    from harness.render.html import render_sections
    from harness.render.markdown import render_page
    from harness.render.sections.changes.code import diff_sections, sentence
    from harness.render.terminal import draw_page

    failing = parse_concerns(fail_on)
    sides = _read(base), _read(head)
    check_comparable(*sides)
    found = compare(sides[0].kernels, sides[1].kernels)
    ended = outcome(sides, found, failing)
    lead = ended.lead(sentence(found, failing))
    sections = diff_sections(*sides, found, failing, full)
    if markdown is not None:
        write_text(markdown, render_page(lead, sections, good=ended.ok, all_in="the JSON of `codegen diff --json`"))
    if html_file is not None:
        source = "what `codegen diff --full --json` writes"
        write_text(html_file, render_sections(lead, sections, exit_code=int(ended.code), kind="codegen diff", source=source))
    if print_answer(json, [_json(sides, found, failing, lead, ended)]):
        return ended
    console.show(draw_page(lead, sections, good=ended.ok))
    return ended


def parse_concerns(text: str) -> tuple[Concern, ...]:
    """Parse `--fail-on`.

    Raises:
        UsageError: it contains an unknown concern.
    """
    from harness.compare.codegen.deltas import Concern

    if text in ("any", "nothing"):
        return tuple(Concern) if text == "any" else ()
    known = {concern.value: concern for concern in Concern}
    for word in text.split(","):
        if word not in known:
            raise UsageError(
                f"--fail-on does not know {word!r}.",
                "Concerns are separated by commas.",
                f"Choose from {', '.join(known)}; or use `any` or `nothing`.",
            )
    return tuple(known[word] for word in text.split(","))


def _concerns() -> list[str]:
    from harness.compare.codegen.deltas import Concern

    return [concern.value for concern in Concern]


def outcome(sides: Sequence[Bundle], found: Diff, failing: Sequence[Concern]) -> Outcome:
    """Return 1 if a `failing` concern got worse, 4 if a run is incomplete (missing code cannot be judged), else 0."""
    from harness.render.sections.changes.code import sentence

    if any(change.worse_in(failing) for change in found.changes):
        return Outcome(ExitCode.FAILED, sentence(found, failing).rstrip("."))
    faults = [f"{where} is incomplete ({fault})" for where, side in zip(("BASE", "HEAD"), sides, strict=True) for fault in side.faults]
    return Outcome(ExitCode.INCOMPLETE, "; ".join(faults)) if faults else Outcome()


def _read(folder: Path) -> Bundle:
    from harness.collect import collect_all, find_raw
    from harness.compare.codegen.bundles import bundle
    from harness.compare.shards import join

    return bundle(str(folder), join(collect_all(find_raw([folder]))))


def _json(sides: Sequence[Bundle], found: Diff, failing: Sequence[Concern], lead: str, ended: Outcome) -> str:
    from harness.records import SCHEMA_VERSION
    from harness.render.text import json_text

    base, head = ({key: value for key, value in asdict(side).items() if key != "kernels"} for side in sides)
    body = {
        **ended.fields(),
        "sentence": lead,
        "fail_on": [concern.value for concern in failing],
        "base": base,
        "head": head,
        "diff": asdict(found),
        "schema_version": SCHEMA_VERSION,
    }
    return json_text(body, indent=1) + "\n"
