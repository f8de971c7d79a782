"""Find benchmark scripts, and run one as Python would: `python benchmarks/bench_softmax.py --dtype bf16`."""

from __future__ import annotations

import contextlib
import os
import runpy
import shlex
import sys
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from harness.inside.benchmarks import find_benches, kernel_name, triton_settings_kept
from harness.inside.environment.package_path import root_of
from harness.records import Job
from harness.records.selection.package import find_scripts


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
    for asked in job.bench_scripts:
        for path, name in find_scripts(asked.pattern, root_of(job), kernels):
            script = Script(path, name, kernel_name(path, job), asked.arguments)
            found.setdefault(script.id, script)
    return list(found.values())


def benches_of(job: Job) -> list[Path]:
    """Return the benchmarks of a job that are modules. A file that is run as a script is not loaded as well."""
    scripts = {script.path.resolve() for script in scripts_of(job)}
    return [path for path in find_benches(Path(job.kernels), job.benches) if path.resolve() not in scripts]


class ScriptExit(Exception):  # noqa: N818 - as `SystemExit`, which says the same to Python
    """A script ended itself with an exit code that is not 0."""


def run(script: Script) -> Exception | None:
    """Run a script to its end. Return what ended it early, if anything did.

    It runs in an empty folder, so that what it writes beside itself is not in the user's package.
    """
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
        return ScriptExit(f"it exited with {ended.code}{f': {said.line}' if said.line else ''}")
    except Exception as error:
        return error.with_traceback(_its_part(script, error.__traceback__))
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
    with tempfile.TemporaryDirectory(prefix="warpwave-script-", ignore_cleanup_errors=True) as empty:
        sys.argv = [str(script.path), *script.arguments]
        sys.path.insert(0, str(script.path.parent))
        os.chdir(empty)
        try:
            yield
        finally:
            os.chdir(folder)
            sys.argv, sys.path[:] = arguments, paths


def _its_part(script: Script, whole: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the script."""
    part = whole
    while part is not None and part.tb_frame.f_code.co_filename != str(script.path):
        part = part.tb_next
    return part or whole


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
