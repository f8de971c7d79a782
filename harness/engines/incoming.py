"""Unpack results that come from another machine, which is not believed: neither its files nor their number, names, sizes and types.

Only files and folders are made, each with the same modes, never through a link and never outside of one new folder. The files that this
machine writes about a run are not taken from anywhere else.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from harness.errors import InfrastructureError
from harness.options import GIB, Cap

OURS = frozenset({"run.json", "inputs.json", "job.json", "engine.log", "install.log"})
"""What this machine writes into a results folder."""

_PLACE = ".incoming"
_DEEPEST, _LONGEST = 40, 1000
_MOST_HEADER = 1 << 16  # tarfile reads what precedes an entry, such as a long name, into memory at once
_PIECE = 1 << 20
_EXTENDED = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK})


class _Entry(tarfile.TarInfo):
    """An entry whose header cannot make us read much."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        """Read a header, and refuse sizes that no honest archive has."""
        entry = super().frombuf(buf, encoding, errors)
        if entry.size < 0 or (entry.type in _EXTENDED and entry.size > _MOST_HEADER):
            raise tarfile.ReadError("an entry has an impossible size")
        return entry


class _Stream:
    """Pieces that arrive, as a file that tarfile can read; no more of them than a limit."""

    def __init__(self, pieces: Iterable[bytes], most: int) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._held, self._left, self._most = b"", most, most

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes."""
        while len(self._held) < size and (piece := next(self._pieces, b"")):
            self._left -= len(piece)
            if self._left < 0:
                raise tarfile.ReadError(f"they are larger than {self._most / GIB:g} GiB")
            self._held += piece
        found, self._held = self._held[:size], self._held[size:]
        return found


def unpack(pieces: Iterable[bytes], raw: Path, cap: Cap, where: str) -> None:
    """Replace the results in `raw` by those of an archive that arrives in pieces. If it cannot be used, `raw` stays as it was.

    The first folder of the archive's paths is that of the results there, and is dropped.

    Raises:
        InfrastructureError: the archive is damaged, too large or hostile. `where` names the machine that it came from.
        OSError: this disk is full, or the connection broke.
    """
    place = raw / _PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    try:
        try:
            _unpack(pieces, place, cap)
        except (tarfile.TarError, EOFError, ValueError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _unusable(where, str(error)) from None
        _move(place, raw)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _unpack(pieces: Iterable[bytes], place: Path, cap: Cap) -> None:
    # Headers and padding come on top of the files, at most three blocks for each.
    stream: Any = _Stream(pieces, cap.bytes + 4096 * (cap.files + 1))
    entries = 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry, bufsize=_PIECE) as archive:
        for entry in archive:
            entries += 1
            if entries > cap.files:
                raise tarfile.ReadError(f"they are more than {cap.files} files and folders")
            parts = _parts(entry.name)
            if entry.issparse():
                raise tarfile.ReadError("an entry is sparse")
            if not parts or (len(parts) == 1 and parts[0] in OURS):
                continue
            if entry.isdir():
                place.joinpath(*parts).mkdir(parents=True, exist_ok=True)
            elif entry.isreg() and (content := archive.extractfile(entry)) is not None:
                path = place.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, content)
    if not entries:
        raise EOFError("nothing arrived")


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a path below the results folder.

    Raises:
        tarfile.ReadError: the path leads elsewhere, or is one that no run writes.
    """
    if len(name) > _LONGEST or name.startswith("/") or "\0" in name:
        raise tarfile.ReadError("a path is absolute or too long")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > _DEEPEST:
        raise tarfile.ReadError("a path leads out of the results, or is too deep")
    return tuple(parts[1:]) if not name.startswith("./") else tuple(parts)


def _write(path: Path, content: IO[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:
        while piece := content.read(_PIECE):
            file.write(piece)


def _move(place: Path, raw: Path) -> None:
    """Put what has arrived in the place of what was there before. Everything is on one disk, so no step can leave half a file."""
    arrived = {path.name for path in place.iterdir()}
    for path in list(raw.iterdir()):
        if path.name != _PLACE and path.name not in OURS | arrived:
            _remove(path)
    for name in sorted(arrived):
        _remove(raw / name)
        (place / name).rename(raw / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def _unusable(where: str, why: str) -> InfrastructureError:
    text = "".join(character if character.isprintable() else "?" for character in why)[:200].rstrip(".")
    return InfrastructureError(
        f"The results from {where} cannot be used: {text}.",
        "What comes back from another machine is not believed. Either the kernels wrote what no run writes, or that machine is not yours.",
        "Raise --results-limit or --results-files if the run needs it; otherwise look at that machine.",
    )
