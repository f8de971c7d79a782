"""One tree of errors. Each speaks in three beats (what happened, what it usually means, what to do) and carries its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """The process exit codes: stable, documented in the README, kept in `--json` because nox flattens them."""

    GOOD = 0
    FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INCOMPLETE = 4
    NOTHING_RAN = 5
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True)
class Outcome:
    """What a command comes to. There is no exit code other than 0 without its reason: a command hands both over in one, and `main` prints
    them. The reason is a sentence without its full stop."""

    code: ExitCode = ExitCode.GOOD
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse a code without a reason, and a reason without a code: a fault of ours, which a test meets first."""
        if (self.code is ExitCode.GOOD) == bool(self.reason):
            raise ValueError(f"exit code {int(self.code)} with the reason {self.reason!r}")

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.code is ExitCode.GOOD

    def fields(self) -> dict[str, Any]:
        """The beginning of every JSON document of a command."""
        return {"ok": self.ok, "exit_code": int(self.code), "reason": self.reason}

    def lead(self, sentence: str) -> str:
        """The first sentence of a page: it says why the exit code is not 0, if `sentence` does not do so already."""
        return sentence if self.ok or self.reason in sentence else f"{self.reason}. {sentence}"


class WarpwaveError(Exception):
    """Base of all errors a user can meet; `main` prints them without a traceback."""

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, happened: str, meaning: str, remedy: str) -> None:
        super().__init__(happened)
        self.happened = happened
        self.meaning = meaning
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.happened}\n  {self.meaning}\n  {self.remedy}"


class UsageError(WarpwaveError):
    """The command line asks for something that does not exist."""

    exit_code = ExitCode.USAGE


class ConfigError(WarpwaveError):
    """A targets file is wrong; the message names the file, the key path, what was found and what is allowed."""

    exit_code = ExitCode.USAGE


class InfrastructureError(WarpwaveError):
    """Docker, the driver, a device or the image broke: never a verdict on the kernels."""

    exit_code = ExitCode.INFRASTRUCTURE


class InvalidInputError(WarpwaveError):
    """A raw folder cannot be read as what it should be."""

    exit_code = ExitCode.INCOMPLETE


class NothingRanError(WarpwaveError):
    """There was nothing to run: green because nothing ran is not green."""

    exit_code = ExitCode.NOTHING_RAN


class StoppedError(WarpwaveError):
    """The user, or the CI system, asked to stop; everything that was finished has been kept."""

    exit_code = ExitCode.INTERRUPTED
