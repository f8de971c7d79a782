"""The files of a stage, and what its process wrote to them: whoever changes them behind its back is found out.

The process that supervises a stage writes its results, never the package's own. It keeps the SHA-256 of what it wrote and gives it to the
inside over a pipe that no worker has. Only then are leftovers of the package ended, and the files looked at.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.inside.process.events import emit
from harness.records import Job, StageReport, dump, write_text

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36  # <linux/prctl.h>
_PATIENCE_S, _PAUSE_S = 5.0, 0.005

_written: dict[Path, Any] = {}  # a hash object a file


def replace(path: Path, text: str) -> None:
    """Write a whole file anew."""
    write_text(path, text)
    _written[path] = hashlib.sha256(text.encode())


def append(path: Path, line: str) -> None:
    """Add a line."""
    data = f"{line}\n".encode()
    with open(path, "ab") as file:
        file.write(data)
    _written.setdefault(path, hashlib.sha256()).update(data)


def remove(path: Path) -> None:
    """Begin a file anew: it is that of a run that is taken up again."""
    path.unlink(missing_ok=True)
    _written.pop(path, None)


def close(report: StageReport, job: Job) -> None:
    """The stage's last word: its report, with what it wrote, to its folder and to the inside."""
    files = {path.relative_to(job.output).as_posix(): digest.hexdigest() for path, digest in sorted(_written.items())}
    report = dataclasses.replace(report, files=files)
    dump(report, Path(job.output) / report.stage.value / "report.json")
    emit("report", report=dataclasses.asdict(report))


def changed(report: StageReport, output: Path) -> list[str]:
    """The files of a report that are not what its stage wrote."""
    return [name for name, digest in report.files.items() if digest_of(output / name) != digest]


def digest_of(path: Path) -> str | None:
    """The SHA-256 of a regular file; None where there is none, or where a link or a pipe was put in its place."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def shut() -> None:
    """Called by what supervises: a process of the same user can then neither read its memory nor use its open files. Linux only."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt() -> None:
    """Called by the inside: what loses its parent becomes its child, daemons of the package among them. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap(but: int) -> None:
    """Clear away orphans that have ended by themselves; `but` is a child that somebody waits for."""
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and found.si_pid != but:
            os.waitpid(found.si_pid, os.WNOHANG)


def end_orphans(but: int) -> None:
    """End every child that is left, and what thereby becomes one. What hangs in a driver is given up after a while; `but` is not ours."""
    until = time.monotonic() + _PATIENCE_S
    while (left := [pid for pid in _children() if pid != but]) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    """The processes whose parent is this one."""
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name, in brackets, may hold anything.
                if int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
