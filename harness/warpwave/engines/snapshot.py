"""Pack the package and the inside into one archive, for an engine that shares no folder with this machine. Equal files give equal bytes, so
the SHA-256 of the archive names them: legs of one run show the same one, and a machine that has it already gets it only once. What a
container would not see stays out, and so do the files in which tools keep passwords."""

import atexit
import hashlib
import io
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
        return reopened(self.file)


def reopened(file: IO[bytes]) -> IO[bytes]:
    """Open a file without a name once more, at its beginning."""
    return open(f"/proc/self/fd/{file.fileno()}", "rb")


_taken: dict[tuple[Path, Path], Snapshot] = {}


def take_once(options: RunOptions) -> Snapshot:
    """Pack the package of a run, or return the archive that this process, or the one that forked it, has made for the run already."""
    key = (options.package.folder, options.where.folder)
    if key not in _taken:
        _taken[key] = take(options)
        atexit.register(_taken[key].file.close)
    return _taken[key]


def take(options: RunOptions) -> Snapshot:
    """Pack the package of a run, and what of warpwave runs beside it. The caller closes the file. Raises UsageError if a file cannot be
    read, or the package is too large, and InfrastructureError if the disk has no room for the archive."""
    with packing("The package", time=_TIME) as pack:
        _add_harness(pack)
        _add_package(pack, options)
        pack.file(COMPLETE, io.BytesIO(), 0)
    digest = hashlib.sha256()
    while piece := pack.stream.read(_PIECE):
        digest.update(piece)
    size = pack.stream.tell()
    pack.stream.seek(0)
    return Snapshot(pack.stream, digest.hexdigest(), size)


@dataclass(frozen=True)
class Pack:
    """A tar file that is being written. Its entries have one owner and one time, so that equal content gives equal bytes."""

    stream: IO[bytes]
    tar: tarfile.TarFile
    owner: tuple[int, int]
    time: int

    def folder(self, name: str, mode: int = 0o755) -> None:
        """Add a folder, without its content."""
        entry = self._entry(name, mode)
        entry.type = tarfile.DIRTYPE
        self.tar.addfile(entry)

    def file(self, name: str, content: IO[bytes], size: int, mode: int = 0o644) -> None:
        """Add a file with `size` bytes of `content`."""
        entry = self._entry(name, mode)
        entry.size = size
        self.tar.addfile(entry, content)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        entry = self._entry(name, 0o777)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self.tar.addfile(entry)

    def _entry(self, name: str, mode: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)
        entry.mode, entry.mtime, (entry.uid, entry.gid) = mode, self.time, self.owner
        return entry


@contextmanager
def packing(what: str, owner: tuple[int, int] = (0, 0), time: int = 0) -> Iterator[Pack]:
    """Write a tar file to a file on disk that has no name: a wheelhouse or a package may be too large for memory. The caller closes it. At
    the end of the block it is complete, and at its beginning. Raises UsageError if a file cannot be read, and InfrastructureError if the
    disk has no room for it. `what` begins the message."""
    stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it, which removes it
    try:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            yield Pack(stream, tar, owner, time)
        stream.seek(0)
    except BaseException as error:
        stream.close()
        if not isinstance(error, OSError):
            raise
        if error.filename:
            happened, meaning = f"{error.filename} cannot be read: {error.strerror}.", "It goes to the engine, or to another machine."
            raise UsageError(happened, meaning, "Make it readable, or remove it.") from None
        happened = f"{what} could not be packed: {error.strerror}."
        meaning = f"The archive is written to {tempfile.gettempdir()}, which is full or too small."
        raise InfrastructureError(happened, meaning, "Make room there, or set TMPDIR to a folder with room.") from None


def _add_harness(pack: Pack) -> None:
    root = Path(warpwave.__file__).parent
    pack.folder(HARNESS)
    for name in _WHAT_RUNS:
        top = root / name
        for path in [top] if top.is_file() else [top, *sorted(top.rglob("*"))]:
            inside = f"{HARNESS}/{path.relative_to(root).as_posix()}"
            if "__pycache__" in path.parts:
                continue
            if path.is_dir():
                pack.folder(inside)
            elif path.is_file():
                with path.open("rb") as file:
                    pack.file(inside, file, os.fstat(file.fileno()).st_size)


def _add_package(pack: Pack, options: RunOptions) -> None:
    root, left = options.package.folder.resolve(), _MOST_BYTES
    top = f"{PACKAGE}/{root.name}"
    for folder in (PACKAGE, top):
        pack.folder(folder)
    for path, why in contents(root, options.where.folder.resolve()):
        if why:
            continue
        inside, state = f"{top}/{path.relative_to(root).as_posix()}", path.lstat()
        if stat.S_ISDIR(state.st_mode):
            pack.folder(inside)
        elif stat.S_ISLNK(state.st_mode):
            pack.link(inside, str(path.readlink()))
        else:
            left -= state.st_size
            if left < 0:
                happened = f"The package {root.name} has more than {_MOST_BYTES / GIB:g} GiB, too much to send to another machine."
                meaning = "Everything in its folder goes there, because warpwave cannot know which data its tests read."
                raise UsageError(happened, meaning, "Give a smaller folder with --kernels, or move data out of it.")
            with path.open("rb") as file:
                pack.file(inside, file, state.st_size, 0o755 if state.st_mode & 0o111 else 0o644)


def contents(root: Path, results: Path, folder: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Yield what is in a package, and why it stays here: empty if it is sent. A folder comes before its content; the order never changes.
    What is in a folder that stays here is not named. `results` is the folder of the run."""
    for path in sorted((folder or root).iterdir()):
        why = secret(path) or _useless(path, results) or _not_sendable(path, root)
        yield path, why
        if not why and path.is_dir() and not path.is_symlink():
            yield from contents(root, results, path)


def secrets_in(root: Path) -> Iterator[Path]:
    """Yield every file and folder of a package that may hold secrets. No link is followed: what it leads to in there is found too."""
    for here, folders, files in os.walk(root):
        found = {name for name in (*folders, *files) if secret(path := Path(here, name)) and not path.is_symlink()}
        folders[:] = [name for name in folders if name not in found]
        yield from (Path(here, name) for name in sorted(found))


def secret(path: Path) -> str:
    """Return why a file or folder of a package stays here: it may hold passwords, or is a repository. Empty for any other."""
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
