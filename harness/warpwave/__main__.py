"""The command line: `warpwave COMMAND`; `warpwave --help` lists the commands.

Results go to standard output. Progress and errors go to standard error. Any code may raise an error; only this file catches it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from warpwave import __version__, console
from warpwave.cli.ci import ci
from warpwave.cli.compare import codegen, export, history, plot
from warpwave.cli.compare import compare as compare_command
from warpwave.cli.doctor import clean, doctor
from warpwave.cli.known import known, read_known
from warpwave.cli.options import (
    FILE,
    FOLDER,
    OUT_FILE,
    OUT_FOLDER,
    Json,
    JsonCommand,
    complete_target,
    json_option,
    json_words,
    known_options,
    output_options,
    strict_option,
)
from warpwave.cli.profile import profile
from warpwave.cli.run import run
from warpwave.cli.show import check_expected, draw_report, print_answer, print_error, show_report
from warpwave.cli.toolchains import bisect, upgrade
from warpwave.console import Streams
from warpwave.engines import waiting
from warpwave.errors import ExitCode, InfrastructureError, Outcome, StoppedError, UsageError, WarpwaveError, explain
from warpwave.run.folders import LATEST, RUNS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpwave")
def cli() -> None:
    """Run one Triton kernel package on every vendor's target and compare the results."""


cli.add_command(run)
cli.add_command(profile)


@cli.command(cls=JsonCommand)
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
def report(
    folders: tuple[Path, ...],
    out: Path | None,
    svg: Path | None,
    expect: tuple[str, ...],
    overlay: Path | None,
    base: tuple[Path, ...],
    **options: Any,
) -> Outcome:
    """Merge raw results from this machine or others into one comparison.

    The report of several FOLDERs goes to a new folder, so that it replaces none of theirs.
    """
    from warpwave.report import make_report, without_collector
    from warpwave.run.folders import check_writable, report_folder

    expected = [name for value in expect for name in value.split(",")]
    check_expected(expected, overlay, folders)
    listed = read_known(options, runs=folders)
    where = out or report_folder(folders)
    if out is not None:
        check_writable(out)
    with without_collector():
        made = make_report(list(folders), where, expected, base=base, known=listed)
        if svg is not None:
            draw_report(made.comparison, svg, full=options["full"])
        return show_report(made, where, options)


@cli.command(name="open")
@click.argument("run", type=click.Path(path_type=Path), default=RUNS / LATEST, metavar="[RUN]")
def open_page(run: Path) -> Outcome:
    """Show the page of RUN, a folder (default: the latest run in reports/runs), in the browser."""
    page = run / "comparison.html" if run.is_dir() else run
    if not page.is_file():
        raise UsageError(
            f"There is no run in {RUNS} yet." if run == RUNS / LATEST else f"There is no page at {page}.",
            "`warpwave run` and `warpwave report` write it.",
            "Give the folder of a run, which has comparison.html: `warpwave open RUN`.",
        )
    console.say(str(page.resolve()))
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        click.launch(str(page.resolve()))
    else:
        console.say("This machine has no screen: copy that file to one that has; it is complete by itself.", err=True)
    return Outcome()


cli.add_command(upgrade)
cli.add_command(bisect)
cli.add_command(codegen)
cli.add_command(export)
cli.add_command(plot)
cli.add_command(compare_command)
cli.add_command(history)


@cli.command(name="list", cls=JsonCommand)
@click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones.")
@json_option()
def list_targets(overlay: Path | None, json: Json) -> Outcome:
    """Show every target with its engine, stages, image and architectures."""
    from warpwave.config.targets import load_targets
    from warpwave.render.text import json_text

    targets = load_targets(overlay)
    if print_answer(json, [json_text([asdict(target) for target in targets.values()], default=str) + "\n"]):
        return Outcome()
    for target in targets.values():
        console.say(f"{target.name:<7} {target.label}")
        console.say(f"{'':8}engine {target.engine}; stages {', '.join(stage.value for stage in target.stages)}; image {target.image.base}")
        console.say(f"{'':8}compiles for {', '.join(card.shown for card in target.architectures)}")
        if target.emulate:
            console.say(f"{'':8}executes tests on an emulated {target.emulate.shown}, and measures nothing")
    return Outcome()


cli.add_command(doctor)
cli.add_command(ci)


cli.add_command(clean)
cli.add_command(known)


@cli.command()
@click.argument("folder", type=OUT_FOLDER, default=Path())
@click.option("--from", "source", metavar="REQUIREMENT", help="What the workflow installs.  [default: the commit of this warpwave]")
def init(folder: Path, source: str | None) -> Outcome:
    """Write a kernel with its test and bench, gates and a workflow into FOLDER (default: the current folder)."""
    from warpwave.starter import requirement, write_starter

    own = requirement() if source is None else source
    for path in write_starter(folder, own):
        console.say(f"wrote {folder / path}")
    if own is None:
        console.say("No workflow was written: it would have to install warpwave, and nobody else can install this copy.")
        console.say(f"To add it: `warpwave init {shlex.quote(str(folder))} --from git+https://HOST/OWNER/warpwave@COMMIT`")
    else:
        console.say(f"The workflow installs {own}. To install something else, use --from.")
    console.say(f"Next: `warpwave run cpu --kernels {folder / 'kernels'}`")
    return Outcome()


def main() -> None:
    """Run the console script: the one place that turns errors into text and an exit code."""
    streams = Streams()
    console.print_tracebacks()
    waiting.listen()
    try:
        code = _run_cli(sys.argv[1:])
    except KeyboardInterrupt:
        code = _explain(Outcome(ExitCode.INTERRUPTED, "stopped by the user or the CI system"))
    if failure := streams.failure():
        _report_unwritten(failure)
        code = code or ExitCode.INFRASTRUCTURE
    sys.exit(_with_signal(code))


def _with_signal(code: int) -> int:
    """Return the exit code of a stop: which signal it was."""
    return ExitCode.TERMINATED if code == ExitCode.INTERRUPTED and waiting.terminated() else code


def _run_cli(arguments: list[str]) -> int:
    """Run a command and return its exit code. If the code is not 0, print the reason."""
    asked: dict[str, Any] = {}  # options note here that the answer must be JSON; see `json_option`
    try:
        ended = cli.main(arguments, prog_name="warpwave", standalone_mode=False, obj=asked)
    except click.Abort:
        error: WarpwaveError = StoppedError("Stopped by the user.", "Ctrl-C was pressed.", "What was finished has been kept.")
    except click.ClickException as problem:
        shown = io.StringIO()
        problem.show(file=shown)
        console.say(shown.getvalue().splitlines(), err=True)
        asked.setdefault("json", _looks_like_json(problem, arguments))
        _answer(problem.format_message(), "The command line is not valid.", "See --help.", ExitCode.USAGE, asked["json"])
        return ExitCode.USAGE
    except Exception as raised:  # catch all: a traceback would exit with 1, which means that tests failed
        error = explain(raised)
        if os.environ.get("WARPWAVE_TRACEBACK"):
            console.say("".join(traceback.format_exception(raised)).splitlines(), err=True)
    else:
        return _explain(ended)
    if asked.get("json") is not True:
        print_error(error)
    _answer(error.happened, error.meaning, error.remedy, error.exit_code, asked.get("json"))
    return int(error.exit_code)


def _looks_like_json(problem: click.ClickException, arguments: list[str]) -> bool:
    """Return whether an unparsable command line asks for JSON on standard output."""
    context = getattr(problem, "ctx", None)
    return context is not None and isinstance(context.command, JsonCommand) and "--json=-" in json_words(context.command, arguments)


def _explain(ended: object) -> int:
    """Return a command's exit code. If it is not 0, print the reason as the last line."""
    if not isinstance(ended, Outcome):  # --help, --version
        return ended if isinstance(ended, int) else 0
    if not ended.ok:
        console.say(f"exit code {int(_with_signal(ended.code))}: {' '.join(ended.reason.split())}", err=True)
    return int(ended.code)


def _answer(happened: str, meaning: str, remedy: str, code: ExitCode, asked: bool | Path | None) -> None:
    """Write the error as JSON too, if the command was asked for JSON: to standard output or to a file."""
    from warpwave.records import write_text
    from warpwave.render.text import json_text

    body = {"code": int(code), "message": happened, "meaning": meaning, "hint": remedy}
    document = {**Outcome(code, happened.rstrip(".")).fields(), "error": body}
    if asked is True:
        console.print_json(document)
    elif isinstance(asked, Path):
        with contextlib.suppress(OSError):  # a file that cannot be written may be the error that we report
            write_text(asked, json_text(document, indent=1) + "\n")


def _report_unwritten(failure: OSError) -> None:
    happened = f"Part of the output could not be written to standard output: {failure.strerror}."
    meaning = "Standard output is closed, or is a file on a full disk."
    print_error(InfrastructureError(happened, meaning, "Make room, or redirect the output. Files that were already written are kept."))


if __name__ == "__main__":
    main()
