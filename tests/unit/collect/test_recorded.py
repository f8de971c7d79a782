"""Recorded runs stay readable: today's code can render what was measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpwave.report import write_report

REPORTS = Path(__file__).parents[3] / "reports"
RUNS = sorted(path.parent for path in REPORTS.glob("*/raw") if path.parent.name != "runs")


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.name)
def test_a_recorded_run_renders_to_the_same_results(run, tmp_path):
    """Every target, test, point and kernel of the recorded comparison appears with its verdict and number, and so do its failures."""
    recorded = json.loads((run / "comparison.json").read_text())
    write_report([run], tmp_path, [target["target"] for target in recorded["targets"]])
    again = json.loads((tmp_path / "comparison.json").read_text())

    assert (again["exit_code"], again["problems"]) == (recorded["exit_code"], recorded["problems"])
    for part in ("targets", "tests", "rows", "codegen"):
        assert known_then(again[part], recorded[part]) == recorded[part], part


def known_then(again, recorded):
    """Return `again` without the fields that were added after the recording."""
    if isinstance(recorded, dict):
        return {key: known_then(again[key], value) for key, value in recorded.items() if key in again}
    if isinstance(recorded, list) and len(again) == len(recorded):
        return [known_then(new, old) for new, old in zip(again, recorded, strict=True)]
    return again


def test_there_is_a_recorded_run():
    """Otherwise the test above would be empty."""
    assert RUNS
