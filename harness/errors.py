"""One tree of errors. Each speaks in three beats (what happened, what it usually means, what to do) and carries its exit code."""

from __future__ import annotations

from enum import IntEnum


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
