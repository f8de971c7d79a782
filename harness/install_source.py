"""Where code comes from, as others can reach it: warpwave itself, for the workflow that `init` writes, and a package, for links."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from harness.git import ask_git

_SSH = re.compile(r"(?:ssh://)?git@([\w.-]+)[:/](.+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def requirement() -> str | None:
    """Return `git+https://HOST/OWNER/NAME@COMMIT` if warpwave was installed from, or runs in, a repository that others can reach.

    Return None if nobody else can install it, or if it came from an index: there is no release, so that name there is not ours. A commit
    counts only if a remote branch contains it.
    """
    return _as_installed() or _as_checked_out(Path(__file__).resolve().parents[1])


def _as_installed() -> str | None:
    """Read the installer's own record (PEP 610): address and commit of a package from version control."""
    try:
        noted = metadata.distribution("warpwave").read_text("direct_url.json")
        source = json.loads(noted or "")
        return _named(str(source["url"]), str(source["vcs_info"]["commit_id"]))
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None


def _as_checked_out(root: Path) -> str | None:
    if not (root / "pyproject.toml").is_file() or not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    known = _git(root, "branch", "--remotes", "--contains", "HEAD")
    return _named(_git(root, "remote", "get-url", "origin"), commit) if known else None


def repository_of(folder: Path) -> str:
    """Return `https://HOST/OWNER/NAME#path/of/the/folder` of the remote that `folder` was cloned from, or an empty text.

    Never a user, a password or a token: the address is in every report.
    """
    address = public_address(_git(folder, "remote", "get-url", "origin"))
    return f"{address}#{_git(folder, 'rev-parse', '--show-prefix').strip('/')}" if address else ""


def _named(url: str, commit: str) -> str | None:
    """Return the requirement without user, password or anything else that a workflow must not show; None if others cannot reach it."""
    address = public_address(url)
    return f"git+{address}@{commit}" if address and _COMMIT.fullmatch(commit) else None


def public_address(url: str) -> str:
    """Return `https://HOST/OWNER/NAME` of a remote, without user, password, token or port; empty if it is no such address."""
    if ssh := _SSH.fullmatch(url):
        url = f"https://{ssh[1]}/{ssh[2]}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme != "https" or not parts.hostname:
        return ""
    return f"https://{parts.hostname}{quote(unquote(parts.path)).rstrip('/').removesuffix('.git')}"


def _git(folder: Path, *arguments: str) -> str:
    return (ask_git(folder, *arguments) or "").strip()
