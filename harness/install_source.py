"""The pip requirement for this very warpwave, which `init` writes into a workflow."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from harness import __version__

_SSH = re.compile(r"(?:ssh://)?git@([\w.-]+)[:/](.+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def requirement() -> str | None:
    """Return `git+https://HOST/OWNER/NAME@COMMIT` if warpwave was installed from, or runs in, a repository that others can reach.

    Return `warpwave==VERSION` if it came from an index, and None if nobody else can install it. A commit counts only if a remote branch
    contains it.
    """
    return _as_installed() or _as_checked_out(Path(__file__).resolve().parents[1])


def _as_installed() -> str | None:
    """Read pip's own record (PEP 610): nothing for a package from an index, address and commit for one from version control."""
    try:
        noted = metadata.distribution("warpwave").read_text("direct_url.json")
        source = json.loads(noted) if noted else None
        return f"warpwave=={__version__}" if source is None else _named(str(source["url"]), str(source["vcs_info"]["commit_id"]))
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None


def _as_checked_out(root: Path) -> str | None:
    if not (root / "pyproject.toml").is_file() or not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    known = _git(root, "branch", "--remotes", "--contains", "HEAD")
    return _named(_git(root, "remote", "get-url", "origin"), commit) if known else None


def _named(url: str, commit: str) -> str | None:
    """Return the requirement without user, password or anything else that a workflow must not show; None if others cannot reach it."""
    if ssh := _SSH.fullmatch(url):
        url = f"https://{ssh[1]}/{ssh[2]}"
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or not _COMMIT.fullmatch(commit):
        return None
    return f"git+https://{parts.hostname}{parts.path.rstrip('/').removesuffix('.git')}@{commit}"


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
