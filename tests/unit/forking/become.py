"""Make a fork look like a Python that has just started, run a program in it, and end as Python ends.

What differs from a new process: the modules that the server has imported are there already, `/proc/self/cmdline` is the server's, and
`sys.flags` are too.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import importlib
import io
import linecache
import logging
import multiprocessing.util
import os
import runpy
import signal
import sys
import sysconfig
import tempfile
import threading
import traceback
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
# Read by what the server has imported, when it was imported: with another value of one of them, a fork is no new process.
_READ_AT_START = ("PYTHON", "TORCH", "PYTORCH", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "LD_", "CUDA_", "HIP_", "LC_", "LANG", "TRITON_")
_READ_LATER = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
# Each fork has Triton as TRITON_INTERPRET wants it. The others are read when they are used.
_READ_LATER |= {"TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DEFAULT_FP_FUSION", "TORCH_HOME"}
_OTHERS_TRITON = ("triton", "*-info")  # another one, and what adds a backend to ours
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_ISOLATED = [_LIBRARY.with_name(f"python{sysconfig.get_config_var('py_version_nodot')}.zip"), _LIBRARY, _LIBRARY / "lib-dynload"]
_CUSTOM = ("sitecustomize.py", "usercustomize.py")


@dataclass(frozen=True)
class Python:
    """An interpreter that forks can stand for: what it finds, and which modules are there already."""

    executable: str
    prefix: str
    path: tuple[str, ...]
    modules: Mapping[str, ModuleType]
    begins_with: tuple[str, ...] = ()  # modules that its `site` imports
    when_asked: tuple[Imported, ...] = ()  # modules that are there as soon as it imports them
    one_by_one: Mapping[str, ModuleType] = field(default_factory=dict)  # each is there when it is imported


@dataclass(frozen=True)
class Imported:
    """What the import of a package brings, and TRITON_INTERPRET at that time."""

    package: str
    interprets: str | None
    modules: Mapping[str, ModuleType]


@dataclass(frozen=True)
class Program:
    """What a process runs: `-m NAME`, `-c CODE` or, without an option, a file; with its arguments."""

    option: str
    what: str
    arguments: tuple[str, ...]
    isolated: bool = False  # -I -S: it finds the standard library alone, and reads no variable


def parse(words: Sequence[str]) -> Program | None:
    """What Python's arguments ask for; None if a fork cannot do that."""
    rest = list(words)
    isolated = rest[:3] == ["-I", "-S", "-B"]  # records/isolated.py
    while rest and rest[0] in (("-I", "-S", "-B") if isolated else ("-B", "-u")):  # variables say the same
        rest.pop(0)
    if rest and not rest[0].startswith("-"):
        return Program("", rest[0], tuple(rest[1:]))
    if len(rest) < 2 or rest[0] not in ("-m", "-c"):
        return None
    return Program(rest[0], rest[1], tuple(rest[2:]), isolated)


def same_start(variables: Mapping[str, str], more: Sequence[str] = ()) -> bool:
    """Whether a process with these variables would have imported what the server has."""

    def chosen(names: Mapping[str, str]) -> dict[str, str]:
        read = {key for key in names if key.startswith(_READ_AT_START)} - _READ_LATER
        return {key: value for key, value in names.items() if key in read or key in more}

    if variables.get("TRITON_INTERPRET") not in (None, "1") or chosen(variables) != chosen(START.variables):
        return False
    places = [Path(place) for place in variables.get("PYTHONPATH", "").split(os.pathsep) if place]
    return not any((place / name).exists() for place in places for name in _CUSTOM) and not any(
        next(place.glob(pattern), None) for place in places for pattern in _OTHERS_TRITON
    )


def run(python: Python, program: Program, variables: Mapping[str, str]) -> NoReturn:
    """Become that process. Its descriptors, its folder and its session are those of the caller."""
    status = 1
    try:
        _begin(python, program, variables)
        status = _status(program)
        status = _finish(status)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(status)


def _begin(python: Python, program: Program, variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    _forget()
    if program.isolated:
        variables = {"PYTHONDONTWRITEBYTECODE": "1"}
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        setattr(sys, name, _stream(number, mode, bool(variables.get("PYTHONUNBUFFERED"))))
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.dont_write_bytecode = bool(variables.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = variables.get("PYTHONPYCACHEPREFIX") or None
    prefix = sys.base_prefix if program.isolated else python.prefix  # a venv is of `site`
    sys.executable, sys.prefix, sys.exec_prefix = python.executable, prefix, prefix
    places = [os.path.abspath(place) for place in variables.get("PYTHONPATH", "").split(os.pathsep) if place]  # noqa: PTH100
    first = {"-m": os.getcwd, "-c": str}.get(program.option, lambda: os.path.dirname(os.path.realpath(program.what)))  # noqa: PTH120
    sys.path[:] = list(map(str, _ISOLATED)) if program.isolated else [first(), *places, *python.path]
    sys.path_importer_cache.clear()
    for name in [name for name in sys.modules if not is_standard(name)]:
        del sys.modules[name]
    if not program.isolated:
        sys.modules.update(python.modules)
    sys.modules["__main__"] = main = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    importlib.invalidate_caches()
    if program.isolated:
        return
    sys.meta_path[:0] = [WhenAsked(entry) for entry in python.when_asked]
    sys.meta_path[:0] = [OneByOne(python.one_by_one)]
    for name in python.begins_with:
        importlib.import_module(name)


class WhenAsked:
    """A finder: at the first import of a package, all of its modules are there. One of that name that is found earlier is imported."""

    def __init__(self, entry: Imported) -> None:
        self._entry, self._spec = entry, entry.modules[entry.package].__spec__

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Answer for the package, once: as it is where TRITON_INTERPRET is as now."""
        if name != self._entry.package or self._entry.interprets != os.environ.get("TRITON_INTERPRET"):
            return None
        if sys.modules.keys() & self._entry.modules.keys():
            return None
        found = PathFinder.find_spec(name)
        if found is None or self._spec is None or found.origin != self._spec.origin:
            return None
        return ModuleSpec(name, self, origin=found.origin, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._entry.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Make the others known; they have run."""
        module.__spec__, module.__loader__ = self._spec, self._spec and self._spec.loader
        sys.modules.update({name: other for name, other in self._entry.modules.items() if name not in sys.modules})


class OneByOne:
    """A finder of modules that have run: an import makes one known, and those from which it has its names."""

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Answer if this process would find the same file."""
        spec = name in self._modules and self._modules[name].__spec__
        found = PathFinder.find_spec(name, path) if spec else None
        if not spec or found is None or found.origin != spec.origin:
            return None
        return ModuleSpec(name, self, origin=spec.origin, loader_state=spec, is_package=spec.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__ and module.__spec__.loader_state
        module.__spec__, module.__loader__ = spec, spec and spec.loader
        self._know(module)

    def _know(self, module: ModuleType) -> None:
        for value in list(vars(module).values()):
            name = getattr(value, "__module__", None)
            if name in self._modules and name not in sys.modules:
                sys.modules[name] = self._modules[name]
                self._know(sys.modules[name])

    def get_code(self, name: str) -> CodeType | None:
        """Return what `-m` runs as the main program."""
        spec = self._modules[name].__spec__
        return spec and spec.loader.get_code(name)  # type: ignore[union-attr]


def _forget() -> None:
    """Drop what the parent has set up for itself."""
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # its folders are not ours to remove
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    atexit.register(logging.shutdown)
    atexit.register(multiprocessing.util._exit_function)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.disable()
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    sys.meta_path[:] = START.meta_path
    sys.path_hooks[:] = START.path_hooks
    warnings.resetwarnings()
    warnings.filters[:] = START.filters  # type: ignore[index]
    logging.root.handlers.clear()
    tempfile.tempdir = None
    linecache.clearcache()


def _stream(number: int, mode: str, unbuffered: bool) -> io.TextIOWrapper | None:
    try:
        raw = open(number, f"{mode}b", buffering=0 if unbuffered and mode == "w" else -1, closefd=False)  # noqa: SIM115
    except OSError:
        return None  # as Python does for a closed one
    encoding, errors = START.texts[number]
    stream = io.TextIOWrapper(raw, encoding, errors, line_buffering=number == 2 or raw.isatty(), write_through=unbuffered and mode == "w")
    stream.mode = mode  # type: ignore[misc]
    return stream


def is_standard(name: str) -> bool:
    """Whether every process may share this module: it is part of Python, or of these modules."""
    return name.partition(".")[0] in START.standard or name.partition(".")[0] == "forking"


def _status(program: Program) -> int:
    """Run the program to its end; the exit status that Python would give."""
    try:
        sys.argv[:] = [program.option or program.what, *program.arguments]
        main = vars(sys.modules["__main__"])
        if program.option == "-m":
            runpy._run_module_as_main(program.what)  # type: ignore[attr-defined]
        elif program.option == "-c":
            exec(compile(program.what, "<string>", "exec"), main)
        else:
            main["__file__"] = os.path.abspath(program.what)  # noqa: PTH100
            exec(compile(Path(program.what).read_bytes(), program.what, "exec"), main)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt as error:
        _show(error)
        _finish(0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _show(error: BaseException) -> None:
    """Print its traceback as Python does, without this file."""
    head = error.__traceback__
    while head is not None and head.tb_frame.f_code.co_filename == __file__:
        head = head.tb_next
    sys.excepthook(type(error), error.with_traceback(head), head)


def _finish(status: int) -> int:
    """Wait for threads, call what wants to be called at the end, and write what is buffered."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError:
        status = 120
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    return status


class _Start:
    """What a Python that has just started has."""

    def __init__(self) -> None:
        self.texts = [(stream.encoding, stream.errors) for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__) if stream]
        self.variables = dict(os.environ)  # before an import changes them
        self.meta_path, self.path_hooks, self.filters = list(sys.meta_path), list(sys.path_hooks), list(warnings.filters)
        self.standard = frozenset({*sys.stdlib_module_names, *(name for name in sys.modules if name.startswith("_"))})


START = _Start()
