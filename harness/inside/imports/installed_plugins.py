"""Load the pytest plugins that the environment has, and leave out those that do not fit this pytest.

A package's extras for tests may pin an old pytest with its plugins. The environment has one pytest for all packages, and a single plugin
that does not load would end it before the first test. What an omitted plugin would have given (a fixture, an option) is then missing in the
tests that need it, and the report names the plugin.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from harness.inside.process.journal import Journal
from harness.inside.process.workers import JOURNAL_VARIABLE


def load_leniently(manager: pytest.PytestPluginManager) -> None:
    """Make this manager go on behind a plugin that does not load. pytest calls it before it loads the first installed one."""
    load = manager.load_setuptools_entrypoints
    if not isinstance(load, functools.partial):
        manager.load_setuptools_entrypoints = functools.partial(_load, manager, load)  # type: ignore[method-assign]


def _load(manager: pytest.PytestPluginManager, load: Callable[..., int], group: str, name: str | None = None) -> int:
    try:
        return load(group, name=name)
    except pytest.UsageError:
        raise
    except Exception:
        if name is not None:  # asked for by name, with -p
            raise
    return sum(_load_one(manager, load, group, entry.name) for entry in entry_points(group=group))


def _load_one(manager: pytest.PytestPluginManager, load: Callable[..., int], group: str, name: str) -> int:
    try:
        return load(group, name=name)
    except pytest.UsageError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        with contextlib.suppress(Exception):  # an older pluggy has registered half of it
            manager.unregister(name=name)
        manager.set_blocked(name)
        if JOURNAL_VARIABLE in os.environ:
            said = " ".join(f"{type(cause).__name__}: {cause}".split())
            Journal.from_environment().write(
                "note", text=f"the plugin {name} does not load in pytest {pytest.__version__}, so it is off: {said}"
            )
        return 0
