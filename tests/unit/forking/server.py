"""What processes are forked from: `python server.py KIND LIGHT SOCKET PIPE` serves until the other end of the pipe is closed.

KIND `stages` has what the `warpwave` command needs and, apart from it, what a stage needs: torch, NumPy, pytest and, once they are
imported, Triton and the stage's own modules. KIND `compiler` has what the compile stage needs, and `command` what the command needs.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

ROOT = Path(__file__).parents[3]
# Before anything else is imported. What a fork finds is what a Python finds that starts without PYTHONPATH.
_PLACES = [str(ROOT), str(ROOT / "harness"), str(Path(__file__).parents[1])]
_FOUND = tuple(place for place in sys.path[1:] if place not in os.environ.get("PYTHONPATH", "").split(os.pathsep))
sys.path[:] = [*_PLACES, *_FOUND]

from forking import become
from forking.become import Imported, Python
from forking.client import SIZE
from forking.spawn import Forks

_COMMAND = "import sys; sys.argv[0] = 'warpwave'; from warpwave.__main__ import main; main()"
_TORCH = ("torch",)
_COMPILER = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes", "triton.experimental.gluon", "triton.testing")
_ASK = "import json, sys; print(json.dumps([sys.prefix, sys.path]))"

RARELY = 50_000  # allocations between two searches for garbage, of which short processes have little

Modules = dict[str, ModuleType]


def serve(listener: socket.socket, pipe: int, command: Modules, forks: Forks) -> NoReturn:
    """Fork for every connection, and answer with the exit status."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listener, pipe, *running], [], [])
        for ended in running.keys() & set(ready):
            child, connection = running.pop(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(OSError):  # nobody waits for it any more
                connection.sendall(status.to_bytes(SIZE, "big", signed=True))
            connection.close()
            os.close(ended)
        if pipe in ready:
            os._exit(0)
        if listener in ready:
            connection, _ = listener.accept()
            try:
                asked, files = _read(connection)
            except (EOFError, OSError):
                connection.close()
                continue
            child = os.fork()
            if not child:
                for one in (listener, connection, *(waiting for _, waiting in running.values())):
                    one.close()
                for number in (pipe, *running):
                    os.close(number)
                _become(asked, files, command, forks)
            running[os.pidfd_open(child)] = child, connection
            for number in files:
                os.close(number)


def _read(connection: socket.socket) -> tuple[dict, list[int]]:
    head, files, _, _ = socket.recv_fds(connection, SIZE, 3)
    data = b""
    while len(data) < int.from_bytes(head, "big"):
        if not (part := connection.recv(1 << 20)):
            raise EOFError("who asked is gone")
        data += part
    return json.loads(data), files


def pythons(kind: str, light: str, command: Modules) -> dict[str, Python]:
    """The interpreters that a stage's process can be a fork of, by their executables."""
    # PyYAML's C half is loaded once, and makes the nodes of the Python half that was there first: `python -m warpwave` needs both.
    plain = {name: module for name, module in command.items() if name.partition(".")[0] in ("yaml", "_yaml")}
    plain |= load(["pytest", "numpy"], plain)
    plain |= load([f"_pytest.{name}" for name in plain["_pytest.config"].default_plugins], plain)
    stages = load_stages(plain)
    heavy, triton = {**plain, **load(_TORCH, plain)}, ()
    if kind == "compiler":
        heavy |= load(_COMPILER, heavy, lambda: sys.modules["triton.runtime.cache"].triton_key())
    else:
        triton = interpreting_and_not(plain)
    prefix, path = json.loads(subprocess.run([light, "-I", "-c", _ASK], capture_output=True, text=True, check=True).stdout)
    found = Python(sys.executable, sys.prefix, _FOUND, heavy, when_asked=triton, one_by_one=stages)
    return {found.executable: found, light: Python(light, prefix, tuple(path), plain, ("light_gpu",), triton, stages)}


def interpreting_and_not(there: Modules) -> tuple[Imported, ...]:
    """Import Triton twice: it decides at its import whether it interprets. Its native code comes once, and knows nothing of that."""
    before, native, found = dict(os.environ), {}, []
    for interprets in (None, "1"):
        os.environ.update({} if interprets is None else {"TRITON_INTERPRET": interprets})
        modules = load(["triton", "triton.testing"], {**there, **native})
        native |= {name: module for name, module in modules.items() if name.startswith("triton._C")}
        found.append(Imported("triton", interprets, {**modules, **native}))
    os.environ.clear()
    os.environ.update(before)
    return tuple(found)


def load(names: Sequence[str], there: Modules | None = None, first_use: Callable[[], object] = lambda: None) -> Modules:
    """Import these beside what is `there`. Return what came, and leave it out of this process."""
    sys.modules.update(there or {})
    before = set(sys.modules)
    for name in names:
        with contextlib.suppress(NotForAllError):
            importlib.import_module(name)
    first_use()
    came = {name: module for name, module in sys.modules.items() if name not in before and not become.is_standard(name)}
    for name in (*came, *(there or {})):
        del sys.modules[name]
    return came


class NotForAllError(Exception):
    """What is to be imported needs torch or Triton, which a process may have in another form."""


class Refusing:
    """A finder of nothing: torch and Triton cannot be imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("torch", "triton"):
            raise NotForAllError(name)


def load_stages(there: Modules) -> Modules:
    """Import what the stages have that is the same for every process."""
    sys.meta_path.insert(0, Refusing)
    found = load([name for name in _modules() if name.startswith("warpwave.inside.") and not name.endswith("__main__")], there)
    sys.meta_path.remove(Refusing)
    return found


def _modules() -> list[str]:
    places = (path.relative_to(ROOT / "harness").with_suffix("").parts for path in sorted((ROOT / "harness").rglob("*.py")))
    return [".".join(place).removesuffix(".__init__") for place in places]


def load_command() -> Modules:
    """Import the harness, and make what it makes on first use: its templates, and what reads its records."""

    def first_use() -> None:
        from synthetic import two_targets, write_raw

        with tempfile.TemporaryDirectory() as folder:
            for run in two_targets():
                write_raw(Path(folder) / run.record.target, run)
            sys.modules["warpwave.report"].make_report([Path(folder)], Path(folder))
        sys.modules["warpwave.config.targets"].load_targets()

    return load([name for name in _modules() if not name.startswith("warpwave.inside")], first_use=first_use)


def _become(asked: dict, files: list[int], command: Modules, forks: Forks) -> NoReturn:
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for number in asked["closed"]:
            os.close(number)
        os.chdir(asked["cwd"])
        words, env = asked["words"], asked["env"]
        if words[1] == "warpwave":  # it differs from `-m warpwave` in its name
            host = Python(words[0], sys.prefix, _FOUND, command)
            become.run(host, become.Program("-c", _COMMAND, tuple(words[2:])), env)
        if found := forks.find(words, env):
            become.run(*found, env)
        os.execve(words[0], words, env)
    finally:
        os._exit(255)


def main(kind: str, light: str, where: str, pipe: str) -> None:
    warnings.simplefilter("ignore")
    command = {} if kind == "compiler" else load_command()
    forks = Forks({} if kind == "command" else pythons(kind, light, command), ("TRITON_INTERPRET",) if kind == "compiler" else ())
    forks.install()
    gc.collect()
    gc.freeze()
    gc.set_threshold(RARELY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{where}.new")
        made.listen(64)
        Path(f"{where}.new").rename(where)  # now it accepts connections
        serve(made, int(pipe), command, forks)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        shutil.rmtree(Path(sys.argv[3]).parent, ignore_errors=True)  # nobody needs to wait
        raise
