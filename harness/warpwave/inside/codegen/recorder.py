"""Record what Triton's JIT compiles as rows: on a pretended card in the compile stage, on the real one in the bench stage."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import os
import re
import resource
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from warpwave.inside.codegen import barriers, binary, order
from warpwave.inside.codegen.binary import Reading, is_known, left_out, occupancy, read
from warpwave.inside.codegen.gates import FIGURES, POSSIBLE, judge, unnamed_products
from warpwave.inside.codegen.undefined import Followed
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import describe
from warpwave.records import Architecture, CompiledKernel, Gates, Scalar, Verdict, finite

# What MLIR says of a kernel that it refuses. Triton raises `PassManager::run failed`, and the reason goes to standard error alone.

_STDERR = 2
_TENSOR_MEMORY = 512  # columns of a multiprocessor (PTX ISA, tcgen05); Triton refuses a launch that needs more
_MOST_BYTES = 1 << 16  # a failed pass prints the whole kernel, too; what is wrong stands before it
_SAYS_NOTHING = re.compile(r"PassManager::run failed|error encountered during parsing|failed to translate module|assembler rejected")
_OF_ASSEMBLY = re.compile(r"(?:\.ptx, line |assembler:)(\d+)")
# `file.py:3:7: error: …`, `loc("file.py":3:7): error: …`, or another place; then the line that is wrong
_DIAGNOSTIC = re.compile(r"""(?:([^\s/"(]+\.py)"?:(\d+):\d+\)?: )?error: (.+)(?:\n\s+(\S.*))?""")


def written_so_far() -> int:
    """Return how long the file is that standard error goes to, or -1 if standard error is no file."""
    found = os.fstat(_STDERR)
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def written_since(since: int) -> str:
    """Return the first of what was written to standard error after `since`; an empty text if it cannot be read."""
    try:
        with open(f"/proc/self/fd/{_STDERR}", "rb") as file:
            file.seek(since)
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def describe_refusal(error: Exception, since: int) -> str:
    """Return a compiler's exception in one line, with what was written to standard error `since` then if it says nothing by itself."""
    text, printed = describe(error), written_since(since) if since >= 0 else ""
    where = _assembled_at(error, printed)
    found = _DIAGNOSTIC.search(printed) if _SAYS_NOTHING.search(text) else None
    if found is None:
        return f"{text} ({where})" if where else text
    file, line, said, wrong = found.groups()
    place = f"{file}:{line}" if file else (wrong or "").strip()[:80]
    return f"{text}: {said.strip()[:300]}" + "".join(f" ({each})" for each in (place, where) if each)


def _assembled_at(error: Exception, printed: str) -> str:
    """Return the kernel's `file.py:3` that an assembler refused. It names a line of the assembly, which is in a variable of its caller."""
    values = [frame.f_locals.get("src") for frame, _ in traceback.walk_tb(error.__traceback__)]
    assembly = next((value for value in reversed(values) if isinstance(value, str)), "")
    found = _OF_ASSEMBLY.search(f"{error}\n{printed}")
    if found is None:
        return ""
    places = [step.place for step in barriers.Code(assembly).steps if step.place and step.line <= int(found[1])]
    return places[-1] if places else ""


# Gets a row, the compiled kernel (None if the compiler refused it), and what the compiler raised.
OnRow = Callable[[CompiledKernel, Any, "Exception | None"], None]
_READING = "reading.json"
# Another reader may find something else in the same binary.
_READER = b"".join(Path(str(module.__file__)).read_bytes() for module in (barriers, binary, order))


class Recorder:
    """Wraps `triton.compile`: each specialization that the JIT asks for becomes a row in the journal, once."""

    def __init__(self, card: Architecture, journal: Journal, gates: Gates | None = None, root: Path | None = None) -> None:
        """`root` is the package's folder: source files in it are named relative to it. `on_row` is called with each new row."""
        import triton.compiler

        self.card, self.journal, self.gates, self.root = card, journal, gates, root
        self.on_row: OnRow | None = None
        self.kernel = self.origin = ""
        self.failure: Exception | None = None
        self.refused: tuple[Exception, CompiledKernel] | None = None
        self._compile = triton.compiler.compile
        self._loaded: dict[bytes, tuple[int, int, int]] = {}
        self._rows: dict[str, tuple[CompiledKernel, dict[str, str]]] = {}  # by the binary's hash, with what is not known of it
        self._refused: set[tuple[str, str]] = set()  # binaries, and why they cannot be launched
        triton.compiler.compile = self.compile

    def compile(self, src: Any, target: Any = None, options: Any = None, **rest: Any) -> Any:
        """Compile, read the binary, write the row to the journal. A compiler error is a row too, and is raised to the caller."""
        base = self._describe(src, target, options or {})
        cost, said = _Cost(), written_so_far()
        try:
            with announced(src, self.journal):
                compiled = self._compile(src, target=target, options=options, **rest)
        except Exception as error:
            row = dataclasses.replace(base, verdict=Verdict.FAILED, reason=describe_refusal(error, said))
            self.failure, self.refused = error, (error, row)
            self._write(row, None, error)
            raise
        try:
            spent = cost.spent(compiled)  # before the binary is read, which takes time, too
            row = dataclasses.replace(self._read(base, compiled), **spent)
        except Exception as error:  # our reading failed; the author's kernel has compiled
            traceback.print_exc()
            row = dataclasses.replace(base, verdict=Verdict.INVALID, reason=f"its binary could not be read: {describe(error)}")
        judged = judge(row, self.gates, self._unknown(compiled.asm)) if self.gates else row
        self._rows[compiled.hash] = row, self._unknown(compiled.asm)
        self._write(judged, compiled)
        return compiled

    def follow(self, binary: str, followed: Followed) -> None:
        """Write the row of a kernel again if a launch of it does something new with undefined lanes, or could not be followed."""
        row, unknown = self._rows.get(binary, (None, {}))
        if row is None or self.gates is None or any(refused == binary for refused, _ in self._refused):
            return
        found = dict.fromkeys((*row.undefined_lanes, *(each.sentence for each in followed.found)))
        told = {name: text for name, text in (("undefined_lanes", followed.why), (POSSIBLE, followed.unsure)) if text}
        new = dataclasses.replace(row, undefined_lanes=tuple(found)), {**unknown, **told}
        if new != (row, unknown):
            self._rows[binary] = new
            self._write(judge(new[0], self.gates, new[1]), None)

    def refuse_launch(self, binary: str, reason: str) -> None:
        """Write the row of a kernel that compiles and cannot be launched, once for each reason, whatever numbers it has."""
        kind = binary, re.sub(r"\d+", "", reason)
        if binary in self._rows and kind not in self._refused:
            self._refused.add(kind)
            row = self._rows[binary][0]
            told = {"kernel": self.kernel, "origin": self.origin, "verdict": Verdict.FAILED, "reason": reason, "broken": {}, "advice": {}}
            self._write(dataclasses.replace(row, **told), None)  # type: ignore[arg-type]

    def load(self, binary: bytes) -> tuple[int, int, int]:
        """Return registers, spills and the thread limit of a binary compiled here: occupancy code asks a loaded kernel for them."""
        return self._loaded.get(_digest(binary), (0, 0, self.card.program_threads))

    def _describe(self, src: Any, target: Any, options: dict[str, Any]) -> CompiledKernel:
        names = src.fn.arg_names
        return CompiledKernel(
            kernel=self.kernel,
            function=src.name,
            architecture=self.card.name,
            card=self.card.card,
            verdict=Verdict.PASSED,
            origin=self.origin,
            signature={str(name): str(kind) for name, kind in src.signature.items() if kind != "constexpr"},
            constants={names[path[0]]: _plain(value) for path, value in src.constants.items() if len(path) == 1},
            attributes={names[path[0]]: _told(told) for path, told in src.attrs.items() if len(path) == 1 and told},
            num_warps=options.get("num_warps"),
            num_stages=options.get("num_stages"),
            options=_asked(target, options),
            source=source_of(src.fn, self.root),
        )

    def _read(self, base: CompiledKernel, compiled: Any) -> CompiledKernel:
        metadata, reading = compiled.metadata, read_once(compiled)
        first = compiled.asm.get("ttir", "")
        self._loaded[_digest(compiled.kernel)] = (reading.registers or 0, reading.spills or 0, self.card.program_threads)
        row = dataclasses.replace(
            base,
            num_warps=metadata.num_warps,
            num_stages=getattr(metadata, "num_stages", None),
            binary_hash=_digest(compiled.kernel).hex(),
            binary_bytes=len(compiled.kernel),
            shared_bytes=metadata.shared,
            unnamed_precision=unnamed_products(first) if first else (),
            **dataclasses.asdict(reading),
        )
        if inline := left_out(compiled.asm):
            reason = f"the compiler left out inline assembly that it does not understand for this card: {inline}"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        # The compiler checks none of these limits; the launch on the card does.
        limit, threads = self.card.properties["max_shared_mem"], metadata.num_warps * self.card.warp_size
        most = self.card.program_threads
        if metadata.shared > limit:
            reason = f"needs {metadata.shared} bytes of shared memory, {self.card.name} has {limit}"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        if threads > most:
            reason = f"{metadata.num_warps} warps of {self.card.warp_size} are {threads} threads, {most} can be launched"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        if (columns := getattr(metadata, "tmem_size", None) or 0) > _TENSOR_MEMORY:
            reason = f"needs {columns} columns of tensor memory, {self.card.name} has {_TENSOR_MEMORY}"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        if self.card.multiprocessor is None or row.registers is None:
            return row
        fits = occupancy(self.card.multiprocessor, metadata.num_warps, row.registers, metadata.shared, row.sgprs)
        if not fits.programs and "registers" in fits.limited_by:
            reason = f"{row.registers} registers of each of {threads} threads are more than a multiprocessor of {self.card.name} has"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        return dataclasses.replace(row, programs=fits.programs, resident_warps=fits.warps, occupancy=fits.share, limited_by=fits.limited_by)

    def _unknown(self, asm: Any) -> dict[str, str]:
        """Return why the figures that gates need are not known on this card, by gate."""
        why = {} if is_known(asm) else dict.fromkeys(FIGURES, f"warpwave cannot read binaries of the backend {self.card.backend}")
        why["compile_time"] = "Triton had it in its cache, compiled by another program"
        why["compile_memory"] = f"{why['compile_time']}, or this system does not say how much memory a process takes"
        return why if self.card.multiprocessor else {**why, "occupancy": f"targets.yml has no limits for {self.card.name}"}

    def _write(self, row: CompiledKernel, compiled: Any, error: Exception | None = None) -> None:
        self.journal.write("kernel", row=dataclasses.asdict(row))
        if self.on_row:
            self.on_row(row, compiled, error)


def source_of(function: Any, root: Path | None) -> str:
    """Return `file.py:line` of a kernel's `def`, relative to `root` if it is in there; empty if there is no file."""
    code = getattr(getattr(function, "fn", None), "__code__", None)
    if code is None:
        return ""
    path = Path(code.co_filename)
    shown = path.relative_to(root).as_posix() if root and path.is_relative_to(root) else "/".join(path.parts[-2:])
    lines = getattr(function, "raw_src", ())
    above = next((number for number, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
    return f"{shown}:{code.co_firstlineno + above}"


def read_once(compiled: Any) -> Reading:
    """Return what the binary says. It is kept beside the binary in Triton's cache, because disassembling is slower than loading."""
    from triton.runtime.cache import get_cache_manager

    kept = get_cache_manager(hashlib.sha256(_READER + compiled.kernel).hexdigest())
    if path := kept.get_file(_READING):
        told: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        told = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
        return Reading(**told)
    reading = read(compiled.asm)
    if reading.registers is not None:  # otherwise a tool was missing or hung, and may be there the next time
        kept.put(json.dumps(dataclasses.asdict(reading)), _READING, binary=False)
    return reading


def _asked(target: Any, options: dict[str, Any]) -> dict[str, Scalar]:
    """Return what a launch asks of the compiler beside warps and stages, without what is the compiler's default."""
    from triton.compiler.compiler import make_backend

    usual = vars(make_backend(target).parse_options({})) if target else {}
    others = {name: value for name, value in options.items() if name not in ("num_warps", "num_stages")}
    return {name: _plain(value) for name, value in others.items() if name not in usual or value != usual[name]}


def _plain(value: Any) -> Scalar:
    value = getattr(value, "value", value)
    return finite(value) if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _digest(binary: bytes) -> bytes:
    return hashlib.sha256(binary).digest()


def _told(attributes: Any) -> str:
    """Return what the JIT found out about an argument, in words: `tt.divisibility=16`."""
    return ",".join(sorted(f"{name}={value}" for name, value in attributes))


# What a compilation costs.

_COST = "cost.json"
_TICK = 0.01  # s, of the clock that a file system dates files by


class _Cost:
    """Measures from now on, in this thread: CPU time, which a busy machine changes less than the time of day, and the peak of memory."""

    def __init__(self) -> None:
        self._start = 0
        with contextlib.suppress(AttributeError, OSError):  # another C library than glibc, or no /proc
            ctypes.CDLL(None).malloc_trim(0)  # what earlier compilations have freed would hide what this one takes
            Path("/proc/self/clear_refs").write_text("5")  # the peak is what is there now
            self._start = _peak()
        self._began, self._seconds = time.time(), _cpu_seconds()

    def spent(self, compiled: Any) -> dict[str, Any]:
        """Return the `seconds` and `peak_bytes` of a row. What Triton had in its cache has those of its compilation, if they are kept."""
        from triton.runtime.cache import get_cache_manager

        seconds = round(_cpu_seconds() - self._seconds, 3)
        found = {"seconds": seconds, "peak_bytes": max(0, _peak() - self._start) if self._start else None}
        kept = get_cache_manager(hashlib.sha256(f"cost of {compiled.hash}".encode()).hexdigest())
        if all(Path(file).stat().st_mtime >= self._began - _TICK for file in compiled.metadata_group.values()):
            kept.put(json.dumps(found), _COST, binary=False)
        else:
            path = kept.get_file(_COST)
            found = json.loads(Path(path).read_text(encoding="utf-8")) if path else {"seconds": 0.0, "peak_bytes": None}
        return found


def _cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_THREAD, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak() -> int:
    """Return the most memory that this process had since its peak was reset, in bytes; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
        return 1024 * int(found[1]) if found else 0
    return 0


# How long Triton compiles in this process: a card waits meanwhile.


@contextlib.contextmanager
def announced(src: Any, journal: Journal) -> Iterator[None]:
    """Tell the journal what is compiled: the compiler may end the process."""
    code = getattr(getattr(getattr(src, "fn", None), "fn", None), "__code__", None)
    place = f"`{code.co_name}` ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else "a kernel"
    journal.write("compiling", kernel=place, function=code.co_name if code else "")
    try:
        yield
    finally:
        journal.write("compiling", kernel="")


class Compiling:
    """Counts the `seconds` that Triton's compiler takes."""

    def __init__(self, journal: Journal) -> None:
        self.seconds, self._journal = 0.0, journal
        self._wrapped: Any = None

    def watch(self) -> None:
        """Begin to count, once Triton is imported. Costs nothing before and after."""
        module: Any = sys.modules.get("triton.compiler")
        if module is None or self._wrapped is not None or not hasattr(module, "compile"):
            return
        compile_kernel = module.compile

        def compile_and_count(src: Any, *args: Any, **options: Any) -> Any:
            started = time.monotonic()
            try:
                with announced(src, self._journal):
                    return compile_kernel(src, *args, **options)
            finally:
                self.seconds += time.monotonic() - started

        self._wrapped = module.compile = compile_and_count
