"""The result files of a stage, and the hashes of what its process wrote: later changes by others are detected.

Only the process that supervises a stage writes its results, never the package's process. It keeps the SHA-256 of what it wrote, and sends
it to the inside over a pipe that no worker has. Then the inside ends leftover processes of the package, and checks the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from warpwave.inside.process.forks import prctl
from warpwave.inside.process.journal import emit
from warpwave.records import Job, StageReport, dump, write_text

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_PATIENCE_S, _PAUSE_S = 5.0, 0.005

_written: dict[Path, Any] = {}  # a hash object per file


def replace(path: Path, text: str) -> None:
    """Write a whole file."""
    write_text(path, text)
    _written[path] = hashlib.sha256(text.encode())


def append(path: Path, line: str) -> None:
    """Append a line."""
    data = f"{line}\n".encode()
    with open(path, "ab") as file:
        file.write(data)
    _written.setdefault(path, hashlib.sha256()).update(data)


def remove(path: Path) -> None:
    """Remove the file of an interrupted run, to write it anew."""
    path.unlink(missing_ok=True)
    _written.pop(path, None)


def close(report: StageReport, job: Job) -> None:
    """Finish the stage: write its report with the hashes of its files, and send it to the inside."""
    files = {path.relative_to(job.output).as_posix(): digest.hexdigest() for path, digest in sorted(_written.items())}
    report = dataclasses.replace(report, files=files)
    dump(report, Path(job.output) / report.stage.value / "report.json")
    emit("report", report=dataclasses.asdict(report))


def changed(report: StageReport, output: Path) -> list[str]:
    """Return the files of a report that are not what its stage wrote."""
    return [name for name, digest in report.files.items() if digest_of(output / name) != digest]


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a regular file; None if it is missing, or a link or pipe replaced it."""
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


def adopt() -> None:
    """Make the inside adopt orphans, such as daemons of the package. Linux only."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap(*but: int) -> None:
    """Reap orphans that have ended. `but` are children that someone else waits for."""
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and found.si_pid not in but:
            os.waitpid(found.si_pid, os.WNOHANG)


def end_orphans(*but: int) -> None:
    """Kill every remaining child except `but`, and their orphans. Give up on those that hang in a driver."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is no child at all: to ask each process of a large machine takes 0.1 s
        return
    until = time.monotonic() + _PATIENCE_S
    while (left := [pid for pid in _children() if pid not in but]) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name, in brackets, may contain anything.
                if int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found
