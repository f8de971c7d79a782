"""Where results go by default, and the check of the user's folder before any work is done."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from harness.errors import explain, is_about_a_path

RUNS = Path("reports") / "runs"  # in the current folder, which is usually the user's repository


def ignored_by_git(folder: Path) -> Path:
    """Return the folder. If it is one of the default ones, git ignores it from now on, as it does the caches of other tools.

    Only `RUNS` gets a `.gitignore`: what a user names is the user's, and may be meant for a commit.
    """
    runs = RUNS.resolve()
    if folder.resolve().parent == runs:
        with contextlib.suppress(OSError):
            runs.mkdir(parents=True, exist_ok=True)
            with (runs / ".gitignore").open("x", encoding="utf-8") as file:
                file.write("# Made by warpwave: results of runs.\n*\n")
    return folder


def report_folder(folders: Sequence[Path]) -> Path:
    """Return where a report over `folders` goes: into the only one, or to a new folder, since a report of several belongs to none."""
    if len(folders) == 1:
        return folders[0] if folders[0].is_dir() else Path()
    return ignored_by_git(RUNS / new_run_id())


def new_run_id() -> str:
    """Return an id that is sortable and readable, and differs for two runs that start in the same second."""
    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def check_writable(folder: Path) -> None:
    """Create the folder, and a file in it that is deleted at once. A full disk passes: it is the machine's fault, and found when writing.

    Raises:
        UsageError: nothing can be created there: the path is wrong, not writable for this user, or on a read-only disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = error.filename and str(folder)  # not the temporary file's name, which the user never saw
        if is_about_a_path(error):
            raise explain(error) from None
