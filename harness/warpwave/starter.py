"""`starter/` → an empty repository: a kernel with its test and bench, gates, and a workflow that installs this warpwave."""

import json
import re
from importlib import metadata
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from warpwave.errors import UsageError
from warpwave.git import ask_git


def starter() -> Path:
    """Return the starter folder: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packaged = package / "starter"
    return packaged if packaged.is_dir() else package.parents[1] / "starter"


def starter_files() -> list[Path]:
    """Return the starter's files, relative to its folder."""
    source = starter()
    return sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


_EXAMPLE = "git+https://HOST/OWNER/warpwave@COMMIT"
_FROM_INDEX = re.compile(r"warpwave(\[[\w,.-]*\])?\s*([=<>!~].*)?", re.IGNORECASE)
_INSTALLED = f'{{WARPWAVE: "{_EXAMPLE}"}}'  # in the workflow


def write_starter(folder: Path, requirement: str | None) -> list[Path]:
    """Copy the starter into `folder` and return what was written. If a file exists already and is another one, write nothing. `requirement`
    is what pip installs in the workflow. Without one, no workflow is written: a guessed name could be anyone's package. Raises UsageError
    if another file is in the way, the folder is not writable, or pip cannot install `requirement`."""
    if requirement is not None:
        _check_installable(requirement)
    texts = {path: (starter() / path).read_text(encoding="utf-8") for path in starter_files()}
    files = {
        path: text.replace(_INSTALLED, f"{{WARPWAVE: {json.dumps(requirement)}}}")
        for path, text in texts.items()
        if requirement is not None or _INSTALLED not in text
    }
    if taken := [path for path, text in files.items() if (folder / path).exists() and not _holds(folder / path, text)]:
        happened = f"{', '.join(map(str, taken))} {'is' if len(taken) == 1 else 'are'} already in {folder}."
        remedy = "Give another folder: `warpwave init my-kernels`. An existing package needs no init: `warpwave run cpu --kernels FOLDER`."
        raise UsageError(happened, "`init` is for a repository without kernels, and never overwrites files.", remedy)
    if linked := [each for path in files for each in (path, *path.parents) if each != Path() and (folder / each).is_symlink()]:
        meaning = "`init` writes through no link: it may lead out of the folder."
        raise UsageError(f"{linked[0]} in {folder} is a link.", meaning, "Remove it, or give another folder.")
    new = [path for path in files if not (folder / path).exists()]
    try:
        for path in new:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(files[path], encoding="utf-8")
    except OSError as error:
        meaning = "The folder belongs to someone else, or it is a file."
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", meaning, "Give another folder.") from None
    return new


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False


def _check_installable(requirement: str) -> None:
    """Refuse what pip cannot install, and a bare name: until there is a release, that name on a package index is someone else's. Raises
    UsageError if it is one of those."""
    if not requirement.isprintable() or not requirement or requirement.startswith("-") or "${{" in requirement:
        meaning = "The workflow passes it to `pip install` unchanged."
        raise UsageError(f"--from is not a requirement for pip: {requirement!r}.", meaning, f"Give a requirement: {_EXAMPLE}.")
    if _FROM_INDEX.fullmatch(requirement):
        happened = f"--from {requirement!r} would install a package from an index."
        meaning = "warpwave has no release on an index yet. Anyone could register that name, and run in your CI."
        raise UsageError(happened, meaning, f"Name a repository and a full commit: {_EXAMPLE}.")


_SSH = re.compile(r"(?:ssh://)?git@([\w.-]+)[:/](.+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def requirement() -> str | None:
    """Return `git+https://HOST/OWNER/NAME@COMMIT` if warpwave was installed from, or runs in, a repository that others can reach. Return
    None if nobody else can install it, or if it came from an index: there is no release, so that name there is not ours. A commit counts
    only if a remote branch contains it."""
    return _as_installed() or _as_checked_out(Path(__file__).resolve().parents[2])


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
    """Return `https://HOST/OWNER/NAME#path/of/the/folder` of the remote that `folder` was cloned from, or an empty text. Never a user, a
    password or a token: the address is in every report."""
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
