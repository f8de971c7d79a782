"""`warpwave run`: run each target in turn, then write the report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from harness import console
from harness.commands.options.common import complete_target
from harness.commands.options.groups import build_options, output_options, package_options, what_options, where_options
from harness.commands.options.parse import parse_options
from harness.commands.options.tests import take_node_ids
from harness.commands.show_report import print_error, show_records, show_report
from harness.engines import signals
from harness.errors import ExitCode, Outcome, UsageError, WarpwaveError

if TYPE_CHECKING:
    from harness.config.targets import Target
    from harness.options import RunOptions
    from harness.records import RunRecord


class _Run(click.Command):
    """Takes what stands behind `--` as options for pytest."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--` as usual."""
        if "--" in args:
            place = args.index("--")
            args = [*args[:place], *(["--pytest-args", shlex.join(args[place + 1 :])] if args[place + 1 :] else [])]
        return super().parse_args(context, args)


@click.command(cls=_Run)
@click.argument(
    "names", nargs=-1, required=True, metavar="TARGET... [ID...]", shell_complete=complete_target, callback=take_node_ids, is_eager=True
)
@what_options
@package_options
@where_options
@build_options
@click.option("--no-report", is_flag=True, help="Write no report; a later `warpwave report` can.")
@output_options
def run(**options: Any) -> Outcome:
    """Run TARGETs (see `warpwave list`) in the given order, then write the comparison.

    An ID, such as tests/test_add.py::test_add, is a test to run, as with --test.
    """
    from harness.config.targets import load_targets, select
    from harness.out_folder import check_writable
    from harness.report import make_report
    from harness.run import check_target

    targets = select(load_targets(options["overlay"]), list(options["names"]))
    asked = parse_options(options)
    for target in targets:
        check_target(target, asked)  # check all targets before the first one runs, which may take an hour
    check_writable(asked.out)
    records, refused = _run_all(targets, asked, quiet=options["quiet"])
    ended = _cut_short(records, refused)
    if options["no_report"]:
        return show_records(records, asked.out, options, ended)
    made = make_report([asked.out], asked.out, [target.name for target in targets], records)
    return show_report(made, asked.out, options, ended)


def _run_all(targets: Sequence[Target], asked: RunOptions, *, quiet: bool) -> tuple[list[RunRecord], list[WarpwaveError]]:
    """Run each target in turn, until the user stops the run. If a target is refused, the others still run.

    Raises:
        UsageError: all targets are refused.
    """
    from harness.commands.progress import Progress
    from harness.run import run_target

    records: list[RunRecord] = []
    refused: list[WarpwaveError] = []
    for target in targets:
        with Progress(console.terminal(err=True), target.name, quiet=quiet) as progress:
            for line in asked.chosen.why if target is targets[0] else ():
                progress.say(line)
            if asked.weaken:
                progress.say(f"{target.name}: protections given up: {', '.join(asked.weaken)}")
            try:
                records.append(run_target(target, asked, progress.say, progress.on_event))
            except UsageError as error:
                refused.append(error)
        if signals.asked():
            break
    if refused and not records:
        raise refused[0]
    return records, refused


def _cut_short(records: Sequence[RunRecord], refused: Sequence[WarpwaveError]) -> Outcome:
    """Return the outcome that overrides the results: the user stopped the run, or a target was refused."""
    for error in refused:
        print_error(error)
    if signals.asked():
        stopped = [f"{record.target}: {record.reason}" for record in records if record.exit and record.exit.interrupted]
        return Outcome(ExitCode.INTERRUPTED, stopped[0] if stopped else "stopped by the user or the CI system")
    return Outcome(ExitCode.USAGE, " ".join(error.happened for error in refused).rstrip(".")) if refused else Outcome()
