"""What a value of hosts.yml may be. Values reach ssh, sbatch and remote shells, so each has a narrow type; nothing begins with a dash."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from harness.config.strict import refuse

_LONGEST = 1024
# ssh(1) takes `host`, `user@host` and `ssh://user@host:port`; a name of ~/.ssh/config is a host.
_DESTINATION = re.compile(r"(ssh://)?([\w.+%-]+@)?(\[[0-9a-fA-F:.%]+\]|[\w.:%-]+)/?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}", re.ASCII)
_WORD = re.compile(r"[\w.:,=+*/()\[\]@%-]+", re.ASCII)
_TIME = re.compile(r"\d{1,5}|\d{1,4}(:\d{1,2}){1,2}|\d{1,3}-\d{1,2}(:\d{1,2}){0,2}", re.ASCII)
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# warpwave sets these options of sbatch itself, or they would run a program where the user is.
_OWN = (
    "array bcast bcast-exclude chdir clusters epilog error export export-file get-user-env gid input job-name no-requeue open-mode output",
    "parsable prolog requeue signal task-epilog task-prolog test-only uid wait wrap",
)


def _text(allowed: str, fits: Callable[[str], Any]) -> Any:
    """Return a validator of a text: printable, not too long, without a leading dash, and of a given form."""

    def check(value: str) -> str:
        if len(value) > _LONGEST or not value.isprintable() or value.startswith("-") or (value and not fits(value)):
            refuse(allowed, repr(value if len(value) <= 80 else value[:79] + "…"))
        return value

    return AfterValidator(check)


def _clean_destination(value: str) -> bool:
    host = value.removeprefix("ssh://").rpartition("@")[2]
    return bool(_DESTINATION.fullmatch(value)) and not host.startswith("-")


def _check_time(value: Any) -> Any:
    if not isinstance(value, str):  # YAML reads 1:30:00 as the number 5400
        refuse('a time limit in quotes, such as "00:30:00"')
    return value


def _check_option(value: str) -> str:
    found = _OPTION.fullmatch(value)
    if found is None or len(value) > _LONGEST or not value.isprintable():
        refuse("an option of sbatch in one word, such as --constraint=h100")
    # Slurm accepts any unambiguous beginning of an option's name.
    if taken := [own for line in _OWN for own in line.split() if own.startswith(found[1])]:
        refuse(f"an option that warpwave does not set itself, and that starts no program: not --{taken[0]}")
    return value


def _check_gpu(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _whole(least: int, most: int) -> Any:
    def check(value: Any) -> Any:
        if type(value) is not int or not least <= value <= most:
            refuse(f"a whole number from {least} to {most}")
        return value

    return BeforeValidator(check)


def _check_variables(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name) or "\0" in text:
            refuse('a table of texts, such as {NAME: "VALUE"}', repr(name))
    return value


Destination = Annotated[str, _text("a destination of ssh, such as h100-01 or user@h100-01", _clean_destination)]
Name = Annotated[str, _text("a name of letters, digits and . _ + -", _NAME.fullmatch)]
Word = Annotated[str, _text("a word of letters, digits and . : , = + * / ( ) [ ] @ % _ -", _WORD.fullmatch)]
PathText = Annotated[str, _text("a path or an address in one line, without a leading dash", bool)]
Absolute = Annotated[str, _text("a path that begins with /", lambda value: value.startswith("/"))]
Time = Annotated[
    str, BeforeValidator(_check_time), _text('a time limit of Slurm in quotes, such as "00:30:00" or "1-12:00:00"', _TIME.fullmatch)
]
Option = Annotated[str, AfterValidator(_check_option)]
Variables = Annotated[dict[str, str], AfterValidator(_check_variables)]
Gpu = Annotated[
    str, BeforeValidator(_check_gpu), _text("an index of a card, or several: 0,1", re.compile(r"[\w,-]{1,200}", re.ASCII).fullmatch)
]
Cards = Annotated[int, _whole(0, 64)]
Shards = Annotated[int, _whole(1, 64)]


def is_leg_name(value: str) -> bool:
    """Return whether a leg may have this name. Folders, files and columns get it, and it must not look like a test's file."""
    return bool(_NAME.fullmatch(value)) and not value.endswith(".py") and ".." not in value
