"""The archive of a package and of what runs beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time

import pytest

from warpwave.engines import snapshot
from warpwave.errors import UsageError
from warpwave.options import RunOptions


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
    return RunOptions("r1", package.parent / "results", package, **more)


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
    whole = snapshot.take(RunOptions("r1", package / "results" / "shards" / "1of2", package, whole=package / "results"))

    assert whole.digest == before.digest
    for taken in (before, whole):
        taken.file.close()


def test_the_inside_starts_from_it(package, tmp_path):
    """Unpacked, it is all that the guard and the inside import of warpwave."""
    taken = snapshot.take(options(package))
    with taken.open() as file, tarfile.open(fileobj=file) as tar:
        tar.extractall(tmp_path / "there")
    taken.file.close()
    code = "import warpwave.inside.watchdog, warpwave.inside.__main__, warpwave.emulator.errors; print(warpwave.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", env={**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    )

    assert done.stdout.strip() == str(tmp_path / "there" / "warpwave" / "__init__.py"), done.stderr


def test_legs_of_one_run_share_it(package, monkeypatch):
    """It is taken once for all of them, and each reads it from its beginning."""
    monkeypatch.setattr(snapshot, "_taken", {})
    first, second = snapshot.take_once(options(package)), snapshot.take_once(options(package))
    with first.open() as one, second.open() as other:
        assert one.read() == other.read()

    assert first is second
    first.file.close()


def test_too_large_a_package_is_refused(package, monkeypatch):
    """Before hours of sending, and with what to do."""
    monkeypatch.setattr(snapshot, "_MOST_BYTES", 10)
    with pytest.raises(UsageError, match="too much to send"):
        snapshot.take(options(package))
