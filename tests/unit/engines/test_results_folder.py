"""What stays of a results folder after the code under test had it: files and folders of its own, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from warpwave.engines import results
from warpwave.engines.results import clear, make_portable, tidy


@pytest.fixture
def outside(tmp_path):
    """A folder of the host's, with a file in it, which nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("untouched")
    (folder / "file").chmod(0o4640)
    (folder / "link").symlink_to("file")
    yield folder
    assert sorted(path.name for path in folder.iterdir()) == ["file", "link"]
    assert ((folder / "file").read_text(), stat.S_IMODE((folder / "file").stat().st_mode)) == ("untouched", 0o4640)


@pytest.fixture
def raw(tmp_path):
    """An empty results folder."""
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def test_nothing_but_files_and_folders_stays(raw, outside):
    """Links to files, folders and nothing, in closed folders too; pipes, sockets."""
    closed = raw / "closed"
    closed.mkdir()
    for number, target in enumerate((outside / "file", outside, "/nowhere", ".")):
        (closed / f"link{number}").symlink_to(target)
    os.mkfifo(raw / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(raw / "s"))
    (closed / "kept").write_text("x")
    closed.chmod(0)

    assert clear(raw) == []
    assert sorted(path.relative_to(raw).as_posix() for path in raw.rglob("*")) == ["closed", "closed/kept"]
    listening.close()


def test_a_hard_link_to_the_host_is_no_result(raw, outside):
    """Nor is the file that it names changed; of two names in the folder one stays."""
    os.link(outside / "file", raw / "linked")
    (raw / "a").write_text("one")
    os.link(raw / "a", raw / "b")
    tidy(raw)

    assert len([path.name for path in raw.iterdir()]) == 1
    assert next(raw.iterdir()).read_text() == "one"


def test_a_folder_that_is_exchanged_for_a_link_is_not_entered(raw, outside, monkeypatch):
    """Code that still runs swaps them after they were listed: what is behind the link stays as it is."""
    (raw / "folder").mkdir()
    listed = os.scandir

    def swap(folder):
        found = listed(folder)
        if (raw / "folder").is_dir() and not (raw / "folder").is_symlink():
            found = list(found)
            [entry.is_dir(follow_symlinks=False) for entry in found]
            (raw / "folder").rename(raw / "other")
            (raw / "folder").symlink_to(outside)
            return _Listing(found)
        return found

    monkeypatch.setattr(results.os, "scandir", swap)
    tidy(raw)
    monkeypatch.undo()
    clear(raw)
    assert [path.name for path in raw.iterdir()] == ["other"]


class _Listing(list):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_names_that_no_artifact_can_hold_are_changed(raw):
    """The upload would refuse all of the folder for one of them. What cannot be read is opened."""
    for name in ("a:b", "new\nline", "c?*", 'q"', os.fsdecode(b"\xff"), "plain.json"):
        (raw / name).write_text(name, errors="surrogateescape")
    (raw / "plain.json").chmod(0)
    (raw / "d|e").mkdir()
    (raw / "d|e" / "f<g>").touch()
    make_portable(raw)
    names = [part for path in raw.rglob("*") for part in path.relative_to(raw).parts]

    assert "plain.json" in names
    assert (raw / "plain.json").stat().st_mode & 0o400
    assert len(list(raw.rglob("*"))) == 8
    assert not [name for name in names if not name.isprintable() or set(name) & set('":<>|*?\\')]


def test_a_name_that_is_a_link_itself_is_refused(raw, tmp_path, outside):
    """The folder that is asked for is never one that somebody has put in its place."""
    link = tmp_path / "link"
    link.symlink_to(outside)
    tidy(link)
    clear(link)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_all_of_it_changes_owner_and_nothing_else_does(raw, outside):
    """Deep folders that are brought up too."""
    folder = os.open(raw, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 50, dir_fd=folder)
        folder, above = os.open("d" * 50, os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    (raw / "link").symlink_to(outside)
    tidy(raw, (7, 8))

    assert {(path.stat().st_uid, path.stat().st_gid) for path in (raw, *raw.rglob("*"))} == {(7, 8)}
    assert Path(outside, "file").stat().st_uid != 7
