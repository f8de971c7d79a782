"""The exceptions of pretended hardware, and how a row of a report describes those of a package's code and of compilers."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import errno
import functools
import gc
import importlib
import itertools
import linecache
import multiprocessing.process
import re
import subprocess
import sys
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, ClassVar, ParamSpec, TypeVar

from warpwave.inside.process.judged import is_certain, is_own, judged, may_be_the_machines, refuses, substituted_module
from warpwave.inside.process.lacking import Package, is_near, missing_modules, missing_plugin, missing_program, pointer, unbuilt
from warpwave.inside.process.needs import sources
from warpwave.records import UNCHECKED, NotRun, StageReport, Verdict, worst

_TOOLS_ERROR = re.compile(r"\b(?:error|fatal)\s*: (.+)")
_NOT_BELIEVED = "Something in the package changes how it is run or reported. Read its source; SECURITY.md says what can be relied on."


_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")


def _or(otherwise: Callable[[BaseException], _Answer]) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Give another answer about an exception if asking it raises: its methods (`__str__`, `__eq__`) may be a package's code."""

    def guarded(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
        @functools.wraps(function)
        def ask(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Answer:
            try:
                return function(*args, **kwargs)
            except Exception:
                return otherwise(args[0])  # type: ignore[arg-type]

        return ask

    return guarded


class DecidedByData(RuntimeError):  # noqa: N818 - not an error of the package
    """The host's code decides by the data of a tensor, and a pretended GPU has none: what it would do next is unknown."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        Pretended.refused = True


class NotPretended(NotImplementedError):  # noqa: N818 - as above
    """A package asked for something that a real GPU has and the pretended one lacks: a gap of warpwave, and no fault of the package."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        Pretended.refused = True


Raised = TypeVar("Raised", bound=Exception)


def as_on_a_card(error: Raised) -> Raised:
    """Mark an error that torch or Triton raises on a card, too: it is the package's mistake, and no gap of the pretended card."""
    vars(error)["_of_a_card"] = True
    return error


class NotBuilt(NotPretended):
    """A package called an extension of its own that is not built here."""


class NeedsCard(NotPretended):
    """A package asked for what only a card has, or its driver: time, a handle for another process."""


def doubted(report: StageReport, doubts: Iterable[str]) -> StageReport:
    """Return a report marked as invalid if there are `doubts`, which then come first in its reason."""
    wrong = tuple(doubts)
    if not wrong:
        return report
    reason = "; ".join([*wrong, *([report.reason] if report.reason else [])])[:500]
    verdict = worst([report.verdict, Verdict.INVALID])
    return dataclasses.replace(report, verdict=verdict, reason=reason, hint=report.hint or _NOT_BELIEVED, doubts=wrong)


def few(cases: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(cases[:most]) + (f" and {len(cases) - most} more" if len(cases) > most else "")


@_or(lambda error: type(error).__name__)
def describe(error: BaseException) -> str:
    """Return an exception in one line: the first, or the last if the first only gives a position, as Triton's compiler does: `at 2:37:`.

    For an error in a function that a kernel calls, the last line is only a mark under the call; the cause says what happened.
    """
    if formatted := getattr(error, "formatrepr", None):  # pytest's, for a fixture that does not exist
        return str(formatted().errorstring).strip().splitlines()[0][:300]
    if type(error).__name__ == "ImportPathMismatchError":  # pytest's, whose words are a tuple
        advice = "rename one, put `__init__.py` beside each, or set --import-mode=importlib in addopts"
        return f"{type(error).__name__}: {_short(str(error.args[1]))} has the same name and was imported first: {advice}"
    if placed := with_place(error):
        return placed
    error = raised_in_kernel(error) or error
    while str(error).rstrip().endswith("^") and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, AssertionError):  # pytest writes below the author's words what was compared
        lines = lines[:1] + list(itertools.takewhile(lambda line: not line.startswith("assert "), lines[1:]))
    if not lines:
        return type(error).__name__
    text = f"{lines[-1]} ({lines[0].rstrip(':')})" if lines[0].endswith(":") else _of_tool(lines) or lines[0]
    return f"{type(error).__name__}: {text[:300]}"


def with_place(error: BaseException) -> str:
    """Return an exception in one line with the place that it is about, if its own words or its traceback lack that; else an empty text.

    Python's parser stops in a file that another one imports. A kernel is compiled, or interpreted, far below the line that is wrong.
    """
    if isinstance(error, SyntaxError):
        place = f" ({_short(error.filename)}:{error.lineno})" if error.filename and error.lineno else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    if failed := _of_doctest(error):
        return failed
    if raised := raised_in_kernel(error):
        error, said = raised, str(raised).strip()
        file, line = _interpreted_at(raised)
    else:
        while _is_compilers(error.__cause__):  # of the function that the kernel calls
            error = error.__cause__  # type: ignore[assignment]
        said = str(getattr(error, "error_message", None) or "").strip()
        file, line = _compiled_at(error) if _is_compilers(error) else ("", 0)
    if not line:
        return ""
    first = next(iter(said.splitlines()), "").strip()
    place = f"{Path(file).name}:{line}"
    text = first if place in first else f"{first} ({place})" if first else f"{place}: {statement(file, line)}".rstrip(": ")
    return f"{type(error).__name__}: {text[:400]}"


def _of_doctest(error: BaseException) -> str:
    """Return what an example of a docstring shows, what it should show, and where it is; empty for any other error."""
    doctest = sys.modules.get("doctest")
    error = next(iter(getattr(error, "failures", ())), error)  # pytest's, of several examples
    if doctest is None or not isinstance(error, (doctest.DocTestFailure, doctest.UnexpectedException)):
        return ""
    test, example, got = error.test, error.example, getattr(error, "got", "")
    shown = f"shows {_in_a_line(got) or 'nothing'}" if hasattr(error, "got") else f"raises {describe(error.exc_info[1])}"
    place = f" ({Path(test.filename).name}:{test.lineno + example.lineno + 1})" if test.filename and test.lineno is not None else ""
    return f"{type(error).__name__}: {_in_a_line(example.source)} {shown}, expected {_in_a_line(example.want) or 'nothing'}{place}"


def _in_a_line(text: str) -> str:
    found = " ".join(text.split())
    return found if len(found) <= 150 else f"{found[:150]} …"


def with_child(error: BaseException | None, message: str, printed: str | None) -> str:
    """Return a message with how a child process of the test ended, if that is why the test failed, and with the last of what it printed.

    `printed` is its output that the test did not capture; None if that is not known.
    """
    child = _failed_child(error)
    if child is None:
        return message
    code = getattr(child, "returncode", getattr(child, "exitcode", 0))
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    first, *rest = message.split("\n", 1)
    if isinstance(error, subprocess.CalledProcessError):
        words = error.cmd.split() if isinstance(error.cmd, str) else [str(word) for word in error.cmd]
        first = f"CalledProcessError: {' '.join([Path(words[0]).name, *words[1:]])[:80]}" if words else first
    lines = _said_by(child, printed)
    last = f"; it printed: {' / '.join(lines[-3:])[-300:]}" if lines else "" if printed is None else "; it printed nothing"
    return "\n".join([f"{first}: the child process ended with {how}{last}", *rest])


def _said_by(child: Any, printed: str | None) -> list[str]:
    """Return the lines that a child process printed, captured by the test or not."""
    said = [getattr(child, name, None) for name in ("stdout", "stderr")]
    texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in said if isinstance(each, (bytes, str)) and each]
    return [line.strip() for line in "\n".join([*texts, printed or ""]).splitlines() if line.strip()]


def _failed_child(error: BaseException | None) -> Any:
    """Return the child process whose failure an exception is about: its own, or one in the variables of the code that has raised."""
    if error is None or isinstance(error, subprocess.CalledProcessError):
        return error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    kinds = (subprocess.CompletedProcess, subprocess.Popen, multiprocessing.process.BaseProcess)
    known = [value for frame in frames[-1:] for value in frame.f_locals.values() if isinstance(value, kinds)]
    ended = (each for each in known if getattr(each, "returncode", None) or getattr(each, "exitcode", None))
    return next(ended, None) if isinstance(error, AssertionError) else None


def _is_compilers(error: BaseException | None) -> bool:
    return hasattr(error, "error_message") and hasattr(error, "src") and hasattr(error, "node")


def _short(file: str) -> str:
    """Return a file as the package calls it: below the uppermost folder that modules are imported from."""
    folders = sorted((folder for folder in sys.path if folder.startswith("/") and Path(file).is_relative_to(folder)), key=len)
    return Path(file).relative_to(folders[0]).as_posix() if folders else file


def _compiled_at(error: BaseException) -> tuple[str, int]:
    """Return file and line of what Triton's compiler refuses; line 0 if that is not known. It knows the source of one function alone."""
    node, source = getattr(error, "node", None), getattr(error, "src", None)
    file, first = _function_of(source) if isinstance(source, str) else ("", 0)
    line = getattr(node, "lineno", 0)
    return (file, first + line - 1) if file and line else ("", 0)


@functools.lru_cache(maxsize=64)
def _function_of(source: str) -> tuple[str, int]:
    """Return file and line of the `def` of a compiled function. Not every one is a variable of a module, so all that is alive is asked."""
    for each in gc.get_objects():
        if type(each).__name__ == "JITFunction" and getattr(each, "src", None) == source:
            above = next((place for place, line in enumerate(each.raw_src) if line.strip().startswith("def ")), 0)
            return each.fn.__code__.co_filename, each.starting_line_number + above
    return "", 0


def _interpreted_at(error: BaseException) -> tuple[str, int]:
    """Return file and line of the kernel or of the function in which Triton's interpreter raised; line 0 if they are not known."""
    libraries = [module.__file__ for each in ("triton", "numpy", "torch") if (module := sys.modules.get(each)) and module.__file__]
    not_kernels = (f"{Path(__file__).parents[1]}/", *(f"{Path(file).parent}/" for file in libraries))
    passed = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
    return ([place for place in passed if not place[0].startswith(not_kernels)] or [("", 0)])[-1]


def statement(file: str, line: int) -> str:
    """Return the simple statement at a line on one line, as it may take several; of a longer one, only the line itself."""
    lines = linecache.getlines(file)
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    for found in _statements("".join(lines)) if text else ():
        if found.lineno <= line <= (found.end_lineno or found.lineno) != found.lineno:
            text = ast.unparse(found)
            break
    return text.strip()


@functools.lru_cache(maxsize=8)
def _statements(source: str) -> list[ast.stmt]:
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    except (SyntaxError, ValueError, RecursionError):
        return []


_HARNESS = Path(__file__).parents[2]


def frames_in(error: BaseException, root: Path) -> list[traceback.FrameSummary]:
    """Return the frames of a package that an error passed, the test's first."""
    found = []
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        own = file.is_relative_to(_HARNESS)  # its copy for a run may be below the package
        if file.is_relative_to(root) and not own and "site-packages" not in file.relative_to(root).parts:
            found.append(frame)
    return found


def place_in(error: BaseException, root: Path) -> str:
    """Return the last line of a package that an error passed, as `file.py:17`; empty if it passed none."""
    return next((f"{Path(frame.filename).relative_to(root).as_posix()}:{frame.lineno}" for frame in frames_in(error, root)[-1:]), "")


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


# Whether a test has asked what only a card knows, or only torch's compiler on one: without a card, the answers are pretended.

# Comparisons of tensors. They fail for the tensors' sake, whatever the test has asked before.
_OF_TENSORS = ("/torch/testing/", "/numpy/testing/")
_COUNTERS = "torch._dynamo.utils"
_OF_COMPILER = ("counters", "metrics", "frame_count", "op_count")
_METRICS = "torch._inductor.metrics"
_READS_CODE = "torch._inductor.utils"  # `run_and_get_code` and its kin, some of which assert that there is some


class Pretended:
    """Set where the answer is given."""

    asked: ClassVar[set[str]] = set()  # names of functions that answered for the card's memory, or about time; emptied before each test
    by_time = False  # a time that is made up has decided something; reset before each benchmark
    refused = False  # an answer was refused, which the package may have caught; reset before each benchmark
    ran_compiled = False  # a function ran that `torch.compile` left as it is; reset before each test
    compiled = False  # `torch.compile` left a function as it is, maybe one of a module that several tests share
    without_nvml = False  # the machine of the card has another vendor's library


def compares_pretended(error: BaseException) -> bool:
    """Return whether a test failed that compares how often torch compiled something, or that reads the code that torch made: none."""
    if not Pretended.compiled or _is_of_tensors(error):
        return False
    if Pretended.ran_compiled and (name := str(error).removeprefix("DID NOT RAISE ")) != str(error):
        return name in vars(sys.modules.get("torch._dynamo.exc", ast))
    readers = [name for name in vars(sys.modules.get(_READS_CODE, ast)) if "code" in name or "kernel" in name]
    if judged(error, (*_OF_COMPILER, *readers)) == "tensors":
        return False
    if isinstance(error, AssertionError) and _counts_graphs(error.__traceback__):
        return True
    last = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]  # none of a cause that nobody raised
    known = (value for frame in last for value in (*frame.f_globals.values(), *frame.f_locals.values()))
    is_reader = any(isinstance(each, FunctionType) and each.__module__ == _READS_CODE for each in known)
    return is_reader and isinstance(error, (AssertionError, IndexError, ValueError))


def _compares_a_cards(error: BaseException) -> bool:
    """Return whether a test failed at how much memory or time something takes. The host's clock is no better: launches are slow here."""
    pytest = sys.modules.get("pytest")
    kinds = (AssertionError, ArithmeticError, *([pytest.fail.Exception] if pytest else []))
    if not isinstance(error, kinds) or _is_of_tensors(error) or str(error).startswith("DID NOT RAISE"):
        return False
    about = judged(error, Pretended.asked)
    return about == "asked" or bool(Pretended.asked and not about)


def _is_of_tensors(error: BaseException) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any(part in frame.filename for frame in last for part in _OF_TENSORS)


def _counts_graphs(trace: TracebackType | None) -> bool:
    """Return whether a module that the error passed has torch's counters of graphs or kernels."""
    counters = [each for each in (getattr(sys.modules.get(_COUNTERS), "counters", None), sys.modules.get(_METRICS)) if each is not None]
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    known = (value for frame in frames for value in (*frame.f_globals.values(), *frame.f_locals.values()))
    return bool(counters) and any(value is counter for value in known for counter in counters)


# Why a test or a point did not run, or not to its end, from the exception that ended it.

_FAKE_GPU = "warpwave.inside.fake_gpu"
# What torch and Triton say where there is no card. A card is pretended, so the real driver was asked.
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
    # torch built without a card's libraries, on a machine whose memory is not the card's
    r"|Tried to instantiate dummy base class|Legacy \w+ profiling requires"
    r"|Could not find any \w+ library"  # torch, of a vendor's compiler
    r"|from user code:\s+File \"\S+/warpwave/inside/fake_gpu/"  # torch's compiler, which follows code of ours
    r"|DefaultCPUAllocator: can't allocate memory|DID NOT RAISE .*OutOfMemoryError"
    r"|\[PROTON\] (Could not load `lib|Failed to execute )",  # Triton's profiler, which asks the driver
    re.IGNORECASE,
)
# What `ctypes` says of a library that is not there.
_NO_LIBRARY = re.compile(r"^(lib[\w-]+\.so)[.\d]*: cannot open shared object file")
_PORT_IS_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
# What NVML's module says on a machine without its library.
_NO_NVML = re.compile(r"NVML Shared Library Not Found")
# What torch says where a tensor without data is asked for it.
_NO_DATA = re.compile(
    r"Cannot copy out of meta tensor|cannot be called on meta tensors|convert meta device type tensor|doesn't have storage"
    r"|_local_scalar_dense|data[- ](in)?dependent|depends on the data of a tensor|aten::(nonzero|unique\w*|masked_select|equal)\b"
    r"|\bUnknown(Int|Float|Truth)\b",  # C code takes only plain numbers
    re.IGNORECASE,
)
# How Python names the function in a TypeError about its arguments: `patches.<locals>.<lambda>() takes …`
_CALLED = re.compile(r"^([A-Za-z_]\w*)(?:[\w.<>]*)\(\) ")
_GAPS = (AttributeError, NotImplementedError, TypeError, KeyError, ImportError)


# What is not checked on a card either.
OF_ENVIRONMENT = (NotRun.REQUIREMENT, NotRun.NEEDS_BUILD)


def with_reasons(report: StageReport, reasons: Mapping[NotRun, int]) -> StageReport:
    """Return the report of a stage with what did not run, by its reason."""
    return dataclasses.replace(report, not_run={why.value: reasons[why] for why in NotRun if reasons.get(why)})


def why_not_run(error: BaseException) -> NotRun:
    """Return the reason. An exception that nothing explains is `RAISED`: whose fault it is, only a card can say."""
    return reason_of(error)[0]


def unchecked(error: BaseException | None, printed: str | None = None) -> tuple[NotRun, str] | None:
    """Return why something could not be checked, and that in a sentence if the error's own words do not say it; None if it failed."""
    why, words = reason_of(error, printed) if error is not None else (NotRun.RAISED, "")
    return (why, words) if why in UNCHECKED else None


@_or(lambda error: (NotRun.RAISED, ""))
def reason_of(error: BaseException, printed: str | None = None) -> tuple[NotRun, str]:
    """Return the reason, and a sentence about it where the error's own words do not say it. `printed` as in `with_child`."""
    pytest = sys.modules.get("pytest")
    if isinstance(error, unittest.SkipTest) or (pytest and isinstance(error, pytest.skip.Exception)):
        return NotRun.SKIPPED, ""
    if pytest and isinstance(error, pytest.xfail.Exception):
        return NotRun.XFAILED, ""
    if getattr(error, "is_finding", False):  # of the sanitizer
        return NotRun.RAISED, ""
    if several := _in_group(error):
        reasons = set(map(why_not_run, several))
        return (reasons.pop() if len(reasons) == 1 else NotRun.RAISED), ""
    for each in _chain(error):
        if (failed := _import_of_submodule(each)) and (found := unchecked(failed)):
            return found[0], found[1] or describe(failed)
        text = str(each)
        if getattr(each, "_of_a_card", False):
            return NotRun.RAISED, ""
        if isinstance(each, DecidedByData) or (_NO_DATA.search(text) and isinstance(each, (RuntimeError, TypeError, ValueError))):
            return NotRun.DATA, ""
        if isinstance(each, NotBuilt):
            return NotRun.NEEDS_BUILD, text
        if words := unbuilt(each, [frame.filename for frame in traceback.extract_tb(each.__traceback__)]):
            return NotRun.NEEDS_BUILD, words
        if isinstance(each, NeedsCard) or _compares_a_cards(each):
            return NotRun.NEEDS_CARD, ""
        if _NO_NVML.search(text):
            return NotRun.RAISED if Pretended.without_nvml else NotRun.NEEDS_CARD, ""
        if isinstance(each, BrokenProcessPool) or _is_python_without_card(_failed_child(each), printed):
            return NotRun.NEEDS_CARD, ""  # other processes do not see the pretended card
        if isinstance(each, NotPretended) or _NO_CARD.search(text) or _is_gap(each) or compares_pretended(each):
            return NotRun.NOT_PRETENDED, ""
        if isinstance(each, (OSError, ImportError)) and (library := _NO_LIBRARY.search(text)) and library[1] in _drivers():
            return NotRun.NEEDS_CARD, ""
        if _PORT_IS_TAKEN.search(text):
            return NotRun.NOT_PRETENDED, f"its port is taken, because warpwave runs a test for several cards at once: {text.strip()[-200:]}"
        if isinstance(each, OSError) and each.errno == errno.EROFS:
            return NotRun.NOT_PRETENDED, f"it writes to {each.filename}, which is read-only in the container"
        if plugin := missing_plugin(each):
            return NotRun.REQUIREMENT, f"a plugin of pytest is not installed: --with {plugin} adds it"
        if program := missing_program(each):
            return NotRun.REQUIREMENT, f"there is no program {program} on this machine"
        if file := pointer(each):
            return NotRun.REQUIREMENT, f"{file} is a pointer of Git LFS: `git lfs pull` brings its content"
    return _of_an_import(error)


_HAS_NO = re.compile(r"module '?([\w.]+)'? has no attribute '?(\w+)'?")


def _import_of_submodule(error: BaseException) -> Exception | None:
    """Return why a submodule of the tested package does not import, if the error says that the package has no such attribute.

    Only the first import of the package says why. Later ones, such as those of `mock.patch("package.module.name")`, find no attribute.
    """
    named = _HAS_NO.match(str(error)) if isinstance(error, AttributeError) else None
    package = sys.modules.get(named[1]) if named else None
    if named is None or package is None or (name := f"{named[1]}.{named[2]}") in sys.modules:
        return None
    # Only of the package that is tested: what a module of torch does when it is imported, a second import may not do again.
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    if Package.root is None or not folders or not all(is_own(f"{folder}/", Package.root) for folder in folders):
        return None
    try:
        importlib.import_module(name)
    except Exception as failed:
        is_absent = isinstance(failed, ModuleNotFoundError) and failed.name == name
        return None if is_absent or any(map(_HAS_NO.match, map(str, _chain(failed)))) else failed
    return None


# What an author says who raises an ImportError: `if find_spec("apex") is None: raise ImportError("pip install apex")`.
_WANTS = re.compile(r"install|requir|needs?\b|not (?:be )?(?:available|found)", re.IGNORECASE)


_OF_TIME = {"do_bench", "do_bench_cudagraph", "elapsed_time"}


@_or(lambda error: False)
def is_packages(error: BaseException, root: Path, asked_data: bool) -> bool:
    """Return whether lines of the package raise this whatever a card, a clock, data or the machine say. A time may have been printed.

    What the package hides (`raise … from None`) counts as well.
    """
    several, seen = [error], {id(error)}
    while (context := several[-1].__context__) is not None and id(context) not in seen:
        several.append(context)
        seen.add(id(context))
    for each in several:
        last = traceback.extract_tb(each.__traceback__)[-1:]
        is_triton_binding = is_certain(each) and str(each).startswith("dynamic_func()") and frames_in(each, root)  # arguments of a kernel
        if not last or not (frames_in(each, root)[-1:] == last or is_triton_binding):
            return False
    if all(map(is_certain, several)):
        return True
    if asked_data or Pretended.refused or Pretended.asked - _OF_TIME:
        return False
    if Pretended.asked and (Pretended.by_time or any(_uses_arrays(each, root) for each in several)):
        return False
    return not any(may_be_the_machines(each, root) for each in several)


def _uses_arrays(error: BaseException, root: Path) -> bool:
    """Return whether a file of the package that an error passed imports NumPy or pandas, which take a time without a word."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_own(frame.f_code.co_filename, root))
    libraries = [sys.modules.get(name, error) for name in ("numpy", "pandas")]
    return any(value is library for frame in frames for value in frame.f_globals.values() for library in libraries)


def _of_an_import(error: BaseException) -> tuple[NotRun, str]:
    """Return the reason of a failed import; the words name each module that is missing."""
    if Package.root and (name := substituted_module(error, Package.root)) and missing_modules(ModuleNotFoundError(name, name=name)):
        return NotRun.REQUIREMENT, f"{describe(error)}; No module named '{name}'"
    failed = next((each for each in _chain(error) if isinstance(each, ModuleNotFoundError)), None)
    raised_for_it = isinstance(error, (ImportError, RuntimeError, NotImplementedError)) or str(failed) in str(error)
    if failed is not None and raised_for_it and (missing := missing_modules(failed)):
        return NotRun.REQUIREMENT, "; ".join([f"{type(failed).__name__}: {failed}", *(f"No module named '{name}'" for name in missing[1:])])
    if type(error) is ImportError and error.name is None and _WANTS.search(str(error)) and refuses(error):
        return NotRun.REQUIREMENT, ""
    return (NotRun.IMPORT if isinstance(error, ImportError) else NotRun.RAISED), ""


_ASKS_FOR_CARD = re.compile(r"\b(?:torch|triton|device|gpu)s?\b", re.IGNORECASE)


def _is_python_without_card(child: Any, printed: str | None) -> bool:
    """Return whether a child process is another Python that failed for want of a card: it does not see the pretended one.

    Its last words say so, or, if it printed nothing that is known, its code. Any other failure of it is the test's.
    """
    command = getattr(child, "cmd", None) or getattr(child, "args", None)
    words = command.split() if isinstance(command, str) else list(map(str, command)) if isinstance(command, (list, tuple)) else []
    if not words or not (words[0] == sys.executable or re.fullmatch(r"python[\d.]*|torchrun", Path(words[0]).name)):
        return False
    if said := _said_by(child, printed):
        return bool(_NO_CARD.search("\n".join(said)) or _ASKS_FOR_CARD.search(said[-1]))
    files = [Path(word) for word in words[1:] if word.endswith(".py") and Path(word).is_file()]
    code = [file.read_text(encoding="utf-8", errors="replace") for file in files] or words[1:]
    return any(map(_ASKS_FOR_CARD.search, code))


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
        error = error.__context__ if error.__cause__ is None and not error.__suppress_context__ else error.__cause__


def _is_gap(error: BaseException) -> bool:
    """Return whether a stand-in lacks something: an attribute, a parameter, or a way to answer. A misspelt attribute is no gap."""
    if not isinstance(error, _GAPS) or _is_misspelt(error):
        return False
    if isinstance(error, AttributeError) and (_stands_in(getattr(error, "obj", None)) or _is_compilers_frame(error)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1:]
    bindings = sys.modules.get("torch._C")
    lacks = isinstance(error, AttributeError) and bindings is not None and error.obj is bindings
    if last and (lacks or (isinstance(error, ImportError) and error.name == "torch._C")) and "/torch/" in last[0].filename:
        return True  # torch's own code asks for what only a build for cards has
    called = _CALLED.match(str(error)) if isinstance(error, TypeError) else None
    if called and _names_stand_in(called[1], error):
        return True
    # torch's own errors pass through the modes there, which only call on.
    return bool(last) and "/warpwave/inside/fake_gpu/" in last[0].filename and (last[0].line or "").startswith("raise ")


def _names_stand_in(name: str, error: BaseException) -> bool:
    """Return whether a function or class of this name stands in for one of a card. One of the package may have the same name."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)][-1:]
    seen = {key: value for frame, _ in frames for key, value in {**frame.f_globals, **frame.f_locals}.items()}
    called = [value for key, value in seen.items() if name in (key, getattr(value, "__name__", None)) and not isinstance(value, ModuleType)]
    if not called or any(re.search(rf"\.{name}\(", linecache.getline(frame.f_code.co_filename, line)) for frame, line in frames):
        called += [vars(value).get(name) for value in seen.values() if isinstance(value, ModuleType)]
    if known := [value for value in called if callable(value)]:
        return any(map(_is_stand_in, known))
    modules = [module for path, module in list(sys.modules.items()) if path.startswith(_FAKE_GPU)]
    return any(_is_stand_in(vars(module).get(name)) for module in modules)


def _is_stand_in(value: object) -> bool:
    return str(getattr(value, "__module__", None)).startswith(_FAKE_GPU)


def _is_misspelt(error: BaseException) -> bool:
    """Return whether an attribute was asked for that the owner has with one letter different."""
    owner, name = getattr(error, "obj", None), getattr(error, "name", None)
    return isinstance(error, AttributeError) and bool(name) and any(is_near(str(name), other) for other in dir(owner))


def _is_compilers_frame(error: AttributeError) -> bool:
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
    # torch's own module has the same names with a card; one that `torch_device` made for a vendor's extension has no file.
    return isinstance(owner, ModuleType) and hasattr(owner, "device_count") and not getattr(owner, "__file__", None)


# What failures say that the environment lacks → the option that helps.

# What Triton 3.8 and 3.9 say of what 3.6 took.
_REFUSED = re.compile(r"Block pointers have been removed|key contains names that are not kernel arguments")
TOOK_IT = "3.6.0"
# What an import says that builds operators in C++ with a vendor's compiler.
_TOOLKIT = re.compile(r"\b[A-Z]+_HOME\b.* not set|version file not found")
_MISSING = re.compile(r"No module named '([\w.]+)'|No package metadata was found for ([\w.-]+)|The '([\w.-]+)' distribution was not found")
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(\S.*?)\s*$", re.MULTILINE)
_FEW = 6
_INSTALL = "--install installs the package and what it declares, --with NAME one more, by pip's name."
_ALREADY = "The package is installed. --with NAME installs one more, by pip's name. --install=alone leaves out what the package declares."
_OWN_MODULE = "A module of the package itself may need --env PYTHONPATH=FOLDER."
_NO_CONFTEST = (
    "Tests import conftest.py, which these sources do not have. Source archives often leave it out. "
    "Take the tests from the package's repository."
)


def hint_of(messages: Iterable[str], root: Path | None = None) -> str:
    """Return what to do if one of the failures is about the environment; empty if none is. `root` as in `missing_of`."""
    found = list(messages)
    hints = [missing_of(found, root)]
    if any(_REFUSED.search(message) for message in found):
        hints.append(f"Some of it is written for an older Triton, which took what this one refuses: add --triton {TOOK_IT}, or port it.")
    if any(_TOOLKIT.search(message) for message in found):
        hints.append("An import wants a toolkit that is not here. A package may have a switch for its Triton kernels alone: --env NAME=1.")
    return " ".join(filter(None, hints))


def missing_of(messages: Iterable[str], root: Path | None = None) -> str:
    """Return which modules cannot be imported, the most wanted first, and what brings them; empty if none is missing.

    `root` is the package's root: it says what brings a module, and what its `.gitmodules` names may not be checked out.
    """
    wanted = Counter(next(filter(None, match.groups())) for message in messages for match in _MISSING.finditer(message))
    without_conftest = _NO_CONFTEST if wanted.pop("conftest", 0) else ""
    other_version = {name: installed for name in wanted if (installed := _installed(name))}
    told = []
    absent = [name for name, _ in wanted.most_common() if name not in other_version]
    declared = sources(absent, root) if root else {}
    if declared:
        told.append(_declared(declared))
    if absent := [name for name in absent if name not in declared]:
        told.append(f"Missing here: {few(absent, _FEW)}. {_ALREADY if _is_installed(root) else _INSTALL} {_OWN_MODULE}")
    if other_version:
        has = ", ".join(dict.fromkeys(other_version.values()))
        told.append(
            f"The installed {has} has no {few(list(other_version), _FEW)}. The package may be written for another version: "
            "--with 'NAME==VERSION' installs one, --triton VERSION another Triton."
        )
    if wanted and root and (empty := _empty_submodules(root)):
        told.append(f"Git submodules are not checked out: {few(empty, _FEW)}. Run git submodule update --init.")
    return " ".join(filter(None, (*told, without_conftest)))


def _declared(found: Mapping[str, tuple[str, str]]) -> str:
    """`Missing here: einops (extra verify), more_itertools and tabulate (extra tables): --install --extra verify --extra tables.`"""
    by_place: dict[str, list[str]] = {}
    for module, (place, _) in found.items():
        by_place.setdefault(place, []).append(module)
    parts = []
    for place, names in by_place.items():
        text = " and ".join(filter(None, [", ".join(sorted(names)[:-1]), sorted(names)[-1]]))
        parts.append(f"{text} ({place})" if place else text)
    options = dict.fromkeys(re.sub(r"(?<=\S) (?=--)", "\n", " ".join(options for _, options in found.values())).split("\n"))
    return f"Missing here: {', '.join(parts)}: {' '.join(options)}."


def _installed(module: str) -> str:
    """Return the name and version of the installed package that should hold a module; empty for the package that is being tested."""
    top, dot, _ = module.partition(".")
    for name in metadata.packages_distributions().get(top, ()) if dot else (top,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(name)
            if not _is_from_folder(found):
                return f"{name} {found.version}"
    return ""


def _is_installed(root: Path | None) -> bool:
    """Return whether a module of the package at `root` is installed from a folder or a file, as `--install` does it."""
    places = [root / place for place in (".", "src", "python")] if root else []
    return any(
        any(_is_from_folder(metadata.distribution(owner)) for owner in owners)
        for name, owners in metadata.packages_distributions().items()
        if any((place / name).is_dir() or (place / f"{name}.py").is_file() for place in places)
    )


def _is_from_folder(installed: metadata.Distribution) -> bool:
    """Return whether pip says that a package comes from a folder or a file, as the package under test does."""
    return installed.read_text("direct_url.json") is not None


def _empty_submodules(root: Path) -> list[str]:
    try:
        named = _SUBMODULE.findall((root / ".gitmodules").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []
    return [path for path in named if not any((root / path).glob("*"))]
