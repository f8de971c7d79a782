"""The recorded run is small in a clone, and packed so that anybody can check it."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

from recorded import ARCHIVE, recorded

REPOSITORY = Path(__file__).parents[3]
sys.path.append(str(REPOSITORY / "tools"))

from pack import pack


def test_the_recorded_run_takes_at_most_two_megabytes():
    """Every clone carries it."""
    files = [path for path in (REPOSITORY / "reports").rglob("*") if path.is_file() and "runs" not in path.relative_to(REPOSITORY).parts]

    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert sorted(path.name for path in ARCHIVE.parent.iterdir()) == ["comparison.html", "recorded.tar.xz"]


def test_the_same_files_give_the_same_archive(tmp_path):
    """Another machine, time, mode and order of the files change nothing; journals and logs are left out."""
    archives = []
    for name, order in (("one", 1), ("two", -1)):
        folder = tmp_path / name
        for path in ("comparison.json", "raw/a/run.json", "raw/a/bench/journal.jsonl", "raw/a/log.txt", "plots/a.svg", "raws/b")[::order]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(path)
            os.utime(folder / path, (order + 9, order + 9))
            (folder / path).chmod(0o600 if order == 1 else 0o755)
        archives.append(tmp_path / f"{name}.tar.xz")
        assert pack(folder, archives[-1], ["raw", "comparison.json"]) == ["comparison.json", "raw/a/run.json"]
        assert pack(folder, folder / "all.tar.xz") == ["comparison.json", "plots/a.svg", "raw/a/run.json", "raws/b"]
        assert pack(folder, folder / "all.tar.xz") == ["comparison.json", "plots/a.svg", "raw/a/run.json", "raws/b"]

    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_the_archive_holds_what_pack_would_pack(tmp_path):
    """Nothing was added by hand: the same names, contents, modes and times."""
    pack(recorded(), tmp_path / "again.tar.xz", ["raw", "comparison.json"])
    entries = []
    for path in (ARCHIVE, tmp_path / "again.tar.xz"):
        with tarfile.open(path) as packed:
            entries.append([(entry.name, entry.mode, entry.mtime, entry.uid, packed.extractfile(entry).read()) for entry in packed])

    assert entries[0] == entries[1]
