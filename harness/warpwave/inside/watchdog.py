"""The first process of a container on another machine. It ends the run at its limits, also when no client is connected.

`warpwave.inside.watchdog SECONDS GRACE BYTES FILES OUTPUT/job.json`, started by `isolated`. Nobody else there measures the results or
ends the container. The kernel lets no process of a container stop or kill its first process, and no other process of the user can look
into it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from warpwave.inside.process import forks
from warpwave.records import OVERFULL, OVERTIME
from warpwave.records.isolated import isolated

_STOP = ".stop"
_TICK_S = 0.1
_LOOK_S = 2.0  # between two measurements of the results
_SHARE = 4  # measuring takes at most one part in four of the time
_WRITING_S = 10.0  # a short grace: the run may be filling the disk


class Guard:
    """Runs a command, passes signals on to it, and ends it at a limit."""

    def __init__(self, command: list[str]) -> None:
        """Start the command."""
        self._process = subprocess.Popen(command)
        self._code: int | None = None
        self._asked = False

    def pass_on(self, number: int, frame: object) -> None:
        """Send a signal to the command."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def heed(self, request: Path) -> None:
        """Pass a request to stop on that comes as a file, where a runtime passes no signal on."""
        if not self._asked and request.exists():
            self._asked = True
            self.pass_on(signal.SIGTERM, None)

    def lasts(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> bool:
        """Wait, and reap orphans. Return whether the command still runs when the time is up, or when it is `enough`."""
        until = time.monotonic() + seconds
        while self._code is None and time.monotonic() < until and not enough():
            with suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    if found[0] == self._process.pid:
                        self._code = self._process.returncode = os.waitstatus_to_exitcode(found[1])
            if self._code is None:
                time.sleep(_TICK_S)
        return self._code is None

    def end(self, grace_s: float) -> None:
        """Interrupt the command, and kill it after its grace, with everything else in the container."""
        self.pass_on(signal.SIGINT, None)
        if self.lasts(grace_s):
            self.pass_on(signal.SIGKILL, None)
            if os.getpid() == 1:
                with suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            self.lasts(5.0)

    def code(self) -> int:
        """Return the exit code, 128 + n after a signal; that of SIGKILL if a process hangs in a driver."""
        code = 128 + signal.SIGKILL if self._code is None else self._code
        return code if code >= 0 else 128 - code


class Meter:
    """Measures a folder at intervals."""

    def __init__(self, folder: Path, most_bytes: int, most_files: int) -> None:
        """Measure nothing yet."""
        self._folder, self._most_bytes, self._most_files = folder, most_bytes, most_files
        self._next = 0.0
        self.is_over = False

    def look(self) -> bool:
        """Return whether the folder was over its limit when it was last measured. A folder that cannot be measured is over it."""
        if not self.is_over and time.monotonic() >= self._next:
            begun = time.monotonic()
            try:
                self.is_over = self._over()
            except OSError:
                self.is_over = True
            self._next = time.monotonic() + max(_LOOK_S, (_SHARE - 1) * (time.monotonic() - begun))
        return self.is_over

    def _over(self) -> bool:
        size = files = 0
        waiting = [str(self._folder)]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError):  # removed or replaced in the meantime
                continue
            for entry in entries:
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    files += 1
                    size += max(state.st_blocks * 512, state.st_size)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
            if size > self._most_bytes or files > self._most_files:
                return True
        return False


def watch(command: list[str], output: Path, seconds: float, grace_s: float, most_bytes: int, most_files: int) -> int:
    """Run a command within its limits, and return the exit code for the container."""
    guard, meter = Guard(command), Meter(output, most_bytes, most_files)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, guard.pass_on)

    def is_enough() -> bool:
        guard.heed(output / _STOP)
        return meter.look()

    if not guard.lasts(seconds, is_enough):
        return guard.code()
    guard.end(min(grace_s, _WRITING_S) if meter.is_over else grace_s)
    return OVERFULL if meter.is_over else OVERTIME


def main() -> int:
    """Run the inside."""
    forks.shut()
    seconds, grace, most_bytes, most_files, job = sys.argv[1:]
    command = isolated(sys.executable, str(Path(__file__).parents[2]), "warpwave.inside", job)
    return watch([*command], Path(job).parent, float(seconds), float(grace), int(most_bytes), int(most_files))


if __name__ == "__main__":
    sys.exit(main())
