"""What the options of several commands have in common: types of paths, `--json`, the completion of targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Options = Callable[[Callable[..., Any]], Callable[..., Any]]

COMMAND = "warpwave.command"  # the context key for a parsed command line that is not this process's own
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of shipped targets, for the shell's completion."""
    from harness.config.targets import load_targets

    return [name for name in load_targets() if name.startswith(typed)]


def _note_json(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Note the option for `main`, which then writes errors as JSON too."""
    if isinstance(context.obj, dict):
        context.obj["json"] = value
    return value


def json_option(text: str) -> Options:
    """Return the flag `--json`: one document on standard output, also after an error. `text` is its help."""
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help=text)


def json_file_option(text: str) -> Options:
    """Return the option `--json FILE`: one document in that file, also after an error. `text` is its help."""
    return click.option("--json", "json_file", type=FILE, is_eager=True, callback=_note_json, help=text)


def several(*decorators: Options) -> Options:
    """Combine several options into one decorator."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply
