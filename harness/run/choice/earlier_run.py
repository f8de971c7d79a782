"""What an earlier run says of a package's tests: which of them failed, and how long each file took."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from harness.collect.raw_folder import collect_all, find_raw
from harness.errors import NothingRanError, UsageError
from harness.records import HARMLESS, TargetRun


def failed_tests(run: Path) -> tuple[str, ...]:
    """Return the ids of the tests that did not pass in a run, in its order: on any target, in the test stage or the compile stage.

    Raises:
        NothingRanError: all tests passed.
        UsageError: the run has no result of any test.
        InvalidInputError: the folder holds no run.
    """
    runs = collect_all(find_raw([run]))
    seen = [(case.id, case.verdict) for each in runs for case in each.cases]
    seen += [(row.origin, row.verdict) for each in runs for row in each.compiled if _is_a_test(row.origin)]
    if not seen:
        raise UsageError(
            f"--last-failed: the run in {run} has no result of any test.", "It ran no test stage, or it ended before.", "Give another run."
        )
    failed = dict.fromkeys(name for name, verdict in seen if verdict not in HARMLESS and _is_a_test(name))
    if not failed:
        raise NothingRanError(
            f"--last-failed: no test failed in {run}.", "There is nothing to run again.", "Leave --last-failed out to run all tests."
        )
    return tuple(failed)


def seconds_by_file(run: Path) -> dict[str, float]:
    """Return how long a run took for each of its files, in s, over all of its targets: its tests, and what they launch compiled.

    What is compiled for the points of a benchmark is under the benchmark's kernel.

    Raises:
        UsageError: the run timed nothing.
        InvalidInputError: the folder holds no run.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for each in collect_all(find_raw([run])):
        for name, seconds in _timed(each):
            found[name] += seconds if math.isfinite(seconds) else 0.0
    if not any(found.values()):
        raise UsageError(f"--shard-times: the run in {run} timed no test.", "It ended before its first test.", "Give another run.")
    return dict(found)


def _timed(run: TargetRun) -> list[tuple[str, float]]:
    tests = [(case.id.partition("::")[0], case.seconds) for case in run.cases]
    rows = [(row.origin.partition("::")[0] if _is_a_test(row.origin) else row.kernel, row.seconds) for row in run.compiled]
    return tests + rows


def _is_a_test(name: str) -> bool:
    """Return whether a name is a test's id, or that of a file with tests; not a point's, or pytest itself."""
    return "::" in name or name.endswith(".py")
