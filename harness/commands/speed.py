"""`warpwave compare BASE HEAD` and `warpwave history`: how speeds change between two commits or over many. Need no GPU and no container."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import console
from harness.commands.history_site import site
from harness.commands.options.common import FILE, Json, JsonCommand, json_option
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome
from harness.out_folder import HISTORY, ignored_by_git

if TYPE_CHECKING:
    from harness.compare.speeds.changed_speeds import SpeedChanges
    from harness.records import TargetRun

_FOLDER = click.Path(path_type=Path)


@click.command(cls=JsonCommand)
@click.argument("base", type=_FOLDER)
@click.argument("head", type=_FOLDER)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 10),
    metavar="SHARE",
    help="Treat a smaller change as noise, e.g. 0.02.  [default: the A/A run's]",
)
@click.option("--markdown", type=FILE, help="Also write it as Markdown, for a pull request or a job's summary.")
@json_option()
@click.option("--full", is_flag=True, help="Show every point, not only the twenty that changed most.")
def compare(base: Path, head: Path, threshold: float | None, markdown: Path | None, json: Json, full: bool) -> Outcome:
    """Show which points became faster or slower from the run BASE to the run HEAD. The exit code is 1 if one is slower.

    BASE and HEAD are folders of two runs (or of their artifacts) with a bench stage, for any targets.
    """
    from harness.compare.speeds.changed_speeds import changed_speeds
    from harness.records import write_text
    from harness.render.markdown import render_page
    from harness.render.sections.changes.speeds import changed_speed_sections, sentence
    from harness.render.terminal import draw_page

    found = changed_speeds(_read(base), _read(head), threshold)
    ended = outcome(found)
    lead = ended.lead(sentence(found))
    sections = changed_speed_sections(found, full)
    if markdown is not None:
        write_text(markdown, render_page(lead, sections, good=ended.ok, all_in="the JSON of `compare --json`"))
    if print_answer(json, [_json(found, lead, ended)]):
        return ended
    console.show(draw_page(lead, sections, good=ended.ok))
    return ended


def outcome(found: SpeedChanges) -> Outcome:
    """Return 1 if a point is slower or fails now, 4 if something could not be compared, else 0.

    A point that both runs skip does not count.
    """
    from harness.compare.model import Change
    from harness.render.sections.changes.speeds import sentence
    from harness.render.text import first_line, plural

    if found.lost or found.of(Change.SLOWER):
        return Outcome(ExitCode.FAILED, sentence(found).rstrip("."))
    barriers = [barrier for pair in found.pairs for barrier in pair.barriers]
    refused = found.of(Change.REFUSED)
    if refused:
        one = refused[0]
        which = "" if len(refused) == 1 else "the first is "
        first = f"{which}{one.case} {one.provider} on {one.target}: {first_line(one.reason)}"
        barriers.append(f"{plural(len(refused), 'point')} could not be compared ({first})")
    if not barriers and not any(point.speedup for point in found.points):
        barriers.append("no point was measured in both runs")
    return Outcome(ExitCode.INCOMPLETE, "; ".join(barriers)) if barriers else Outcome()


def _read(folder: Path) -> list[TargetRun]:
    from harness.collect import collect_all, find_raw
    from harness.compare.shards import join

    return join(collect_all(find_raw([folder])))


def _json(found: SpeedChanges, lead: str, ended: Outcome) -> str:
    from harness.records import SCHEMA_VERSION
    from harness.render.text import json_text

    body = {**ended.fields(), "sentence": lead, "movement": asdict(found), "schema_version": SCHEMA_VERSION}
    return json_text(body, indent=1) + "\n"


@click.group()
def history() -> None:
    """Store and show the speeds of many runs, in one SQLite file."""


history.add_command(site)
_file = click.option("--file", "path", type=FILE, default=HISTORY, show_default=True, help="The history file.")


@history.command(name="add")
@click.argument("bundles", nargs=-1, required=True, type=_FOLDER, metavar="BUNDLE...")
@_file
def add_runs(bundles: tuple[Path, ...], path: Path) -> Outcome:
    """Add the runs in BUNDLEs to the history. Adding a run twice has no effect."""
    from harness.collect import collect_all, find_raw
    from harness.history import add

    for name, new in add(ignored_by_git(path), collect_all(find_raw(bundles))).items():
        console.say(f"{'added' if new else 'there already'}: {name}")
    return Outcome()


@history.command(cls=JsonCommand)
@_file
@click.option("--kernel", help="Show every case of this kernel, not one line for each kernel.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show this many runs.")
@click.option("--markdown", type=FILE, help="Also write it as Markdown.")
@json_option()
def show(path: Path, kernel: str | None, last: int, markdown: Path | None, json: Json) -> Outcome:
    """Draw how fast each kernel was in the last runs."""
    from harness.compare.speeds.trend import trends
    from harness.history import series
    from harness.records import write_text
    from harness.render.markdown import render_page
    from harness.render.sections.changes.speeds import trend_sections
    from harness.render.terminal import draw_page
    from harness.render.text import json_text, plural

    found = series(path, kernel)
    drawn = trends(found, last, by_case=kernel is not None)
    answered = print_answer(json, [json_text([asdict(one) for one in found], indent=1) + "\n"])
    if not drawn:
        return Outcome(ExitCode.NOTHING_RAN, f"{path} has no speed{f' of {kernel}' if kernel else ''} yet")
    runs = len({run.run_id for trend in drawn for run in trend.runs})
    lead = f"{plural(runs, 'run')}, {plural(len(drawn), 'line')}."
    sections = trend_sections(drawn)
    if markdown is not None:
        write_text(markdown, render_page(lead, sections, good=True, all_in="the JSON of `history show --json`"))
    if not answered:
        console.show(draw_page(lead, sections, good=True))
    return Outcome()
