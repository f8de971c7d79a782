"""Triton's own sanitizer, where kernels run on a card. ConSan checks that accesses to shared memory are ordered: by
asynchronous copies, matrix instructions and barriers.

Triton compiles the checks into the kernel. One that fails prints an assertion to standard error, which is the stage's log; the device then
takes no further work from this process.
"""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path

import pytest

from warpwave.inside.fake_gpu.emulated_findings import Collected, finding
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import statement
from warpwave.inside.sanitize.pytest_plugin import Sanitized
from warpwave.records import Defect, Finding

# CUDA: /k.py:19: unknown: block: [0,0,0], thread: [0,0,0] Assertion `…` failed.
# HIP: /k.py:19: f: Device-side assertion `…' failed.
_ASSERTION = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+): (?P<name>[^\n]*?)(?:: block: \[(?P<block>\d+,\d+,\d+)\], thread: \[[\d,]+\])?"
    r"(?:: Device-side a| A)ssertion `(?P<text>[^\n]*?)['`] failed",
    re.MULTILINE,
)
# An assertion of the kernel's author has other words.
_UNORDERED = re.compile(r"pending access|outstanding (?:reads|writes|commits)", re.IGNORECASE)


def of_kernels_on_a_card(plugins: pytest.PytestPluginManager, journal: Journal) -> None:
    """Let Triton check what the tests launch; raise `pytest.UsageError` if this Triton has no ConSan.

    Its checks need memory of their own, which torch allocates.
    """
    import torch
    from triton import __version__, knobs
    from triton.runtime import _allocation

    if not hasattr(knobs.compilation, "instrumentation_mode"):
        raise pytest.UsageError(
            f"--sanitize was given, and Triton {__version__} has no sanitizer for a card. ConSan came with Triton 3.5. Run the target "
            "`cpu` or an emulated one, or leave --sanitize out."
        )
    knobs.compilation.instrumentation_mode = "consan"
    # In place of the one that refuses. A contextvar would not reach the package's threads.
    _allocation.NullAllocator.__call__ = lambda self, size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8)
    journal.write("note", text=f"Triton {__version__}'s ConSan checked the order of accesses to shared memory")
    plugins.register(Sanitized(journal, Asserted(Path("/proc/self/fd/2").readlink())), "warpwave-sanitized")


class Asserted(Collected):
    """The assertions of ConSan in what was printed to the file `log` since the last time."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log, self._read = log, log.stat().st_size

    def take(self) -> list[Finding]:
        """Wait for the card, and return a row for each line of a kernel that has made a wrong access."""
        import torch

        with contextlib.suppress(RuntimeError):  # if no assertion has failed, the plugin's own check of the card reports it
            torch.accelerator.synchronize()
        with open(self._log, "rb") as file:
            file.seek(self._read)
            printed = file.read()
        self._read += len(printed)
        return self.rows(printed.decode(errors="replace"))

    def rows(self, printed: str) -> list[Finding]:
        """Return what was printed as rows."""
        return findings(printed)


def findings(printed: str) -> list[Finding]:
    """Return the rows of a log, each line of a kernel once."""
    rows: dict[tuple[str, str], Finding] = {}
    for found in _ASSERTION.finditer(printed):
        if not _UNORDERED.search(found["text"]):
            continue
        file, line = found["file"], int(found["line"])
        program = tuple(map(int, found["block"].split(","))) if found["block"] else ()
        row = finding(
            function=_function_at(file, line),
            defect=Defect.RACE,
            access="shared",
            program=program,
            file=file,
            line=line,
            text=statement(file, line),
            other=f"shared memory: {found['text']}{f', program {program}' if program else ''}",
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
