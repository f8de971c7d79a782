"""Parse the command line of `warpwave run` for callers that pass it on: a workflow's step, or a nox session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands.options.common import COMMAND
from harness.commands.run import run
from harness.errors import UsageError


def parse_run(arguments: Sequence[str]) -> click.Context:
    """Return a context of `run` that is ready to be invoked. Its `params` are the parsed arguments.

    Raises:
        UsageError: the arguments ask for help. Nothing would run, and the exit code would still be 0.
        click.UsageError: the arguments are not valid.
    """
    try:
        context = run.make_context("run", list(arguments), parent=click.get_current_context(silent=True))
    except click.exceptions.Exit:
        raise UsageError(
            "The options ask for help, so nothing would run.", "--help or -h is among them.", "Remove it; see `warpwave run --help`."
        ) from None
    context.meta[COMMAND] = ("warpwave", "run", *arguments)
    return context
