"""Speeds from one commit to the next: verdicts, refusals, pages, the command, and the overview of a report. All data is synthetic."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from hostile import TERMINAL_NAMES
from rich.console import Console
from synthetic import GPU_A, GPU_B, case, facts, record, run, sample, write_raw

from warpwave.__main__ import _run_cli
from warpwave.cli.compare import speed_outcome
from warpwave.compare import compare
from warpwave.compare.answer import overview
from warpwave.compare.changed_speeds import GroupChange, PointChange, TargetPair, changed_speeds
from warpwave.compare.model import Change
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import changed_speed_sections, speed_sentence
from warpwave.render.terminal import draw_page, render_terminal

SIZES = (1024, 2048, 4096)


def commit(*speeds, **more):
    """A run whose points have these synthetic speeds in GB/s; the kernel sources differ each time, as between commits."""
    samples = tuple(
        sample(n, value) if value else sample(n, None, verdict=Verdict.ERROR, reason="RuntimeError: x")
        for n, value in zip(SIZES[: len(speeds)], speeds, strict=True)
    )
    sources = facts(kernels_hash=f"{hash((speeds, *more)) & 0xFFFF:04x}" * 16)
    return run(**{"samples": samples, "facts": sources, **more})


def changes(found):
    return [point.change.value for point in found.points]


def drawn(found, full=False):
    """The terminal's and the Markdown page."""
    text = io.StringIO()
    sections = changed_speed_sections(found, full)
    Console(file=text, width=80, force_terminal=False, highlight=False).print(draw_page(speed_sentence(found), sections, good=True))
    return text.getvalue(), render_page(speed_sentence(found), sections, good=True)


def test_points_are_judged_one_by_one():
    """Different sources do not prevent a comparison. 10% slower, 10% faster, and equal."""
    found = changed_speeds([commit(1000.0, 1000.0, 1000.0)], [commit(900.0, 1100.0, 1000.0)])

    assert changes(found) == ["slower", "faster", "same"]
    assert [point.speedup for point in found.points] == pytest.approx([0.9, 1.1, 1.0])
    assert (speed_outcome(found).code, speed_sentence(found)) == (ExitCode.FAILED, "1 of 3 points is slower, 1 faster, 1 same.")


def test_nothing_slower_is_good():
    """Faster and ambiguous points do not fail the comparison."""
    found = changed_speeds([commit(1000.0, 1000.0)], [commit(1100.0, 975.0)])

    assert (changes(found), speed_outcome(found).code) == (["faster", "ambiguous"], ExitCode.GOOD)
    assert speed_sentence(found) == "None of 2 points is slower, 1 faster, 1 ambiguous."


def test_a_point_that_fails_only_in_head_is_lost():
    """No speed is worse than a slow one. A point that failed alike before is the same."""
    found = changed_speeds([commit(1000.0, None)], [commit(None, None)])

    assert ([point.lost for point in found.points], speed_outcome(found).code) == ([True, False], ExitCode.FAILED)
    assert speed_sentence(found) == "1 point failed that did not before; 1 point fails in both, or as known."
    assert [point.failing for point in found.points] == [False, True]


POINTS = {
    "timer": ({"timer": "another"}, "different timers: BASE synthetic, HEAD another"),
    "flush": ({"flush_bytes": 1}, "different flush sizes: BASE 268435456, HEAD 1"),
    "dtype": ({"params": {"N": 1024, "dtype": "bf16"}}, "different parameters"),
    "unit": ({"unit": "TFLOPS"}, "different units"),
}


@pytest.mark.parametrize("what", POINTS)
def test_a_point_that_was_measured_otherwise_is_refused_by_name(what):
    """The comparison is incomplete, even if nothing is slower."""
    change, words = POINTS[what]
    found = changed_speeds([commit(1000.0, 1000.0)], [commit(0, 0, samples=(sample(1024, 500.0, **change), sample(2048, 1000.0)))])

    assert (changes(found), speed_outcome(found).code) == (["refused", "same"], ExitCode.INCOMPLETE)
    assert words in found.points[0].reason


def test_a_speed_of_a_kernel_whose_tests_fail_is_refused():
    """A wrong result can be arbitrarily fast."""
    found = changed_speeds([commit(1000.0)], [commit(2000.0, cases=(case(verdict=Verdict.FAILED),))])

    assert (changes(found), found.points[0].reason) == (["refused"], "HEAD: 1 of 1 tests of softmax did not pass here")


def test_without_a_target_in_common_there_is_nothing_to_compare():
    """The same is true of stale folders."""
    for head in (commit(1000.0, record=record("beta")), commit(1000.0, record=record(verdict=Verdict.STALE)), run(samples=())):
        with pytest.raises(UsageError, match="No target was measured in both runs"):
            changed_speeds([commit(1000.0)], [head])
    two = [commit(1000.0, record=record(name)) for name in ("beta", "gamma")]
    with pytest.raises(UsageError) as caught:
        changed_speeds(two, [run(samples=())])
    assert caught.value.happened == "No target was measured in both runs: BASE measured beta, gamma, HEAD nothing."


def test_the_threshold_is_that_of_the_noisier_side_or_the_users():
    """After an A/A run of HEAD that moved by 8%, 5% are no change."""
    points = tuple(sample(n, 950.0, scatter=0.0) for n in range(1, 20))
    moved = tuple(dataclasses.replace(point, times_ms=tuple(t * 1.08 for t in point.times_ms)) for point in points)
    base = commit(samples=tuple(sample(n, 1000.0, scatter=0.0) for n in range(1, 20)))

    for again, told, expected in (((), None, 0.03), (moved, None, 0.2), (moved, 0.02, 0.02)):
        found = changed_speeds([base], [commit(samples=points, again=again)], told)
        assert (found.pairs[0].threshold, set(changes(found))) == (pytest.approx(expected), {"same" if expected > 0.1 else "slower"})


def test_the_page_fits_and_shows_names_literally():
    """80 columns; a name can neither control the terminal nor leave its code span."""
    for text in TERMINAL_NAMES:
        hostile = tuple(dataclasses.replace(entry, case=text, provider=text) for entry in (sample(1, 1000.0), sample(2, 2000.0)))
        slow = tuple(dataclasses.replace(entry, times_ms=tuple(2 * t for t in entry.times_ms)) for entry in hostile)
        terminal, _ = drawn(changed_speeds([commit(samples=hostile)], [commit(samples=slow)]), full=True)
        assert max(map(len, terminal.splitlines())) <= 80
        assert all(letter.isprintable() for letter in terminal.replace("\n", ""))


def test_what_became_slower_comes_first_and_furthest_first():
    """After twenty points, a line says how many more there are."""
    base = commit(samples=tuple(sample(n, 1000.0) for n in range(1, 31)))
    head = commit(samples=tuple(sample(n, 1000.0 - 10 * n) for n in range(1, 31)))
    terminal, markdown = drawn(changed_speeds([base], [head]))
    shown = [
        line.split()[0] for line in terminal.partition("Slower")[2].partition("Ambiguous")[0].splitlines() if line.startswith("softmax/")
    ]

    assert (shown[0], len(shown)) == ("softmax/N=30", 20)
    assert "more; --full shows them" in terminal
    assert markdown.startswith("### ✅ 2")


def test_the_command_writes_all_three_and_exits_with_one(tmp_path, capsys):
    """The files agree with the terminal."""
    folders = [tmp_path / "base", tmp_path / "head"]
    for folder, made in zip(folders, (commit(1000.0, 1000.0), commit(1000.0, 900.0)), strict=True):
        write_raw(folder / "raw" / "alpha", made)
    options = ["--markdown", str(tmp_path / "page.md"), "--json", str(tmp_path / "all.json")]
    code = _run_cli(["compare", *map(str, folders), *options])
    told = json.loads((tmp_path / "all.json").read_text())

    assert (code, told["exit_code"], told["ok"]) == (1, 1, False)
    assert [point["change"] for point in told["movement"]["points"]] == [Change.SAME.value, Change.SLOWER.value]
    assert "1 of 2 points is slower, 1 same." in capsys.readouterr().out
    assert "1 of 2 points is slower" in (tmp_path / "page.md").read_text()


def at(value, **more):
    return run("alpha", samples=tuple(sample(1 << n, value) for n in range(4)), **more)


BASE = at(2000.0, record=record(commit="0ld"))


@pytest.mark.parametrize(("value", "mark"), [(1500.0, "▼ 0.75"), (3000.0, "▲ 1.50"), (2002.0, "= 1.00")])
def test_the_trend_of_a_kernel_is_in_every_renderer(value, mark):
    """An arrow only for a change that is sure, and the factor."""
    comparison = compare([at(value)], base=[BASE])
    text = io.StringIO()
    Console(file=text, width=80, highlight=False).print(render_terminal(comparison))

    assert (comparison.since[0].commit, comparison.since[0].n) == ("0ld", 4)
    assert overview(comparison)[0].squares[0].since == comparison.since[0]
    assert any(line.startswith("softmax ") and line.rstrip().endswith(mark) for line in text.getvalue().splitlines())
    assert f"<div>{mark}<span" in render_html(comparison)


def test_without_a_base_run_there_is_no_such_column():
    comparison = compare([at(1500.0)])

    assert comparison.since == ()
    assert "since base" not in render_html(comparison)


def test_another_card_is_refused_with_the_reason():
    """The rest of the report is made all the same."""
    comparison = compare([at(1500.0, facts=facts(GPU_B))], base=[BASE])

    assert comparison.since == ()
    assert comparison.problems[0].startswith("not compared with the base run: BASE and HEAD cannot be compared")


def test_a_target_that_the_base_run_lacks_is_refused_with_the_reason():
    comparison = compare([run("beta")], base=[BASE])

    assert comparison.problems[0].startswith("not compared with the base run: No target was measured in both runs")


# Two commits, field by field.


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
    assert found.groups == (GroupChange("softmax", "triton", "alpha", 1, pytest.approx(2.0), {"faster": 1}),)
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
        (ERROR, ERROR, {"change": Change.SAME, "failing": True, "reason": "it failed"}),
        (ERROR, {**ERROR, "verdict": Verdict.CRASHED}, {"lost": True, "reason": "it failed"}),
        (ERROR, {**ERROR, "verdict": Verdict.KNOWN}, {"change": Change.SAME, "failing": True, "reason": "it failed"}),
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


def test_the_groups_of_two_commits_keep_what_they_leave_out():
    """Per kernel, provider and target; counts by verdict, and skipped ones apart."""
    idle = dataclasses.replace(sample(4, None), verdict=Verdict.NOT_RUN, reason="no")
    base = (sample(1, median_ms=4.0), sample(2, median_ms=1.0), sample(3), idle, sample(1, provider="torch"))
    head = (sample(1, median_ms=1.0), sample(2, median_ms=1.0), idle, sample(1, provider="torch"))
    first, second = two_commits(base, head).groups

    assert (first.kernel, first.provider, first.target, first.n, first.mean) == ("softmax", "triton", "alpha", 2, pytest.approx(2.0))
    assert first.changes == {"faster": 1, "same": 1, "one-sided": 1, "skipped": 1}
    assert (second.provider, second.n, second.changes) == ("torch", 1, {"same": 1})


def test_what_differs_between_two_commits_is_on_record():
    """Versions are shown; another GPU or arithmetic, or facts that are missing, forbid any comparison on that target."""
    newer = facts(torch="2.14", python="3.13", driver="1.1", runtime="synthetic 1.1", triton="3.10")
    both = [run(record=record(name), target=name) for name in ("alpha", "beta")]
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
