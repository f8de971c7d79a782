"""What a targets file may ask of one vendor's machine: types only, the questions themselves are in `docker/targets.yml`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, Union

_STRICT = {"extra": "forbid"}
State = Literal["fail", "warn", "skip"]


@dataclass(frozen=True)
class Check:
    """One question. It reads the output of a command (`run`), files (`files`, glob patterns) or what the container engine says (`engine`).

    `rows` is a pattern, each match of it a row with named groups; there must be one. `bad` is a pattern of which there must be none.
    Every row keeps to `at_least` (a version), `at_most` (a number) and `equal` (a pattern of the whole value), by name of the group.
    `count` is a glob pattern: there are as many rows as paths. `shown` is how a row is told, with `{group}` in it; without `rows`, what is
    told where nothing is `bad`. `container` is for what matters only where a container engine hands out the card, or an image brings the
    vendor's libraries. Of the checks of one name only the first is asked whose command or file is there. States: `absent` where none is,
    `refused` where the command fails, `breach` where a rule is broken. `limit_s` is in seconds.
    """

    __pydantic_config__ = _STRICT
    name: str
    fix: str
    run: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    engine: bool = False
    container: bool = False
    rows: Union[str, None] = None
    bad: Union[str, None] = None
    at_least: dict[str, str] = field(default_factory=dict)
    at_most: dict[str, float] = field(default_factory=dict)
    equal: dict[str, str] = field(default_factory=dict)
    count: Union[str, None] = None
    shown: str = ""
    absent: State = "fail"
    refused: State = "fail"
    breach: Literal["fail", "warn"] = "fail"
    limit_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what could never be answered: pydantic turns a ValueError into a refusal with the key's path."""
        if (bool(self.run) + bool(self.files) + self.engine) != 1:
            raise ValueError("exactly one of run, files and engine")
        for pattern in (self.rows, self.bad, *self.equal.values()):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"a regular expression; {pattern!r} is none: {error}") from None
        groups = re.compile(self.rows or "").groupindex
        if unknown := {*self.at_least, *self.at_most, *self.equal, *re.findall(r"\{(\w+)\}", self.shown)} - {*groups, "path"}:
            raise ValueError(f"groups that `rows` names; it does not name {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Doctor:
    """What tells that a vendor's card is in a machine, and what to ask then.

    `pci` is the vendor's number on the bus, `0x` and four digits: a card may be there without its driver, for which `no_driver` is the fix.
    """

    __pydantic_config__ = _STRICT
    pci: Union[str, None] = None
    no_driver: str = ""
    checks: tuple[Check, ...] = ()
