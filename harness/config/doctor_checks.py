"""The types of the questions that `warpwave doctor` asks of one vendor's machine. The questions are in `docker/targets.yml`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, Union

_STRICT = {"extra": "forbid"}
State = Literal["fail", "warn", "skip"]


@dataclass(frozen=True)
class Check:
    """One question. It reads the output of a command (`run`), files (`files`, glob patterns) or what the container engine says (`engine`).

    `rows` is a pattern; each match is a row with named groups, and there must be at least one. `bad` is a pattern that must not match.
    Every row must keep to `at_least` (a version), `at_most` (a number) and `equal` (a pattern of the whole value), by name of the group.
    `count` is a glob pattern: there must be as many rows as paths. `shown` is the text for a row, with `{group}` in it; without `rows`, the
    text if nothing is `bad`. Set `container` if the check matters only when a container engine hands out the card, or an image brings the
    vendor's libraries. If several checks have one name, only the first whose command or file exists is asked. States: `absent` if none
    exists, `refused` if the command fails, `breach` if a rule is broken. `limit_s` is in seconds.
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
        """Refuse a check that could never be answered: pydantic turns a ValueError into a refusal with the key's path."""
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
    """How to find out that a vendor's card is in a machine, and what to ask then.

    `pci` is the vendor's number on the bus, `0x` and four digits. `no_driver` is the fix if a card is there without its driver.
    """

    __pydantic_config__ = _STRICT
    pci: Union[str, None] = None
    no_driver: str = ""
    checks: tuple[Check, ...] = ()
