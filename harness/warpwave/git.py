"""Ask git about a folder that may be a stranger's. Nothing that the folder names as a program is started. No other module starts git."""

import os
import re
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
    """Return what git prints, or None if it fails, is missing, takes too long, or `folder` is in no work tree that git made here."""
    root = _work_tree(folder.resolve())
    if root is None:
        return None
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    surroundings |= {**_VARIABLES, "GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_WORK_TREE": str(root)}
    if words[0] in ("diff", "status"):
        # In a submodule git would follow the settings there. `.gitmodules` decides on this, unless the command line does.
        words = (words[0], "--ignore-submodules=dirty", *words[1:])
    if words[0] == "diff":
        words = (words[0], "--no-ext-diff", "--no-textconv", *words[1:])
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


def repository_of(folder: Path) -> Path:
    """Return the nearest folder at or above this one with `.git`, below the home folder; the folder itself if there is none."""
    folder, home = folder.resolve(), Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - `Path.expanduser` fails without a home
    above = [here for here in (folder, *folder.parents) if here not in (home, *home.parents)]
    return next((here for here in above if os.path.lexists(here / ".git")), folder)


def _work_tree(folder: Path) -> Path | None:
    """Return the folder with `.git`, or None if somebody else may have made the repository. A package can bring a bare repository, with
    settings of its author. It cannot bring anything called `.git`, unless it came as an archive: then links and files there may lead to any
    repository of the user's."""
    for here in (folder, *folder.parents):
        if os.path.lexists(here / ".git"):
            return here if _is_own(here / ".git") else None
        if os.path.lexists(here / "HEAD") and any(os.path.lexists(here / name) for name in ("refs", "commondir")):
            return None
    return None


def _is_own(git: Path) -> bool:
    """Return whether `.git` is an ordinary folder, or the file of a work tree or submodule that a repository of that name knows."""
    if git.is_symlink():
        return False
    if git.is_dir():
        parts = ("HEAD", "config", "index", "objects", "refs")
        return not (git / "commondir").exists() and not any((git / name).is_symlink() for name in parts)
    try:
        folder = (git.parent / git.read_text(encoding="utf-8")[:4096].removeprefix("gitdir:").strip()).resolve()
        owner = next((above for above in folder.parents if above.name == ".git"), None)
        if owner is None or not _is_own(owner) or folder.is_relative_to(git.parent):
            return False
        if folder.parent == owner / "worktrees":
            knows, common = ((folder / name).read_text(encoding="utf-8")[:4096].strip() for name in ("gitdir", "commondir"))
            return (folder / knows).resolve() == git and (folder / common).resolve() == owner
        # A submodule: git writes where its work tree is into its settings.
        paths = re.findall(r"(?m)^\s*worktree\s*=\s*(.+?)\s*$", (folder / "config").read_text(encoding="utf-8"))
        return [(folder / path.strip('"')).resolve() for path in paths] == [git.parent]
    except (OSError, ValueError):
        return False


def _run(folder: Path, words: list[str], settings: dict[str, str], surroundings: dict[str, str], limit_s: float) -> str | None:
    given = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        given |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    command = ["git", "--no-pager", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s, env={**surroundings, **given})
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
