"""Steps in a history: where a speed changed and stayed, and the page that shows them. All data is synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import day, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare.trends import Measured, Series, lines
from warpwave.render.html.history import render_history


def history(*cases, half_width=0.002):
    """A line of cases with a time for each run; None where it was not measured."""
    found = []
    for number, times in enumerate(cases):
        points = tuple(
            Measured(f"run-{run}", f"2026-01-{run:02d}T00:00:00", f"c{run}", time, half_width) for run, time in enumerate(times, 1) if time
        )
        found.append(Series("softmax", f"softmax/fp32/N={number}", "triton", "a", "GPU", "timer", 0, points))
    return lines(found, {one.case: "fp32" for one in found})


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([1, 1, 1, 1, 1], []),
        ([1, 1.01, 0.99, 1.02, 1], []),  # noise
        ([1, 1, 1, 1.3, 1, 1, 1], []),  # one bad run is no step
        ([1, 1, 1, 1.25, 1.25, 1.25], [("c3..c4", 0.8)]),
        ([1.25, 1.25, 1, 1], [("c2..c3", 1.25)]),
        ([1, 1, 1.25, 1.25, 1.25, 1, 1, 1], [("c2..c3", 0.8), ("c5..c6", 1.25)]),
        ([1, 1, 1, 1.25], [("c3..c4", 0.8)]),  # the last run: not confirmed
        ([1], []),
    ],
)
def test_a_step_is_a_change_that_stays(times, found):
    """With the commits that it lies between."""
    (line,) = history(times, times)

    assert [(step.commits, round(step.speedup, 3)) for step in line.steps] == found
    assert all(step.confirmed == (step.position + 1 < len(times)) for step in line.steps)


def test_the_page_says_that_a_step_came_with_another_toolchain():
    """And says nothing where the toolchain stayed, or nobody knows it."""
    (line,) = history([1, 1, 1, 1.25, 1.25])
    (step,) = line.steps
    before, after = (
        dataclasses.replace(run, toolchain=name) for run, name in ((step.before, "triton <3.8.0>"), (step.after, "triton 3.9.0"))
    )
    with_it = dataclasses.replace(step, before=before, after=after)

    assert "with another toolchain: triton &lt;3.8.0&gt; → triton 3.9.0" in render_history([dataclasses.replace(line, steps=(with_it,))])
    for other in (step, dataclasses.replace(with_it, after=before), dataclasses.replace(with_it, before=step.before)):
        assert "another toolchain" not in render_history([dataclasses.replace(line, steps=(other,))])


def test_wide_intervals_are_no_step():
    """A case that may have moved has not moved for sure."""
    times = [1, 1, 1, 1.1, 1.1, 1.1]

    assert history(times)[0].steps
    assert not history(times, half_width=0.06)[0].steps


def test_half_of_the_cases_have_to_move():
    """One case that broke is seen by `compare`; it is no step of the kernel."""
    still, moved = [1, 1, 1, 1, 1], [1, 1, 2, 2, 2]

    assert not history(still, still, still, moved)[0].steps
    assert history(still, moved)[0].steps[0].moved == 1


def test_a_case_that_is_added_changes_no_level():
    """Only cases on both sides count, and speeds are relative to the first run that has them."""
    (line,) = history([1, 1, 1, 1], [None, None, 9, 9])

    assert line.steps == ()
    assert line.speeds == (1, 1, 1, 1)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The site of four runs, the last two slower."""
    monkeypatch.chdir(tmp_path)
    for number, time in enumerate((1.0, 1.0, 1.5, 1.5), 1):
        who = day(number, time, time)
        samples = tuple(dataclasses.replace(point, p20_ms=time, p80_ms=time, times_ms=()) for point in who.samples)
        write_raw(tmp_path / str(number) / "raw" / "alpha", dataclasses.replace(who, samples=samples))
        assert _run_cli(["history", "add", str(tmp_path / str(number))]) == 0
    assert _run_cli(["history", "site", "public", "--repository", "https://code.example/me/ops"]) == 0
    return tmp_path / "public" / "index.html"


def test_the_site_is_one_page_with_its_steps(page):
    """Each with a link to its commits, and attributes for the filters."""
    text = page.read_text()

    assert 'href="https://code.example/me/ops/compare/c2...c3"' in text
    assert "-33.3%" in text
    assert 'data-target="alpha" data-provider="triton"' in text
    assert "<svg" in text
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]


def test_a_history_without_speeds_has_no_site(tmp_path, monkeypatch, capsys):
    """Nor does an address that is none."""
    monkeypatch.chdir(tmp_path)
    write_raw(tmp_path / "run" / "raw" / "alpha", day(1))
    assert _run_cli(["history", "add", "run"]) == 0

    assert _run_cli(["history", "site", "public"]) == 5
    assert _run_cli(["history", "site", "public", "--repository", "javascript:x"]) == 2
    assert not (tmp_path / "public").exists()
