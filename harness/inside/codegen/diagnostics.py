"""What MLIR says of a kernel that it refuses. Triton raises `PassManager::run failed`, and the reason goes to standard error alone."""

from __future__ import annotations

import os
import re
import stat

from harness.inside.process.exceptions import describe

_STDERR = 2
_MOST_BYTES = 1 << 16  # a failed pass prints the whole kernel, too; what is wrong stands before it
_SAYS_NOTHING = re.compile(r"PassManager::run failed|error encountered during parsing|failed to translate module|assembler rejected")
# `file.py:3:7: error: …`, `loc("file.py":3:7): error: …`, or another place; then the line that is wrong
_DIAGNOSTIC = re.compile(r"""(?:([^\s/"(]+\.py)"?:(\d+):\d+\)?: )?error: (.+)(?:\n\s+(\S.*))?""")


def written_so_far() -> int:
    """Return how long the file is that standard error goes to, or -1 if it is none."""
    found = os.fstat(_STDERR)
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def describe_refusal(error: Exception, since: int) -> str:
    """Return a compiler's exception in one line, with what was written to standard error `since` then if it says nothing by itself."""
    text = describe(error)
    found = _DIAGNOSTIC.search(_read(since)) if _SAYS_NOTHING.search(text) and since >= 0 else None
    if found is None:
        return text
    file, line, said, wrong = found.groups()
    place = f"{file}:{line}" if file else (wrong or "").strip()[:80]
    return f"{text}: {said.strip()[:300]}" + (f" ({place})" if place else "")


def _read(since: int) -> str:
    try:
        with open(f"/proc/self/fd/{_STDERR}", "rb") as file:
            file.seek(since)
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
