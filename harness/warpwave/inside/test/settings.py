"""A package's settings of pytest → the options of a stage's pytest.

Ids are relative to the kernels folder, on every target, so that folder is pytest's `rootdir` while it collects. Afterwards it is the one
that pytest would have chosen. The package's `addopts` are applied by `settings_plugin`, which knows the plugins that are installed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from warpwave.inside.environment import package_folders, python_path, root_of
from warpwave.records import CounterLimit, Job, Selection, What, from_json, to_json
from warpwave.records.selection import is_test, narrowed

SETTINGS_VARIABLE = "WARPWAVE_PYTEST"
_PATHS = ("--ignore", "--ignore-glob")
# Options of `addopts` that pytest reads before it loads a plugin, so they stay on the command line. Each takes a value.
_EARLY = ("-p", "-o", "-W", "--override-ini", "--import-mode", "--pythonwarnings")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a stage tells its workers: the job, the folder of the package's settings, and its `addopts`, of which some were `dropped`."""

    job: Job
    rootdir: str = ""
    addopts: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


_OF_NO_STAGE = Settings(Job("", "", ".", "", what=What(benches=())))


def settings() -> Settings:
    """Return what the stage told this worker; an empty job if no stage started it."""
    path = os.environ.get(SETTINGS_VARIABLE)
    return _read(path) if path else _OF_NO_STAGE


@functools.cache
def _read(path: str) -> Settings:
    return from_json(Settings, Path(path).read_text(encoding="utf-8"))


def pytest_options(job: Job, folder: Path) -> list[str]:
    """Return pytest's options, and tell the plugin the rest. A module that does not import must not hide the others."""
    root = root_of(job)
    file = root / job.declared.pytest.file if job.declared.pytest.file else _no_settings(folder)
    above = file.parent if job.declared.pytest.file else root
    early, addopts, dropped = _early(list(job.declared.pytest.addopts), [*package_folders(job), str(above), *python_path(job), *sys.path])
    told, path = Settings(job, str(above), tuple(addopts), tuple(dropped)), folder / "settings.json"
    made = path.with_name(f"settings-{os.getpid()}.json")  # the workers of all architectures write it, and read it at once
    made.write_text(to_json(told), encoding="utf-8")
    made.replace(path)
    os.environ[SETTINGS_VARIABLE] = str(path)
    fixed = ["-p", "warpwave.inside.test.settings_plugin", "--rootdir", job.kernels, "-c", str(file), "--confcutdir", str(above)]
    fixed += [
        "-o",
        f"cache_dir={Path.cwd() / '.pytest_cache'}",
        "--continue-on-collection-errors",
        "-v",
        "--color=no",
        "-o",
        "addopts=",
        *early,
    ]
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


def counter_limits(job: Job) -> tuple[CounterLimit, ...]:
    """Return what the package's file allows of counters; nothing where they are not counted."""
    return job.what.gates.counters if job.emulate and job.what.gates else ()


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
        if word[:2] in ("-p", "-o", "-W") and word not in _EARLY and not word.startswith("--"):  # -pxdist
            option, equals, value = word[:2], "=", word[2:]
        if option not in _EARLY:
            # pytest 9 turns the first one into a setting, and reads settings before it loads a plugin.
            (early if word in ("--strict-markers", "--noconftest") else rest).append(word)
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
