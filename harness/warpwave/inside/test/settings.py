"""A package's settings of pytest → the options of a stage's pytest.

Ids are relative to the kernels folder, on every target, so that folder is pytest's `rootdir` while it collects. Afterwards it is the one
that pytest would have chosen. The package's `addopts` are applied by `settings_plugin`, which knows the plugins that are installed.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Union

from warpwave.inside.environment import package_folders, python_path, root_of
from warpwave.records import Budget, Chosen, Job, Selection, from_json, to_json
from warpwave.records.selection import is_test, narrowed

SETTINGS_VARIABLE = "WARPWAVE_PYTEST"
_PATHS = ("--ignore", "--ignore-glob")
# Options of `addopts` that pytest reads before it loads a plugin, so they stay on the command line. Each takes a value.
_EARLY = ("-p", "-o", "--override-ini", "--import-mode")


def settings() -> dict[str, Any]:
    """Return what the stage told this worker of the package's settings; nothing if no stage started it."""
    found: dict[str, Any] = json.loads(os.environ.get(SETTINGS_VARIABLE) or "{}")
    return found


def pytest_options(job: Job, folder: Path) -> list[str]:
    """Return pytest's options, and tell the plugin the rest. A module that does not import must not hide the others."""
    root = root_of(job)
    file = root / job.declared.pytest.file if job.declared.pytest.file else _no_settings(folder)
    above = file.parent if job.declared.pytest.file else root
    early, addopts, dropped = _early(list(job.declared.pytest.addopts), [*package_folders(job), str(above), *python_path(job), *sys.path])
    os.environ[SETTINGS_VARIABLE] = json.dumps(
        {
            "folders": package_folders(job),
            "rootdir": str(above),
            "kernels": job.kernels,
            "root": str(root),
            "addopts": addopts,
            "dropped": dropped,
            "python_files": job.declared.pytest.python_files,
            "selection": _kept_selection(job, folder),
        }
    )
    fixed = ["-p", "warpwave.inside.test.settings_plugin", "--rootdir", job.kernels, "-c", str(file), "--confcutdir", str(above)]
    fixed += ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-v", "--color=no", "-o", "addopts=", *early]
    fixed += ["-o", "console_output_style=classic"]  # for a percentage, pytest would ask for the terminal's width at each test
    fixed += ["--no-header"]  # plugins import all that they have, a second in each worker, to say of which version it is
    # A key that only a missing plugin knows is no reason to stop, even if the package turns warnings into errors.
    return [*fixed, "-W", "ignore:Unknown config option:pytest.PytestConfigWarning", *_placed(job.what.pytest_args, job.kernels)]


def test_paths(job: Job) -> list[str]:
    """Return what pytest collects: the package's `testpaths` if the kernels folder is the one that they belong to, else that folder."""
    root = root_of(job)
    if not job.declared.pytest.testpaths or (root / job.declared.pytest.file).parent != Path(job.kernels):
        return [job.kernels]
    found = [str(path) for pattern in job.declared.pytest.testpaths for path in sorted(root.glob(pattern.strip("/") or "."))]
    return list(dict.fromkeys(found)) or [job.kernels]


def files_with_tests(job: Job) -> list[str]:
    """Return the files that pytest would take for ones with tests, before it has collected them; those that the run asks for."""
    root, chosen = Path(job.kernels), selection_of(job)
    paths = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.py"))]
    return [path for path in paths if is_test(path, job.declared.pytest.python_files) and chosen.looks_into(path)]


def is_narrowed(job: Job) -> bool:
    """Return whether the user asked for some of the tests only, apart from a quick run's."""
    return bool(narrowed(job.what.chosen, False, job.what.pytest_args).by)


def selection_of(job: Job) -> Selection:
    """Return which of the package's tests this job runs."""
    return Selection(job.what.chosen, job.files)


def selection() -> Selection:
    """Return what the stage told this worker of the tests to run; all if no stage started it."""
    path = settings().get("selection")
    if not path:
        return Selection(Chosen())
    kept = from_json(_Kept, Path(path).read_text(encoding="utf-8"))
    return Selection(kept.chosen, kept.files)


def budget() -> Budget | None:
    """Return what the stage told this worker of its budget; None without one."""
    path = settings().get("selection")
    return from_json(_Kept, Path(path).read_text(encoding="utf-8")).budget if path else None


@dataclasses.dataclass(frozen=True)
class _Kept:
    chosen: Chosen
    files: Union[tuple[str, ...], None]
    budget: Union[Budget, None] = None


def _kept_selection(job: Job, folder: Path) -> str:
    """Write the choice of tests to a file and return its path: a variable cannot hold 100,000 ids. Empty if all tests are to run."""
    if job.what.chosen.tests is None and not job.what.chosen.without and job.files is None and job.limits.budget is None:
        return ""
    path = folder / "selection.json"
    made = path.with_name(f"selection-{os.getpid()}.json")  # the workers of all architectures write it, and read it at once
    made.write_text(to_json(_Kept(job.what.chosen, job.files, job.limits.budget)), encoding="utf-8")
    made.replace(path)
    return str(path)


def _placed(words: Sequence[str], kernels: str) -> list[str]:
    """Return the user's options of pytest. Paths in them are relative to the kernels folder, not to this process's."""
    found = []
    for word in words:
        option, equals, value = word.partition("=")
        found.append(f"{option}={Path(kernels, value)}" if option in _PATHS and equals else word)
    return found


def _no_settings(folder: Path) -> Path:
    """Write an empty file of settings. Otherwise pytest would use those of a repository above the package, which a container lacks."""
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\n")
    return settings


def _early(words: list[str], path: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split `addopts` into options that pytest needs at once, the others, and plugins that are not installed."""
    early: list[str] = []
    rest: list[str] = []
    dropped: list[str] = []
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if word[:2] in ("-p", "-o") and word not in _EARLY and not word.startswith("--"):  # -pxdist
            option, equals, value = word[:2], "=", word[2:]
        if option not in _EARLY:
            rest.append(word)
            continue
        value = value if equals else words.pop(0) if words else ""
        if option == "-p" and not _has_plugin(value, path):
            dropped.append(f"-p {value}")
        else:
            early += [option, value]
    return early, rest, dropped


def _has_plugin(name: str, path: list[str]) -> bool:
    if name.startswith("no:"):
        return True
    entries = {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}
    # Only the top package is looked for: looking deeper would import it.
    own = importlib.util.find_spec(f"_pytest.{name}") if name.isidentifier() else None
    return name in entries or own is not None or PathFinder.find_spec(name.partition(".")[0], path) is not None
