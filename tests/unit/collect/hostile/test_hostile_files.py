"""Files that would take all memory or time, and folders with surprises: read within limits, or refused with a sentence."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import heavy
import pytest
from click.testing import CliRunner
from strategies import NAMES
from synthetic import run, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import collect, find_raw, untrusted
from warpwave.collect import raw_folder as collecting
from warpwave.errors import InvalidInputError
from warpwave.report import WRITERS, write_report

REPOSITORY = Path(__file__).parents[4]
GIB, MOST_MIB, MOST_CPU_S = 1 << 30, 512, 100


def limits() -> None:
    """Limit the process that reads, so that a file cannot take down the machine that runs the tests."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))


@pytest.mark.slow
@pytest.mark.parametrize("name", heavy.NAMES)
def test_no_file_takes_all_memory_or_forever(name, tmp_path):
    """Below 512 MiB of memory and a limit of CPU time, whatever it holds; the message names no Python type."""
    heavy.write(name, tmp_path)
    command = [sys.executable, heavy.__file__, name, str(tmp_path)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")},
        preexec_fn=limits,
        capture_output=True,
        text=True,
        check=False,
    )
    (tmp_path / "file").unlink()

    assert done.returncode == 0, done.stderr
    peak = re.match(r"(\d+) MiB, ", done.stdout)
    assert peak, done.stdout
    assert int(peak[1]) < MOST_MIB, done.stdout
    assert "Error" not in done.stdout


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb", b"\x1b[2J", "é".encode(), b"x" * 200, b"=1+1", b"<script>"])
def test_a_folder_may_be_called_anything(tmp_path, name):
    """It replaces the target's name if run.json has none. Even bytes that are no text can be written to a report."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/raw/" + name))
    folder.mkdir(parents=True)

    comparison = write_report([tmp_path], tmp_path / "out")

    assert [problem for problem in comparison.problems if "not written" in problem] == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(WRITERS)
    assert len(comparison.targets[0].target) < 150


@pytest.mark.parametrize("parent", ["raw", "artifacts"])
def test_a_forest_of_folders_is_refused(tmp_path, parent, monkeypatch):
    """The search ends, and says so."""
    monkeypatch.setattr(collecting, "MAX_FOLDERS", 5)
    for number in range(6):
        (tmp_path / parent / str(number)).mkdir(parents=True)

    with pytest.raises(InvalidInputError, match="more than 5 folders"):
        find_raw([tmp_path])


@pytest.mark.parametrize("kind", ["device", "socket", "directory link", "absolute link", "dangling link", "link to itself"])
def test_nothing_but_a_regular_file_is_opened(tmp_path, kind, monkeypatch):
    """A device is not even opened: opening alone has an effect on some."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    path = raw / "facts.json"
    path.unlink()
    if kind == "device":
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root can make a device node")
    elif kind == "socket":
        import socket

        monkeypatch.chdir(raw)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("facts.json")
    else:
        targets = {
            "directory link": raw,
            "absolute link": Path("/proc/self/environ"),
            "dangling link": Path("nowhere"),
            "link to itself": path,
        }
        path.symlink_to(targets[kind])
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *more, **keywords: opened.append(name) or real(name, *more, **keywords))

    found = collect(raw)

    assert found.facts is None
    assert found.problems[0].startswith("facts.json: invalid: it is")
    assert "facts.json" not in opened


def test_a_folder_exchanged_for_a_link_is_not_followed(tmp_path, monkeypatch):
    """A link cannot replace the folder between the check and its use."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    (raw / "test").rename(tmp_path / "elsewhere")
    (raw / "test").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(untrusted, "_refuse_link", lambda part, at: os.stat(part, dir_fd=at).st_mode)

    assert collect(raw).cases == ()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_inert(tmp_path, name):
    """A run's reason, an error, and JSON on standard output go to job logs too."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    (raw / "run.json").write_text(json.dumps({**json.loads((raw / "run.json").read_text()), "label": name, "reason": name, "hint": name}))
    for words in (
        ["report", str(tmp_path)],
        ["report", str(tmp_path), "--json"],
        ["report", str(tmp_path / "no" / name[:100].replace("\0", ""))],
    ):
        with CliRunner().isolation() as (out, err, *_):
            _run_cli(words)
            told = out.getvalue().decode() + err.getvalue().decode()

        assert {character for character in told if not character.isprintable()} <= {"\n"}
        assert not re.search(r"^\s*::(error|set-output|stop-commands)|##\[", told, re.MULTILINE)


UNPACKERS = {"tarfile", "zipfile", "gzip", "bz2", "lzma", "zlib", "shutil.unpack_archive", "pickle", "marshal", "shelve"}


def test_no_archive_is_ever_read():
    """Results come from a mount, artifacts as folders: there is no reader of zip, tar or pickle for them. Build contexts are only written.

    A wheel's metadata is read where the wheel was just built. A layer's list of packages and the results of a job on another machine arrive
    as a stream of tar, which `incoming.py` alone reads, without tarfile and within limits; the others pack what goes there. A page
    packs its data, which the browser unpacks, and the emulator keeps decoded code in its own cache.
    """
    found = {}
    for path in sorted((REPOSITORY / "harness").rglob("*.py")):
        source = path.read_text()
        nodes = list(ast.walk(ast.parse(source)))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {f"{node.module}" for node in nodes if isinstance(node, ast.ImportFrom)}
        if names & UNPACKERS or "get_archive" in source or "unpack_archive" in source or "extractall" in source:
            found[path.relative_to(REPOSITORY).as_posix()] = names & UNPACKERS

    assert found == {
        "harness/warpwave/emulator/program.py": {"zlib"},
        "harness/warpwave/render/html/shell.py": {"zlib"},
        "harness/warpwave/engines/docker/images.py": {"tarfile"},
        "harness/warpwave/engines/remote/files.py": {"tarfile"},
        "harness/warpwave/engines/slurm/submit.py": {"tarfile"},
        "harness/warpwave/engines/snapshot.py": {"tarfile"},
        "harness/warpwave/engines/packages/installing/requirements.py": {"zipfile"},
    }
    context = (REPOSITORY / "harness/warpwave/engines/docker/images.py").read_text()
    assert re.findall(r"tarfile\.open\(.*?\)", context) == ['tarfile.open(fileobj=file, mode="w")']
