"""The tree of errors. Each has three sentences (what happened, what it usually means, what to do) and its exit code."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

# What `--fail-on` names: failures that are not known; those and what got worse; all; none.
NEW, WORSE, ANY, NOTHING = FAIL_ON = ("new", "worse", "any", "nothing")


class ExitCode(IntEnum):
    """The exit codes of the process: stable, documented in the README, and repeated in `--json` because nox flattens them."""

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
    """The result of a command. The reason is a sentence without its full stop. Every exit code other than 0 has a reason: a command returns
    both together, and `main` prints them. In a terminal that has `shown` the reason already, it prints the code alone."""

    code: ExitCode = ExitCode.GOOD
    reason: str = ""
    shown: bool = False

    def __post_init__(self) -> None:
        """Refuse a code without a reason, or a reason without a code: that is a bug in warpwave."""
        if (self.code is ExitCode.GOOD) == bool(self.reason):
            raise ValueError(f"exit code {int(self.code)} with the reason {self.reason!r}")

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.code is ExitCode.GOOD

    def fields(self) -> dict[str, Any]:
        """Return the first fields of every command's JSON document."""
        return {"ok": self.ok, "exit_code": int(self.code), "reason": self.reason}

    def lead(self, sentence: str) -> str:
        """Return a page's first sentence. If `sentence` does not say why the exit code is not 0, the reason comes first."""
        return sentence if self.ok or self.reason in sentence else f"{self.reason}. {sentence}"


class WarpwaveError(Exception):
    """Base of all errors that a user can meet; `main` prints them without a traceback."""

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
    """A configuration file is wrong. The message names the file, the key path, what was found and what is allowed."""

    exit_code = ExitCode.USAGE


class InfrastructureError(WarpwaveError):
    """Docker, the driver, a device or the image failed. This is never a verdict on the kernels."""

    exit_code = ExitCode.INFRASTRUCTURE


class UnreachableError(InfrastructureError):
    """The machine of a leg does not answer, so nothing ran there. The leg is `absent`."""


class InvalidInputError(WarpwaveError):
    """A raw folder cannot be read."""

    exit_code = ExitCode.INCOMPLETE

    @classmethod
    def absent(cls, paths: Iterable[Path]) -> "InvalidInputError":
        """Return the error about paths where nothing is."""
        return cls(
            f"There is no {' and no '.join(map(str, paths))}.",
            "Its name was mistyped, or the run wrote its results elsewhere: without --out, each run has a folder in reports/runs.",
            "Give the folder of a run, or the folder into which the artifacts were downloaded.",
        )


class NothingRanError(WarpwaveError):
    """There was nothing to run. This is an error, because green must not mean that nothing ran."""

    exit_code = ExitCode.NOTHING_RAN


class StoppedError(WarpwaveError):
    """The user or the CI system stopped the run. Everything that was finished has been kept."""

    exit_code = ExitCode.INTERRUPTED


def printable(text: str) -> str:
    """Return text of a stranger for a message: characters that could steer a terminal become question marks."""
    return "".join(character if character.isprintable() else "?" for character in text)


# Errors from a disk, a limit of this machine or a device. Another path does not help.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_TOO_MUCH = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
# Errors of a path that the user named.
_PATH = {
    *(errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO, errno.EPERM, errno.EROFS),
}


def is_about_a_path(error: OSError) -> bool:
    """Return whether the named path is at fault, and not the machine."""
    return error.errno in _PATH and error.filename is not None


def explain(error: BaseException) -> WarpwaveError:
    """Return any exception as an error with three sentences. A wrong path is a `UsageError`, a refusal by the machine is infrastructure,
    and anything else is a bug in warpwave."""
    if isinstance(error, WarpwaveError):
        return error
    message = " ".join(str(error).split())[:400] or type(error).__name__
    if isinstance(error, OSError):
        return _explain_os_error(error, message)
    if isinstance(error, RuntimeError) and message.startswith("Symlink loop"):  # pathlib's own error for ELOOP until Python 3.13
        return UsageError(f"A path cannot be used: {message}.", "Its symbolic links form a loop.", "Give a path without a loop.")
    if isinstance(error, UnicodeError):
        meaning = "The name of a file or folder, an option or the content of a file is not UTF-8."
        return UsageError(f"A text cannot be read or written: {message}.", meaning, "Rename it, or save the file as UTF-8.")
    if isinstance(error, MemoryError):
        meaning = "The inputs are larger than what this machine, or this process (`ulimit -v`), may use."
        return InfrastructureError("There is no memory left.", meaning, "Give fewer folders at a time, or use a machine with more memory.")
    if isinstance(error, RecursionError):
        meaning = "An input is nested deeper than any file that warpwave or a kernel author writes."
        return InvalidInputError(f"An input cannot be read: {message}.", meaning, "Leave it out, or create it again.")
    happened = f"warpwave itself failed: {type(error).__name__}: {message}."
    remedy = "Run it again with WARPWAVE_TRACEBACK=1 to see where, and report that."
    return InfrastructureError(happened, "This is a fault of warpwave, not of your kernels.", remedy)


def _explain_os_error(error: OSError, message: str) -> WarpwaveError:
    where = " ".join(os.fsdecode(error.filename).split()) if isinstance(error.filename, (str, bytes, os.PathLike)) else ""
    happened = f"{where} cannot be used: {error.strerror}." if where else f"The system refused: {message}."
    if is_about_a_path(error):
        meaning = "The path does not exist, has the wrong type (file or folder), or this user may not read or write it."
        return UsageError(happened, meaning, "Give another path, or change its owner or mode.")
    if error.errno in _NO_ROOM:
        meaning = "The disk, its quota or the largest file that this process may write (`ulimit -f`) is used up."
        return InfrastructureError(happened, meaning, "Make room there, or give a folder on another disk.")
    if error.errno in _TOO_MUCH:
        meaning = "This process, or this machine, has reached its limit of open files, processes or memory."
        return InfrastructureError(happened, meaning, "Raise the limit (`ulimit -a` shows it), or end other processes.")
    remedy = "`dmesg` and `warpwave doctor` have details."
    return InfrastructureError(happened, "A disk, a network file system or a device of this machine fails.", remedy)
