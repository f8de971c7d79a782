"""Where this very warpwave comes from, as pip would be told: what `init` writes into a workflow."""

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
    """`git+https://HOST/OWNER/NAME@COMMIT` where it was installed, or runs, from a repository that others can reach.

    `warpwave==VERSION` where an index had it; None where nobody else can install it.

    A commit counts only where a remote branch has it.
    """
    return _as_installed() or _as_checked_out(Path(__file__).resolve().parents[1])


def _as_installed() -> str | None:
    """By what pip noted: nothing of what came from an index, an address and a commit of what came from version control (PEP 610)."""
    try:
        noted = metadata.distribution("warpwave").read_text("direct_url.json")
        told = json.loads(noted) if noted else None
        return f"warpwave=={__version__}" if told is None else _named(str(told["url"]), str(told["vcs_info"]["commit_id"]))
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None


def _as_checked_out(root: Path) -> str | None:
    if not (root / "pyproject.toml").is_file() or not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    known = _git(root, "branch", "--remotes", "--contains", "HEAD")
    return _named(_git(root, "remote", "get-url", "origin"), commit) if known else None


def _named(url: str, commit: str) -> str | None:
    """The address without a user, a password or anything else that a workflow must not show; None where it is nobody else's to reach."""
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
