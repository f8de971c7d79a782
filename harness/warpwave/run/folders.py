"""Where results go by default, the check of the user's folder before any work is done, and space for the last record of a run."""

import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Union

from warpwave.errors import UsageError, explain, is_about_a_path
from warpwave.git import ask_git

BYTES = 64 << 10  # a run.json has 2 to 20 KiB


class Reserve:
    """Space for a run's final record if the disk is full by then: an open file without a name, which code under test cannot remove."""

    def __init__(self) -> None:
        self._file: Union[IO[bytes], None] = None

    def take(self, folder: Path) -> None:
        """Reserve the space. Raises OSError if the disk is full, or the folder cannot be written to."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `free`
        os.posix_fallocate(self._file.fileno(), 0, BYTES)

    def free(self) -> None:
        """Free the space, so that the final record can be written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


RUNS = Path("reports") / "runs"  # in the current folder, which is usually the user's repository


def ignored_by_git(path: Path) -> Path:
    """Return the path. If warpwave chose it (a folder in `RUNS`), git ignores it from now on, like the caches of other tools. What a user
    names is the user's, and may be meant for a commit. So is a `.gitignore` that is there already."""
    if path.resolve().parent == RUNS.resolve():
        check_no_links(RUNS)
        with suppress(OSError):
            RUNS.mkdir(parents=True, exist_ok=True)
            with (RUNS / ".gitignore").open("x", encoding="utf-8") as file:
                file.write("# Made by warpwave: results of runs.\n*\n")
    return path


LATEST = "latest"  # a link in `RUNS`


def point_to_latest(run: Path) -> None:
    """Let the link `latest` lead to a run, if the run is beside it. A user who chose another folder finds it without a link."""
    link = RUNS / LATEST
    if run.resolve().parent != RUNS.resolve() or (link.exists() and not link.is_symlink()):
        return
    with suppress(OSError):  # a disk without links
        new = link.with_name(f".{LATEST}-{secrets.token_hex(4)}")
        new.symlink_to(run.name)
        new.replace(link)


def report_folder(folders: Sequence[Path]) -> Path:
    """Return where a report over `folders` goes: into the only one, or to a new folder, since a report of several belongs to none."""
    if len(folders) == 1:
        return folders[0] if folders[0].is_dir() else Path()
    return ignored_by_git(RUNS / new_run_id())


def new_run_id() -> str:
    """Return an id that is sortable and readable, and differs for two runs that start in the same second."""
    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def check_no_links(path: Path, results: Path | None = None) -> None:
    """Refuse to write through a link that the user may not have made: it could lead to any file of theirs. That is a link which git tracks,
    one in the results of a run (`results`, or any other), and one below the current folder if git cannot say whose it is. Raises UsageError
    if there is one."""
    whole = Path.cwd() / path
    for link in (each for each in (*reversed(whole.parents), whole) if each.is_symlink()):
        known = ask_git(link.parent, "ls-files", "-z", "--", link.name)
        in_results = any(above == results or any((above / "raw").glob("*/run.json")) for above in link.parents)
        if in_results or known or (known is None and link.is_relative_to(Path.cwd())):
            happened = f"{path} leads through the link {link}."
            meaning = "It came with the package or with results, or its origin is unknown. It may lead to any file of yours."
            raise UsageError(happened, meaning, f"Remove it; or name the place itself, if you want to write there: {whole.resolve()}.")


def check_writable(folder: Path) -> None:
    """Create the folder, and a file in it that is deleted at once. A full disk passes: it is the machine's fault, and found when writing.
    Raises UsageError if nothing can be created there: the path is wrong, not writable for this user, or on a read-only disk."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = error.filename and str(folder)  # not the temporary file's name, which the user never saw
        if is_about_a_path(error):
            raise explain(error) from None
