"""Results that come from another machine: what is taken of them, and every archive that no honest machine sends."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import fields, replace

import pytest
from engine_requests import ask, make_options

from warpwave.config.hosts import Host
from warpwave.config.targets import Bounds, load_targets
from warpwave.engines import snapshot
from warpwave.engines.incoming import unpack
from warpwave.engines.protocol import Answer
from warpwave.engines.remote import engine as module
from warpwave.engines.ssh.command import Place
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import RunOptions
from warpwave.records import Cap, Environment
from warpwave.run.inputs import gather

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


def test_what_only_this_machine_writes_is_never_taken(raw):
    """Not as a folder either, and there are no targets within the results of one."""
    unpack(pieces(files("run/run.json/x", "./job.json/x", "run/raw/ghost/run.json", "run/.incoming/x", "run/a")), raw, CAP, "card")

    assert tree(raw) == {"run.json": "ours", "job.json": "ours", "a": "run/a"}
    assert sorted(path.name for path in raw.iterdir()) == ["a", "job.json", "run.json"]


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
    unpack(pieces(archive((entry("run/tool", mode=0o6777, uid=0), b"x"))), raw, CAP, "card")

    assert (raw / "tool").stat().st_mode & 0o7777 == 0o644


def pax(body: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return entry("p", kind, size=len(body)).tobuf(tarfile.USTAR_FORMAT) + body + b"\0" * (-len(body) % 512)


def sized(field: bytes) -> bytes:
    """An empty file whose header has these twelve bytes for its size."""
    header = bytearray(entry("run/a").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = field
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    return bytes(header) + bytes(1024)


HOSTILE = {
    "headers before headers": pax(b"11 path=ab\n") * 3000 + files("run/a"),
    "long names before long names": pax(b"x\0", tarfile.GNUTYPE_LONGNAME) * 3000 + files("run/a"),
    "a number of 4,000 digits": pax(b"9" * 4000 + b" path=x\n") + files("run/a"),
    "records that a pattern searches for seconds": pax(b"\n" + b"1" * 64000) * 3 + files("run/a"),
    "a record that ends before it begins": pax(b"3 a=b\n") + files("run/a"),
    "a record beyond its header": pax(b"90 path=x\n") + files("run/a"),
    "many records": pax(b"6 a=b\n" * 101) + files("run/a"),
    "a size that overrides": pax(b"30 size=99999999999999999999\n") + files("run/a"),
    "a negative size that overrides": pax(b"11 size=-5\n") + files("run/a"),
    "a sparse file of pax": pax(b"21 GNU.sparse.size=99\n") + files("run/a"),
    "a size in base 256": sized(b"\x80" + b"\xff" * 11),
    "a negative size in base 256": sized(b"\xff" * 12),
    "a size that is no number": sized(b"-0000000001\0"),
    "a wrong checksum": files("run/a").replace(b"run/a", b"run/b", 1),
    "compressed": gzip.compress(files("run/a")),
    "folders that nobody counted": files("run/" + "a/" * 15 + "b", "run/" + "b/" * 15 + "b"),
    "no end": files("run/a")[:1024],
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
    with pytest.raises(InfrastructureError, match="The results from card cannot be used") as raised:
        unpack(pieces(data), raw, CAP, "card")

    assert {"results_gib", "results_files"} <= {one.name for one in fields(Bounds)} & {*raised.value.remedy.split()}
    assert tree(raw) == before
    assert sorted(path.name for path in raw.parent.iterdir()) == ["raw"]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["ustar", "gnu", "pax"])
def test_an_honest_archive_of_each_kind_is_read(raw, kind):
    """With names that need headers of their own, the times and comments that programs add, and sizes above a block."""
    deep = "run/" + "d" * 90 + "/" + ("f" * 60 if kind == tarfile.USTAR_FORMAT else "é" * 120)
    file = io.BytesIO()
    extra = {"comment": "made by a test"} if kind == tarfile.PAX_FORMAT else None
    with tarfile.open(fileobj=file, mode="w", format=kind, pax_headers=extra) as tar:
        for name in ("run/", "run/a", deep):
            made = entry(name, tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE, mtime=1.5 if extra else 1)
            made.size = 0 if name.endswith("/") else 1500
            tar.addfile(made, io.BytesIO(b"x" * made.size))
    unpack(pieces(file.getvalue(), 700), raw, CAP, "card")

    assert tree(raw) == {"run.json": "ours", "job.json": "ours", "a": "x" * 1500, deep.removeprefix("run/"): "x" * 1500}


def test_what_the_program_tar_sends_is_read(raw, tmp_path):
    there = tmp_path / "there"
    (there / "test").mkdir(parents=True)
    (there / "test" / ("n" * 200)).write_text("long")
    (there / "a").write_text("a")
    (there / "b").hardlink_to(there / "a")
    (there / "c").symlink_to("a")
    sent = subprocess.run(["tar", "-C", str(there), "-cf", "-", "."], check=True, capture_output=True).stdout
    unpack(pieces(sent), raw, CAP, "card")

    found = tree(raw)
    assert found["test/" + "n" * 200] == "long"
    assert len(found) == 4  # one of the two names of a file, beside the host's two


@pytest.mark.parametrize(
    ("first", "cap", "words"),
    [
        (entry("run/a", size=1 << 40), CAP, "larger than"),
        (entry("x", tarfile.XHDTYPE, size=1 << 30), Cap(), "impossible size"),  # tarfile would read this header whole
    ],
    ids=["content", "header"],
)
def test_an_endless_archive_ends(raw, first, cap, words):
    read = []

    def endless():
        yield first.tobuf(tarfile.GNU_FORMAT)
        while True:
            read.append(1)
            yield b"x" * 65536

    with pytest.raises(InfrastructureError, match=words):
        unpack(endless(), raw, cap, "card")

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


# The archive of a package and of what runs beside it.


@pytest.fixture
def package(tmp_path):
    """A package with everything that tools and people leave in one."""
    root = tmp_path / "my_ops"
    for name in (
        "ops.py",
        "tests/test_ops.py",
        "data/table.bin",
        ".git/config",
        ".env",
        ".netrc",
        "__pycache__/ops.cpython-311.pyc",
        "venv/pyvenv.cfg",
        "venv/bin/python",
        "out/raw/cpu/run.json",
        "cache/CACHEDIR.TAG",
        "cache/blob",
        ".hidden/kept.txt",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET" if name in (".git/config", ".env", ".netrc") else name)
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o755)
    (tmp_path / "private").write_text("SECRET")
    (root / "within").symlink_to("ops.py")
    (root / "without").symlink_to("../private")
    return root


def options(package, **more) -> RunOptions:
    return make_options("r1", package.parent / "results", package, **more)


def members(taken: snapshot.Snapshot) -> dict[str, tarfile.TarInfo]:
    with taken.open() as file, tarfile.open(fileobj=file) as tar:
        return {entry.name: entry for entry in tar}


def test_the_package_and_the_inside_are_in_it(package):
    """Without caches, environments, results, git's settings and files with passwords; with what tests may read."""
    taken = snapshot.take(options(package))
    names = {name.removeprefix("kernel-package/my_ops/") for name in members(taken) if name.startswith("kernel-package/my_ops/")}

    assert names == {"ops.py", "tests", "tests/test_ops.py", "data", "data/table.bin", ".hidden", ".hidden/kept.txt", "tool.sh", "within"}
    with taken.open() as file:
        assert b"SECRET" not in file.read()
    taken.file.close()


def test_equal_files_give_equal_bytes(package):
    """Times and owners do not count, and an edit does: the digest names the content."""
    first = snapshot.take(options(package))
    os.utime(package / "ops.py", (time.time() + 100,) * 2)
    (package / "ops.py").chmod(0o600)
    second = snapshot.take(options(package))
    (package / "ops.py").write_text("changed")
    third = snapshot.take(options(package))

    assert first.digest == second.digest != third.digest
    assert {entry.mtime for entry in members(first).values()} == {1_000_000_000}
    for taken in (first, second, third):
        taken.file.close()


def test_the_results_of_the_run_are_not_its_input(package):
    """They may be in the package; those of a shard are in the folder of the whole run."""
    before = snapshot.take(options(package))
    (package / "results" / "shards" / "1of2").mkdir(parents=True)
    whole = snapshot.take(make_options("r1", package / "results" / "shards" / "1of2", package, whole=package / "results"))

    assert whole.digest == before.digest
    for taken in (before, whole):
        taken.file.close()


def test_the_inside_starts_from_it(package, tmp_path):
    taken = snapshot.take(options(package))
    with taken.open() as file, tarfile.open(fileobj=file) as tar:
        tar.extractall(tmp_path / "there")
    taken.file.close()
    code = "import warpwave.inside.watchdog, warpwave.inside.__main__, warpwave.emulator.errors; print(warpwave.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", env={**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    )

    assert done.stdout.strip() == str(tmp_path / "there" / "warpwave" / "__init__.py"), done.stderr


def test_too_large_a_package_is_refused(package, monkeypatch):
    monkeypatch.setattr(snapshot, "_MOST_BYTES", 10)
    with pytest.raises(UsageError, match="too much to send"):
        snapshot.take(options(package))


# What belongs to one machine stays with it: its proxies, its driver and its cards.


def test_a_build_there_gets_the_proxies_there(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.home")
    monkeypatch.setattr(module, "answer_of", lambda *_: Answer("HOME=/x\nhttp_proxy=http://proxy.there\nNO_PROXY=a=b\nTOKEN=x\n"))
    engine = module.RemoteEngine.__new__(module.RemoteEngine)
    engine._place = Place("card", "card")

    assert engine._proxies() == {"http_proxy": "http://proxy.there", "NO_PROXY": "a=b"}


@pytest.mark.parametrize(("name", "here"), [("docker", True), ("local", True), ("ssh", False), ("slurm", False)])
def test_a_driver_update_here_is_no_change_of_a_leg_elsewhere(name, here, tmp_path):
    driver = tmp_path / "version"
    target = load_targets()["cuda"]
    target = replace(target, probe=replace(target.probe, driver_file=str(driver)))
    request = ask(target, tmp_path, tmp_path, "run", host=None if here else Host(name="cuda", target="cuda", ssh="a"))
    found = []
    for version in ("570.1", "580.2"):
        driver.write_text(version)
        found.append(gather(request, Environment(engine=name, python="python3", image="x")).facts)

    assert (found[0] != found[1]) is here
