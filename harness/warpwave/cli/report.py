"""`warpwave report`, which merges results, and `warpwave open`, which shows the page."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from warpwave import console
from warpwave.cli.options import (
    FILE,
    FOLDER,
    OUT_FILE,
    OUT_FOLDER,
    JsonCommand,
    complete_target,
    known_options,
    output_options,
    strict_option,
)
from warpwave.cli.show import check_expected, draw_report, show_report
from warpwave.errors import InvalidInputError, Outcome, UsageError


@click.command(cls=JsonCommand)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--out", type=OUT_FOLDER, help="Where to write the comparison.  [default: FOLDER; of several, a new folder in reports/runs]")
@click.option("--svg", type=OUT_FILE, help="Also draw what the terminal shows into this file.")
@click.option(
    "--expect",
    multiple=True,
    metavar="TARGET",
    shell_complete=complete_target,
    help="A target that the report must list; `absent` if it has no results. Repeatable.",
)
@click.option("--targets", "overlay", type=FILE, help="A targets file, whose targets --expect may name too.")
@click.option("--base", multiple=True, type=FOLDER, help="Folder of an earlier run; the report shows how speeds changed since. Repeatable.")
@strict_option
@known_options()
@output_options
def report(folders: tuple[Path, ...], out: Path | None, expect: tuple[str, ...], overlay: Path | None, **options: Any) -> Outcome:
    """Merge raw results from this machine or others into one comparison.

    The report of several FOLDERs goes to a new folder, so that it replaces none of theirs.
    """
    if not any(path.exists() for path in folders):
        raise InvalidInputError.absent(folders)  # before what a report needs is imported
    from warpwave.cli.known import read_known
    from warpwave.report import make_report, without_collector
    from warpwave.run.folders import check_writable, report_folder

    expected = [name for value in expect for name in value.split(",")]
    check_expected(expected, overlay, folders)
    listed = read_known(options, runs=folders)
    where = out or report_folder(folders)
    if out is not None:
        check_writable(out)
    with without_collector():
        made = make_report(list(folders), where, expected, base=options["base"], known=listed)
        if options["svg"] is not None:
            draw_report(made.comparison, options["svg"], full=options["full"])
        return show_report(made, where, folders, {**options, "expect": expect, "overlay": overlay})


@click.command(name="open")
@click.argument("run", type=click.Path(path_type=Path), required=False, metavar="[RUN]")
def open_page(run: Path | None) -> Outcome:
    """Show the page of RUN, a folder (default: the latest run in reports/runs), in the browser."""
    from warpwave.run.folders import LATEST, RUNS

    run = run or RUNS / LATEST
    page = run / "comparison.html" if run.is_dir() else run
    if not page.is_file():
        happened = f"There is no run in {RUNS} yet." if run == RUNS / LATEST else f"There is no page at {page}."
        meaning = "`warpwave run` and `warpwave report` write it."
        raise UsageError(happened, meaning, "Give the folder of a run, which has comparison.html: `warpwave open RUN`.")
    console.say(str(page.resolve()))
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        click.launch(str(page.resolve()))
    else:
        console.say("This machine has no screen: copy that file to one that has; it is complete by itself.", err=True)
    return Outcome()
