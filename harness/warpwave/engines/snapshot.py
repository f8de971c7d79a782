"""Pack the package and the inside into one archive, for an engine that shares no folder with this machine.

Equal files give equal bytes, so the SHA-256 of the archive names them: legs of one run show the same one, and a machine that has it already
gets it only once. What a container would not see stays out, and so do the files in which tools keep passwords.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import warpwave
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import GIB, RunOptions

HARNESS, PACKAGE = "warpwave", "kernel-package"
"""The folders in the archive. The second has a name that no Python module can have."""
COMPLETE = "complete"
"""The last entry: an archive without it was cut short."""

_WHAT_RUNS = ("__init__.py", "stats.py", "inside", "records", "emulator")
_OF_TOOLS = frozenset({".nox", ".tox", ".hypothesis", ".idea", ".vscode", "__pycache__", "node_modules"})
_REPOSITORIES = frozenset({".git", ".hg", ".svn"})
# Where tools keep passwords and keys. An example without values (`.env.example`) goes along.
_SECRETS = re.compile(
    r"\.env(?!\.(example|sample|template)$)([._~-].*)?|.+\.env|\.envrc|\.?_?netrc|\.pypirc|\.npmrc|\.yarnrc(\.yml)?|\.pgpass|\.my\.cnf|\.htpasswd"
    r"|\.vault-token|\.git-credentials|\.gitconfig|\.dockercfg|\.boto|\.s3cfg|\.ssh|\.aws|\.azure|\.gnupg|\.docker|\.kube|\.config|\.huggingface"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?(?!\.pub$)([._~-].*)?|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk)|pip\.(conf|ini)|\.\w+_history"
    r"|credentials|(credentials|secrets?)\.(json|ya?ml|toml|ini|csv)|(client[-_]secret|service[-_]account).*\.json|kaggle\.json",
    re.IGNORECASE,
)
_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
_SECRET, _REPOSITORY = "may hold a password or a key", "is a repository, whose settings may hold a password"
_MOST_BYTES = 4 * GIB
_TIME = 1_000_000_000  # the same for every file; zip files, which packages may write of them, know no time before 1980
_PIECE = 1 << 20


@dataclass(frozen=True)
class Snapshot:
    """An archive on this machine's disk: an open file without a name, its SHA-256, and its size in bytes."""

    file: IO[bytes]
    digest: str
    size: int

    @property
    def name(self) -> str:
        """A short name of its content."""
        return self.digest[:24]

    def open(self) -> IO[bytes]:
        """Open the archive at its beginning. The processes of several legs may read the same one."""
        return open(f"/proc/self/fd/{self.file.fileno()}", "rb")


_taken: dict[tuple[Path, Path], Snapshot] = {}


def take_once(options: RunOptions) -> Snapshot:
    """Pack the package of a run, or return the archive that this process, or the one that forked it, has made for the run already."""
    key = (options.package.folder, options.where.folder)
    if key not in _taken:
        _taken[key] = take(options)
        atexit.register(_taken[key].file.close)
    return _taken[key]


def take(options: RunOptions) -> Snapshot:
    """Pack the package of a run, and what of warpwave runs beside it. The caller closes the file.

    Raises:
        UsageError: a file cannot be read, or the package is too large.
        InfrastructureError: the disk has no room for the archive.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it, which removes it
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_harness(tar)
            _add_package(tar, options)
            _add(tar, COMPLETE, 0o644, io.BytesIO(), 0)
    except OSError as error:
        file.close()
        if error.filename:
            happened = f"{error.filename} cannot be read: {error.strerror}."
            raise UsageError(happened, "Every file of the package goes to the other machine.", "Make it readable, or remove it.") from None
        happened = f"The package could not be packed: {error.strerror}."
        meaning = f"It is written to {tempfile.gettempdir()}, which is full or too small."
        raise InfrastructureError(happened, meaning, "Make room there, or set TMPDIR to a folder with room.") from None
    except UsageError:
        file.close()
        raise
    size = file.tell()
    return Snapshot(file, _digest(file), size)


def _add_harness(tar: tarfile.TarFile) -> None:
    root = Path(warpwave.__file__).parent
    _add_folder(tar, HARNESS)
    for name in _WHAT_RUNS:
        top = root / name
        for path in [top] if top.is_file() else [top, *sorted(top.rglob("*"))]:
            inside = f"{HARNESS}/{path.relative_to(root).as_posix()}"
            if "__pycache__" in path.parts:
                continue
            if path.is_dir():
                _add_folder(tar, inside)
            elif path.is_file():
                with path.open("rb") as file:
                    _add(tar, inside, 0o644, file, os.fstat(file.fileno()).st_size)


def _add_package(tar: tarfile.TarFile, options: RunOptions) -> None:
    root, left = options.package.folder.resolve(), _MOST_BYTES
    top = f"{PACKAGE}/{root.name}"
    for folder in (PACKAGE, top):
        _add_folder(tar, folder)
    for path, why in contents(root, options.where.folder.resolve()):
        if why:
            continue
        inside, state = f"{top}/{path.relative_to(root).as_posix()}", path.lstat()
        if stat.S_ISDIR(state.st_mode):
            _add_folder(tar, inside)
        elif stat.S_ISLNK(state.st_mode):
            entry = _entry(inside, 0o777)
            entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
            tar.addfile(entry)
        else:
            left -= state.st_size
            if left < 0:
                happened = f"The package {root.name} has more than {_MOST_BYTES / GIB:g} GiB, too much to send to another machine."
                meaning = "Everything in its folder goes there, because nobody knows which data its tests read."
                raise UsageError(happened, meaning, "Give a smaller folder with --kernels, or move data out of it.")
            with path.open("rb") as file:
                _add(tar, inside, 0o755 if state.st_mode & 0o111 else 0o644, file, state.st_size)


def contents(root: Path, results: Path, folder: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Yield what is in a package, and why it stays here: empty if it is sent. A folder comes before its content; the order never changes.

    What is in a folder that stays here is not named. `results` is the folder of the run.
    """
    for path in sorted((folder or root).iterdir()):
        why = secret(path) or _useless(path, results) or _not_sendable(path, root)
        yield path, why
        if not why and path.is_dir() and not path.is_symlink():
            yield from contents(root, results, path)


def secrets_in(root: Path) -> Iterator[Path]:
    """Yield every file and folder of a package that nobody else may read. No link is followed: what it leads to in there is found too."""
    for here, folders, files in os.walk(root):
        found = {name for name in (*folders, *files) if secret(path := Path(here, name)) and not path.is_symlink()}
        folders[:] = [name for name in folders if name not in found]
        yield from (Path(here, name) for name in sorted(found))


def secret(path: Path) -> str:
    """Return why a file or folder of a package is nobody else's business: a file of passwords, or a repository. Empty for any other."""
    bare = all(os.path.lexists(path / name) for name in ("HEAD", "objects", "refs")) and not path.is_symlink()
    if bare or path.name in _REPOSITORIES:
        return _REPOSITORY
    return _SECRET if _SECRETS.fullmatch(path.name) else ""


def _useless(path: Path, results: Path) -> str:
    if path.is_symlink():
        return ""
    if path == results or any((path / "raw").glob("*/run.json")):
        return "holds results of a run"
    if path.name in _OF_TOOLS or path.name.endswith((".pyc", ".pyo")) or any((path / mark).exists() for mark in _MARKS):
        return "was left by a tool"
    return ""


def _not_sendable(path: Path, root: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        # It would lead nowhere there. What it leads to stays here: it may be anything of the user's.
        leads_out = path.readlink().is_absolute() or not path.resolve().is_relative_to(root)
        return "is a link out of the package" if leads_out else ""
    return "" if stat.S_ISDIR(mode) or stat.S_ISREG(mode) else "is no regular file"


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    entry = _entry(name, 0o755)
    entry.type = tarfile.DIRTYPE
    tar.addfile(entry)


def _add(tar: tarfile.TarFile, name: str, mode: int, file: IO[bytes], size: int) -> None:
    entry = _entry(name, mode)
    entry.size = size
    tar.addfile(entry, file)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, _TIME
    return entry


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(_PIECE):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()
