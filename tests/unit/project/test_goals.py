"""The table of goals says what a run's medians say."""

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


def test_a_kernel_that_crashed_reaches_nothing(tmp_path):
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0), samples(tmp_path, triton=None, copy=2.0)) is None


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
