"""The command line: `warpwave run | report | compare | history | export | plot | codegen | list | doctor | clean | init | ci`.

Standard output carries the result, standard error progress and errors. Errors are raised anywhere and caught once, here.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from harness import __version__
from harness.commands.ci import ci
from harness.commands.codegen import codegen
from harness.commands.doctor import doctor
from harness.commands.export import export, plot
from harness.commands.options import FILE, FOLDER, build_options, complete_target, output_options, settings_of, what_options, where_options
from harness.commands.speed import compare as compare_command
from harness.commands.speed import history
from harness.errors import ExitCode, StoppedError, WarpwaveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.compare.comparison import Comparison
    from harness.records import RunRecord
    from harness.report import Report


_TERMINATED: list[int] = []  # the signal, once it has come


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpwave")
def cli() -> None:
    """Run one Triton kernel package on every vendor's target and compare what comes out."""


@cli.command()
@click.argument("names", nargs=-1, required=True, metavar="TARGET...", shell_complete=complete_target)
@what_options
@where_options
@build_options
@click.option("--no-report", is_flag=True, help="Leave merging to a later `warpwave report`.")
@output_options
def run(**options: Any) -> int:
    """Run TARGETs (see `warpwave list`) in the order given, then write the comparison."""
    from harness.commands.progress import Progress
    from harness.report import make_report
    from harness.run import run_target
    from harness.targets import load_targets, select

    targets = select(load_targets(options["overlay"]), list(options["names"]))
    settings = settings_of(options)
    records = []
    for target in targets:
        with Progress(_stderr(), target.name, quiet=options["quiet"]) as progress:
            if settings.weaken:
                progress.say(f"{target.name}: protections given up: {', '.join(settings.weaken)}")
            records.append(run_target(target, settings, progress.say, progress.on_event))
        if records[-1].exit is not None and records[-1].exit.interrupted:
            break
    if not options["no_report"]:
        made = make_report([settings.out], settings.out, [target.name for target in targets])
        code = _show(made, settings.out, options)
    else:
        code = _show_records(records, settings.out, options)
    return ExitCode.INTERRUPTED if any(record.exit and record.exit.interrupted for record in records) else code


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--out", type=FOLDER, help="Where to write the comparison.  [default: the first FOLDER]")
@click.option("--svg", type=FILE, help="Also draw what the terminal shows into this file.")
@click.option("--expect", multiple=True, metavar="TARGET", help="A target that must be there; shown as absent if it is not. Repeatable.")
@output_options
def report(folders: tuple[Path, ...], out: Path | None, svg: Path | None, expect: tuple[str, ...], **options: Any) -> int:
    """Merge raw results, of this machine or of others, into one comparison."""
    from harness.report import make_report, without_collector

    expected = [name for value in expect for name in value.split(",")]
    where = out or (folders[0] if folders[0].is_dir() else Path())
    with without_collector():
        made = make_report(list(folders), where, expected)
        if svg is not None:
            _draw(made.comparison, svg, full=options["full"])
        return _show(made, where, options)


cli.add_command(codegen)
cli.add_command(export)
cli.add_command(plot)
cli.add_command(compare_command)
cli.add_command(history)


@cli.command(name="list")
@click.option("--targets", "overlay", type=FILE, help="A targets file laid over the shipped one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_targets(overlay: Path | None, as_json: bool) -> int:
    """Show every target with its engine, stages, image and architectures."""
    from harness.targets import load_targets

    targets = load_targets(overlay)
    if as_json:
        _print_json([asdict(target) for target in targets.values()])
        return ExitCode.GOOD
    for target in targets.values():
        click.echo(f"{target.name:<8}{target.label}")
        click.echo(f"{'':8}engine {target.engine}; stages {', '.join(stage.value for stage in target.stages)}; image {target.image.base}")
        click.echo(f"{'':8}compiles for {', '.join(card.name for card in target.architectures)}")
    return ExitCode.GOOD


cli.add_command(doctor)
cli.add_command(ci)


@cli.command()
@click.option("--yes", is_flag=True, help="Remove them; without it they are only listed.")
def clean(yes: bool) -> int:
    """List, or remove, containers that a killed run of ours left behind on this machine."""
    from harness.engines.docker import clean as clean_containers

    found = clean_containers(dry_run=not yes)
    for name in found:
        click.echo(f"{'removed' if yes else 'left behind'}: {name}")
    click.echo(f"{len(found)} container(s)" + ("" if yes or not found else "; `warpwave clean --yes` removes them"))
    return ExitCode.GOOD


@cli.command()
@click.argument("folder", type=FOLDER, default=Path())
@click.option("--from", "source", metavar="REQUIREMENT", help="What the workflow installs.  [default: this very warpwave]")
def init(folder: Path, source: str | None) -> int:
    """Write a kernel with its test and its bench, gates and a workflow into FOLDER, the current one unless told otherwise."""
    from harness.origin import requirement
    from harness.starter import write_starter

    own = requirement() if source is None else source
    wanted = f"warpwave=={__version__}" if own is None else own
    for path in write_starter(folder, wanted):
        click.echo(f"wrote {folder / path}")
    why = "" if own is not None else ", since this copy is nowhere that others could install it from"
    click.echo(f"The workflow installs {wanted}{why}; --from names another.")
    click.echo(f"Next: `warpwave run cpu --kernels {folder / 'kernels'}`")
    return ExitCode.GOOD


def _show(made: Report, out: Path, options: dict[str, Any]) -> int:
    """Print the comparison; returns its exit code."""
    from harness.compare import exit_code

    code = int(exit_code(made.comparison))
    if options["as_json"]:
        from harness.render.document import json_pieces
        from harness.render.text import json_text

        # In pieces, as the file: a comparison of a million tests is not copied first.
        click.echo(f'{{"ok": {json_text(code == 0)}, "exit_code": {code}, "out": {json_text(str(out))}, "comparison": ', nl=False)
        for piece in json_pieces(made.comparison):
            click.echo(piece, nl=False)
        click.echo("}")
        return code
    from harness.render.terminal import render_terminal

    _stdout().print(render_terminal(made.comparison, full=options["full"]))
    _stdout().print(Text(_list_files(made.files, _shorten(out))), soft_wrap=True)
    return code


def _list_files(files: Sequence[str], out: Path) -> str:
    """`Reports: out/comparison.html, .md and .json, junit.xml, bandwidth.csv`, of what was written."""
    endings = [f".{ending}" for ending in ("html", "md", "json") if f"comparison.{ending}" in files]
    pages = f"comparison{' and '.join(filter(None, (', '.join(endings[:-1]), endings[-1])))}" if endings else ""
    names = [name for name in (pages, "junit.xml", "bandwidth.csv") if name == pages or name in files]
    listed = ", ".join(filter(None, names))
    return f"Reports: {out}/{listed}" if listed else f"No report could be written to {out}: see above"


def _draw(comparison: Comparison, path: Path, *, full: bool) -> None:
    """The terminal's view as a picture, for a README or a chat; it names a font and loads none."""
    from harness.records import write_text
    from harness.render.terminal import render_terminal

    console = Console(record=True, width=84, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(render_terminal(comparison, full=full))
    write_text(path, re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="warpwave"), flags=re.DOTALL))


def _show_records(records: list[RunRecord], out: Path, options: dict[str, Any]) -> int:
    """What is known without a report; the exit code of the worst target."""
    from harness.run import exit_code_of

    code = max((exit_code_of(record.verdict) for record in records), default=ExitCode.NOTHING_RAN)
    if options["as_json"]:
        targets = [asdict(record) for record in records]
        _print_json({"ok": code == 0, "exit_code": int(code), "out": str(out), "targets": targets})
        return code
    for record in records:
        _stdout().print(_inert(f"{record.target}: {record.verdict.value}{': ' + record.reason if record.reason else ''}"), soft_wrap=True)
        if record.hint:
            _stdout().print(_inert(f"  {record.hint}"), soft_wrap=True)
    return code


def _inert(text: str) -> Text:
    """Lines that may quote what a container printed or an artifact is called."""
    from harness.render.text import visible

    return Text("\n".join(map(visible, text.split("\n"))))


def _print_json(value: Any) -> None:
    from harness.render.text import json_text

    click.echo(json_text(value, default=str))


def _shorten(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _stdout() -> Console:
    return Console(highlight=False)


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


def main() -> None:
    """Entry point of the console script: the one place where errors become text and an exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _run_cli(sys.argv[1:])
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    sys.exit(ExitCode.TERMINATED if _TERMINATED and code == ExitCode.INTERRUPTED else code)


def _terminate(number: int, frame: object) -> None:
    """SIGTERM is a Ctrl-C with an exit code of its own: the container is stopped and the record written in both cases."""
    _TERMINATED.append(number)
    raise KeyboardInterrupt


def _run_cli(arguments: list[str]) -> int:
    try:
        return int(cli.main(arguments, prog_name="warpwave", standalone_mode=False) or 0)
    except click.Abort:
        error: WarpwaveError = StoppedError("Stopped by the user.", "Ctrl-C was pressed.", "What was finished has been kept.")
    except click.ClickException as problem:
        problem.show()
        return ExitCode.USAGE
    except WarpwaveError as raised:
        error = raised
    if os.environ.get("WARPWAVE_TRACEBACK"):
        raise error
    if "--json" in arguments:
        body = {"code": int(error.exit_code), "message": error.happened, "meaning": error.meaning, "hint": error.remedy}
        _print_json({"ok": False, "exit_code": int(error.exit_code), "error": body})
    else:
        beats = _inert(error.happened), _inert(f"  {error.meaning}"), _inert(f"  {error.remedy}")
        _stderr().print(Text("error: ", "bold red") + beats[0], *beats[1:], sep="\n")
    return int(error.exit_code)


if __name__ == "__main__":
    main()
