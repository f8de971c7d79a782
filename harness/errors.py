"""One tree of errors. Each speaks in three beats (what happened, what it usually means, what to do) and carries its exit code."""

from __future__ import annotations

import errno
import os
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


# What a disk, a limit of this machine or a device answers; where it is not the path that is wrong, another path does not help.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_TOO_MUCH = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
# What is wrong with a path that somebody named.
_PATH = {
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENXIO,
    errno.EPERM,
    errno.EROFS,
}


def is_about_a_path(error: OSError) -> bool:
    """Whether the path that was named is at fault, and not the machine."""
    return error.errno in _PATH and error.filename is not None


def explain(error: BaseException) -> WarpwaveError:
    """Any exception in three beats: a wrong path is a `UsageError`, what a machine refuses infrastructure, the rest a fault of ours."""
    if isinstance(error, WarpwaveError):
        return error
    said = " ".join(str(error).split())[:400] or type(error).__name__
    if isinstance(error, OSError):
        return _explain_os_error(error, said)
    if isinstance(error, RuntimeError) and said.startswith("Symlink loop"):  # how pathlib spelt ELOOP until Python 3.13
        return UsageError(f"A path cannot be used: {said}.", "Its symbolic links lead to each other.", "Give a path that leads somewhere.")
    if isinstance(error, UnicodeError):
        meaning = "The name of a file or folder, an option or the content of a file is not UTF-8."
        return UsageError(f"A text cannot be read or written: {said}.", meaning, "Rename it, or save the file as UTF-8.")
    if isinstance(error, MemoryError):
        meaning = "The inputs are larger than what this machine, or this process (`ulimit -v`), may use."
        return InfrastructureError("There is no memory left.", meaning, "Give fewer folders at a time, or use a machine with more memory.")
    if isinstance(error, RecursionError):
        meaning = "An input is nested deeper than any file that warpwave or a kernel author writes."
        return InvalidInputError(f"An input cannot be read: {said}.", meaning, "Leave it out, or make it anew.")
    return InfrastructureError(
        f"warpwave itself failed: {type(error).__name__}: {said}.",
        "This is a fault of warpwave, not of your kernels.",
        "Run it again with WARPWAVE_TRACEBACK=1 to see where, and report that.",
    )


def _explain_os_error(error: OSError, said: str) -> WarpwaveError:
    where = " ".join(os.fsdecode(error.filename).split()) if isinstance(error.filename, (str, bytes, os.PathLike)) else ""
    happened = f"{where} cannot be used: {error.strerror}." if where else f"The system refused: {said}."
    if is_about_a_path(error):
        meaning = "The path does not exist, is no folder or no file, or this user may not read or write it."
        return UsageError(happened, meaning, "Give another path, or change its owner or mode.")
    if error.errno in _NO_ROOM:
        meaning = "The disk, its quota or the largest file that this process may write (`ulimit -f`) is used up."
        return InfrastructureError(happened, meaning, "Make room there, or give a folder on another disk.")
    if error.errno in _TOO_MUCH:
        meaning = "This process, or this machine, has reached its limit of open files, processes or memory."
        return InfrastructureError(happened, meaning, "Raise the limit (`ulimit -a` shows it), or end other processes.")
    return InfrastructureError(
        happened, "A disk, a network file system or a device of this machine fails.", "`dmesg` and `warpwave doctor` say more."
    )
