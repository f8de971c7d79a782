"""`warpwave run --watch`: after a run, wait for edits of the package, and run again what they touch, until Ctrl-C."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpwave import console
from warpwave.cli.options import POSITIONAL
from warpwave.cli.show import print_error
from warpwave.config.package import find_root
from warpwave.engines import waiting
from warpwave.engines.local import keeping_warm
from warpwave.errors import Outcome, UsageError, WarpwaveError
from warpwave.run.choice import package_files
from warpwave.run.folders import RUNS

_POLL_S = 0.2
# These name one folder or one document, and several runs need one each; or they run nothing.
_REFUSED = ("out", "resume", "json", "dry_run")
# What chose the tests of the first run. Of the others the edit chooses them.
_CHOSE: dict[str, Any] = {"tests": (), POSITIONAL: (), "last_failed": None, "changed_since": None}

Times = dict[str, tuple[int, int]]


def watch(options: dict[str, Any], run: Callable[..., Outcome]) -> Outcome:
    """Run as asked, then again after each edit: the touched tests, in the test stage unless the options name stages. Return the outcome of
    the last run that ended. Raises UsageError if an option is given of which only one run can make use."""
    for name in _REFUSED:
        if options[name]:
            option = f"--{name.replace('_', '-')}"
            meaning = f"--watch runs several times, and {option} is for one run."
            raise UsageError(f"--watch and {option} were both given.", meaning, "Leave one of them out.")
    root = find_root(options["kernels"])
    with keeping_warm():
        return _watched(root, options, run)


def _watched(root: Path, options: dict[str, Any], run: Callable[..., Outcome]) -> Outcome:
    before = _times(root)
    ended = run(**options)
    while not waiting.asked():
        console.say(f"Watching {root} for edits. Ctrl-C ends it.", err=True)
        try:
            now = _after_an_edit(root, before)
        except KeyboardInterrupt:
            break
        edited = tuple(sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)))
        before = now
        began = time.monotonic()
        try:
            ended = run(**{**options, **_CHOSE, "edited": edited, "stages": options["stages"] or "test"})
        except WarpwaveError as error:  # a syntax error in pyproject.toml, or an edit that touches no test: the next one may
            print_error(error)
        console.say(f"That took {time.monotonic() - began:.1f} s.", err=True)
    return ended


def _after_an_edit(root: Path, before: Times) -> Times:
    """Wait until a file differs from `before`, and until no more files change: an editor writes several."""
    seen = before
    while (now := _times(root)) == before or now != seen:
        seen = now
        time.sleep(_POLL_S)
    return now


def _times(root: Path) -> Times:
    """Return when each file of the package was changed, and its size. Results of runs are no part of it."""
    results = RUNS.resolve()
    found: Times = {}
    for name in package_files(root):
        path = root / name
        if path.is_relative_to(results):
            continue
        try:
            status = path.stat()
        except OSError:  # deleted meanwhile
            continue
        found[name] = (status.st_mtime_ns, status.st_size)
    return found
