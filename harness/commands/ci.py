"""`warpwave ci plan | leg | report | comment`: the steps of a workflow that need logic, so that the workflow has none."""

from __future__ import annotations

import itertools
import math
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands.doctor import print_findings
from harness.commands.options import FILE, FOLDER
from harness.errors import ExitCode, UsageError
from harness.records.shard import MOST_SHARDS

_FOLDERS = click.argument("folders", nargs=-1, required=True, type=FOLDER, metavar="FOLDER...")
_SHARDS = click.IntRange(1, MOST_SHARDS)
_FAIL_ON = "verdict,matrix,spills,occupancy,slower"
_BASE = click.option("--base", type=FOLDER, help="Results of the base branch's last run; may be missing or empty.")
_EXPECT = click.option("--expect", default="", metavar="TARGET,TARGET", help="Targets that must be there; shown as absent if they are not.")


@click.group()
def ci() -> None:
    """Steps of a workflow in GitHub Actions; each works on a laptop, too."""


@ci.command()
@click.option("--runners", required=True, metavar="JSON", envvar="RUNNERS", help="An object of target to the labels of its runner.")
@click.option("--targets", "overlay", type=FILE, help="A targets file laid over the shipped one.")
@click.option(
    "--shards", type=click.IntRange(1, MOST_SHARDS), default=1, show_default=True, envvar="SHARDS", help="Jobs a machine, side by side."
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Add `matrix` and `expect` to this file of outputs.")
def plan(runners: str, overlay: Path | None, shards: int, output: Path | None) -> int:
    """Say which job runs which target on which runner."""
    from harness.ci.plan import as_outputs, plan_legs
    from harness.ci.words import outputs
    from harness.targets import load_targets

    legs = plan_legs(runners, load_targets(overlay), shards)
    for leg in legs:
        click.echo(f"{leg.name}: {leg.target} on {', '.join(leg.runner)}")
    _append(output, outputs(as_outputs(legs), secrets.token_hex(16)))
    return ExitCode.GOOD


@ci.command()
@click.argument("name", metavar="TARGET")
@click.option("--out", type=FOLDER, required=True, help="Folder for the results.")
@click.option("--kernels", type=FOLDER, default=Path("kernels"), envvar="KERNELS", show_default=True, help="Folder of the kernel package.")
@click.option("--engine", default="", envvar="ENGINE", help="docker or local.  [default: the target's own]")
@click.option("--shard", default="", envvar="SHARD", metavar="I/N", help="As in `warpwave run`.")
@click.option("--options", default="", envvar="OPTIONS", help="More options of `warpwave run`, quoted as in a shell; --targets among them.")
def leg(name: str, out: Path, kernels: Path, engine: str, shard: str, options: str) -> int:
    """Look at this machine, and run TARGET on it if it is fit; what it lacks is put on record for the report."""
    from harness.__main__ import cli
    from harness.ci.leg import put_on_record, unfit
    from harness.doctor import examine
    from harness.targets import load_targets, select

    words = [word for flag, value in (("--engine", engine), ("--shard", shard)) if value for word in (flag, value)] + split(options)
    targets = load_targets(overlay_of(words))
    select(targets, [name])
    findings = examine(targets, [name], engine=engine or None)
    print_findings(findings)
    if faults := unfit(findings):
        put_on_record(targets[name], faults, kernels, out, shard)
        return ExitCode.INFRASTRUCTURE
    arguments = ["run", name, "--kernels", str(kernels), "--out", str(out), "--no-report", *words]
    return int(cli.main(arguments, prog_name="warpwave", standalone_mode=False) or 0)


@ci.command()
@_FOLDERS
@_EXPECT
@click.option("--out", type=FOLDER, required=True, help="Where to write the report.")
@_BASE
@click.option(
    "--fail-on",
    metavar="WHAT,WHAT",
    default=_FAIL_ON,
    show_default=True,
    envvar="FAIL_ON",
    help="What may not get worse since the base: words of `codegen diff`, slower, lost-tests; or `any`, or `nothing`.",
)
@click.option("--threshold", metavar="SHARE", default="", envvar="THRESHOLD", help="As in `warpwave compare`.  [default: the A/A run's]")
@click.option("--summary", "page", type=click.Path(path_type=Path, dir_okay=False), help="Add the job's summary to this file.")
def report(folders: tuple[Path, ...], expect: str, out: Path, base: Path | None, fail_on: str, threshold: str, page: Path | None) -> int:
    """Merge whatever the legs left in FOLDERs, compare it with the base branch, annotate, and decide the status.

    A leg that left nothing is a target that is absent, with exit code 4. What fails is printed as annotations. Numbers for other tools
    are written to `exports` below --out. Of an artifact that is there in several attempts of a run the last one counts.
    """
    from harness.ci.base import Since, against_base, parse_asked
    from harness.ci.publish import export, merge, summary
    from harness.ci.words import SUMMARY_BYTES, annotate

    asked = parse_asked(fail_on, _share(threshold))
    # First, so that the runs of both sides are gone before the comparison is made: each may be as large as a report can be.
    since = against_base(base, folders, asked) if base else Since()
    comparison = merge(folders, out, _names(expect))
    export(comparison, out / "exports")
    for line in annotate(comparison, since.annotations):
        click.echo(line)
    _append(page, summary(comparison, since.page, SUMMARY_BYTES))
    click.echo(comparison.sentence)
    return comparison.exit_code or (ExitCode.FAILED if since.worse else ExitCode.GOOD)


@ci.command()
@_FOLDERS
@_EXPECT
@_BASE
@click.option("--out", type=FILE, required=True, help="Where to write the comment.")
def comment(folders: tuple[Path, ...], expect: str, base: Path | None, out: Path) -> int:
    """Write a pull request's comment over the results in FOLDERs, all of which is somebody else's word. Posting it is not done here."""
    from harness.ci.base import Since, against_base, parse_asked
    from harness.ci.publish import comment as render
    from harness.ci.publish import merge
    from harness.records import write_text

    since = against_base(base, folders, parse_asked(_FAIL_ON, None)) if base else Since()
    write_text(out, render(merge(folders, out.parent / "report", _names(expect)), since.page))
    return ExitCode.GOOD


def split(options: str) -> list[str]:
    """Options as a shell would split them; nothing in them is expanded or run.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return shlex.split(options)
    except ValueError as error:
        example = """Quote as in a shell: --options '-k "a or b"'."""
        raise UsageError(f"--options cannot be split: {error}.", "A quote is open.", example) from None


def overlay_of(words: Sequence[str]) -> Path | None:
    """The targets file among options of `warpwave run`."""
    values = [word for flag, word in itertools.pairwise(words) if flag == "--targets"]
    return Path(values[-1]) if values else None


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _share(text: str) -> float | None:
    """A threshold as a variable has it: an empty one is none.

    Raises:
        UsageError: it is no share.
    """
    if not text:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 10:
        raise UsageError(f"--threshold is no share: {text!r}.", "0.02 calls a change below 2 % noise.", "Give a number from 0 to 10.")
    return share


def _append(path: Path | None, text: str) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
