"""The C core: built once for each width of a wave on this machine, kept in the user's cache, loaded with ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from warpwave.emulator.errors import NoCompiler

_CORE = Path(__file__).with_name("core")
# The results must be those of IEEE arithmetic: no contraction, no reassociation. NaN and errno are not trapped, so that loops vectorise.
_FLAGS = "-std=gnu11 -O2 -ftree-vectorize -march=native -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-strict-aliasing"


@dataclass(frozen=True)
class Operation:
    """One entry of the C core's table, by its number there: what it writes (`d`, a mask in `e`) and reads (`s`), as `enum type`."""

    number: int
    name: str
    d: int
    e: int
    s: tuple[int, int, int, int]


@dataclass(frozen=True)
class Core:
    """A loaded core, and its operations by name."""

    library: ctypes.CDLL
    operations: dict[str, Operation]
    machine_bytes: int
    path: Path


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 48),
        ("run", ctypes.c_void_p),
        ("lanes", ctypes.c_void_p),
        ("types", ctypes.c_uint8 * 6),
        ("unused", ctypes.c_uint16),
        ("parameters", ctypes.c_int32 * 8),
    )


@cache
def core(wavefront: int) -> Core:
    """Build, if this machine has not yet, and load the core for waves of 32 or 64 lanes; raise `NoCompiler`."""
    path = _built(wavefront)
    library = ctypes.CDLL(str(path))
    library.operations.restype = ctypes.POINTER(_Entry)
    table = library.operations()
    operations = {}
    for n in range(library.count_operations()):
        entry, types = table[n], table[n].types
        name = entry.name.decode()
        operations[name] = Operation(n, name, types[0], types[1], (types[2], types[3], types[4], types[5]))
    return Core(library, operations, library.size_of(3), path)


def _built(wavefront: int) -> Path:
    """Return the path of the shared library, named by a hash of its sources, flags, compiler and processor."""
    sources = sorted(_CORE.rglob("*.[ch]"))
    compiler = shlex.split(os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "cc"))
    digest = hashlib.sha256("\0".join([*compiler, _FLAGS, str(wavefront), platform.machine(), _processor()]).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - also without a home
    folder = Path(os.environ.get("WARPWAVE_CACHE") or cache_home / "warpwave") / "emulator"
    path = folder / f"wave{wavefront}-{digest.hexdigest()[:24]}.so"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="warpwave-emulator-"))
        path = folder / path.name
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers that start together: one compiles, the others wait
        if not path.exists():
            _compile(compiler, sources, wavefront, path)
    return path


def _compile(compiler: list[str], sources: list[Path], wavefront: int, path: Path) -> None:
    """Compile into a new file, then move it in place: two processes may do this at once. Each of this machine's cores takes a source."""
    descriptor, new = tempfile.mkstemp(dir=path.parent, suffix=".so")
    os.close(descriptor)
    folders = sorted({source.parent for source in sources})
    command = [*compiler, *_FLAGS.split(), "-fPIC", f"-DLANES={wavefront}", *(f"-I{folder}" for folder in folders)]
    largest_first = sorted((source for source in sources if source.suffix == ".c"), key=lambda source: -source.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="warpwave-emulator-") as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = [f"{folder}/{n}.o" for n in range(len(largest_first))]
        commands = [[*command, "-c", str(source), "-o", made] for source, made in zip(largest_first, objects, strict=True)]
        for _ in pool.map(_run, commands):
            pass
        _run([*command, "-shared", *objects, "-lm", "-o", new])
    Path(new).replace(path)


def _run(command: list[str]) -> None:
    hint = "The emulator's core is C, built once on each machine, as Triton's launchers are. Install gcc or clang, or set CC."
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise NoCompiler(f"No C compiler runs here: {error}. {hint}") from None
    if done.returncode:
        raise NoCompiler(f"The C compiler failed: {done.stderr.strip()[-500:]}. {hint}")


def _processor() -> str:
    """Return what decides what -march=native means."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}))
