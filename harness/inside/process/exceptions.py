"""The exceptions of pretended hardware, and how a row of a report describes those of a package's code and of compilers."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.records import StageReport, Verdict, worst

_TOOLS_ERROR = re.compile(r"\b(?:error|fatal)\s*: (.+)")
_NOT_BELIEVED = "Something in the package changes how it is run or reported. Read its source; SECURITY.md says what can be relied on."


class DecidedByData(RuntimeError):  # noqa: N818 - it is no error of anyone
    """The host's code decides by the data of a tensor, and a pretended GPU has none: what it would do next is unknown."""


class NotPretended(NotImplementedError):  # noqa: N818 - as above
    """A package asked for something that a real GPU has and the pretended one lacks: a gap of warpwave, and no fault of the package."""


NOT_BUILT = "is compiled code of the package, which is not built here"


class NotBuilt(NotPretended):
    """A package called an extension of its own that is not built here."""


def doubted(report: StageReport, doubts: Iterable[str]) -> StageReport:
    """Return a report marked as invalid if there are `doubts`, which then come first in its reason."""
    wrong = tuple(doubts)
    if not wrong:
        return report
    reason = "; ".join([*wrong, *([report.reason] if report.reason else [])])[:500]
    verdict = worst([report.verdict, Verdict.INVALID])
    return dataclasses.replace(report, verdict=verdict, reason=reason, hint=report.hint or _NOT_BELIEVED, doubts=wrong)


def few(cases: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(cases[:3]) + (f" and {len(cases) - 3} more" if len(cases) > 3 else "")


def describe(error: BaseException) -> str:
    """Return an exception in one line: the first, or the last if the first only gives a position, as Triton's compiler does: `at 2:37:`.

    For an error in a function that a kernel calls, the last line is only a mark under the call; the cause says what happened.
    """
    error = raised_in_kernel(error) or error
    if formatted := getattr(error, "formatrepr", None):  # pytest's, for a fixture that does not exist
        return str(formatted().errorstring).strip().splitlines()[0][:300]
    while str(error).rstrip().endswith("^") and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    text = f"{lines[-1]} ({lines[0].rstrip(':')})" if lines[0].endswith(":") else _of_tool(lines) or lines[0]
    return f"{type(error).__name__}: {text[:300]}"


_HARNESS = Path(__file__).parents[2]


def place_in(error: BaseException, root: Path) -> str:
    """Return the last line of a package that an error passed, as `file.py:17`; empty if it passed none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        own = file.is_relative_to(_HARNESS)  # its copy for a run may be below the package
        if file.is_relative_to(root) and not own and "site-packages" not in file.relative_to(root).parts:
            return f"{file.relative_to(root).as_posix()}:{frame.lineno}"
    return ""


def raised_in_kernel(error: BaseException | None) -> BaseException | None:
    """Return what a kernel raised in Triton's interpreter, which wraps it at each call: `InterpreterError("InterpreterError('…')")`."""
    found = None
    while type(error).__name__ == "InterpreterError" and error is not None and error.__cause__:
        found = error = error.__cause__
    return found


def _of_tool(lines: Sequence[str]) -> str:
    """Return the first error of a tool that a compiler has run, without its temporary file: Triton quotes ptxas far below its own words."""
    start = next((place for place, line in enumerate(lines) if line.endswith("stderr:")), len(lines))
    return next((found[1] for line in lines[start + 1 :] if (found := _TOOLS_ERROR.search(line))), "")
