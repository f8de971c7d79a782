"""`warpwave history site`: the speeds of many runs as a static page, for GitHub Pages or any folder of a web server."""

from __future__ import annotations

from pathlib import Path

import click

from harness import console
from harness.commands.options.common import FILE, FOLDER
from harness.errors import ExitCode, Outcome, UsageError
from harness.out_folder import HISTORY, check_writable


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--file", "path", type=FILE, default=HISTORY, show_default=True, help="The history file.")
@click.option("--repository", metavar="URL", default="", help="Address of the repository, to link the commits of each step.")
def site(folder: Path, path: Path, repository: str) -> Outcome:
    """Write a page with every kernel's speed over the runs, and each step with the commits that it lies between.

    FOLDER gets one file, index.html. Its address takes filters: ?target=cuda&provider=triton&dtype=bf16
    """
    from harness.compare.speeds.steps import lines
    from harness.history import dtypes, series
    from harness.records import write_text
    from harness.render.html import render_history

    if repository and not repository.startswith("https://"):
        raise UsageError(
            f"--repository is no https address: {repository!r}.",
            "Commits are linked as URL/compare/A...B.",
            "Give one, for example `--repository https://github.com/OWNER/NAME`.",
        )
    found = lines(series(path), dtypes(path))
    if not found:
        return Outcome(ExitCode.NOTHING_RAN, f"{path} has no speed yet")
    check_writable(folder)
    write_text(folder / "index.html", render_history(found, repository))
    console.say(f"wrote {folder / 'index.html'}")
    return Outcome()
