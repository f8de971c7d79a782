"""What a run asks to install → a folder of files that `installing` works from, and the key under which the result is kept."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwave.engines.packages import installing
from warpwave.engines.protocol import Request
from warpwave.engines.snapshot import secret
from warpwave.errors import UsageError
from warpwave.git import ask_git, repository_of
from warpwave.options import RunOptions

# Files that say what a package is and needs. An edit of a kernel needs no new environment; an edit of these does.
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "MANIFEST.in")
_REQUIREMENTS = ("*requirements*.txt", "requirements/*.txt", "uv.lock", "*.dist-info/METADATA")
_VERSIONS = ("__init__.py", "version.py", "_version.py", "__about__.py", "__version__.py")
_NOT_SOURCES = frozenset({"build", "dist", "node_modules", "__pycache__", "wheelhouse"})
# Pictures, documents, weights and archives: no build reads them, and in some repositories they are most of it.
_NO_SOURCES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".pdf", ".mp4", ".mov", ".ipynb"}
_NO_SOURCES |= {".pt", ".pth", ".safetensors", ".onnx", ".npy", ".npz", ".zip", ".gz", ".tar"}
_MOST_BYTES, _LARGEST_FILE, _MOST_FILES = 64 << 20, 8 << 20, 20_000
_INCLUDE = re.compile(r"(-r|-c|--requirement|--constraint)(?:\s+|=|(?<=-[rc]))(?P<file>\S.*)")


@dataclass(frozen=True)
class Plan:
    """The files for the installer, by path; `key` is a hash of what decides the result."""

    files: dict[str, bytes]
    key: str


def is_wanted(options: RunOptions) -> bool:
    """Return whether the run asks to install anything."""
    return bool(options.package.install.requirements or options.package.install.named or options.package.install.package)


def installer_files() -> dict[str, bytes]:
    """Return the files of the program that installs a plan, and of its patterns."""
    files = {f"installing/{path.name}": path.read_bytes() for path in sorted(Path(installing.__file__).parent.glob("*.py"))}
    return {**files, "packages.ini": Path(__file__).with_name("packages.ini").read_bytes()}


def make_plan(request: Request) -> Plan:
    """Read the requirement files and the package. Raises UsageError if a file cannot be read."""
    options = request.options
    wanted, constraints = [], []
    for path in options.package.install.requirements:
        lines, more = _flat(path, repository_of(options.package.folder))
        wanted += lines
        constraints += more
    wanted += options.package.install.named
    mode, root = options.package.install.package, options.package.folder / options.package.project
    files = {
        **installer_files(),
        "requirements.txt": "".join(f"{line}\n" for line in wanted).encode(),
        "constraints.txt": "".join(f"{line}\n" for line in constraints).encode(),
    }
    folders = [options.package.folder / folder for folder in options.package.declared.import_folders]
    versions = sorted(path for folder in folders for name in _VERSIONS for path in folder.glob(f"*/{name}"))
    named = [*map(root.joinpath, _PROJECT), *sorted(path for pattern in _REQUIREMENTS for path in root.glob(pattern))]
    # A link may lead out of the package: what it names decides nothing.
    inside = options.package.folder.resolve()
    own = [path for path in [*named, *versions] if mode and path.is_file() and path.resolve().is_relative_to(inside)]
    project = {path.relative_to(root).as_posix(): path.read_bytes() for path in dict.fromkeys(own) if path in named}
    deciding = [hashlib.sha256(content).hexdigest() for content in [*files.values(), *(path.read_bytes() for path in own)]]
    build = options.build
    deciding += [path.name for path in sorted(build.wheelhouse.glob("*"))] if build.wheelhouse else []
    deciding += [build.pip_config.read_text(errors="replace")] if build.pip_config and build.pip_config.is_file() else []
    tree, left_out = _tree(root, options.where.out, project) if mode and project else ({}, "")
    version = _version(root) if project else ""
    name = root.name if mode else ""  # folders that need the same packages share an environment
    about: dict[str, Any] = {"mode": mode, "name": name, "version": version, "left_out": left_out}
    about |= {"skipped": list(options.package.install.skipped), "extras": list(options.package.install.extras)}
    key = hashlib.sha256(json.dumps([mode, name, left_out, about["skipped"], about["extras"], *deciding]).encode()).hexdigest()[:16]
    files |= {"plan.json": json.dumps(about).encode(), **{f"package/{name}": content for name, content in tree.items()}}
    return Plan(files, key)


def _flat(path: Path, repository: Path, seen: frozenset[Path] = frozenset()) -> tuple[list[str], list[str]]:
    """Return the lines of a requirements file with the files that it includes, and those of its constraints. A file of the package's
    repository may include others of it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        happened = f"The requirements {path} cannot be read: {error}."
        meaning = "The path is misspelt, or another requirements file includes a file that is missing."
        raise UsageError(happened, meaning, "Give a readable file with --requirements.") from None
    wanted: list[str] = []
    constraints: list[str] = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if found := _INCLUDE.fullmatch(line):
            other = (path.parent / found["file"]).resolve()
            if other in seen:
                continue
            if path.resolve().is_relative_to(repository) and not other.is_relative_to(repository):
                happened = f"{path} includes {other}, which lies outside of {repository}."
                meaning = "A package's requirements name files of its own repository only: its author must not choose others of yours."
                raise UsageError(happened, meaning, f"If you want it, name it yourself: --requirements {other}.")
            lines, more = _flat(other, repository, seen | {path.resolve()})
            constraints += more
            (constraints if found[1].lstrip("-").startswith("c") else wanted).extend(lines)
        elif line:
            wanted.append(line)
    return wanted, constraints


def _tree(root: Path, results: Path, project: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Return what a build may read, and why that is not all: the `project`'s files if it is too much. The user's folder is only read."""
    found: dict[str, bytes] = {}
    size = 0
    for path in _walk(root, results):
        state = path.lstat()
        if not path.is_file() or path.is_symlink() or state.st_size > _LARGEST_FILE or path.suffix.lower() in _NO_SOURCES:
            continue
        size += state.st_size
        if size > _MOST_BYTES or len(found) >= _MOST_FILES:
            return dict(project), f"it has more than {_MOST_BYTES >> 20} MiB of sources"
        found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found, ""


def _walk(root: Path, results: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        if here == results or "pyvenv.cfg" in files or "CACHEDIR.TAG" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _NOT_SOURCES and not name.startswith(".") and not secret(here / name))
        yield from (here / name for name in sorted(files) if not secret(here / name))


def _version(root: Path) -> str:
    """Return the version that tools would read from git's tags, which the copy for the build lacks."""
    found = re.search(r"\d+(\.\d+)*", ask_git(root, "describe", "--tags", "--abbrev=0") or "")
    return found[0] if found else "0"
