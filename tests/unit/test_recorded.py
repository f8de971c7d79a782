"""Recorded runs stay readable: what was measured once can be rendered with today's code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.report import write_report

REPORTS = Path(__file__).parents[2] / "reports"
RUNS = sorted(path.parent for path in REPORTS.glob("*/raw") if path.parent.name != "runs")


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.name)
def test_a_recorded_run_renders_to_the_same_results(run, tmp_path):
    """Every target, test, point and kernel of the recorded comparison is there again, with its verdict and its number."""
    recorded = json.loads((run / "comparison.json").read_text())
    write_report([run], tmp_path, [target["target"] for target in recorded["targets"]])
    again = json.loads((tmp_path / "comparison.json").read_text())

    assert (again["exit_code"], again["problems"]) == (0, [])
    for part in ("targets", "tests", "rows", "codegen"):
        assert again[part] == recorded[part], part


def test_there_is_a_recorded_run():
    """Or the test above would be empty."""
    assert RUNS
