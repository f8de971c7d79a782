"""The table of goals says what a run's medians say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from recorded import recorded

from kernels.accuracy import error_of
from kernels.goals import GOALS, Goal, measure, read, table

REPO = Path(__file__).parents[3]


def samples(tmp_path, **medians_ms):
    """A run with one case, `op/N=8` of 2 GB, and a median in milliseconds by provider."""
    (tmp_path / "bench").mkdir()
    lines = [
        {
            "case": "op/N=8",
            "provider": name,
            "params": {"N": 8},
            "verdict": "passed" if ms else "crashed",
            "median_ms": ms,
            "unit": "GB/s",
            "value": ms and 2e3 / ms,
        }
        for name, ms in medians_ms.items()
    ]
    (tmp_path / "bench" / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return read(tmp_path)


def test_a_speed_is_a_ratio_of_medians_and_the_worst_case_counts(tmp_path):
    found = samples(tmp_path, triton=2.0, copy=1.9, torch=4.0)
    reached = measure(Goal("op", ("op/*",), "copy", speed=0.95), found)
    assert (reached.figure, reached.met, reached.peers, reached.faster) == (0.95, True, {"op/N=8": 0.475}, {})
    assert not measure(Goal("op", ("op/*",), "copy", speed=0.96), found).met


def test_a_time_is_at_most(tmp_path):
    found = samples(tmp_path, triton=2.1, floor=2.0)
    assert measure(Goal("op", ("op/*",), "floor", time=1.05), found).met
    assert not measure(Goal("op", ("op/*",), "floor", time=1.04), found).met


def test_memory_is_at_most(tmp_path):
    (tmp_path / "bench").mkdir()
    sample = {"case": "op/N=8", "params": {"N": 8}, "verdict": "passed", "median_ms": None, "unit": "GiB"}
    lines = [{**sample, "provider": name, "value": gib} for name, gib in {"triton": 1.59, "torch": 23.5}.items()]
    (tmp_path / "bench" / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read(tmp_path)
    assert not measure(Goal("op", ("op/*",), gib=1.58), found).met
    assert "| op | at most 1.60 GiB | 1.59 (1 case) | 23.50 | yes |" in table((Goal("op", ("op/*",), gib=1.6),), found)


def test_what_a_goal_does_not_speak_of_is_left_out(tmp_path):
    found = samples(tmp_path, triton=2.0, copy=2.0)
    assert measure(Goal("op", ("other/*",), "copy", speed=1.0), found) is None
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0, sizes=(9, 10)), found) is None
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0, floor_mib=2 << 10), found) is None
    assert measure(Goal("op", ("op/*",), "cudnn", speed=1.0), found) is None


def test_a_kernel_that_crashed_reaches_nothing(tmp_path):
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0), samples(tmp_path, triton=None, copy=2.0)) is None


def test_the_table_names_peers_that_are_faster(tmp_path):
    text = table((Goal("op", ("op/*",), "copy", speed=1.0), GOALS[0]), samples(tmp_path, triton=2.0, copy=2.0, liger=1.0))
    assert "| op | at least 1.00 of copy | 1.00 (1 case) | 2.00 | yes |" in text
    assert "| add | at least 1.00 of copy | not in this run | | |" in text
    assert "1 of 2 reached." in text
    assert "- op/N=8: liger is 2.00 x as fast" in text


def test_the_published_table_is_of_the_published_run():
    """What stands on the kernels' page is what the recorded run says, to the letter."""
    assert table(GOALS, read(recorded() / "raw" / "cuda")) in (REPO / "docs" / "kernels" / "README.md").read_text()


# What the kernels' tests and the fuzz call wrong in results that are no numbers.

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ours", "pytorch", "exact", "wrong"),
    [
        (1.0, 1.0 + 2**-23, NAN, ""),  # float64 took another path: there is nothing to compare with
        (INF, INF, INF, ""),
        (INF, -INF, -INF, "infinities"),
        (INF, 1.0, NAN, "infinities"),
        (NAN, 1.0, NAN, "NaN"),
        (1.0, NAN, NAN, "NaN"),
        (3e38, INF, 4e38, "infinities"),
        (INF, 1.0, 1.0, "infinities"),
        (2.0, 1.0, 1.0, "worst error"),
    ],
)
def test_what_is_no_number_is_held_to_pytorch(ours, pytorch, exact, wrong):
    found = error_of(torch.tensor([ours]), torch.tensor([pytorch]), torch.tensor([exact], dtype=torch.float64)).wrong
    assert (wrong in found) if wrong else not found, found
