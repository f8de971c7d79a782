"""Ask git about a folder that may be a stranger's. Nothing that the folder names as a program is started. No other module starts git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# These win over every settings file. The work tree's files cannot change what is given here.
_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.quotePath": "false",
    "core.alternateRefsCommand": "false",
    "core.sshCommand": "false",
    "core.askPass": "false",
    "core.editor": "false",
    "credential.helper": "",
    "protocol.allow": "never",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "submodule.recurse": "false",
    "log.showSignature": "false",
}
_VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


def ask_git(folder: Path, *words: str, limit_s: float = 20.0) -> str | None:
    """Return what git prints, or None if it fails, is missing, takes too long, or `folder` is in no ordinary work tree."""
    root = _work_tree(folder.resolve())
    if root is None:
        return None
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    surroundings |= {**_VARIABLES, "GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_WORK_TREE": str(root)}
    try:
        listed = _run(folder, ["config", "--list", "--name-only", "-z"], _SETTINGS, surroundings, limit_s)
        if listed is None:
            return None
        filters = {name.rpartition(".")[0] for name in listed.split("\0") if name.startswith("filter.")}
        without = {f"{name}.{key}": "" for name in sorted(filters) for key in ("clean", "smudge", "process")}
        optional = {f"{name}.required": "false" for name in filters}
        return _run(folder, list(words), {**_SETTINGS, **without, **optional}, surroundings, limit_s)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _work_tree(folder: Path) -> Path | None:
    """Return the folder with `.git`. A bare repository on the way is none: a package can bring one, with settings of its author."""
    for here in (folder, *folder.parents):
        if os.path.lexists(here / ".git"):
            return here
        if (here / "HEAD").exists() and (here / "refs").exists():
            return None
    return None


def _run(folder: Path, words: list[str], settings: dict[str, str], surroundings: dict[str, str], limit_s: float) -> str | None:
    given = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        given |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    command = ["git", "--no-pager", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s, env={**surroundings, **given})
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
