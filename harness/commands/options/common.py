"""What the options of several commands have in common: types of paths, `--json`, completion in the shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union

import click

Options = Callable[[Callable[..., Any]], Callable[..., Any]]
# The value of `--json`: None without it, True for standard output, or the file.
Json = Union[Path, bool, None]

COMMAND = "warpwave.command"  # the context key for a parsed command line that is not this process's own
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of shipped targets, for the shell's completion."""
    from harness.config.targets import load_targets

    return [name for name in load_targets() if name.startswith(typed)]


def complete_weakening(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of protections that `--weaken` gives up."""
    from harness.engines.docker.relaxations import WEAKENINGS

    return [name for name in WEAKENINGS if name.startswith(typed)]


def complete_list(words: Callable[[], Sequence[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completion of lists with commas: of the last word, by those of `words` that the list does not have yet."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        before, comma, last = typed.rpartition(",")
        return [f"{before}{comma}{word}" for word in words() if word.startswith(last) and word not in before.split(",")]

    return complete


class JsonCommand(click.Command):
    """A command with `--json`, alone or with a file behind it."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words, after the file of `--json` was told from an argument of the command."""
        return super().parse_args(context, json_words(self, args))


def json_words(command: click.Command, words: Sequence[str]) -> list[str]:
    """Return the words with `--json` as `--json=-`, and `--json FILE.json` as `--json=FILE.json`.

    Click would take any word behind an option with an optional value as its value: `report --json FOLDER` would have no folder.
    """
    valued = {name for option in command.params if isinstance(option, click.Option) and not option.is_flag for name in option.opts}
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        if word == "--json":
            word = f"--json={rest.pop(0) if rest and rest[0].endswith('.json') else '-'}"
        elif word in valued and rest:
            found.append(word)
            word = rest.pop(0)
        found.append(word)
    return found


def _note_json(context: click.Context, parameter: click.Parameter, value: Path | None) -> Json:
    """Note the option for `main`, which then writes errors as JSON too."""
    asked = True if value == Path("-") else value
    if isinstance(context.obj, dict):
        context.obj["json"] = asked
    return asked


def json_option() -> Options:
    """Return the option `--json`: one document on standard output or in a file, also after an error. Its command is a `JsonCommand`."""
    text = "Print one JSON document instead of text; with FILE.json, write it there and print the text too."
    return click.option("--json", metavar="[FILE.json]", type=FILE, is_eager=True, callback=_note_json, help=text)


def several(*decorators: Options) -> Options:
    """Combine several options into one decorator."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply
