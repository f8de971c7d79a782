"""A run's comparison.json as a row of the table: its counts, the tests that failed, and the classes of its failures."""

import json
from pathlib import Path
from typing import Any

import failures

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
        for failed in (failures.failed_tests(raw), failures.failed_kernels(raw))
        for one in failures.classes(failed)
    ]
    return result
