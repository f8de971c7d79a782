"""Let `subprocess` and `multiprocessing` fork this process where they would start a Python that a fork can stand for."""

import _posixsubprocess
import contextlib
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from forking import become
from forking.become import Program, Python

_real = _posixsubprocess.fork_exec
_INSTALLERS = ("pip", "venv", "ensurepip", "warpwave.engines.packages.installing")  # they ask what interpreter they are


class Forks:
    """Stands in for `_posixsubprocess.fork_exec`: forks for `pythons`, by executable, and for any program but installers."""

    def __init__(self, pythons: Mapping[str, Python], more: Sequence[str]) -> None:
        self._pythons, self._more = pythons, more

    def install(self) -> None:
        """Use it in this process and in its forks."""
        _posixsubprocess.fork_exec = subprocess._fork_exec = self  # type: ignore[attr-defined]

    def find(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[Python, Program] | None:
        """What a fork becomes for this command; None if it cannot."""
        python, program = self._pythons.get(words[0]), become.parse(words[1:])
        if python is None or program is None or (program.option == "-m" and program.what in _INSTALLERS):
            return None
        return (python, program) if become.same_start(variables, self._more) else None

    def __call__(self, args: Sequence[Any], executables: Any, close: bool, keep: Any, cwd: Any, variables: Any, *more: Any) -> int:
        """As the original: `more` begins with the descriptors p2c, c2p, err and errpipe, a pair each, then signals, session and others."""
        words = [os.fsdecode(word) for word in args]
        env = dict(os.environ) if variables is None else dict(os.fsdecode(entry).split("=", 1) for entry in variables)
        found = self.find(words, env)
        # What follows the session is the group, ids and umask, none of which the harness sets, and a function to call.
        if found is None or any(not isinstance(other, bool) and other not in (None, -1) for other in more[10:]):
            return _real(args, executables, close, keep, cwd, variables, *more)
        sys.stdout and _try(sys.stdout.flush)
        sys.stderr and _try(sys.stderr.flush)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which Python 3.12 warns of
            pid = os.fork()
        if pid:
            return pid
        try:
            _move(more[:6], keep, errpipe=more[7])
            if more[9]:
                os.setsid()
            if cwd is not None:
                os.chdir(cwd)
            become.run(*found, env)
        finally:
            os._exit(255)


def _try(call: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        call()


def _move(pipes: Sequence[int], keep: Sequence[int], errpipe: int) -> None:
    """Give the child its 0, 1 and 2 and those to keep; close all others."""
    reading, writing, errors = pipes[0], pipes[3], pipes[5]
    given = {0: reading, 1: writing, 2: errors}
    # Above all, so that none is overwritten before it is copied.
    copies = {number: os.dup(one) for number, one in given.items() if one != -1}
    while any(copy <= 2 for copy in copies.values()):
        copies = {number: copy if copy > 2 else os.dup(copy) for number, copy in copies.items()}
    for number, copy in copies.items():
        os.dup2(copy, number, inheritable=True)
    kept = {int(one) for one in keep} - {errpipe}
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number > 2 and number not in kept:
            _try(lambda number=number: os.close(number))
    for number in kept:
        _try(lambda number=number: os.set_inheritable(number, True))
