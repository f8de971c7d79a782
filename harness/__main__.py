"""The command line: `warpwave run | report | compare | history | export | plot | codegen | list | doctor | clean | init | ci`.

Standard output carries the result, standard error progress and errors. Errors are raised anywhere and caught once, here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness import __version__, console
from harness.commands.answer import draw_report, print_error, show_report
from harness.commands.ci import ci
from harness.commands.codegen import codegen
from harness.commands.doctor import doctor
from harness.commands.export import export, plot
from harness.commands.options import FILE, FOLDER, json_option, output_options
from harness.commands.run import run
from harness.commands.speed import compare as compare_command
from harness.commands.speed import history
from harness.commands.streams import Streams
from harness.engines import signals
from harness.errors import ExitCode, InfrastructureError, Outcome, StoppedError, WarpwaveError, explain


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpwave")
def cli() -> None:
    """Run one Triton kernel package on every vendor's target and compare what comes out."""


cli.add_command(run)


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--out", type=FOLDER, help="Where to write the comparison.  [default: the first FOLDER]")
@click.option("--svg", type=FILE, help="Also draw what the terminal shows into this file.")
@click.option("--expect", multiple=True, metavar="TARGET", help="A target that must be there; shown as absent if it is not. Repeatable.")
@output_options
def report(folders: tuple[Path, ...], out: Path | None, svg: Path | None, expect: tuple[str, ...], **options: Any) -> Outcome:
    """Merge raw results, of this machine or of others, into one comparison."""
    from harness.out_folder import check_writable
    from harness.report import make_report, without_collector

    expected = [name for value in expect for name in value.split(",")]
    if out is not None:
        check_writable(out)
    where = out or (folders[0] if folders[0].is_dir() else Path())
    with without_collector():
        made = make_report(list(folders), where, expected)
        if svg is not None:
            draw_report(made.comparison, svg, full=options["full"])
        return show_report(made, where, options)


cli.add_command(codegen)
cli.add_command(export)
cli.add_command(plot)
cli.add_command(compare_command)
cli.add_command(history)


@cli.command(name="list")
@click.option("--targets", "overlay", type=FILE, help="A targets file laid over the shipped one.")
@json_option("Print one JSON document.")
def list_targets(overlay: Path | None, as_json: bool) -> Outcome:
    """Show every target with its engine, stages, image and architectures."""
    from harness.targets import load_targets

    targets = load_targets(overlay)
    if as_json:
        console.print_json([asdict(target) for target in targets.values()])
        return Outcome()
    for target in targets.values():
        console.say(f"{target.name:<8}{target.label}")
        console.say(f"{'':8}engine {target.engine}; stages {', '.join(stage.value for stage in target.stages)}; image {target.image.base}")
        console.say(f"{'':8}compiles for {', '.join(card.name for card in target.architectures)}")
    return Outcome()


cli.add_command(doctor)
cli.add_command(ci)


@cli.command()
@click.option("--yes", is_flag=True, help="Remove them; without it they are only listed.")
def clean(yes: bool) -> Outcome:
    """List, or remove, containers that a killed run of ours left behind on this machine."""
    from harness.engines.docker.engine import clean as clean_containers

    found = clean_containers(dry_run=not yes)
    for name in found:
        console.say(f"{'removed' if yes else 'left behind'}: {name}")
    console.say(f"{len(found)} container(s)" + ("" if yes or not found else "; `warpwave clean --yes` removes them"))
    return Outcome()


@cli.command()
@click.argument("folder", type=FOLDER, default=Path())
@click.option("--from", "source", metavar="REQUIREMENT", help="What the workflow installs.  [default: this very warpwave]")
def init(folder: Path, source: str | None) -> Outcome:
    """Write a kernel with its test and its bench, gates and a workflow into FOLDER, the current one unless told otherwise."""
    from harness.install_source import requirement
    from harness.starter import write_starter

    own = requirement() if source is None else source
    wanted = f"warpwave=={__version__}" if own is None else own
    for path in write_starter(folder, wanted):
        console.say(f"wrote {folder / path}")
    why = "" if own is not None else ", since this copy is nowhere that others could install it from"
    console.say(f"The workflow installs {wanted}{why}; --from names another.")
    console.say(f"Next: `warpwave run cpu --kernels {folder / 'kernels'}`")
    return Outcome()


def main() -> None:
    """Entry point of the console script: the one place where errors become text and an exit code."""
    streams = Streams()
    console.print_tracebacks()
    signals.listen()
    try:
        code = _run_cli(sys.argv[1:])
    except KeyboardInterrupt:
        code = _explain(Outcome(ExitCode.INTERRUPTED, "stopped by the user or the CI system"))
    if failure := streams.failure():
        _tell_unwritten(failure)
        code = code or ExitCode.INFRASTRUCTURE
    sys.exit(ExitCode.TERMINATED if signals.terminated() and code == ExitCode.INTERRUPTED else code)


def _run_cli(arguments: list[str]) -> int:
    """Run a command; whatever it comes to, the reason of an exit code other than 0 is printed here, for all of them."""
    asked: dict[str, Any] = {}  # where options leave word for us; see `json_option`
    try:
        ended = cli.main(arguments, prog_name="warpwave", standalone_mode=False, obj=asked)
    except click.Abort:
        error: WarpwaveError = StoppedError("Stopped by the user.", "Ctrl-C was pressed.", "What was finished has been kept.")
    except click.ClickException as problem:
        told = io.StringIO()
        problem.show(file=told)
        console.say(told.getvalue().splitlines(), err=True)
        asked.setdefault("json", _looks_like_json(problem, arguments))
        _answer(problem.format_message(), "The command line is not understood.", "See --help.", ExitCode.USAGE, asked["json"])
        return ExitCode.USAGE
    except Exception as raised:  # whatever it is: a traceback's exit code is 1, which means that tests failed
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
    """Whether JSON was asked for on a command line that could not be parsed; that it has such a flag is all that is known of it."""
    context = getattr(problem, "ctx", None)
    flags = [parameter.name for parameter in context.command.params] if context else []
    return "as_json" in flags and "--json" in arguments


def _explain(ended: object) -> int:
    """The exit code of a command that has come to its end, and why it is not 0, where it is seen last."""
    if not isinstance(ended, Outcome):  # --help, --version
        return ended if isinstance(ended, int) else 0
    if not ended.ok:
        console.say(f"exit code {int(ended.code)}: {' '.join(ended.reason.split())}", err=True)
    return int(ended.code)


def _answer(happened: str, meaning: str, remedy: str, code: ExitCode, asked: bool | Path | None) -> None:
    """An error as JSON, too, where the command was to answer so: on standard output, or in a file."""
    from harness.records import write_text
    from harness.render.text import json_text

    body = {"code": int(code), "message": happened, "meaning": meaning, "hint": remedy}
    document = {**Outcome(code, happened.rstrip(".")).fields(), "error": body}
    if asked is True:
        console.print_json(document)
    elif isinstance(asked, Path):
        with contextlib.suppress(OSError):  # which may be the very error
            write_text(asked, json_text(document, indent=1) + "\n")


def _tell_unwritten(failure: OSError) -> None:
    happened = f"Not all of the answer could be written to standard output: {failure.strerror}."
    meaning = "It is closed, or is a file on a disk that is full."
    print_error(InfrastructureError(happened, meaning, "Make room, or send it elsewhere; files that were written are kept."))


if __name__ == "__main__":
    main()
