"""Why a test or a point did not run, or not to its end, from the exception that ended it."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
import traceback
import unittest
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType

from harness.inside.process.exceptions import NOT_BUILT, DecidedByData, NotPretended, describe
from harness.inside.process.pretended_answers import compares_pretended
from harness.records import NotRun, StageReport, Verdict

_FAKE_GPU = "harness.inside.fake_gpu"
# What torch and Triton say where there is no card. A card is pretended, so somebody asked the real driver.
_NO_CARD = re.compile(
    r"not compiled with .{1,40} enabled|not compiled with \w+ support|not linked with support for \w+ devices"
    r"|No \w+ GPUs are available|Found no \w+ driver|0 active drivers|driver initialization failed"
    r"|no fake impl or Meta kernel registered|on the expected device meta|Could not run '\S+' with arguments from the '\w+' backend"
    r"|Tensor on device meta is not on|doesn't have \w+ built in|no pinned memory allocator is available"
    r"|SymmetricMemory does not support device type|device_type mismatch, expected \w+"
    r"|'[\w/]*-smi\b"  # a vendor's tool that asks its driver
    r"|Could not find `lib\w+\.so`\. Make sure it is in your LD_LIBRARY_PATH"  # Triton, of a vendor's matrix library
    # torch's CPU, on which a pretended card computes: of a dtype that it lacks, and of whole numbers divided by zero
    r"|^\"\w+\" not implemented for '\w+'$|^ZeroDivisionError$"
    r"|\[PROTON\] (Could not load `lib|Failed to execute )",  # Triton's profiler, which asks the driver
    re.IGNORECASE,
)
# What `ctypes` says of a library that is not there.
_NO_LIBRARY = re.compile(r"^(lib[\w-]+\.so)[.\d]*: cannot open shared object file")
# What torch says where a tensor without data is asked for it.
_NO_DATA = re.compile(
    r"Cannot copy out of meta tensor|cannot be called on meta tensors|convert meta device type tensor|doesn't have storage"
    r"|_local_scalar_dense|data[- ](in)?dependent|depends on the data of a tensor|aten::(nonzero|unique\w*|masked_select|equal)\b"
    r"|\bUnknown(Int|Float|Truth)\b",  # C code takes only plain numbers
    re.IGNORECASE,
)
# How Python names the function in a TypeError about its arguments: `patches.<locals>.<lambda>() takes …`
_CALLED = re.compile(r"^([A-Za-z_]\w*)(?:[\w.<>]*)\(\) ")
_GAP = "This is a gap of warpwave, and no fault of the package: report it with that text. On a card, these run."
_BUILD_IT = (
    "The package's build script names that extension, and its compiler is not here. "
    "Test this where the extension is installed, or leave it out."
)
_GAPS = (AttributeError, NotImplementedError, TypeError, KeyError)


def with_reasons(report: StageReport, reasons: Mapping[NotRun, int], noun: str, gap: str) -> StageReport:
    """Return the report of a stage with what did not run. If something is not pretended, the stage is incomplete, and `gap` says what.

    A test that failed on its own still shows as a failed one, and decides the exit code.
    """
    report = dataclasses.replace(report, not_run={why.value: reasons[why] for why in NotRun if reasons.get(why)})
    missing = reasons.get(NotRun.NOT_PRETENDED, 0)
    if not missing or report.verdict.severity > Verdict.INCOMPLETE.severity:
        return report
    many = f"{missing} {noun}" if missing == 1 else f"{missing} {noun}es" if noun.endswith("ch") else f"{missing} {noun}s"
    text = f"{many} need{'s' if missing == 1 else ''} what warpwave does not pretend without a GPU: {gap}"
    return dataclasses.replace(report, verdict=Verdict.INCOMPLETE, reason=text[:500], hint=_BUILD_IT if NOT_BUILT in gap else _GAP)


def why_not_run(error: BaseException) -> NotRun:
    """Return the reason. An exception that nothing explains is `RAISED`: whose fault it is, only a card can say."""
    pytest = sys.modules.get("pytest")
    if isinstance(error, unittest.SkipTest) or (pytest and isinstance(error, pytest.skip.Exception)):
        return NotRun.SKIPPED
    if pytest and isinstance(error, pytest.xfail.Exception):
        return NotRun.XFAILED
    if several := _in_group(error):
        reasons = set(map(why_not_run, several))
        return reasons.pop() if len(reasons) == 1 else NotRun.RAISED
    for each in _chain(error):
        text = str(each)
        if isinstance(each, DecidedByData) or (_NO_DATA.search(text) and isinstance(each, (RuntimeError, TypeError, ValueError))):
            return NotRun.DATA
        if isinstance(each, NotPretended) or _NO_CARD.search(text) or _is_gap(each) or compares_pretended(each):
            return NotRun.NOT_PRETENDED
        if isinstance(each, BrokenProcessPool) or (isinstance(each, subprocess.CalledProcessError) and _is_python(each.cmd)):
            return NotRun.NOT_PRETENDED  # other processes do not see the pretended card
        if isinstance(each, OSError) and (library := _NO_LIBRARY.search(text)) and library[1] in _drivers():
            return NotRun.NOT_PRETENDED
    return NotRun.IMPORT if isinstance(error, ImportError) else NotRun.RAISED


def _is_python(command: object) -> bool:
    """Whether a command starts another Python, which does not see the pretended card."""
    words = command.split() if isinstance(command, str) else list(command) if isinstance(command, (list, tuple)) else []
    return bool(words) and (str(words[0]) == sys.executable or re.fullmatch(r"python[\d.]*|torchrun", Path(str(words[0])).name) is not None)


def first_of_several(error: BaseException | None) -> str:
    """Return what the first exception of a group says, as Hypothesis raises one if examples fail in several ways; else an empty text."""
    several = _in_group(error)
    more = f" (and {len(several) - 1} more)" if len(several) > 1 else ""
    return (first_of_several(several[0]) or describe(several[0])) + more if several else ""


def _in_group(error: BaseException | None) -> tuple[BaseException, ...]:
    """Return the exceptions of a group. Python has groups since 3.11; before, a package brings them."""
    several = getattr(error, "exceptions", ())
    return several if isinstance(several, tuple) and all(isinstance(each, BaseException) for each in several) else ()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from, the last one first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_gap(error: BaseException) -> bool:
    """Return whether a stand-in lacks something: an attribute, a parameter, or a way to answer."""
    if not isinstance(error, _GAPS):
        return False
    if isinstance(error, AttributeError) and (_stands_in(getattr(error, "obj", None)) or _is_compilers(error)):
        return True
    called = _CALLED.match(str(error)) if isinstance(error, TypeError) else None
    if called and any(called[1] in vars(module) for name, module in list(sys.modules.items()) if name.startswith(_FAKE_GPU)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1:]
    # torch's own errors pass through the modes there, which only call on.
    return bool(last) and "/harness/inside/fake_gpu/" in last[0].filename and (last[0].line or "").startswith("raise ")


def _is_compilers(error: AttributeError) -> bool:
    """Return whether an interpreted kernel was asked for what one that is compiled has: `kernel.cache_key`, or `triton.compile` of it."""
    if type(error.obj).__name__ != "InterpretedFunction":
        return False
    from triton.runtime.jit import JITFunction

    name = str(error.name)
    return hasattr(JITFunction, name) or name in JITFunction.__init__.__code__.co_names


@functools.cache
def _drivers() -> str:
    """Return the code of Triton's drivers, which name their vendors' libraries."""
    folders = getattr(sys.modules.get("triton.backends"), "__path__", ())
    return "".join(file.read_text() for folder in folders for file in Path(folder).glob("*/driver.py"))


def _stands_in(owner: object) -> bool:
    """Return whether something is torch's module for a card, or a stand-in for what it returns."""
    if type(owner).__module__.startswith(_FAKE_GPU) or (isinstance(owner, type) and owner.__module__.startswith(_FAKE_GPU)):
        return True
    if hasattr(owner, "gcnArchName"):  # the properties of the card
        return True
    return isinstance(owner, ModuleType) and hasattr(owner, "device_count")
