"""A run's comparison.json as a row of the table: its counts, the tests that failed, and the classes of its failures."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTHING: dict[str, Any] = {stage: {"counts": {}, "not_run": {}} for stage in ("test", "compile")} | {"classes": []}
TOOLCHAIN = ("triton", "torch")
UNDECIDED = {"fault": "undecided", "control": "not run"}


def read(comparison: Path, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return a run's figures from its comparison.json, and the classes of its failures.

    What somebody wrote to a class of an `earlier` session with the same toolchain stays: whose fault it is, and what a control showed.
    """
    told = json.loads(comparison.read_text(encoding="utf-8"))
    target = told["targets"][0]
    stages = {stage["stage"]: stage for stage in target["stages"]}
    facts = {name: target["facts"][name] for name in ("torch", "triton", "python")} if target["facts"] else {}
    result: dict[str, Any] = {"sentence": told["sentence"], "facts": facts}
    for name in ("test", "compile"):
        stage = stages.get(name, {})
        result[name] = {key: stage.get(key, {}) for key in ("counts", "not_run")} | {"reason": stage.get("reason", "")[:300]}
    raw = comparison.parent / "raw" / target["target"]
    tests = [cell["result"] for test in told["tests"] for cell in test["cells"]]
    result["failed_tests"] = {test["id"]: test["verdict"] for test in tests if test["verdict"] not in ("passed", "not-run")}
    same = all(earlier.get("facts", {}).get(name) == facts.get(name) for name in TOOLCHAIN)
    decided = {(one["stage"], one["message"]): {key: one[key] for key in UNDECIDED} for one in (earlier.get("classes", []) if same else [])}
    result["classes"] = [
        {
            "stage": one.example.stage,
            "count": one.count,
            "message": one.message,
            "example": one.example.id,
            **decided.get((one.example.stage, one.message), UNDECIDED),
        }
        for failed in (failed_tests(raw), failed_kernels(raw))
        for one in classes(failed)
    ]
    return result


# The classes that the failures of a run fall into: one a message, with its numbers taken out.

# Where a gate found something: "at file.py:12, file.py:14".
_PLACES = re.compile(r" at \S+\.py:\d+(, \S+\.py:\d+)*")


@dataclass(frozen=True)
class Failure:
    """One test or kernel that failed, and its message."""

    stage: str
    id: str
    message: str


@dataclass(frozen=True)
class Class:
    """Failures with the same message but for numbers; the first one is an example."""

    message: str
    count: int
    example: Failure


def shape(message: str) -> str:
    """Return a message without what differs from case to case."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?", "N", _PLACES.sub("", re.sub(r"/\S*/sources/[^/\s]+/", "", first)))[:140]


def failed_tests(raw: Path) -> list[Failure]:
    """Return the tests of `raw/<target>/` that neither passed nor were skipped."""
    try:
        root = ElementTree.parse(raw / "test" / "junit.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return []
    found = []
    for case in root.iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is not None:
            name = next((entry.get("value") for entry in case.iter("property") if entry.get("name") == "id"), case.get("name"))
            found.append(Failure("test", str(name), bad.get("message") or ""))
    return found


def failed_kernels(raw: Path) -> list[Failure]:
    """Return the rows of the compile stage that failed."""
    try:
        lines = (raw / "compile" / "kernels.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    rows = [json.loads(line) for line in lines if line.strip()]
    bad = [row for row in rows if row["verdict"] not in ("passed", "not-run")]
    return [Failure("compile", f"{row['function']} for {row['architecture']}", row["reason"]) for row in bad]


def classes(failures: list[Failure]) -> list[Class]:
    """Return the classes of one stage, the largest first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(shape(failure.message), []).append(failure)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [Class(message, len(members), members[0]) for message, members in ordered]
