"""Ask git which files of a package differ from another commit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InfrastructureError, UsageError
from harness.git import ask_git

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Change:
    """What has changed since `commit`. `files` are relative to the package's root, and include deleted and new ones."""

    commit: str
    files: tuple[str, ...]


def changed_files(root: Path, ref: str) -> Change:
    """Return what has changed below `root` since it left `ref`: committed, uncommitted and untracked, but not ignored.

    Raises:
        UsageError: the folder is in no repository, or there is no such commit.
        InfrastructureError: git is missing, or does not answer.
    """
    if _git(root, "rev-parse", "--is-inside-work-tree") is None:
        raise UsageError(
            f"--changed-since: {root} is in no git repository.", "A change is what git says it is.", "Leave --changed-since out."
        )
    commit = _git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if not commit:
        raise UsageError(
            f"--changed-since: git knows no commit {ref!r} in {root}.",
            "It is misspelt, or this clone does not have it: CI systems fetch one commit only.",
            f"Fetch it first, for example with `git fetch origin {ref}`, and give FETCH_HEAD.",
        )
    # What others have added to the branch since does not count. A shallow clone may not hold the commit that both began with.
    base = _git(root, "merge-base", commit.strip(), "HEAD") or commit
    tracked = _git(
        root, "diff", "--relative", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "-z", base.strip(), "--", "."
    )
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    if tracked is None or new is None:
        raise InfrastructureError(
            f"--changed-since: git could not list what has changed since {ref}.",
            "The clone is damaged, or lacks files of that commit.",
            f"`git -C {root} diff --name-only {base.strip()}` says why.",
        )
    files = tuple(sorted({name for name in (tracked + new).split("\0") if name}))
    return Change(base.strip()[:12], files)


def _git(root: Path, *words: str) -> str | None:
    """Return what git prints, or None if it fails."""
    if shutil.which("git") is None:
        raise InfrastructureError("--changed-since: there is no git.", "It is not installed, or not on PATH.", "Install git.")
    return ask_git(root, *words, limit_s=_PATIENCE_S)
