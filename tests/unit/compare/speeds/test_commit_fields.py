"""Two commits, field by field: what moved, what one of them lacks, and what is refused. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import GPU_A, GPU_B, facts, record, run, sample

from warpwave.compare.changed_speeds import GroupChange, PointChange, TargetPair, changed_speeds
from warpwave.compare.model import Change
from warpwave.records import Verdict

B = ["alpha", "beta"]
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def two_commits(before, after, at_least=None, **head):
    base = run(samples=before, record=record(commit="old", run_id="run-1"))
    return changed_speeds([base], [run(samples=after, record=record(commit="new", run_id="run-2"), **head)], at_least)


def test_a_point_that_moved_field_by_field():
    """BASE's time over HEAD's, and where it lies."""
    found = two_commits((sample(1, median_ms=2.0),), (sample(1, median_ms=1.0),))
    (point,) = found.points

    assert 1.95 < point.low < 2.0 < point.high < 2.05
    assert dataclasses.replace(point, low=None, high=None) == PointChange(
        *("softmax", "softmax/N=1", "triton", "alpha", 0, Change.FASTER, 2.0, 1.0, 2.0)
    )
    assert found.groups == (GroupChange("softmax", "triton", "alpha", 1, pytest.approx(2.0), {"faster": 1}, ()),)
    assert found.pairs == (TargetPair("alpha", (GPU_A,), ("old", "new"), ("run-1", "run-2"), 0.03, versions={}),)
    assert (found.only, found.lost, found.skipped) == ((), (), ())


ERROR = {"value": None, "verdict": Verdict.ERROR, "reason": "it failed"}
IDLE = {"value": None, "verdict": Verdict.NOT_RUN, "reason": "not installed"}


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ({}, None, {"change": Change.ONE_SIDED, "base_ms": 1.0, "reason": "not in HEAD"}),
        (None, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "not in BASE"}),
        (IDLE, IDLE, {"skipped": True, "reason": "skipped in both: not installed"}),
        (IDLE, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "skipped in BASE: not installed"}),
        ({}, ERROR, {"lost": True, "base_ms": 1.0, "reason": "it failed"}),
        ({}, IDLE, {"base_ms": 1.0, "reason": "HEAD: not installed"}),
        (ERROR, {}, {"head_ms": 1.0, "reason": "BASE: it failed"}),
        (ERROR, ERROR, {"reason": "BASE: it failed; HEAD: it failed"}),
        (IDLE, ERROR, {"reason": "BASE: not installed; HEAD: it failed"}),
    ],
)
def test_a_point_that_one_run_lacks_field_by_field(base, head, expected):
    """Which of the two, and why; what failed in HEAD alone is lost, what was skipped in both is none."""
    sides = [() if more is None else (sample(1, median_ms=None if more else 1.0, **more),) for more in (base, head)]
    other = sample(2)
    (point, _) = sorted(two_commits((*sides[0], other), (*sides[1], other)).points, key=lambda point: point.case)

    assert point == dataclasses.replace(PointChange("softmax", "softmax/N=1", "triton", "alpha", 0, Change.REFUSED), **expected)


def test_points_without_enough_timings_are_ambiguous():
    """There is no interval, and so no speedup."""
    few = [dataclasses.replace(sample(1, median_ms=time), times_ms=(time,) * 3) for time in (1.0, 2.0)]
    (point,) = two_commits((few[0],), (few[1],)).points

    assert (point.change, point.speedup, point.low, point.base_ms, point.head_ms) == (Change.AMBIGUOUS, None, None, 1.0, 2.0)
    assert point.reason


def test_a_point_that_moved_to_another_card_is_refused():
    """Each card has a speed of its own; the other side is named."""
    first, second = two_commits((sample(1),), (sample(1, device=1),)).points

    assert (first.change, second.change) == (Change.REFUSED, Change.REFUSED)
    assert "GPU 1 in HEAD" in first.reason
    assert "GPU 0 in BASE" in second.reason


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("parameters", {"params": {"N": 5}}),
        ("units", {"unit": "TFLOP/s"}),
        ("timers", {"timer": "another"}),
        ("flush sizes", {"flush_bytes": 1}),
    ],
)
def test_a_point_that_was_measured_otherwise_is_refused(what, changes):
    """Both settings are told, BASE's first."""
    (point,) = two_commits((sample(1),), (dataclasses.replace(sample(1), **changes),)).points

    assert (point.change, point.speedup) == (Change.REFUSED, None)
    assert point.reason.startswith(f"different {what}: BASE ")
    assert ", HEAD " in point.reason


def test_the_groups_of_two_commits_keep_what_they_leave_out():
    """Per kernel, provider and target; counts by verdict, and skipped ones apart."""
    idle = dataclasses.replace(sample(4, None), verdict=Verdict.NOT_RUN, reason="no")
    base = (sample(1, median_ms=4.0), sample(2, median_ms=1.0), sample(3), idle, sample(1, provider="torch"))
    head = (sample(1, median_ms=1.0), sample(2, median_ms=1.0), idle, sample(1, provider="torch"))
    first, second = two_commits(base, head).groups

    assert (first.kernel, first.provider, first.target, first.n, first.mean) == ("softmax", "triton", "alpha", 2, pytest.approx(2.0))
    assert first.changes == {"faster": 1, "same": 1, "one-sided": 1, "skipped": 1}
    assert [gone.case for gone in first.exclusions] == ["softmax/N=3", "softmax/N=4"]
    assert (second.provider, second.n, second.changes) == ("torch", 1, {"same": 1})


def test_what_differs_between_two_commits_is_on_record():
    """Versions are shown; another GPU or arithmetic, or facts that are missing, forbid any comparison on that target."""
    newer = facts(torch="2.14", python="3.13", driver="1.1", runtime="synthetic 1.1", triton="3.10")
    both = [run(record=record(name), target=name) for name in B]
    (told,) = two_commits((sample(1),), (sample(1),), 0.2, facts=newer).pairs
    assert told.versions == {
        "torch": ("2.13.0+synthetic", "2.14"),
        "triton": ("3.9.0", "3.10"),
        "runtime": ("synthetic 1.0", "synthetic 1.1"),
        "driver": ("1.0", "1.1"),
        "python": ("3.12.0", "3.13"),
    }
    assert told.threshold == 0.2

    for changes, words in (
        ({"facts": facts(GPU_B)}, f"different GPUs on alpha: BASE {GPU_A}, HEAD {GPU_B}"),
        ({"facts": facts(fp_fusion="0")}, "different FP fusion settings on alpha: BASE 1, HEAD 0"),
        ({"facts": None}, "the facts of alpha are missing in HEAD"),
    ):
        found = changed_speeds(both, [dataclasses.replace(both[0], **changes), both[1]])
        assert [pair.barriers for pair in found.pairs] == [(words,), ()]
        assert {point.target for point in found.points} == {"beta"}
    (told, _) = changed_speeds([dataclasses.replace(both[0], facts=None), both[1]], both).pairs
    assert told.barriers == ("the facts of alpha are missing in BASE",)
    assert told.versions == {}


def test_points_of_one_verdict_are_in_the_order_of_how_far_they_moved():
    """In either direction: 20% faster is further than 10% slower."""
    times = (1.0, 1.0 / 0.9, 1.0 / 1.2, 1.05)
    base, head = (tuple(sample(n, median_ms=time) for n, time in enumerate(sides)) for sides in ((1.0,) * 4, times))

    assert [point.case for point in two_commits(base, head, 0.5).of(Change.SAME)] == [f"softmax/N={n}" for n in (2, 1, 3, 0)]


def test_a_target_of_one_commit_alone_is_named():
    """With the side that has it."""
    both = {name: run(record=record(name), target=name) for name in ("alpha", "beta", "gamma")}
    found = changed_speeds([both["alpha"], both["beta"]], [both["alpha"], both["gamma"]])

    assert [(words.split()[0], words.split()[4]) for words in found.only] == [("beta", "BASE"), ("gamma", "HEAD")]
