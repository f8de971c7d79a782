"""`warpwave compare BASE HEAD` and `warpwave history`: speeds from one commit to another, and over many. Need no GPU and no container."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from harness.commands.options import FILE
from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.compare.movement import Movement
    from harness.records import TargetRun

_FOLDER = click.Path(path_type=Path)
_HISTORY = Path("reports") / "history.sqlite"


@click.command()
@click.argument("base", type=_FOLDER)
@click.argument("head", type=_FOLDER)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 10),
    metavar="SHARE",
    help="Call a change below this noise, e.g. 0.02.  [default: the A/A run's]",
)
@click.option("--markdown", type=FILE, help="Also write it as Markdown, for a pull request or a job's summary.")
@click.option("--json", "json_file", type=FILE, help="Also write all of it as JSON.")
@click.option("--full", is_flag=True, help="Every point, not only the twenty that moved furthest.")
def compare(base: Path, head: Path, threshold: float | None, markdown: Path | None, json_file: Path | None, full: bool) -> int:
    """Say which points became faster or slower from the run BASE to the run HEAD; exit code 1 where one is slower.

    BASE and HEAD are folders of two runs (or of their artifacts) with a bench stage in them, of any targets.
    """
    from harness.compare.movement import movement
    from harness.records import write_text
    from harness.render.markdown import render_page
    from harness.render.movement import movement_sections, sentence
    from harness.render.terminal import draw_page

    found = movement(_read(base), _read(head), threshold)
    code = exit_code(found)
    said = sentence(found)
    sections = movement_sections(found, full)
    if markdown is not None:
        write_text(markdown, render_page(said, sections, good=code == 0, all_in="the JSON of `compare --json FILE`"))
    if json_file is not None:
        write_text(json_file, _json(found, said, code))
    Console(highlight=False).print(draw_page(said, sections, good=code == 0))
    return code


def exit_code(found: Movement) -> ExitCode:
    """1 where a point is slower or fails that did not; 4 where there was something that could not be compared; else 0."""
    from harness.compare.comparison import Change

    if found.lost or found.of(Change.SLOWER):
        return ExitCode.FAILED
    barred = any(pair.barriers for pair in found.pairs) or found.of(Change.REFUSED) or not any(point.speedup for point in found.points)
    return ExitCode.INCOMPLETE if barred else ExitCode.GOOD


def _read(folder: Path) -> list[TargetRun]:
    from harness.collect import collect_all, find_raw
    from harness.compare.joining import join

    return join(collect_all(find_raw([folder])))


def _json(found: Movement, said: str, code: ExitCode) -> str:
    from harness.records import SCHEMA_VERSION
    from harness.render.text import json_text

    body = {"ok": code == 0, "exit_code": int(code), "sentence": said, "movement": asdict(found), "schema_version": SCHEMA_VERSION}
    return json_text(body, indent=1) + "\n"


@click.group()
def history() -> None:
    """Speeds of many runs, in one SQLite file."""


_file = click.option("--file", "path", type=FILE, default=_HISTORY, show_default=True, help="The history.")


@history.command(name="add")
@click.argument("bundles", nargs=-1, required=True, type=_FOLDER, metavar="BUNDLE...")
@_file
def add_runs(bundles: tuple[Path, ...], path: Path) -> int:
    """Keep the runs in BUNDLEs. One that is there already stays as it is."""
    from harness.collect import collect_all, find_raw
    from harness.history import add
    from harness.render.text import visible

    for name, new in add(path, collect_all(find_raw(bundles))).items():
        click.echo(f"{'added' if new else 'there already'}: {visible(name)}")
    return ExitCode.GOOD


@history.command()
@_file
@click.option("--kernel", help="Every case of this kernel, not a line a kernel.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Of so many runs.")
@click.option("--markdown", type=FILE, help="Also write it as Markdown.")
@click.option("--json", "json_file", type=FILE, help="Also write the series as JSON, all of them.")
def show(path: Path, kernel: str | None, last: int, markdown: Path | None, json_file: Path | None) -> int:
    """Draw how fast each kernel was in the last runs."""
    from harness.compare.trend import trends
    from harness.history import series
    from harness.records import write_text
    from harness.render.markdown import render_page
    from harness.render.movement import trend_sections
    from harness.render.terminal import draw_page
    from harness.render.text import json_text, plural

    found = series(path, kernel)
    drawn = trends(found, last, by_case=kernel is not None)
    if not drawn:
        click.echo(f"{path} has no speed{f' of {kernel}' if kernel else ''} yet.")
        return ExitCode.NOTHING_RAN
    runs = len({run.run_id for trend in drawn for run in trend.runs})
    said = f"{plural(runs, 'run')}, {plural(len(drawn), 'line')}."
    sections = trend_sections(drawn)
    if markdown is not None:
        write_text(markdown, render_page(said, sections, good=True, all_in="the JSON of `history show --json FILE`"))
    if json_file is not None:
        write_text(json_file, json_text([asdict(one) for one in found], indent=1) + "\n")
    Console(highlight=False).print(draw_page(said, sections, good=True))
    return ExitCode.GOOD
