"""A run's comparison.json as a row of the table: its counts, the tests that failed, and whose fault each class of failures is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import controls
import failures

NOTHING: dict[str, Any] = {stage: {"counts": {}, "not_run": {}} for stage in ("test", "compile")} | {"classes": []}
TOOLCHAIN = ("triton", "torch")


def read(comparison: Path, kernels: Path, most: int, variables: dict[str, str], earlier: dict[str, Any]) -> dict[str, Any]:
    """Return a run's figures from its comparison.json, and the classes of its failures with their controls, at most `most` a stage.

    A class that an `earlier` session with the same toolchain has decided is not repeated.
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
    python = (target["environment"] or {}).get("python") or sys.executable
    variables = {**variables, "PLAIN_CARD": _card(raw)}
    tests = [cell["result"] for test in told["tests"] for cell in test["cells"]]
    result["failed_tests"] = {test["id"]: test["verdict"] for test in tests if test["verdict"] not in ("passed", "not-run")}
    result["classes"] = []
    same = all(earlier.get("facts", {}).get(name) == facts.get(name) for name in TOOLCHAIN)
    decided = {
        (one["stage"], one["message"]): {key: one[key] for key in ("fault", "control")}
        for one in (earlier.get("classes", []) if same else [])
        if one["fault"] != controls.UNDECIDED and not one["fault"].startswith(controls.OURS)
    }
    for failed in (failures.failed_tests(raw), failures.failed_kernels(raw)):
        left = most
        for one in failures.classes(failed):
            judged = decided.get((one.example.stage, one.message)) or decided.get(("test", one.message))
            if judged is None and left > 0:
                judged, left = controls.blame(one, kernels, python, variables), left - 1
                if judged["fault"] != controls.UNDECIDED:
                    decided[one.example.stage, one.message] = judged
            judged = judged or {"fault": controls.UNDECIDED, "control": "not run"}
            result["classes"].append(
                {"stage": one.example.stage, "count": one.count, "message": one.message, "example": one.example.id, **judged}
            )
    return result


def _card(raw: Path) -> str:
    """Return the card that host code saw in the interpreter: a control's stand-in is of the same."""
    told: dict[str, Any] = json.loads((raw / "job.json").read_text(encoding="utf-8"))
    return str((told.get("interpret_as") or {}).get("name") or "sm_90")
