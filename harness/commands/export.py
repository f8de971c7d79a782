"""`warpwave export` and `warpwave plot`: write the numbers of a run for other tools, and draw its charts for a README or a chat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import console
from harness.commands.options.common import FILE, FOLDER
from harness.errors import Outcome, UsageError

if TYPE_CHECKING:
    from harness.compare.model import Comparison

_FOLDERS = click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")

_MEASURE = "Run the bench stage, which needs a GPU."


def _formats() -> list[str]:
    from harness.render.exports import FORMATS

    return list(FORMATS)


@click.command()
@_FOLDERS
@click.option(
    "--format",
    "name",
    required=True,
    metavar="FORMAT",
    shell_complete=lambda context, parameter, typed: [name for name in _formats() if name.startswith(typed)],
    help="benchmark-action, benchmark-action-times, bencher, pytorch, openmetrics, csv.",
)
@click.option("--out", type=FILE, help="Write to this file instead of standard output.")
def export(folders: tuple[Path, ...], name: str, out: Path | None) -> Outcome:
    """Print the numbers of the runs in FOLDERs in the format of a tool that tracks them over time.

    Exports contain only sound numbers: the kernel's tests passed, and the speed is possible for the memory. csv also contains the others,
    and marks them. The command reports how many numbers it leaves out.
    """
    from harness.records import write_text
    from harness.render.exports import FORMATS
    from harness.render.exports.points import left_out

    if name not in FORMATS:
        raise UsageError(f"There is no format {name!r}.", "Each format is for one tool.", f"Choose from {', '.join(FORMATS)}.")
    comparison = _compare(folders)
    if not any(cell.value is not None for row in comparison.rows for cell in row.cells):
        raise UsageError("There is nothing to export.", "No target has measured points.", _MEASURE)
    text = FORMATS[name](comparison)
    if (behind := left_out(comparison)) and name != "csv":
        console.say(f"{behind} of {sum(len(row.cells) for row in comparison.rows)} points are not sound and were left out.", err=True)
    if out is None:
        console.document(text)
    else:
        write_text(out, text)
    return Outcome()


@click.command()
@_FOLDERS
@click.option(
    "--out", type=FOLDER, help="Where to write the pictures.  [default: plots/ in FOLDER; of several, a new folder in reports/runs]"
)
@click.option("--png", is_flag=True, help="Also write PNG files; needs the package resvg-py.")
@click.option(
    "--theme",
    type=click.Choice(["auto", "light", "dark"]),
    default="auto",
    show_default=True,
    help="auto: the viewer's; light for PNG.",
)
def plot(folders: tuple[Path, ...], out: Path | None, png: bool, theme: str) -> Outcome:
    """Draw one picture for each kernel: its curves, their bands and the measured ceiling."""
    from harness.out_folder import check_writable, report_folder
    from harness.records import write_text
    from harness.render.charts.pictures import pictures

    if out is not None:
        check_writable(out)
    comparison = _compare(folders)
    where = out or report_folder(folders) / "plots"
    drawn = pictures(comparison, theme)
    if not drawn:
        raise UsageError("There is nothing to draw.", "No target has measured points.", _MEASURE)
    for picture in drawn:
        write_text(where / f"{picture.file}.svg", picture.svg)
        console.say(str(where / f"{picture.file}.svg"))
    if png:
        for picture in pictures(comparison, "dark" if theme == "dark" else "light"):
            (where / f"{picture.file}.png").write_bytes(_png(picture.svg))
            console.say(str(where / f"{picture.file}.png"))
    return Outcome()


def _png(svg: str) -> bytes:
    """Render the picture at twice its size in pixels, for high-resolution screens."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UsageError(
            "PNG pictures need the package resvg-py.",
            "It is optional, because SVG does not need it.",
            "pip install resvg-py, where warpwave is installed.",
        ) from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=2.0))


def _compare(folders: tuple[Path, ...]) -> Comparison:
    from harness.collect import collect_all, find_raw
    from harness.compare import compare
    from harness.compare.shards import join

    return compare(join(collect_all(find_raw(folders))))
