"""Compare runs: `warpwave codegen diff`, `compare` and `history`; and `export` and `plot` their numbers. Needs no GPU and no container."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpwave import console
from warpwave.cli.options import OUT_FILE, OUT_FOLDER, Json, JsonCommand, complete_list, json_option, known_options
from warpwave.cli.show import read_runs, show_page
from warpwave.errors import ANY, FAIL_ON, NEW, NOTHING, WORSE, ExitCode, Outcome, UsageError
from warpwave.records import grouped, plural

if TYPE_CHECKING:
    from warpwave.compare.changed_codegen import Bundle, Concern, Diff
    from warpwave.compare.changed_speeds import SpeedChanges


_FOLDER = click.Path(path_type=Path)


@click.group()
def codegen() -> None:
    """Compare generated code: registers, spills, occupancy and instructions, read from binaries. Needs no GPU."""


@codegen.command(cls=JsonCommand)
@click.argument("base", type=_FOLDER)
@click.argument("head", type=_FOLDER)
@click.option(
    "--fail-on",
    metavar="WHAT,WHAT",
    default=WORSE,
    show_default=True,
    shell_complete=complete_list(lambda: [*_concerns(), *FAIL_ON]),
    help="What must not get worse, by words; or new (a kernel that compiled), worse (also matrix, spills, occupancy), any, nothing.",
)
@click.option("--markdown", type=OUT_FILE, help="Also write it as Markdown, for a pull request or a job's summary.")
@click.option("--html", "html_file", type=OUT_FILE, help="Also write it as one HTML page.")
@json_option()
@click.option("--full", is_flag=True, help="Show every change, not only the ten worst of each kind.")
def diff(base: Path, head: Path, fail_on: str, markdown: Path | None, html_file: Path | None, json: Json, full: bool) -> Outcome:
    """Show what changed in generated code from the run BASE to the run HEAD, the worst changes first.

    BASE and HEAD are folders of two runs (or of their artifacts) with a compile stage. Targets are joined.
    """
    from warpwave.compare.changed_codegen import bundle, check_comparable
    from warpwave.compare.changed_codegen import diff as compare
    from warpwave.render.sections.changes import code_sentence, diff_sections

    failing = parse_concerns(fail_on)
    sides = bundle(str(base), read_runs([base])), bundle(str(head), read_runs([head]))
    check_comparable(*sides)
    found = compare(sides[0].kernels, sides[1].kernels)
    ended = Outcome() if fail_on == NOTHING else outcome(sides, found, failing)
    lead = ended.lead(code_sentence(found, failing))
    sections = diff_sections(*sides, found, failing, full)
    base_body, head_body = ({key: value for key, value in asdict(side).items() if key != "kernels"} for side in sides)
    body = {"fail_on": [concern.value for concern in failing], "base": base_body, "head": head_body, "diff": asdict(found)}
    return show_page(lead, sections, ended, body, kind="codegen diff", json=json, markdown=markdown, html=html_file)


def parse_concerns(text: str) -> tuple[Concern, ...]:
    """Parse `--fail-on`. Raises UsageError if it contains an unknown concern."""
    from warpwave.compare.changed_codegen import USUAL, Concern

    if text in FAIL_ON:
        return {ANY: tuple(Concern), WORSE: USUAL, NEW: (Concern.VERDICT,), NOTHING: ()}[text]
    known = {concern.value: concern for concern in Concern}
    for word in text.split(","):
        if word not in known:
            remedy = f"Choose from {', '.join(known)}; or use one of {', '.join(FAIL_ON)}."
            raise UsageError(f"--fail-on does not know {word!r}.", "Concerns are separated by commas.", remedy)
    return tuple(known[word] for word in text.split(","))


def _concerns() -> list[str]:
    from warpwave.compare.changed_codegen import Concern

    return [concern.value for concern in Concern]


def outcome(sides: Sequence[Bundle], found: Diff, failing: Sequence[Concern]) -> Outcome:
    """Return 1 if a `failing` concern got worse, 4 if a run is incomplete (missing code cannot be judged), else 0."""
    from warpwave.render.sections.changes import code_sentence

    if any(change.worse_in(failing) for change in found.changes):
        return Outcome(ExitCode.FAILED, code_sentence(found, failing).rstrip("."))
    faults = [f"{where} is incomplete ({fault})" for where, side in zip(("BASE", "HEAD"), sides, strict=True) for fault in side.faults]
    return Outcome(ExitCode.INCOMPLETE, "; ".join(faults)) if faults else Outcome()


@click.command(cls=JsonCommand)
@click.argument("base", type=_FOLDER)
@click.argument("head", type=_FOLDER)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 10),
    metavar="SHARE",
    help="Treat a smaller change as noise, e.g. 0.02.  [default: the A/A run's]",
)
@click.option("--markdown", type=OUT_FILE, help="Also write it as Markdown, for a pull request or a job's summary.")
@known_options(usual=WORSE, of_one_run=False)
@json_option()
@click.option("--full", is_flag=True, help="Show every point, not only the twenty that changed most.")
def compare(base: Path, head: Path, threshold: float | None, markdown: Path | None, json: Json, full: bool, **options: Any) -> Outcome:
    """Show which points became faster or slower from the run BASE to the run HEAD. The exit code is 1 if one is slower, or fails now.

    BASE and HEAD are folders of two runs (or of their artifacts) with a bench stage, for any targets. A point that fails in both for the
    same reason has not changed; speeds of a kernel with the same failing tests in both are compared, and marked.
    """
    from warpwave.cli.known import read_known, without_known
    from warpwave.compare.changed_speeds import changed_speeds
    from warpwave.render.sections.changes import changed_speed_sections, speed_sentence

    known = read_known(options)
    found = changed_speeds(without_known(read_runs([base]), known), without_known(read_runs([head]), known), threshold)
    ended = speed_outcome(found, options["fail_on"])
    lead = ended.lead(speed_sentence(found))
    return show_page(
        lead, changed_speed_sections(found, full), ended, {"movement": asdict(found)}, kind="compare", json=json, markdown=markdown
    )


def speed_outcome(found: SpeedChanges, fail_on: str = WORSE) -> Outcome:
    """Return 1 if a point fails now, or is slower (unless only `new` failures count), 4 if something could not be compared, else 0. A point
    that both runs skip does not count, and one that fails in both only for `any`."""
    from warpwave.compare.model import Change
    from warpwave.render.sections.changes import speed_sentence
    from warpwave.render.text import first_line

    if fail_on == NOTHING:
        return Outcome()
    if found.lost or (fail_on != NEW and found.of(Change.SLOWER)) or (fail_on == ANY and found.failing):
        return Outcome(ExitCode.FAILED, speed_sentence(found).rstrip("."))
    barriers = [barrier for pair in found.pairs for barrier in pair.barriers]
    refused = found.of(Change.REFUSED)
    if refused:
        one = refused[0]
        which = "" if len(refused) == 1 else "the first is "
        first = f"{which}{one.case} {one.provider} on {one.target}: {first_line(one.reason)}"
        barriers.append(f"{plural(len(refused), 'point')} could not be compared ({first})")
    if not barriers and not any(point.speedup or point.failing for point in found.points):
        barriers.append("no point was measured in both runs")
    return Outcome(ExitCode.INCOMPLETE, "; ".join(barriers)) if barriers else Outcome()


@click.command(cls=JsonCommand)
@click.argument("folders", nargs=-1, required=True, type=_FOLDER, metavar="RUN...")
@click.option("--kernel", help="Show every case of this kernel, not one line for each kernel.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show this many runs.")
@click.option("--markdown", type=OUT_FILE, help="Also write it as Markdown.")
@json_option()
def history(folders: tuple[Path, ...], kernel: str | None, last: int, markdown: Path | None, json: Json) -> Outcome:
    """Show how fast each kernel was from run to run, and where its speed changed and stayed.

    RUNs are folders of runs (or of their artifacts) with a bench stage, in any order, or folders that hold several.
    """
    from warpwave.collect import find_raw
    from warpwave.compare.history import lines, series
    from warpwave.render.sections.changes import history_sections

    given = {path.resolve() for path in folders}
    # By the outermost given folder that holds it: shards are joined within one, not across runs.
    by_folder = grouped(([path for path in (raw, *raw.parents) if path in given][-1], raw) for raw in find_raw(folders))
    found, left_out = series(run for raw in by_folder.values() for run in read_runs(raw))
    left_out += [f"{folder}: there is no raw folder in it" for folder in folders if folder.resolve() not in by_folder]
    found = [one for one in found if kernel in (None, one.kernel)]
    drawn = lines(found, last, by_case=kernel is not None)
    nothing = f"no run has a sound speed{f' of {kernel}' if kernel else ''}"
    ended = Outcome() if drawn else Outcome(ExitCode.NOTHING_RAN, nothing)
    runs = len({run.run_id for line in drawn for run in line.runs})
    steps = [step for line in drawn for step in line.steps]
    slower = sum(step.speedup < 1 for step in steps)
    counts = (plural(runs, "run"), plural(len(drawn), "line"), f"{plural(slower, 'step')} down and {len(steps) - slower} up")
    lead = ended.lead(f"{', '.join(counts)}.")
    body = {"lines": [asdict(line) for line in drawn], "series": [asdict(one) for one in found], "left_out": left_out}
    return show_page(
        lead, history_sections(drawn, left_out, with_peers=kernel is not None), ended, body, kind="history", json=json, markdown=markdown
    )


_FOLDERS = click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")

_MEASURE = "Run the bench stage, which needs a GPU."


def _formats() -> Iterable[str]:
    from warpwave.render.exports import FORMATS

    return FORMATS


@click.command()
@_FOLDERS
@click.option(
    "--format",
    "name",
    required=True,
    metavar="FORMAT",
    shell_complete=complete_list(_formats),
    help="benchmark-action, benchmark-action-times, bencher, pytorch, openmetrics, csv, speedscope (of a profile).",
)
@click.option("--out", type=OUT_FILE, help="Write to this file instead of standard output.")
def export(folders: tuple[Path, ...], name: str, out: Path | None) -> Outcome:
    """Print the numbers of the runs in FOLDERs in the format of a tool that tracks them over time.

    Exports contain only sound numbers: the kernel's tests passed, and the speed is possible for the memory. csv also contains the others,
    and marks them. The command reports how many numbers it leaves out.
    """
    from warpwave.compare import compare as compare_runs
    from warpwave.records import write_text
    from warpwave.render.exports import FORMATS, left_out

    if name not in FORMATS:
        raise UsageError(f"There is no format {name!r}.", "Each format is for one tool.", f"Choose from {', '.join(FORMATS)}.")
    comparison = compare_runs(read_runs(folders))
    if name == "speedscope":
        if not comparison.profiles:
            raise UsageError("There is nothing to export.", "No kernel was profiled.", "Run `warpwave profile CARD`; it needs no GPU.")
    elif not any(cell.value is not None for row in comparison.rows for cell in row.cells):
        raise UsageError("There is nothing to export.", "No target has measured points.", _MEASURE)
    text = FORMATS[name](comparison)
    if (behind := left_out(comparison)) and name not in ("csv", "speedscope"):
        console.say(f"{behind} of {sum(len(row.cells) for row in comparison.rows)} points are not sound and were left out.", err=True)
    if out is None:
        console.document(text)
    else:
        write_text(out, text)
    return Outcome()


@click.command()
@_FOLDERS
@click.option(
    "--out",
    type=OUT_FOLDER,
    help="Where to write the pictures.  [default: FOLDER-plots beside it; of several, a new folder in reports/runs]",
)
@click.option("--png", is_flag=True, help="Also write PNG files; needs the package resvg-py.")
@click.option(
    "--theme", type=click.Choice(["auto", "light", "dark"]), default="auto", show_default=True, help="auto: the viewer's; light for PNG."
)
def plot(folders: tuple[Path, ...], out: Path | None, png: bool, theme: str) -> Outcome:
    """Draw one picture for each kernel: its curves, their bands and the measured ceiling."""
    from warpwave.compare import compare as compare_runs
    from warpwave.records import write_text
    from warpwave.render.charts.pictures import pictures
    from warpwave.run.folders import check_no_links, check_writable, report_folder

    if out is not None:
        check_writable(out)
    comparison = compare_runs(read_runs(folders))
    # Beside a run, never in it: what a run left behind stays as it was.
    beside = folders[0].resolve() if len(folders) == 1 else report_folder(folders)
    where = out or beside.with_name(f"{beside.name}-plots")
    check_no_links(where)
    drawn = pictures(comparison, theme)
    if not drawn:
        raise UsageError("There is nothing to draw.", "No target has measured points.", _MEASURE)
    for picture in drawn:
        write_text(where / f"{picture.file}.svg", picture.svg)
        console.say(str(where / f"{picture.file}.svg"))
    if png:
        for picture in pictures(comparison, "dark" if theme == "dark" else "light"):
            write_text(where / f"{picture.file}.png", _png(picture.svg))
            console.say(str(where / f"{picture.file}.png"))
    return Outcome()


def _png(svg: str) -> bytes:
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        meaning = "It is optional, because SVG does not need it."
        raise UsageError("PNG pictures need the package resvg-py.", meaning, "pip install resvg-py, where warpwave is installed.") from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=2.0))
