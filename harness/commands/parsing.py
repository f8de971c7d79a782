"""Parses the command line of `warpwave run` for callers that hand it on: a workflow's step, or a session of nox."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands.options import COMMAND
from harness.commands.run import run
from harness.errors import UsageError


def parse_run(arguments: Sequence[str]) -> click.Context:
    """`run` with these arguments, ready to be invoked; `params` are what they come to.

    Raises:
        UsageError: they ask for help, with which nothing would run and all seem well.
        click.UsageError: they are wrong.
    """
    try:
        context = run.make_context("run", list(arguments), parent=click.get_current_context(silent=True))
    except click.exceptions.Exit:
        raise UsageError(
            "The options ask for help, so nothing would run.", "--help or -h is among them.", "`warpwave run --help` shows it."
        ) from None
    context.meta[COMMAND] = ("warpwave", "run", *arguments)
    return context
