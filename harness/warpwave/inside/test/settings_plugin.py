"""The pytest plugin that applies a package's own settings: its import folders, `addopts` and `rootdir`.

An option of `addopts` may belong to a plugin that is not installed here (`--cov`, `--timeout`). pytest would end with a usage error, and
nothing would run. Such options are left out, and the report names them.
A plugin that is installed and does not load is left out, too.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpwave.inside.environment import enter_links, package_folders, root_of
from warpwave.inside.imports import enter_package, load_leniently
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import JOURNAL_VARIABLE
from warpwave.inside.test.settings import settings

# Options that would start other processes, wait for a person, or write to the package; warpwave does what they are for.
_NEVER = frozenset(
    {
        *("-n", "--numprocesses", "--dist", "--tx", "--maxprocesses", "--forked", "--boxed", "--looponfail", "--pdb", "--trace"),
        *("--junitxml", "--junit-xml", "--rootdir", "-c", "--config-file", "--basetemp", "--strict-config"),
        *("--warpwave", "--warpwave-targets", "--warpwave-no-sanitize", "--warpwave-autotune", "--warpwave-config"),
    }
)
_PATHS = ("--ignore", "--ignore-glob", "--confcutdir")
# Marks of plugins that may not be installed here. A package that allows registered marks alone gets these.
_MARKS = ("anyio", "asyncio", "benchmark", "dependency", "flaky", "forked", "order", "repeat", "timeout", "xdist_group")


# At once: a plugin of the package (`-p tests.helpers`) is imported before pytest calls any hook.
if settings().rootdir:
    enter_links(settings().job)
    enter_package(package_folders(settings().job), root=root_of(settings().job))


def pytest_plugin_registered(manager: pytest.PytestPluginManager) -> None:
    """Go on behind an installed plugin that does not load."""
    load_leniently(manager)


def pytest_configure(config: pytest.Config) -> None:
    """Register marks of plugins."""
    for mark in _MARKS:
        config.addinivalue_line("markers", f"{mark}: of a plugin")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> Iterator[None]:
    """Put the package's `addopts` before the options of the run, once its conftest files have added theirs."""
    # pytest noted its folder before it read `-p`. Tests ask for it, and elsewhere pytest would not shorten paths.
    object.__setattr__(early_config.invocation_params, "dir", Path.cwd())
    result = yield
    known = settings()
    kept, dropped = split(parser, list(known.addopts), Path(known.rootdir), Path(known.job.kernels))
    args[:0] = kept
    missing = [*known.dropped, *dropped]
    if missing and JOURNAL_VARIABLE in os.environ:
        Journal.from_environment().write("note", text=f"options of the package's addopts that were left out: {' '.join(missing)}")
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on, ids stay as they are, and tests that ask for the root of the package find it.

    Hypothesis draws the same examples in each process, unless the user gave it a seed: else a test could fail for one card alone.
    """
    if (hypothesis := sys.modules.get("hypothesis.core")) and getattr(hypothesis, "global_force_seed", 0) is None:
        hypothesis.global_force_seed = 0  # type: ignore[attr-defined]
    if settings().rootdir:
        session.config._rootpath = Path(settings().rootdir)  # type: ignore[attr-defined]
    # The log names a test as the report does. pytest would look for a path from its working folder, twice for each test.
    session.config.cwd_relative_nodeid = lambda nodeid: nodeid  # type: ignore[method-assign]


def split(parser: pytest.Parser, words: list[str], rootdir: Path, kernels: Path) -> tuple[list[str], list[str]]:
    """Split options into those that this pytest knows and those that it does not; relative paths become absolute."""
    kept: list[str] = []
    dropped: list[str] = []
    while words:
        word = words.pop(0)
        option, equals, _ = word.partition("=")
        usable = word.startswith("-") and option not in _NEVER and not (word.startswith("-n") and word[2:3].isalnum())
        usable = usable and not _is_unknown(parser, word)
        following = words[0] if words and not equals and not words[0].startswith("-") else None
        if following is None or not word.startswith("-"):
            takes = False
        elif usable:
            takes = _takes_value(parser, word, following)
        else:
            takes = not (rootdir / following).exists()
        found = [word, words.pop(0)] if takes else [word]
        if usable:
            kept += _placed(found, rootdir, kernels)
        else:
            dropped += found
    return kept, dropped


def _is_unknown(parser: pytest.Parser, word: str) -> bool:
    try:
        return bool(parser.parse_known_and_unknown_args([word])[1])
    except pytest.UsageError:  # it is known, and lacks its value
        return False


def _takes_value(parser: pytest.Parser, word: str, value: str) -> bool:
    try:
        return not getattr(parser.parse_known_and_unknown_args([word, value])[0], "file_or_dir", [])
    except pytest.UsageError:  # a wrong value, which pytest reports
        return True


def _placed(words: list[str], rootdir: Path, kernels: Path) -> list[str]:
    """Return an option with its value, where a path is relative to the package and not to this process's folder."""
    option, equals, value = words[0].partition("=")
    value = value if equals else "".join(words[1:])
    if option in _PATHS:
        return [f"{option}={rootdir / value}"]
    if option == "--deselect" and kernels.is_relative_to(rootdir):
        return [f"{option}={value.removeprefix(f'{kernels.relative_to(rootdir).as_posix()}/')}"]
    return words


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have a test draw the same numbers in each run, on each architecture, and alone. A plugin that seeds comes later, and decides."""
    random.seed(item.nodeid)
    seed = random.getrandbits(32)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(seed)  # type: ignore[attr-defined]
    torch = sys.modules.get("torch")
    if generator := getattr(torch, "default_generator", None):
        generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # type: ignore[union-attr]
            torch.cuda.manual_seed_all(seed)  # type: ignore[union-attr]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave out Hypothesis' summary where no test uses it: for it, its plugin would import all of Hypothesis."""
    plugins = session.config.pluginmanager
    if "hypothesis" not in sys.modules and (unused := plugins.get_plugin("hypothesispytest")):
        plugins.unregister(unused)
