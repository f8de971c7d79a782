"""Triton's own sanitizers, where kernels run on a card: those that its release has for this card.

ConSan checks that accesses to shared memory are ordered: by asynchronous copies, matrix instructions and barriers. GSan, if the environment
asks for it, checks instead that accesses of programs to global memory are. Either is compiled into the kernel. A check that fails prints an
assertion to standard error, which is the stage's log; the device then takes no further work from this process. FpSan is used to compare
schedules: see `schedules.py`.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from warpwave.inside.fake_gpu.emulated_findings import Collected, finding
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import statement
from warpwave.inside.sanitize.pytest_plugin import Sanitized
from warpwave.inside.sanitize.schedules import Schedules, in_mode
from warpwave.records import Defect, Finding, NotRun

# CUDA: /k.py:19: unknown: block: [0,0,0], thread: [0,0,0] Assertion `…` failed.
# HIP: /k.py:19: f: Device-side assertion `…' failed.
_ASSERTION = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+): (?P<name>[^\n]*?)(?:: block: \[(?P<block>\d+,\d+,\d+)\], thread: \[[\d,]+\])?"
    r"(?:: Device-side a| A)ssertion `(?P<text>[^\n]*?)['`] failed",
    re.MULTILINE,
)
# An assertion of the kernel's author has other words. The first are ConSan's, the other GSan's.
_IN_SHARED = re.compile(
    r"pending access|outstanding (?:reads|writes|commits)|^Barrier (?:arrive underflow|invalidated while|re-initialized|used before)"
    r"|^Shared memory reused before barrier|^Async shared-memory access is missing|^Deadlock detected",
    re.IGNORECASE,
)
_IN_GLOBAL = re.compile(r"(\w+ after \w+) race detected")
_LIMIT = re.compile(r"\bGSan\b|^Vector clock overflowed")
_FINDS = {
    "consan": "ConSan checked the order of accesses to shared memory",
    "gsan": "GSan checked the order of programs' accesses to global memory",
    "fpsan": "FpSan compared kernels with themselves on twice as many warps and in one stage",
}
# Of what a kernel's first code stores to: the type of an element.
_STORED = re.compile(
    r"(?:tt\.(?:store|atomic_\w+|descriptor_(?:store|reduce|scatter))|async_tma_(?:copy_local_to_global|reduce|scatter))"
    r".*(?:ptr<|tensordesc<(?:tensor<)?(?:\d+x)*)[a-z]*(\d+)"
)
_UNORDERED = re.compile(r"isVolatile = true|tt\.descriptor_reduce|async_tma_reduce")
_WORD = 32  # bits of memory that GSan keeps one record of
_SMALL = f"GSan did not check kernels that store elements of fewer than {_WORD // 8} bytes: of two in one word it knows only the word"
_PLAIN = "GSan did not check kernels with volatile loads or reductions into a descriptor's memory: it takes them for plain accesses"
_STREAMS = "GSan did not check launches that overlap, on a second stream or with launch_pdl: it does not know what torch does between them"
_SHADOW = "GSan needs 7 times the memory of a test's tensors, which is more than the card has"
_CLOCKS = "GSan did not check all launches: it counts programs and releases of each multiprocessor with 16 bits, and these were more"
_MOST_PROGRAMS = 30_000  # of each multiprocessor on average, so that the busiest stays within the 16 bits


def of_kernels_on_a_card(plugins: pytest.PytestPluginManager, journal: Journal) -> None:
    """Let Triton check what the tests launch; raise `pytest.UsageError` if it has no sanitizer."""
    from triton import __version__, knobs

    if not hasattr(knobs.compilation, "instrumentation_mode"):
        raise pytest.UsageError(
            f"--sanitize was given, and Triton {__version__} has no sanitizer for a card. ConSan came with Triton 3.5. Run the target "
            "`cpu` or an emulated one, or leave --sanitize out."
        )
    asserted = Asserted(Path("/proc/self/fd/2").readlink())
    plugins.register(Sanitized(journal, asserted), "warpwave-sanitized")
    plugins.register(Sanitizers(journal, asserted), "warpwave-sanitizers")


class Sanitizers:
    """A pytest plugin that turns on what Triton has for this card before the first test."""

    def __init__(self, journal: Journal, asserted: Asserted) -> None:
        from triton.runtime.jit import JITFunction

        self.journal, self._asserted, self._begun = journal, asserted, False
        self.modes: list[str] = []
        self._none = ""
        self._schedules = Schedules(JITFunction.run, asserted)
        self._pool: Any = None  # memory that GSan follows
        self._noted: set[str] = set()
        self._left_out: set[Any] = set()  # functions that GSan does not follow
        self._streams: dict[int, int] = {}
        self._programs: dict[int, float] = {}  # that have run, of each multiprocessor of a device

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin, once; and anew before GSan's numbers end."""
        if not self._begun:
            self._begun = True
            self._begin()
        elif max(self._programs.values(), default=0) > _MOST_PROGRAMS / 2 and self._pool:
            self._begin_anew()
        self._schedules.next_test()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Skip a test that GSan cannot follow: for its records there is no room, or its numbers end. Say if nothing checks this card."""
        import torch

        try:
            result = yield
        except Exception as error:
            why = _SHADOW if isinstance(error, torch.OutOfMemoryError) and self._pool else ""
            if not (why or self._asserted.is_beyond):
                raise
        else:
            why = ""
            if not self._asserted.is_beyond:
                if self._begun and not self.modes:
                    item.user_properties.append((NotRun.NOT_FOLLOWED.value, self._none))
                return result
        item.user_properties.append((NotRun.NOT_FOLLOWED.value, why or _CLOCKS))
        pytest.skip(why or _CLOCKS)

    def _begin(self) -> None:
        import torch
        from triton import __version__, knobs
        from triton.runtime import _allocation, driver
        from triton.runtime.jit import JITFunction

        here = _of_triton(driver.active.get_current_target())
        self.modes = _chosen(here, knobs.compilation.instrumentation_mode)
        # Their checks need memory of their own. A contextvar would not reach the package's threads.
        _allocation.NullAllocator.__call__ = lambda self, size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8)
        if "gsan" in self.modes and not self._follow_memory():
            self.modes = _chosen(here, "")
        knobs.compilation.instrumentation_mode = self._usual()  # of what is compiled now and launched later, too
        JITFunction.run = self._checking(JITFunction.run)  # type: ignore[method-assign,unused-ignore]
        self._none = f"Triton {__version__} has no sanitizer for this card"
        words = "; ".join(_FINDS[mode] for mode in self.modes)
        self.journal.write("note", text=f"Triton {__version__}: {words}" if words else self._none)

    def _follow_memory(self) -> bool:
        """Take tensors from memory that GSan keeps records of, in all threads. Return whether it can: it needs a C++ compiler."""
        import torch
        from triton.experimental.gsan._allocator import create_mem_pool

        try:
            pool = create_mem_pool()
        except Exception as error:  # of the compiler, or the driver; nothing of this is promised
            self.journal.write("note", text=f"GSan could not begin, and checked nothing: {error}"[:500])
            return False
        self._pool = pool
        for device in range(torch.cuda.device_count()):
            torch._C._cuda_beginAllocateToPool(device, pool.id)
        return True

    def _begin_anew(self) -> None:
        """Forget all accesses, if no tensor is alive that they are of."""
        import torch
        from triton.experimental.gsan import _allocator, _stream_sync

        for device in range(torch.cuda.device_count()):
            torch._C._cuda_endAllocateToPool(device, self._pool.id)
            torch._C._cuda_releasePool(device, self._pool.id)
        self._pool = None
        _stream_sync._reset_caches()  # GSan's own tensors come from the pool, too
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        try:
            _allocator.reset()
        except AssertionError:  # a fixture's, say
            self.modes.remove("gsan")
            self.journal.write("note", text=_CLOCKS)
        else:
            self._programs.clear()
            if not self._follow_memory():
                self.modes.remove("gsan")

    def _checking(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return `JITFunction.run` with what each launch is checked by."""

        def launch(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return run(function, *args, grid=grid, warmup=True, **kwargs)
            # As it will probably be launched, to compile once.
            with in_mode(self._usual() if function in self._left_out else self._all()):
                compiled = run(function, *args, grid=grid, warmup=True, **kwargs)
            if compiled is None:  # a package's hook compiles elsewhere
                return run(function, *args, grid=grid, warmup=False, **kwargs)
            code = first_code(compiled)
            if "fpsan" in self.modes:
                self._note(self._schedules.compare(function, args, grid, kwargs, compiled, code))
            programs = _programs(function, args, grid, kwargs) if "gsan" in self.modes else 0
            why = self._not_followed(compiled, code, programs) if programs else ""
            if why:
                self._left_out.add(function)
                self._note(why)
            # A launch without programs would not pass on what GSan knows of the launches before it.
            with in_mode(self._all() if programs and not why else self._usual()):
                return run(function, *args, grid=grid, warmup=False, **kwargs)

        return launch

    def _note(self, text: str) -> None:
        if text and text not in self._noted:
            self._noted.add(text)
            self.journal.write("note", text=text)

    def _not_followed(self, compiled: Any, code: str, programs: int) -> str:
        """Say why GSan cannot follow a launch; count its programs if it can."""
        import torch
        from triton.runtime import driver

        device = driver.active.get_current_device()
        stream = driver.active.get_current_stream(device)
        each = programs / torch.cuda.get_device_properties(device).multi_processor_count + 1
        if stores_parts_of_words(code):
            return _SMALL
        if _UNORDERED.search(code):
            return _PLAIN
        if self._streams.setdefault(device, stream) != stream or getattr(compiled.metadata, "launch_pdl", False):
            return _STREAMS
        if self._programs.get(device, 0) + each > _MOST_PROGRAMS:
            return _CLOCKS
        self._programs[device] = self._programs.get(device, 0) + each
        return ""

    def _usual(self) -> str:
        return "consan" if "consan" in self.modes else ""

    def _all(self) -> str:
        return ",".join(mode for mode in self.modes if mode != "fpsan")


def first_code(compiled: Any) -> str:
    """Return the first code that Triton keeps of a kernel; of one in Gluon, that is the second."""
    return str(compiled.asm.get("ttir") or compiled.asm.get("ttgir") or "")


def stores_parts_of_words(code: str) -> bool:
    """Return whether a kernel stores elements that share a word with others."""
    return any(int(bits) < _WORD for bits in _STORED.findall(code))


def _programs(function: Any, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any]) -> int:
    if callable(grid):
        defaults = {each.name: each.default for each in function.params if each.has_default}
        grid = grid({**defaults, **dict(zip(function.arg_names, args, strict=False)), **kwargs})
    return math.prod(grid)


def _chosen(modes: Sequence[str], asked: str) -> list[str]:
    """Return those of a Triton's sanitizers that run: GSan, which is slow, only if it is asked for, and ConSan only without it.

    Compiled into one kernel, the two report races of accesses that only one program makes (Triton 3.9).
    """
    left_out = "consan" if "gsan" in asked and "gsan" in modes else "gsan"
    return [mode for mode in modes if mode != left_out]


def _of_triton(target: Any) -> list[str]:
    """Return the sanitizers that this Triton's compiler has for a card."""
    from triton.backends import backends

    compiler = next(sys.modules[one.compiler.__module__] for one in backends.values() if one.compiler.supports_target(target))
    source, architecture = inspect.getsource(compiler), str(target.arch).partition(":")[0]
    return [mode for mode in _FINDS if f'"{mode}"' in source and getattr(compiler, f"is_{mode}_supported", lambda _: True)(architecture)]


class Asserted(Collected):
    """The assertions of sanitizers in what was printed to the file `log` since the last time, and what else was found.

    `is_beyond` says whether GSan has met its own limits. The device takes no further work then, as after a finding.
    """

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log, self._read, self.is_beyond = log, log.stat().st_size, False

    def take(self) -> list[Finding]:
        """Wait for the card, and return a row for each line of a kernel that has made a wrong access."""
        import torch

        with contextlib.suppress(RuntimeError):  # if no assertion has failed, the plugin's own check of the card reports it
            torch.accelerator.synchronize()
        with open(self._log, "rb") as file:
            file.seek(self._read)
            printed = file.read()
        self._read += len(printed)
        return [*self.rows(printed.decode(errors="replace")), *super().take()]

    def rows(self, printed: str) -> list[Finding]:
        """Return what was printed as rows."""
        self.is_beyond = self.is_beyond or any(_LIMIT.search(found["text"]) for found in _ASSERTION.finditer(printed))
        return findings(printed)


def findings(printed: str) -> list[Finding]:
    """Return the rows of a log, each line of a kernel once."""
    rows: dict[tuple[str, str], Finding] = {}
    for found in _ASSERTION.finditer(printed):
        shared, order = _IN_SHARED.search(found["text"]), _IN_GLOBAL.fullmatch(found["text"])
        if not (shared or order):
            continue
        said = f"global memory: {order[1].lower()}, and nothing orders the two" if order else f"shared memory: {found['text']}"
        file, line = found["file"], int(found["line"])
        program = tuple(map(int, found["block"].split(","))) if found["block"] else ()
        row = finding(
            function=_function_at(file, line),
            defect=Defect.RACE,
            access="shared" if shared else "global",
            program=program,
            file=file,
            line=line,
            text=statement(file, line),
            other=f"{said}{f', program {program}' if program else ''}",
        )
        rows.setdefault((file, found["line"]), row)
    return [*rows.values()]


def _function_at(file: str, line: int) -> str:
    """Return the innermost function at a line; `unknown` if the file cannot be read."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return "unknown"
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno).name if around else "unknown"
