"""Fork processes from one that has imported what they need, instead of starting Python for each: torch takes seconds to import.

`serve` is the one: it has no threads of Python and no context on a card. `start` asks it. A stage is forked from the interpreter of its
run, `warm`, and its workers from a fork that the stage makes before it begins. Each fork has a session, variables, output and folder of its
own, ends with what it was forked from, and is killed if nobody waits for it any more.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Union

from warpwave.records import FORKS_VARIABLE

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4  # <linux/prctl.h>
_NUMBER = struct.Struct("i")
_MOST_FILES = 16
_SERVES = b"s"
_WARM = "warpwave.inside.process.warm"


@dataclass(frozen=True)
class Task:
    """What a fork runs: a module, as `python -m` does, or a function, picklable by name. `variables` are all that it has."""

    run: Union[str, Callable[..., object]]
    arguments: tuple[Any, ...]
    variables: Mapping[str, str]
    folder: str = field(default_factory=os.getcwd)


class Forked:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers, self.returncode = answers, None
        if not (answer := answers.recv(_NUMBER.size)):
            raise ConnectionError("what it was to be forked from has ended")
        self.pid: int = _NUMBER.unpack(answer)[0]

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. One whose server was killed was killed with it."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                answer = self._answers.recv(_NUMBER.size)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(["a fork"], timeout or 0) from None
            except ConnectionError:
                answer = b""
            self.returncode = _NUMBER.unpack(answer)[0] if answer else -signal.SIGKILL
            self.leave()
        return self.returncode

    def leave(self) -> None:
        """Wait for it no more: it is killed."""
        self._answers.close()


def start(channel: socket.socket, task: Task, output: int, named: Mapping[str, int] | None = None, serves: bool = False) -> Forked:
    """Ask for a fork that writes to the file `output`. It has the descriptors of `named`, each named by its variable.

    One that `serves` forks others itself, and goes on beside them.

    Raises:
        OSError: what forks is gone.
    """
    named = named or {}
    own, theirs = socket.socketpair()
    with theirs, open(os.memfd_create("task"), "wb") as file:
        pickle.dump((task, tuple(named)), file)
        file.flush()
        socket.send_fds(channel, [_SERVES if serves else b"."], [file.fileno(), theirs.fileno(), output, *named.values()])
    return Forked(own)


def serve(channel: socket.socket, at_rest: Callable[..., object] = lambda *servers: None) -> Task:
    """Fork for each request, and return in the fork, with its task. End when nobody can ask any more.

    When the last fork has ended that does not serve, `at_rest` is called with the others' numbers, and then the exit code is sent.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    gc.collect()
    gc.freeze()  # imported objects stay; a collector that scans them would copy the pages that all forks share
    for finalizer in tuple(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # of what was imported here: torch takes apart its operators, which takes 0.1 s in each fork
    running: dict[int, socket.socket] = {}
    killed: set[int] = set()
    servers: set[int] = set()
    while True:
        ready = select.poll()
        for readable in (channel.fileno(), woken, *(answers.fileno() for pid, answers in running.items() if pid not in killed)):
            ready.register(readable, select.POLLIN)
        found = {number for number, _ in ready.poll()}
        if woken in found:
            os.read(woken, 4096)
            _tell_ended(running, servers, at_rest)
        for pid, answers in running.items():
            if answers.fileno() in found and pid not in killed:  # closed: nobody waits for it
                killed.add(pid)
                for kill in (os.killpg, os.kill):
                    with contextlib.suppress(ProcessLookupError):
                        kill(pid, signal.SIGKILL)
        if channel.fileno() in found:
            said, files = b"", list[int]()
            with contextlib.suppress(ConnectionResetError):  # who asked has ended, and left unread that this one is ready
                said, files, _, _ = socket.recv_fds(channel, 1, _MOST_FILES)
            if not said:
                os._exit(0)
            with contextlib.suppress(OSError):  # no fork: who asked sees that nobody answers
                pid = fork()
                if not pid:
                    return _begun(*files)
                killed.discard(pid)
                (servers.add if said == _SERVES else servers.discard)(pid)
                running[pid] = socket.socket(fileno=os.dup(files[1]))
                with contextlib.suppress(OSError):
                    running[pid].sendall(_NUMBER.pack(pid))
            for number in files:
                os.close(number)


def _tell_ended(running: dict[int, socket.socket], servers: set[int], at_rest: Callable[..., object]) -> None:
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:  # orphans, too
            if found[0] in running:
                ended.append((running.pop(found[0]), os.waitstatus_to_exitcode(found[1])))
    if ended and servers.issuperset(running):
        at_rest(*running)
    for answers, code in ended:
        with answers, contextlib.suppress(OSError):
            answers.sendall(_NUMBER.pack(code))


def fork() -> int:
    """Fork, without the warning about threads: those of native libraries hold no lock here, and are made again."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _begun(request: int, answers: int, output: int, *named: int) -> Task:
    """In a fork: become a process of its own, or end."""
    try:
        return _taken(request, output, named)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _taken(request: int, output: int, named: Sequence[int]) -> Task:
    apart()
    prctl(_PR_SET_DUMPABLE, 1)
    with open(request, "rb") as file:
        file.seek(0)
        task, names = pickle.load(file)  # noqa: S301 - from this run's own supervisor
    for number in (1, 2):
        os.dup2(output, number)
    close_all_but(*named)
    os.chdir(task.folder)
    threads = task.variables.get("OMP_NUM_THREADS", "")
    changed = threads != os.environ.get("OMP_NUM_THREADS", "")
    _find_as(os.environ.get("PYTHONPATH", ""), task.variables.get("PYTHONPATH", ""))
    os.environ.clear()
    os.environ.update(task.variables)
    os.environ.update({name: str(number) for name, number in zip(names, named, strict=True)})
    if changed and threads.isdecimal() and "torch" in sys.modules:  # read when OpenMP was loaded
        sys.modules["torch"].set_num_threads(int(threads))
    if "numpy" in sys.modules:  # else all forks would draw the same numbers
        sys.modules["numpy"].random.seed()
    return task  # type: ignore[no-any-return]


def apart(number: signal.Signals = signal.SIGKILL) -> None:
    """In a fork: a session of its own, that ends with what it was forked from, and signals as in a new Python."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    die_with_parent(number)


def close_all_but(*kept: int) -> None:
    """In a fork: close the files of what it was forked from, but for these and the standard ones."""
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(number)


def _find_as(before: str, now: str) -> None:
    """Find modules as a Python that starts in this folder with another PYTHONPATH."""
    old, new = ([place for place in text.split(os.pathsep) if place] for text in (before, now))
    sys.path[:] = [str(Path.cwd()), *new, *(place for place in sys.path[1:] if place not in old)]
    sys.path_importer_cache.clear()


def run(task: Task) -> NoReturn:
    """In a fork: run what was asked for, and end as Python does, but do not take apart what was imported: for torch that takes 0.5 s."""
    code: object = 1
    try:
        if isinstance(task.run, str):
            sys.argv[:] = ["-m", *task.arguments]
            sys.modules["__main__"] = ModuleType("__main__")
            if task.run in sys.modules:  # `-m` warns of that
                warnings.filterwarnings("ignore", message=r"'warpwave\.[\w.]+' found in sys\.modules", category=RuntimeWarning)
            runpy._run_module_as_main(task.run)  # type: ignore[attr-defined]
        else:
            task.run(*task.arguments)
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def open_channel() -> tuple[socket.socket, socket.socket]:
    """Return the client's and the server's end of a channel. Several processes may send requests; each arrives whole."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # type: ignore[return-value]


class Warm:
    """Asks the warm interpreter of a run to fork stages. It is a child of this process, unless an engine keeps it between runs."""

    process: subprocess.Popen[bytes] | None = None

    def __init__(self, variables: Mapping[str, str], log: Path, kept: int | None = None) -> None:
        """Start it, unless `kept` is the descriptor of a channel to it. It imports while this process goes on."""
        self._variables = variables
        self._others: list[tuple[str, socket.socket, Forked]] = []  # a stage, and what has imported more, to fork it from
        if kept is not None:
            self._channel = socket.socket(fileno=kept)
            return
        self._channel, theirs = open_channel()
        command = [sys.executable, "-m", _WARM]
        with theirs, open(log, "ab") as output:
            # `-m` first looks for modules in the current folder. The package can write to ours, and may have left a json.py there.
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env={**variables, FORKS_VARIABLE: str(theirs.fileno())},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd=os.sep,
            )

    def also(self, stage: str, modules: Sequence[str], output: int) -> None:
        """Fork another that imports modules, too, while others work. The stage will be forked from that one."""
        own, theirs = open_channel()
        with theirs, contextlib.suppress(OSError):
            task = Task(_WARM, tuple(modules), self._variables, os.sep)
            server = start(self._channel, task, output, {FORKS_VARIABLE: theirs.fileno()}, serves=True)
            self._others.append((stage, own, server))

    def start(self, task: Task, output: int, named: Mapping[str, int], limit_s: float) -> Forked | None:
        """Return a fork; None if it cannot stand for a new Python with these variables, or is not ready within the limit."""
        differ = {name for name, value in {*task.variables.items()} ^ {*self._variables.items()}}
        if any(name != "TRITON_INTERPRET" and not name.startswith("WARPWAVE_") for name in differ):
            return None
        for channel in (*(channel for stage, channel, _ in self._others if stage == task.run), self._channel):
            with contextlib.suppress(OSError):
                channel.settimeout(limit_s)
                is_ready = channel.recv(1, socket.MSG_PEEK)  # the next run asks, too
                channel.settimeout(None)
                if is_ready:
                    return start(channel, task, output, named)
        self.end()
        return None

    def end(self) -> None:
        """End it, and what was forked from it; of one that is kept, no fork is left."""
        for _, channel, server in self._others:
            channel.close()
            server.leave()
        self._channel.close()
        if self.process:
            self.process.kill()
            self.process.wait()


def module_of(command: Sequence[str]) -> str:
    """Return the module that a command runs with this Python; empty if it is another command."""
    return command[2] if list(command[:2]) == [sys.executable, "-m"] else ""


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Called in a child: the kernel ends it if its parent dies, so that a killed run leaves nothing running. Linux only."""
    prctl(_PR_SET_PDEATHSIG, number)


def shut() -> None:
    """Protect this process: others of the same user cannot read its memory or use its open files. Linux only."""
    prctl(_PR_SET_DUMPABLE, 0)


def prctl(option: int, value: int) -> None:
    """Set a property of this process. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
