"""Unpack results that come from another machine, which is not believed: neither its files nor their number, names, sizes and types.

Only files and folders are made, each with the same modes, never through a link and never outside of one new folder. The files that this
machine writes about a run are not taken from anywhere else.

The archive is read here and not by tarfile, which follows what headers say: it recurses for each header before an entry, searches them with
a pattern that can take seconds, and reads sizes that no file has. This reader knows what tar, Docker and Podman send of files and folders.
Each header is bounded before it is looked at, and all of them together.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from warpwave.errors import InfrastructureError, printable
from warpwave.options import GIB
from warpwave.records import Cap

OURS = frozenset({"run.json", "inputs.json", "job.json", "engine.log", "install.log"})
"""What this machine writes into a results folder."""

_PLACE = ".incoming"
_NEVER = OURS | {_PLACE, "raw"}  # a folder `raw` has targets in it, and these are the results of one
_DEEPEST, _LONGEST, _LONGEST_PART = 40, 1000, 255
_BLOCK, _PIECE = 512, 1 << 20
_OVERHEAD = 4096  # bytes of headers and padding for each entry
_MOST_HEADER, _MOST_RECORDS = 1 << 16, 100  # of what precedes an entry, such as a long name
_MOST_BEFORE = 4  # such headers before one entry
_MOST_DIGITS = 20
_MOST_S = 3600.0
_FILES, _FOLDERS = b"0\x007", b"5"
_OTHERS = b"12346"  # links, devices and pipes, which are left out; no content follows them
_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"


class UnusableError(ValueError):
    """The archive is not one that a run sends. The text says why."""


class _Stream:
    """Pieces that arrive, as a file; no more of them than a limit, and not for ever."""

    def __init__(self, pieces: Iterable[bytes], most: int) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._held, self._left, self._most = bytearray(), most, most
        self._until = time.monotonic() + _MOST_S

    def read(self, size: int) -> bytes:
        """Return `size` bytes. Raises UnusableError if there are fewer, or it took too long."""
        while len(self._held) < size:
            if not (piece := next(self._pieces, b"")):
                raise UnusableError("they end too early" if self._left < self._most else "nothing arrived")
            self._left -= len(piece)
            if self._left < 0:
                raise UnusableError(f"they are larger than {self._most / GIB:g} GiB")
            if time.monotonic() > self._until:
                raise UnusableError(f"they did not arrive within {_MOST_S:g} s")
            self._held += piece
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    def padded(self, size: int) -> bytes:
        """Return `size` bytes, and skip those that fill the last block."""
        return self.read(size + -size % _BLOCK)[:size]


def unpack(pieces: Iterable[bytes], raw: Path, cap: Cap, where: str) -> None:
    """Replace the results in `raw` by those of an archive that arrives in pieces. If it cannot be used, `raw` stays as it was. The first
    folder of the archive's paths is that of the results there, and is dropped. Raises InfrastructureError if the archive is damaged, too
    large or hostile, and OSError if this disk is full, or the connection broke. `where` names the machine that it came from."""
    place = raw / _PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    try:
        try:
            _unpack(pieces, place, cap)
        except (UnusableError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise InfrastructureError(
                f"The results from {where} cannot be used: {printable(str(error))[:200].rstrip('.')}.",
                "They are not what a run writes: the kernels wrote something else, or that machine is not yours.",
                "Raise results_gib or results_files of `limits` in a targets file if the run needs it; otherwise look at that machine.",
            ) from None
        _move(place, raw)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def first_file(pieces: Iterable[bytes], most: int) -> bytes:
    """Return the content of the first file of an archive. Raises UnusableError if there is none of at most `most` bytes."""
    stream = _Stream(pieces, most + _MOST_BEFORE * (_MOST_HEADER + _OVERHEAD))
    _, kind, size = next(_entries(stream), ("", b"", 0))
    if not kind or kind not in _FILES or size > most:
        raise UnusableError("it does not begin with a file, or with one that is too large")
    return stream.padded(size)


def _unpack(pieces: Iterable[bytes], place: Path, cap: Cap) -> None:
    stream = _Stream(pieces, cap.bytes + _OVERHEAD * (cap.files + 1))
    made: set[tuple[str, ...]] = set()
    left = cap.bytes
    for entries, (name, kind, size) in enumerate(_entries(stream), start=1):
        left -= size
        if left < 0:
            raise UnusableError(f"they are larger than {cap.bytes / GIB:g} GiB")
        parts = _parts(name)
        wanted = bool(parts) and parts[0] not in _NEVER and kind not in _OTHERS
        folders = parts if kind in _FOLDERS else parts[:-1]
        made.update(folders[:depth] for depth in range(1, len(folders) + 1) if wanted)
        if max(entries, len(made)) > cap.files:
            raise UnusableError(f"they are more than {cap.files} files and folders")
        if wanted:
            place.joinpath(*folders).mkdir(parents=True, exist_ok=True)
        _write(stream, size, place.joinpath(*parts) if wanted and kind in _FILES else None)


def _entries(stream: _Stream) -> Iterator[tuple[str, bytes, int]]:
    """Yield the name, the kind and the size of each file, folder or other entry. What follows it is to be read before the next one."""
    told: dict[bytes, bytes] = {}
    before = 0
    while any(header := stream.read(_BLOCK)):
        size, kind = _checked(header), header[156:157]
        if kind in (_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK):
            before += 1
            if size > _MOST_HEADER or before > _MOST_BEFORE:
                raise UnusableError("an entry has an impossible size" if size > _MOST_HEADER else "too many headers precede an entry")
            content = stream.padded(size)
            if kind == _PAX:
                told |= _records(content)
            elif kind == _LONG_NAME:
                told[b"path"] = content.rstrip(b"\0")
            continue
        name = header[:100].partition(b"\0")[0]
        if header[257:263] == b"ustar\0" and (above := header[345:500].partition(b"\0")[0]):
            name = above + b"/" + name
        name, size = told.get(b"path", name), _number(told.get(b"size", b"%d" % size))
        if kind in _FILES and name.endswith(b"/"):
            kind = _FOLDERS
        if not kind or kind not in _FILES + _FOLDERS + _OTHERS:
            raise UnusableError("an entry is sparse, or of another kind that no run writes")
        yield os.fsdecode(name), kind, size if kind in _FILES else 0
        told, before = {}, 0


def _checked(header: bytes) -> int:
    total = sum(header[:148]) + 8 * 32 + sum(header[156:])
    field = header[148:156].strip(b" \0")
    if not field or field.strip(b"01234567") or int(field, 8) != total:
        raise UnusableError("they are no archive, or damaged")
    size = header[124:136]
    if size[0] == 0x80:  # base 256, for more than 8 GiB
        return _number(b"%d" % int.from_bytes(size[1:], "big"))
    digits = size.strip(b" \0")
    if digits.strip(b"01234567"):
        raise UnusableError("an entry has an impossible size")
    return int(digits or b"0", 8)


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise UnusableError("an entry has an impossible size")
    return int(digits)


def _records(content: bytes) -> dict[bytes, bytes]:
    """Return what a pax header says: records such as `20 path=run/a.txt` and a line feed, where 20 is the length of all of it."""
    found: dict[bytes, bytes] = {}
    at = count = 0
    while at < len(content):
        count += 1
        digits, space, _ = content[at : at + 8].partition(b" ")
        end = at + int(digits) if space and digits.isdigit() else 0
        key, equals, value = content[at + len(digits) + 1 : max(end, 1) - 1].partition(b"=")
        if not at < end <= len(content) or not equals or content[end - 1 : end] != b"\n" or count > _MOST_RECORDS:
            raise UnusableError("a header before an entry cannot be read")
        if key.startswith(b"GNU.sparse"):
            raise UnusableError("an entry is sparse, or of another kind that no run writes")
        found[key] = value
        at = end
    return found


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a path below the results folder. Raises UnusableError if the path leads elsewhere, or is one that no run
    writes."""
    if len(name) > _LONGEST or name.startswith("/") or "\0" in name:
        raise UnusableError("a path is absolute or too long")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > _DEEPEST or any(len(os.fsencode(part)) > _LONGEST_PART for part in parts):
        raise UnusableError("a path leads out of the results, is too deep or too long")
    return tuple(parts[1:]) if not name.startswith("./") else tuple(parts)


def _write(stream: _Stream, size: int, path: Path | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.devnull if path is None else os.open(path, flags, 0o644), "wb") as file:
        for start in range(0, size, _PIECE):
            file.write(stream.padded(min(_PIECE, size - start)))


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
