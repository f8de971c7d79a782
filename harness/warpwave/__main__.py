"""The command line: `warpwave COMMAND`; `warpwave --help` lists the commands. Results go to standard output. Progress and errors go to
standard error. Any code may raise an error; only this file catches it."""

import contextlib
import io
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from warpwave import __version__, console
from warpwave.cli.show import print_error
from warpwave.console import Streams
from warpwave.engines import waiting
from warpwave.errors import ExitCode, InfrastructureError, Outcome, StoppedError, WarpwaveError, explain

# Each command: the module in `warpwave.cli` that declares it under this name, and a line about it. A module is imported when its command is
# asked for, because all of them together take ten times as long as one.
COMMANDS = {
    "bisect": ("toolchains", "Find the first release of Triton, or toolchain, that is bad."),
    "ci": ("ci", "Steps of a GitHub Actions workflow."),
    "clean": ("doctor", "List or remove what earlier runs left on this machine."),
    "codegen": ("compare", "Compare generated code: registers, spills, occupancy."),
    "compare": ("compare", "Show which points became faster or slower since BASE."),
    "doctor": ("doctor", "Show what is missing on this machine, and how to fix it."),
    "export": ("compare", "Print the numbers of runs in another tool's format."),
    "history": ("compare", "Show how fast each kernel was from run to run."),
    "init": ("start", "Write a kernel with its test, bench, gates and workflow."),
    "known": ("known", "Keep the list of failures that are known."),
    "list": ("start", "Show every target, with what it can do."),
    "open": ("report", "Show the page of a run in the browser."),
    "plot": ("compare", "Draw one picture for each kernel."),
    "profile": ("profile", "Count what kernels ask of memory and units, without a card."),
    "report": ("report", "Merge results of several machines into one comparison."),
    "run": ("run", "Run targets, then write the comparison."),
    "upgrade": ("toolchains", "Run on two toolchains, and show what changed."),
}


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command; None if there is none of this name."""
        if name not in COMMANDS:
            return None
        module = import_module(f"warpwave.cli.{COMMANDS[name][0]}")
        command: click.Command = next(each for each in vars(module).values() if isinstance(each, click.Command) and each.name == name)
        return command

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was typed. Of a wrong name, the message has the nearest right one."""
        from difflib import get_close_matches

        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS, 1)):
            context.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpwave")
def cli() -> None:
    """Run one Triton kernel package on every vendor's target and compare the results."""


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
        happened = f"Part of the output could not be written to standard output: {failure.strerror}."
        remedy = "Make room, or redirect the output. Files that were already written are kept."
        print_error(InfrastructureError(happened, "Standard output is closed, or is a file on a full disk.", remedy))
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
        how = "The process was sent SIGTERM." if waiting.terminated() else "Ctrl-C was pressed."
        error: WarpwaveError = StoppedError("Stopped by the user.", how, "What was finished has been kept.")
    except click.ClickException as problem:
        shown = io.StringIO()
        problem.show(file=shown)
        console.say(shown.getvalue().splitlines(), err=True)
        if "json" not in asked:  # the command line could not be parsed, and may ask for JSON on standard output
            from warpwave.cli.options import JsonCommand, json_words

            used = getattr(problem.ctx, "command", None) if isinstance(problem, click.UsageError) else None
            asked["json"] = isinstance(used, JsonCommand) and "--json=-" in json_words(used, arguments)
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


def _explain(ended: object) -> int:
    """Return a command's exit code. If it is not 0, print the reason as the last line."""
    if not isinstance(ended, Outcome):  # --help, --version
        return ended if isinstance(ended, int) else 0
    if not ended.ok:
        reason = "" if ended.shown and console.watched() else f": {' '.join(ended.reason.split())}"
        console.say(f"exit code {int(_with_signal(ended.code))}{reason}", err=True)
    return int(ended.code)


def _answer(happened: str, meaning: str, remedy: str, code: ExitCode, asked: bool | Path | None) -> None:
    """Write the error as JSON too, if the command was asked for JSON: to standard output or to a file."""
    from warpwave.records import write_text
    from warpwave.safe_text import json_text

    body = {"code": int(code), "message": happened, "meaning": meaning, "hint": remedy}
    document = {**Outcome(code, happened.rstrip(".")).fields(), "error": body}
    if asked is True:
        console.print_json(document)
    elif isinstance(asked, Path):
        with contextlib.suppress(OSError):  # a file that cannot be written may be the error that we report
            write_text(asked, json_text(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
