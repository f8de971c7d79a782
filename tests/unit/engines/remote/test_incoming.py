"""Results that come from another machine: what is taken of them, and every archive that no honest machine sends."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from harness.engines.incoming import unpack
from harness.errors import InfrastructureError
from harness.options import Cap

CAP = Cap(bytes=1 << 20, files=20)


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, **more) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, size
    for key, value in more.items():
        setattr(made, key, value)
    return made


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for made, content in entries:
            made.size = made.size or len(content)
            tar.addfile(made, io.BytesIO(content))
    return file.getvalue()


def files(*names: str) -> bytes:
    return archive(*((entry(name), name.encode()) for name in names))


def pieces(data: bytes, size: int = 1000):
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.fixture
def raw(tmp_path):
    """A results folder with the host's own records, and what an earlier attempt has left."""
    raw = tmp_path / "raw"
    (raw / "test").mkdir(parents=True)
    for name in ("run.json", "job.json", "stages.json", "test/journal", "old"):
        (raw / name).write_text("ours")
    return raw


def tree(folder) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_results_take_the_place_of_what_was_there(raw):
    """What arrived is there, what it does not have is gone, and the host's records are its own."""
    unpack(pieces(files("run/stages.json", "run/test/log.txt", "run/run.json", "run/inputs.json")), raw, CAP, "card")

    assert tree(raw) == {
        "run.json": "ours",
        "job.json": "ours",
        "stages.json": "run/stages.json",
        "test/log.txt": "run/test/log.txt",
    }


def test_a_record_of_ours_in_a_folder_is_a_file_like_any_other(raw):
    """Only at the top does run.json mean the host's record."""
    unpack(pieces(files("run/test/run.json")), raw, CAP, "card")

    assert tree(raw)["test/run.json"] == "run/test/run.json"


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE],
    ids=["link", "hard", "fifo", "char", "block"],
)
def test_only_files_and_folders_are_made(raw, kind):
    """A link, a pipe or a device is left out, and nothing is written through it."""
    bad = entry("run/facts", kind, linkname="../../outside")
    unpack(pieces(archive((bad, b""), (entry("run/facts.json"), b"{}"))), raw, CAP, "card")

    assert tree(raw) == {"run.json": "ours", "job.json": "ours", "facts.json": "{}"}
    assert not os.path.lexists(raw / "facts")


def test_modes_and_owners_are_not_theirs(raw):
    """A program with the rights of its owner cannot be planted."""
    unpack(pieces(archive((entry("run/tool", mode=0o6777, uid=0), b"x"))), raw, CAP, "card")

    assert (raw / "tool").stat().st_mode & 0o7777 == 0o644


HOSTILE = {
    "a path that leads out": files("run/../../run.json"),
    "an absolute path": files("/etc/cron.d/x"),
    "a file in a link's place": archive((entry("run/a", tarfile.DIRTYPE), b""), (entry("run/a"), b"x")),
    "a file that is a folder": archive((entry("run/a"), b"x"), (entry("run/a/b"), b"x")),
    "the same file twice": files("run/a", "run/a"),
    "too deep": files("run/" + "a/" * 50 + "b"),
    "too long": files("run/" + "a" * 2000),
    "too many": files(*(f"run/{number}" for number in range(21))),
    "too large": archive((entry("run/a"), b"x" * (2 << 20))),
    "nothing": b"",
    "no archive": b"HTTP/1.1 200 OK" * 100,
    "cut short": files("run/a", "run/b")[:700],
    "a sparse file": archive((entry("run/a", tarfile.GNUTYPE_SPARSE), b"x" * 512)),
    "a header of a gigabyte": entry("x", tarfile.XHDTYPE, size=1 << 30).tobuf(tarfile.GNU_FORMAT),
    "a negative size": entry("run/a", size=-512).tobuf(tarfile.GNU_FORMAT),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_changes_nothing(raw, data):
    """It is refused in words that name the machine, and the folder is as it was."""
    before = tree(raw)
    with pytest.raises(InfrastructureError, match="The results from card cannot be used"):
        unpack(pieces(data), raw, CAP, "card")

    assert tree(raw) == before
    assert sorted(path.name for path in raw.parent.iterdir()) == ["raw"]


def test_an_endless_archive_ends(raw):
    """Reading stops at the limit, whatever the headers promise."""
    read = []

    def endless():
        yield entry("run/a", size=1 << 40).tobuf(tarfile.GNU_FORMAT)
        while True:
            read.append(1)
            yield b"x" * 65536

    with pytest.raises(InfrastructureError, match="larger than"):
        unpack(endless(), raw, CAP, "card")

    assert len(read) < 40


def test_a_header_cannot_make_us_read_much(raw):
    """tarfile reads an extended header whole, before it knows the entry: a gigabyte of it would be a gigabyte of memory."""
    read = []

    def long():
        yield entry("x", tarfile.XHDTYPE, size=1 << 30).tobuf(tarfile.GNU_FORMAT)
        for _ in range(200):
            read.append(1)
            yield b"x" * 65536

    with pytest.raises(InfrastructureError, match="impossible size"):
        unpack(long(), raw, Cap(), "card")

    assert len(read) < 40


def test_a_broken_connection_is_no_hostile_archive(raw):
    """It is an error of the connection, for which the caller tries again; the folder is as it was."""
    before = tree(raw)

    def breaks():
        yield files("run/a")[:1024]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        unpack(breaks(), raw, CAP, "card")

    assert tree(raw) == before
