"""Where a package's code runs: its import path, its home, Triton's cache, and the limits of the container."""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from warpwave.records import Job

# Make a package's modules importable in the processes that run its code.
#
# The folders come behind the standard library, so that a module of the package never hides one of its modules, and before what is
# installed: the package's own files are what is tested, not an installed copy of them. Supervisors never get these folders.

_NOT_SOURCES = frozenset({"build", "dist", "node_modules", "__pycache__"})
_MOST_MODULES = 20_000
_INSTALLED = ("site-packages", "dist-packages")


def root_of(job: Job) -> Path:
    """Return the folder of the whole package."""
    return Path(job.package_root or job.kernels)


def devices_here(job: Job) -> list[dict[str, Any]]:
    """Return the devices that the facts stage found; none if there are no facts."""
    try:
        return list(json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))["devices"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def modules_of(root: Path) -> list[Path]:
    """Return the Python files of a whole package, in an order that is the same on each machine."""
    return list(itertools.islice((path for path in files_below(root) if path.suffix == ".py"), _MOST_MODULES))


def files_below(root: Path) -> Iterator[Path]:
    """Yield the files of a package, without those of environments and builds in its folder."""
    for folder, folders, files in os.walk(root):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in sorted(folders) if name not in _NOT_SOURCES and not name.startswith(".")]
        yield from (Path(folder, name) for name in sorted(files))


def names_any(job: Job, *names: str) -> bool:
    """Return whether a Python file of the package contains any of these words."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in modules_of(root_of(job)))
    return any(name in text for text in texts for name in names)


def package_folders(job: Job) -> list[str]:
    """Return the folders that the package's modules are imported from: those of the package, and the one that the user named.

    pytest adds the latter for tests if there is a `conftest.py` in it, and benches below it import the same helpers.
    """
    folders = [*(root_of(job) / folder for folder in job.declared.import_folders), Path(job.kernels)]
    return [*dict.fromkeys(map(os.path.normpath, folders))]


def python_path(job: Job) -> list[str]:
    """Return the folders of the package's `pythonpath`."""
    return [os.path.normpath(root_of(job) / folder) for folder in job.declared.pytest.pythonpath]


def enter(folders: Iterable[str], first: Iterable[str] = ()) -> None:
    """Put folders on the path of this process and of those that the package starts; those of `first` before everything, as pytest does."""
    folders, first = list(folders), list(first)
    added = [*first, *folders]
    place = next((position for position, path in enumerate(sys.path) if Path(path).name in _INSTALLED), len(sys.path))
    before = sys.path[:place]
    sys.path[place:place] = [folder for folder in folders if folder not in before]
    sys.path[:0] = [folder for folder in first if folder not in before]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, known), *(folder for folder in added if folder not in known)])
    if not any(isinstance(finder, _Built) for finder in sys.meta_path):
        sys.meta_path.append(_Built(added))


class _Built:
    """Finds what a package's files lack and its installed copy has: extension modules and files that the build wrote."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(f"{folder}{os.sep}" for folder in folders)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Look for a submodule of the package in the installed packages. Python asks here last."""
        parent = name.rpartition(".")[0].replace(".", os.sep)
        if not parent or not any(str(folder).startswith(self.folders) for folder in path or ()):
            return None
        elsewhere = [Path(site, parent) for site in sys.path if Path(site).name in _INSTALLED]
        return PathFinder.find_spec(name, [str(folder) for folder in elsewhere if folder.is_dir()], target)


# The working folder of a package's tests, benches and scripts.
#
# Authors start them in the package's root, and open files by paths relative to it. What they write must not be there: it is the user's
# folder, read-only in a container, and all processes of a run would write the same files at once. So each process has a folder with links
# to the package's files. It is not among the results: those may be in the package, and pytest would follow the links without end.

WORK_VARIABLE = "WARPWAVE_WORK"  # a folder of the stage, which removes it
_MOST_LINKS = 300  # of each process; where a system call takes long, a link takes 0.6 ms
_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


def enter_links(job: Job) -> None:
    """Change to a folder with the folders of the package and links to its files. What is imported from there has the package's paths.

    What is hidden in the root stays out: `.git`, and caches that a test would write to. A folder that would make too many links is a
    link itself.
    """
    stages = os.environ.get(WORK_VARIABLE)
    if stages and Path.cwd().is_relative_to(stages):  # this process compiles benches, and now tests
        return
    root = root_of(job).resolve()
    folder = Path(tempfile.mkdtemp(prefix="warpwave-", dir=stages)).resolve()
    waiting, made = [(root, folder)] if not folder.is_relative_to(root) else [], 0
    for source, copy in waiting:
        entries = []
        with contextlib.suppress(OSError):  # it may not be read here either
            entries = [entry for entry in os.scandir(source) if source != root or not entry.name.startswith(".")]
        is_whole = made + len(entries) <= _MOST_LINKS and all(entry.name != "pyvenv.cfg" for entry in entries)
        if copy != folder and (not is_whole or source == Path(job.output)):
            copy.symlink_to(source)
            continue
        copy.mkdir(exist_ok=True)
        made += len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), copy / entry.name))
            else:
                (copy / entry.name).symlink_to(entry.path)
    find = FileFinder.path_hook(*_LOADERS)

    def find_in_package(place: str) -> _Finders:
        here = Path(os.path.abspath(place))  # noqa: PTH100 - `resolve` would follow a link
        if not here.is_relative_to(folder):
            raise ImportError(place)
        own = root / here.relative_to(folder)
        return _Finders(*map(find, [*([str(own)] if own.is_dir() else []), str(here)]))

    sys.path_hooks.insert(0, find_in_package)  # type: ignore[arg-type]
    os.chdir(folder)


class _Finders:
    """Finds a module in the first of several folders that has it."""

    def __init__(self, *finders: Any) -> None:
        self._finders = finders

    def find_spec(self, name: str, target: ModuleType | None = None) -> ModuleSpec | None:
        return next(filter(None, (finder.find_spec(name, target) for finder in self._finders)), None)

    def invalidate_caches(self) -> None:
        for finder in self._finders:
            finder.invalidate_caches()


# In a test worker: import torch's compiler before this run has the card, if the package names something that needs it.
#
# The first call of `torch.compile` or `torch.library.opcheck` imports some 1,500 modules. That takes seconds, in each worker that shares
# the card, and the card would wait meanwhile.

_VARIABLE = "WARPWAVE_IMPORT_COMPILER"
_NAMES = ("torch.compile", "opcheck")
_MODULE = "torch._inductor.compile_fx"  # imports nearly all that the two need


def tell_workers(job: Job) -> None:
    """Tell the workers of a stage whether to import it."""
    os.environ[_VARIABLE] = "1" if job.needs_card and names_any(job, *_NAMES) else ""


def import_compiler() -> None:
    """Import it, if the stage says so. A torch that cannot says why in the test that needs it."""
    if os.environ.get(_VARIABLE):
        with contextlib.suppress(Exception):
            importlib.import_module(_MODULE)


# The limits of this container that end a process silently: its memory, and the disk of its results.

# What a disk answers that is full, broken or read-only.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)
# cgroup version 2, then version 1: in a container, its own group is the root. The last one counts for the whole machine, where a process
# outside of a container belongs to some group below the root.
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/proc/vmstat"))
_USED = (Path("/sys/fs/cgroup/memory.current"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_kills() -> int:
    """Return how many processes Linux has killed because memory ran out: those of this container plus those of the whole machine."""
    found = 0
    for path in _COUNTERS:
        try:
            counters = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
            found += int(counters["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return found


def free_memory() -> int:
    """Return the bytes of the host's memory that this container's processes can still take; a large number if nothing says it."""
    found = [1 << 50]
    for limit, used in zip(_LIMITS, _USED, strict=True):
        try:
            found.append(int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):
            continue
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass
    return min(found)


def past_memory_limit() -> str:
    """Say what a kill for memory means, with the limit if the kernel reports one."""
    for path in _LIMITS:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            continue
        if limit < 1 << 60:
            return f"this container's memory grew past its limit of {limit / 2**30:.1f} GiB (the host's memory, not the GPU's)"
    return "the machine ran out of memory (the host's, not the GPU's)"


# Triton's cache on disk: where it is, and how many kernels are in it.

_PROBE_BYTES = 1 << 20  # more than the files of one kernel usually have


def cache_folder() -> Path:
    """Return the folder that Triton's default cache manager uses."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache")


def why_unwritable() -> str:
    """Return why nothing can be written to the cache; empty if something can. Every kernel is written there before it is launched."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return f"Triton cannot write to its cache, {folder}: {error.strerror or error}"
    return ""


def is_of_the_disk(error: BaseException | None) -> bool:
    """Return whether Triton's cache raised this error because its disk is full, broken or read-only. No kernel is to blame for it."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return False
    return any(frame.f_code.co_filename.endswith("triton/runtime/cache.py") for frame, _ in traceback.walk_tb(error.__traceback__))


def compiled_kernels() -> int:
    """Return how many compiled kernels the cache holds: each has a folder with a list of its files."""
    return sum(1 for _ in cache_folder().glob("*/__grp__*.json"))


def compiler_hash() -> str:
    """Return Triton's hash of itself, which is part of each key in the cache: version, sources and native code."""
    return str(importlib.import_module("triton.runtime.cache").triton_key())


# A temporary home for a package that runs on a fake GPU.

# What is in the user's cache and has nothing to do with timings: what was downloaded, and what the emulator was compiled to.
_KEPT = {"HF_HOME": "huggingface", "TORCH_HOME": "torch", "WARPWAVE_CACHE": "warpwave"}


def for_compiling() -> dict[str, str]:
    """Return variables for a process that mostly compiles: LLVM and MLIR spend a seventh of their time in the C library's malloc."""
    jemalloc = None if os.environ.get("LD_PRELOAD") else find_library("jemalloc")
    return {"LD_PRELOAD": jemalloc} if jemalloc else {}


@contextmanager
def temporary_home(folder: Path) -> Iterator[None]:
    """Give the package another home while it runs on a fake GPU.

    Packages store tuning results in the user's home (FlagGems: one database per architecture). Timings on a fake GPU are invented, and a
    real run would then use the wrong choice. Triton's own cache stays in place: it holds compiled code and no timings.
    """
    cache, users = cache_folder(), Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - also without one
    changed = {"TRITON_CACHE_DIR": str(cache), "HOME": tempfile.mkdtemp(prefix=".home-", dir=folder)}
    changed |= {name: str(users / kept) for name, kept in _KEPT.items() if not os.environ.get(name)}
    before = {name: os.environ.get(name) for name in (*changed, "XDG_CACHE_HOME")}
    os.environ.update(changed)
    os.environ.pop("XDG_CACHE_HOME", None)  # then it defaults to a folder in the new home
    try:
        yield
    finally:
        shutil.rmtree(changed["HOME"], ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
