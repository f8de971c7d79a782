"""Find benchmark scripts, and run one as Python would: `python benchmarks/bench_softmax.py --dtype bf16`."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import linecache
import os
import re
import runpy
import shlex
import sys
import unittest
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from warpwave.inside.benchmarks import find_benches, kernel_name, short_dtype, triton_settings_kept
from warpwave.inside.environment import modules_of, root_of
from warpwave.inside.process.outcomes import few
from warpwave.records import Job, Scalar, finite
from warpwave.records.selection import find_scripts


@dataclass(frozen=True)
class Script:
    """A script with its arguments. `name` is its path in the package, and `kernel` the row of the report that it belongs to."""

    path: Path
    name: str
    kernel: str
    arguments: tuple[str, ...]

    @property
    def id(self) -> str:
        """The script's own row: what it does outside of its measurements."""
        return f"{self.kernel} [running {shlex.join([self.name, *self.arguments])}]"


def scripts_of(job: Job) -> list[Script]:
    """Return the scripts of a job, each with each of its arguments, once."""
    kernels = Path(job.kernels)
    found: dict[str, Script] = {}
    for asked in job.what.bench_scripts:
        for path, name in find_scripts(asked.pattern, root_of(job), kernels):
            script = Script(path, name, kernel_name(path, job), asked.arguments)
            found.setdefault(script.id, script)
    return list(found.values())


IS_SCRIPT = re.compile(r"""^if __name__ == ["']__main__["']:""", re.MULTILINE)


_LAUNCHES = re.compile(r"^\s*(?:import\b.*\btriton|from triton)\b", re.MULTILINE)
# It measures, is a script, or launches when it is imported: `add_kernel[(4,)](x, y)` or `for _ in range(3): add_kernel[grid](x)`.
_MEASURES = re.compile(rf"\bdo_bench\w*\(|\bperf_report\b|{IS_SCRIPT.pattern}|^(?:(?:for|with) .*:\s+)?\w+\[.+\]\(", re.MULTILINE)
_MOST_SCRIPTS = 5


def how_to_run_scripts(job: Job) -> str:
    """Return the options that run a package's scripts, as a sentence and a space; empty if none launches kernels, or the job names some."""
    root = Path(job.kernels)
    texts = ((path, path.read_text(encoding="utf-8", errors="replace")) for path in modules_of(root))
    found = [path.relative_to(root).as_posix() for path, text in texts if _LAUNCHES.search(text) and _MEASURES.search(text)]
    if not found or job.what.bench_scripts:
        return ""
    options = " ".join(f"--bench-script {shlex.quote(name)}" for name in found[:_MOST_SCRIPTS])
    verb = "are scripts that launch" if len(found) > 1 else "is a script that launches"
    return f"{few(found)} {verb} kernels: {options} runs and compiles what they launch. "


def benches_of(job: Job) -> list[Path]:
    """Return the benchmarks of a job that are modules. A file that is run as a script is not loaded as well."""
    scripts = {script.path.resolve() for script in scripts_of(job)}
    return [path for path in find_benches(Path(job.kernels), job.what.benches) if path.resolve() not in scripts]


class ScriptExit(Exception):  # noqa: N818 - as `SystemExit`, which says the same to Python
    """A script ended itself with an exit code that is not 0."""


def run(script: Script) -> Exception | None:
    """Run a script to its end. Return what ended it early, if anything did."""
    said = _LastLine(sys.stderr)
    try:
        with _as_started(script), contextlib.redirect_stderr(said), triton_settings_kept():  # type: ignore[type-var]
            runpy.run_path(str(script.path), run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or ended.code == 0:
            return None
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return ScriptExit(f"it ended itself: {ended.code}")
        how = f"it exited with {ended.code}{f': {said.line}' if said.line else ''}"
        wanted = "; give them behind --, as in --bench-script 'FILE -- --n 8'" if "arguments are required" in said.line else ""
        return ScriptExit(how + wanted)
    except Exception as error:
        part = error.__traceback__
        while part is not None and part.tb_frame.f_code.co_filename != str(script.path):
            part = part.tb_next
        return error.with_traceback(part or error.__traceback__)  # from the script on
    except BaseException as error:
        pytest = sys.modules.get("pytest")
        if pytest and isinstance(error, pytest.skip.Exception):
            return unittest.SkipTest(str(error))
        raise
    return None


@contextlib.contextmanager
def _as_started(script: Script) -> Iterator[None]:
    """Set what Python sets for a script: its arguments, and its folder first on the path."""
    arguments, paths, folder = sys.argv, list(sys.path), Path.cwd()
    sys.argv = [str(script.path), *script.arguments]
    sys.path.insert(0, str(script.path.parent))
    try:
        yield
    finally:
        os.chdir(folder)
        sys.argv, sys.path[:] = arguments, paths


class _LastLine:
    """Standard error that remembers its last line: a parser of arguments says there what is wrong with them."""

    def __init__(self, out: TextIO) -> None:
        self._out, self.line = out, ""

    def write(self, text: str) -> int:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self.line = lines[-1][:300] if lines else self.line
        return self._out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


# Name a measurement in a script: by its line, what it calls, and the values that its author varies around it.
#
# The same call has the same name in every run and on every target. So a name holds what loops and parameters set, never what was
# measured.

# Parameters and loop variables that say which implementation is measured.
_PROVIDERS = ("provider", "impl", "implementation", "backend", "method", "tag")
# Where it runs is the target's to say.
_NOT_THESE = frozenset({"device", "self", "cls"})
# Numbers of this name were measured, and differ from run to run.
_MEASURED = re.compile(r"(.*_)?(ms|us|ns|sec|secs|seconds|time|times|latency|elapsed|gbps|tflops|speedup)", re.IGNORECASE)
_MOST, _LONGEST = 16, 60  # values in a name, and characters of a text
_INSTALLED = ("site-packages", "dist-packages")
_SCOPES = (ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Call:
    """A measurement in a script. `case` and `provider` name it on every target; `source` is `file.py:line`."""

    kernel: str
    case: str
    provider: str
    source: str
    params: dict[str, Scalar]

    @property
    def id(self) -> str:
        """Case and provider as one text, as a point has it."""
        return f"{self.case} [{self.provider}]"


class Names:
    """Names the calls of one run of a script. `root` is the package's folder: only its code sets values of a name."""

    def __init__(self, script: Script, root: Path) -> None:
        self._script, self._root = script, root
        self._counted: Counter[str] = Counter()

    def of(self, function: Any, described: Mapping[str, str] | None = None, values: Mapping[str, Any] | None = None) -> Call:
        """Name a call of a script that measures `function`, a callable or a statement.

        `described` are its author's own words for it. `values` are the variables of a statement.
        """
        frames = list(self._frames())
        script = self._script
        own = next((frame for frame in frames if frame.f_code.co_filename == str(script.path)), frames[0] if frames else None)
        line = own.f_lineno if own else 0
        found: dict[str, Any] = {}
        for frame in reversed(frames):
            found.update(_varied(frame))
        more = dict(described or {})
        params = dict(_described(found))
        provider = more.pop("provider", "") or str(next((params.pop(name) for name in _PROVIDERS if isinstance(params.get(name), str)), ""))
        provider = provider or next((value.__name__ for value in found.values() if _is_named(value)), "") or _called(function)
        params |= {name: text for name, text in more.items() if text}
        params = params or dict(_described({name: value for name, value in _used(function, values).items() if hasattr(value, "shape")}))
        params = dict(list(params.items())[:_MOST])
        where = [f"{script.kernel}/{script.name}:{line}", shlex.join(script.arguments)]
        case = "/".join(filter(None, [*where, ",".join(f"{name}={value}" for name, value in params.items())]))[:1500]
        provider = provider[:_LONGEST] or "script"
        again = self.count(f"{case} [{provider}]")
        return Call(script.kernel, f"{case}#{again}" if again > 1 else case, provider, f"{script.name}:{line}", params)

    def count(self, name: str) -> int:
        """Return how often something of this name was measured by now."""
        self._counted[name] += 1
        return self._counted[name]

    def _frames(self) -> Iterator[FrameType]:
        """Yield the frames of the package's code that led to this call, the innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            path = Path(code.co_filename)
            if code.co_filename == str(self._script.path):
                yield frame
                if code.co_name == "<module>":
                    return
            elif path.is_relative_to(self._root) and not set(_INSTALLED) & set(path.parts) and "warpwave.inside" not in _module(frame):
                yield frame
            frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def caller_is_a_library() -> bool:
    """Return whether Triton or torch measures for itself: an autotuner's timings are no points of its user."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith("warpwave.inside"):
        frame = frame.f_back
    return frame is not None and _module(frame).partition(".")[0] in ("triton", "torch")


def _varied(frame: FrameType) -> dict[str, Any]:
    """Return the parameters of a frame's function, and the variables of the loops that the frame is in."""
    code = frame.f_code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code.co_name != "<module>" else ()
    names = [*parameters, *_loop_variables(code.co_filename, frame.f_lineno)]
    return {name: frame.f_locals[name] for name in names if name in frame.f_locals}


@functools.lru_cache(maxsize=512)
def _loop_variables(file: str, line: int) -> tuple[str, ...]:
    """Return the variables of the loops and comprehensions around a line, the outermost first."""
    found = []
    for node in ast.walk(_tree(file)):
        if not isinstance(node, _SCOPES) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        targets = [node.target] if isinstance(node, (ast.For, ast.AsyncFor)) else [part.target for part in node.generators]
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        found.append((node.lineno, -(node.end_lineno or 0), names))
    return tuple(dict.fromkeys(name for *_, names in sorted(found) for name in names))


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.AST:
    return _parsed("".join(linecache.getlines(file)))


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _described(found: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
    """Yield what a name can hold of each value: a number, a short text, a dtype, sizes, or the parts of a configuration."""
    for name, value in found.items():
        if name in _NOT_THESE or name.startswith("_"):
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _described({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        elif hasattr(value, "_asdict"):
            yield from _described(value._asdict())
        elif isinstance(value, dict):
            yield from _described({str(key): part for key, part in value.items() if not isinstance(part, dict)})
        elif (text := _plain(value)) is not None and not (isinstance(value, float) and _MEASURED.fullmatch(name)):
            yield name, text


def _plain(value: Any) -> Scalar:
    """Return a value as a name can hold it, or None. A path may differ between machines, so it is none."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, int, float)):
        return finite(value)
    if isinstance(value, str):
        return value if 0 < len(value) <= _LONGEST and "\n" not in value and not value.startswith(("/", "~", "./", "../")) else None
    if type(value).__name__ == "dtype":
        return short_dtype(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{'x'.join(map(str, value.shape)) or '1'}:{_plain(value.dtype)}"
    if isinstance(value, (list, tuple)) and 0 < len(value) <= 8:
        parts = [_plain(part) for part in value]
        return None if None in parts else ("x" if all(isinstance(part, int) for part in parts) else " ").join(map(str, parts))
    return None


def _is_named(value: Any) -> bool:
    return callable(value) and str(getattr(value, "__name__", "<")).isidentifier() and not isinstance(value, type)


def _used(function: Any, values: Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(function, str):
        names = (node.id for node in ast.walk(_parsed(function)) if isinstance(node, ast.Name))
        return {name: values[name] for name in names if values and name in values}
    if isinstance(function, functools.partial):
        named = dict(enumerate(function.args)) | function.keywords
        return {str(name): value for name, value in named.items()}
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found | {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}


def _called(function: Any) -> str:
    """Return what is measured, as its author calls it: `torch.softmax`. Empty if that is unknown."""
    if isinstance(function, str):
        return _first_call(_parsed(function))
    while isinstance(function, functools.partial):
        function = function.func
    name = str(getattr(function, "__name__", ""))
    if name != "<lambda>":
        return name if name.isidentifier() else ""
    code = function.__code__
    inner = [
        node.body
        for node in ast.walk(_tree(code.co_filename))
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno and _takes(node, code.co_names + code.co_freevars)
    ]
    return _first_call(inner[0]) if len(inner) == 1 else ""


def _takes(node: ast.Lambda, names: Iterable[str]) -> bool:
    """Return whether a lambda uses these names: several may stand on one line."""
    return set(names) <= {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}


def _first_call(node: ast.AST) -> str:
    """Return the outermost call of an expression: `f(g(x))` is `f`, `kernel[grid](x)` is `kernel`."""
    call = next((part for part in ast.walk(node) if isinstance(part, ast.Call)), None)
    target: ast.AST | None = call.func if call else None
    while isinstance(target, ast.Subscript):
        target = target.value
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
