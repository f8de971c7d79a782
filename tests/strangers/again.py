"""Run the tests that failed in a row's run once more, and put their verdicts into the row: nox -s strangers -- --again.

A whole run of a large package takes hours on two cores, and whether a fix holds is seen from the tests that failed. A test that ran out of
time is left alone, because it says how fast the machine is. So is what the run compiled.
"""

from collections import Counter
from typing import Any

from rows import TOOLCHAIN

OPTIONS = ("--stage", "test", "--test-timeout", "120")  # the limit of --quick, which would choose among the tests
_TOO_SLOW = "it ran longer than"


class CannotMergeError(Exception):
    """What ran again is not what the row's run had."""


def to_repeat(row: dict[str, Any]) -> list[str]:
    """Return the ids of the row's tests that failed.

    Raises:
        CannotMergeError: there is no row, or it does not name the tests that failed in it.
    """
    if "failed_tests" not in row:
        raise CannotMergeError("it has no row yet" if "test" not in row else "its row does not name the tests that failed")
    return [test for test, verdict in row["failed_tests"].items() if verdict != "timeout"]


def merged(row: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Return the row with what became of its failed tests.

    Raises:
        CannotMergeError: another toolchain ran them, or there are other tests.
    """
    if "not_reached" in again:
        raise CannotMergeError(again["not_reached"])
    repeated, counts = to_repeat(row), Counter(row["test"]["counts"])
    if other := [name for name in TOOLCHAIN if row["facts"].get(name) != again.get("facts", {}).get(name)]:
        raise CannotMergeError(", ".join(f"its row is from {name} {row['facts'].get(name)}" for name in other))
    if sum(again["test"]["counts"].values()) != len(repeated) or not again["failed_tests"].keys() <= set(repeated):
        raise CannotMergeError(f"{len(repeated)} tests were to run again, not {again['test']['counts']}")
    counts.subtract(row["failed_tests"][test] for test in repeated)
    counts.update(again["test"]["counts"])
    reasons = Counter(row["test"]["not_run"]) + Counter(again["test"]["not_run"])
    left = [one for one in row["classes"] if one["stage"] != "test" or one["message"].startswith(_TOO_SLOW)]
    slow = {test: verdict for test, verdict in row["failed_tests"].items() if verdict == "timeout"}
    return {
        **{key: value for key, value in row.items() if key not in ("said", "sentence")},
        "test": {"counts": dict(+counts), "not_run": dict(reasons), "reason": again["test"]["reason"]},
        "classes": _joined([*left, *again["classes"]]),
        "failed_tests": {**slow, **again["failed_tests"]},
        "again": {"date": again["date"], "seconds": again["seconds"], "tests": len(repeated)},
    }


def _joined(classes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each class once, those of tests first, the largest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in classes:
        earlier = found.get((one["stage"], one["message"]))
        found[one["stage"], one["message"]] = {**earlier, "count": earlier["count"] + one["count"]} if earlier else one
    return sorted(found.values(), key=lambda one: (one["stage"] != "test", -int(one["count"])))
