"""A kernel package's `triton.testing.perf_report` benchmarks: found, loaded without being run, and laid out as points.

The package is not changed and imports nothing of this. Triton's tutorials run their sweep at import; `Mark.run` is held back here, so
that the harness decides when and how each point is measured or compiled.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import traceback
import unittest
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import OF_ENVIRONMENT, DecidedByData, NotPretended, describe, reason_of
from warpwave.records import UNCHECKED, Job, NotRun, Scalar, Verdict, finite
from warpwave.records.selection import is_bench, kernel_of


@dataclass(frozen=True)
class Point:
    """One call of one benchmark function. `case` and `provider` name it on every target; `params` are all of its arguments."""

    case: str
    kernel: str
    provider: str
    unit: str
    params: dict[str, Scalar]
    function: Any
    arguments: dict[str, Any]

    @property
    def id(self) -> str:
        """Case and provider as one text."""
        return f"{self.case} [{self.provider}]"

    def run(self) -> Any:
        """Call it.

        Raises:
            unittest.SkipTest: it skips itself, so or with `pytest.skip`, which is no `Exception` and would end the worker.
        """
        try:
            with triton_settings_kept():
                return self.function(**self.arguments)
        except BaseException as error:
            pytest = sys.modules.get("pytest")
            if pytest and isinstance(error, pytest.skip.Exception):
                raise unittest.SkipTest(str(error)) from error
            raise


@contextmanager
def triton_settings_kept() -> Iterator[None]:
    """Restore the environment variables of Triton afterwards.

    torch.compile sets a cache of its own and, if torch brings one, another assembler. Kernels compiled after it would be other binaries,
    and those compiled ahead would not be found.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("TRITON_")}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("TRITON_")]:
            del os.environ[name]
        os.environ.update(before)


def find_benches(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the benchmarks below `root`, sorted."""
    return [path for path in sorted(root.rglob("*.py")) if is_bench(path.relative_to(root).as_posix(), patterns)]


def kernel_name(path: Path, job: Job) -> str:
    """Return the kernel that a file is about; one above the kernels folder, such as a `conftest.py` there, goes by its own name."""
    root = Path(job.kernels)
    return kernel_of(path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name, job.declared.names)


def load_module(path: Path, root: Path) -> ModuleType:
    """Run a module's top level as pytest would import it, with `Mark.run` doing nothing.

    Its folder comes first on `sys.path`; where that is a package, the folder around the outermost package does.
    """
    import triton.testing

    base = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    name = ".".join(path.relative_to(base if base != path.parent else root).with_suffix("").parts).replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(base) not in sys.path:  # and it stays there: functions may import their neighbours when they are called
        sys.path.insert(0, str(base))
    kept, triton.testing.Mark.run = triton.testing.Mark.run, lambda self, *args, **kwargs: None
    try:
        spec.loader.exec_module(module)
    finally:
        triton.testing.Mark.run = kept
    return module


def loading(path: Path, job: Job) -> str:
    """Return the id of loading a bench."""
    return f"{kernel_name(path, job)} [loading {path.name}]"


def load_case(journal: Journal, path: Path, job: Job, done: set[str]) -> ModuleType | None:
    """Load a bench. If that fails, or killed an earlier worker, it becomes a row of its own and its points are left out.

    If it asks a card something that is not pretended, or decides by data that are missing, that is no failure of its own.
    """
    identity = loading(path, job)
    if identity in done:
        return None
    journal.write("start", id=identity)
    try:
        module = load_module(path, Path(job.kernels))
    except Exception as error:
        traceback.print_exc()
        why, words = reason_of(error)
        pretended = isinstance(error, (DecidedByData, NotPretended)) or not job.needs_card
        if why in OF_ENVIRONMENT or (why in (NotRun.DATA, *UNCHECKED) and pretended):
            journal.write("finish", id=identity, verdict=Verdict.NOT_RUN.value, reason=words or describe(error), not_run=why)
        else:
            journal.write("finish", id=identity, verdict=Verdict.ERROR.value, reason=describe(error))
        return None
    journal.write("ready", id=identity)
    return module


def load_points(journal: Journal, path: Path, job: Job, done: set[str]) -> list[Point]:
    """Load a bench and return its points. A file that has none becomes a row that says so."""
    module = load_case(journal, path, job, done)
    found = list(points(module, path, job)) if module is not None else []
    if module is not None and not found:
        name = shlex.quote(path.relative_to(job.kernels).as_posix())
        reason = f"no module-level perf_report; nothing to measure. If it is a script: --bench-script {name} runs it"
        if _marks(module):
            reason = "its perf_report has no size or no provider; nothing to measure"
        identity = loading(path, job)
        journal.write("start", id=identity)
        journal.write("finish", id=identity, verdict=Verdict.NOT_RUN.value, reason=reason, not_run=NotRun.EMPTY)
    return found


def one_of_each_first(found: Sequence[Point]) -> list[Point]:
    """Return the points with the first case of each benchmark first, then the second of each: a budget reaches every kernel so."""
    cases: dict[tuple[str, int], dict[str, int]] = {}
    for point in found:
        of_function = cases.setdefault((point.kernel, id(point.function)), {})
        of_function.setdefault(point.case, len(of_function))
    return sorted(found, key=lambda point: cases[point.kernel, id(point.function)][point.case])


def _marks(module: ModuleType) -> list[Any]:
    import triton.testing

    return [value for value in vars(module).values() if isinstance(value, triton.testing.Mark)]


def points(module: ModuleType, path: Path, job: Job) -> Iterator[Point]:
    """Yield every point of every mark in a loaded module, in the author's order; a quick run has three sizes of each sweep."""
    kernel, marks = kernel_name(path, job), _marks(module)
    named = (bench for mark in marks for bench in _benchmarks(mark) if bench.line_vals and not _by_dtype(bench))
    own = next((str(_plain(bench.line_vals[0])) for bench in named), _OWN)
    taken: set[Any] = set()
    for mark in dict.fromkeys(marks):
        names = {bench.plot_name for bench in _benchmarks(mark)}
        # Two benchmarks of a file may have the same plot name. They are two, not one with each point twice.
        plot = getattr(mark.fn, "__name__", "") if names & taken else None
        taken |= names
        yield from mark_points(mark, kernel, job.what.quick, own=own, plot=plot)


def smallest_points(module: ModuleType) -> Iterator[Point]:
    """Yield the first size of each benchmark of a loaded module, with each of its providers."""
    for mark in dict.fromkeys(_marks(module)):
        found = list(mark_points(mark, "", quick=True))
        yield from (point for point in found if found and point.case == found[0].case)


_OWN = "triton"  # what a benchmark without providers measures


def _benchmarks(mark: Any) -> list[Any]:
    return list(mark.benchmarks) if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]


def _by_dtype(bench: Any) -> bool:
    """Return whether the lines of a benchmark are dtypes: then it measures the kernel itself on each line, and no line is a provider."""
    names = [str(_plain(value)) for value in bench.line_vals]
    return bool(names) and (bench.line_arg == "dtype" or all(_DTYPE.fullmatch(name) for name in names))


_DTYPE = re.compile(r"(tl\.)?(bf16|fp(8|16|32|64)\w*|float(8|16|32|64)\w*|bfloat16|tf32|u?int(4|8|16|32|64))")


def mark_points(
    mark: Any, kernel: str, quick: bool, more: Mapping[str, Any] | None = None, *, own: str = _OWN, plot: str | None = None
) -> Iterator[Point]:
    """Yield every point of one mark. `more` are arguments that its author gives to `Mark.run`.

    If its lines are dtypes, they are parameters, and its provider is `own`. `plot` replaces the name of its plots.
    """
    for bench in _benchmarks(mark):
        by_dtype = _by_dtype(bench)
        sizes = list(bench.x_vals)
        if quick and len(sizes) > 3:
            sizes = [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
        for size in sizes:
            values = size if isinstance(size, (list, tuple)) else [size] * len(bench.x_names)
            swept = dict(zip(bench.x_names, values, strict=True))
            fixed = {**bench.args, **(more or {})}
            for provider in bench.line_vals:
                line = {"dtype": _plain(provider)} if by_dtype else {}
                params = {key: _plain(value) for key, value in {**fixed, **line, **swept}.items()}
                yield Point(
                    case=_case(kernel, bench.plot_name if plot is None else plot, swept, {**fixed, **line}),
                    kernel=kernel,
                    provider=own if by_dtype else str(_plain(provider)),
                    unit=str(bench.ylabel or ""),
                    params=params,
                    function=mark.fn,
                    arguments={**swept, **fixed, bench.line_arg: provider},
                )


def _case(kernel: str, plot: str, swept: dict[str, Any], fixed: dict[str, Any]) -> str:
    """`softmax/fp32/N=1024`: kernel, plot where it says more than the kernel, dtype where there is one, swept sizes."""
    everything = {**fixed, **swept}
    dtypes = [str(_plain(value)) for key, value in everything.items() if key == "dtype" or type(value).__name__ == "dtype"]
    sizes = ",".join(f"{key}={_plain(value)}" for key, value in swept.items() if str(_plain(value)) not in dtypes)
    return "/".join(part for part in (kernel, plot if plot != kernel else "", *dtypes, sizes) if part)


_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


def _plain(value: Any) -> Scalar:
    """Return a parameter as JSON can hold it; dtypes by their short names."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return finite(value)
    return short_dtype(value)


def short_dtype(value: object) -> str:
    """Return the short name of a dtype; the text of anything else."""
    text = str(value).removeprefix("torch.").removeprefix("triton.language.")
    return _SHORT.get(text, text)
