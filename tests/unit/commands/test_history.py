"""Runs over time in one file: what is kept, once, by several writers, and the lines drawn from it. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import GPU_B, day, facts, record, sample, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare.trends import trends
from warpwave.errors import ExitCode, InvalidInputError
from warpwave.history import add, series
from warpwave.records import Verdict
from warpwave.render.sections.changes import trend_sections

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new folder" / "history.sqlite"


def test_what_is_added_comes_back_in_order(path):
    """Oldest first, however it was added."""
    add(path, [day(2, 1.1)])
    assert add(path, [day(1, 1.0)]) == {"run-1/alpha": True}
    (found,) = series(path)

    assert [(point.run_id, point.commit, point.median_ms) for point in found.points] == [("run-1", "c1", 1.0), ("run-2", "c2", 1.1)]
    assert found.points[0].half_width > 0


def test_a_run_is_kept_once(path):
    """By its id and target: the same bundle again changes nothing, another target of the run is new."""
    add(path, [day(1, 1.0)])

    assert add(path, [day(1, 9.0), day(1, 1.0, target="beta")]) == {"run-1/alpha": False, "run-1/beta": True}
    assert [one.points[0].median_ms for one in series(path)] == [1.0, 1.0]


def test_all_of_a_bundle_or_nothing(path):
    """What belongs to two runs is refused, and takes the others with it."""
    with pytest.raises(InvalidInputError, match="its files are of two runs"):
        add(path, [day(1, 1.0), day(2, 1.0, record=record("beta", verdict=Verdict.STALE))])
    with pytest.raises(InvalidInputError, match="it has no run id"):
        add(path, [day(1, 1.0, record=record(run_id=""))])
    with pytest.raises(InvalidInputError, match="There is no history"):
        series(path)


def test_two_writers_at_once_lose_nothing(path):
    """Real processes, from the making of the file on; each adds the same twenty runs and five of its own."""
    program = f"""
import sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "tests" / "unit")!r}]
from pathlib import Path
from synthetic import day
from warpwave.history import add
print("ready", flush=True)
sys.stdin.readline()
for number in (*range(1, 21), *range({{start}}, {{start}} + 5)):
    add(Path({str(path)!r}), [day(number, 1.0, 2.0)])
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program.format(start=start)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for start in (30, 40)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()

    assert [writer.returncode for writer in writers] == [0, 0]
    assert [len(one.points) for one in series(path)] == [30, 30]


def test_only_what_can_be_relied_on_is_in_a_series(path):
    """Not what failed, not what was weak, not what no test vouches for; and another GPU, timer or flush is another series."""
    weak, other = sample(1, median_ms=1.0, weak="throttled"), sample(1, median_ms=1.0, timer="another")
    add(path, [day(1, 1.0), day(2, 1.0, cases=()), day(3, samples=(weak,)), day(4, samples=(other,)), day(5, 1.0, facts=facts(GPU_B))])

    assert [([point.run_id for point in one.points], one.timer, one.gpu) for one in series(path)] == [
        (["run-4"], "another", "Synthetic GPU A"),
        (["run-1"], "synthetic", "Synthetic GPU A"),
        (["run-5"], "synthetic", GPU_B),
    ]


def test_a_trend_is_over_the_cases_that_all_runs_have(path):
    """Two and eight times as fast are four times, geometrically; the case that came on the second day is in no figure. Hand-worked."""
    add(path, [day(1, 8.0, 8.0), day(2, 4.0, 1.0, 5.0), day(3, 4.0, 1.0, 5.0)])
    (whole,) = trends(series(path), 20)
    (last,) = trends(series(path), 2)

    assert (whole.name, whole.n, whole.speeds) == ("softmax", 2, pytest.approx((1.0, 4.0, 4.0)))
    assert whole.line == "▁██"
    assert (last.n, last.speeds, last.line) == (3, pytest.approx((1.0, 1.0)), "▄▄")
    assert [trend.name for trend in trends(series(path, "softmax"), 20, by_case=True)] == ["softmax/N=1", "softmax/N=2", "softmax/N=4"]
    assert series(path, "gelu") == []


def test_a_step_that_came_with_another_toolchain_says_so(path):
    """Not a step without one, and not a new toolchain without a step of more than 2%."""
    newer = facts(triton="3.10.0")
    days = [day(1, 1.0), day(2, 2.0), dataclasses.replace(day(3, 4.0), facts=newer), dataclasses.replace(day(4, 4.0), facts=facts())]
    add(path, days)
    (found,) = trends(series(path), 20)
    text = "".join(bit.text for bit in trend_sections([found])[0].lines[0])

    assert [(step.speedup, step.before.run_id, step.after.run_id) for step in found.steps] == [(pytest.approx(0.5), "run-2", "run-3")]
    assert "-50.0% with triton 3.9.0, torch 2.13.0+synthetic → triton 3.10.0, torch" in text
    assert "the commit changed too: c2 → c3" in text


def test_runs_without_a_case_in_common_say_so(path):
    """Nothing is left out without a word."""
    add(path, [day(1, 8.0), day(2, None, 8.0)])
    (trend,) = trends(series(path), 20)

    assert (trend.n, trend.speeds, trend.line) == (0, (), "no case is in all 2")


def test_a_file_that_is_no_history_is_an_error_and_stays_as_it_is(tmp_path):
    """Text, and the history of another version."""
    path = tmp_path / "history.sqlite"
    path.write_text("This is no database, but it is long enough to be taken for one." * 20)
    with pytest.raises(InvalidInputError, match="file is not a database"):
        add(path, [day(1, 1.0)])
    assert path.read_text().startswith("This is no database")

    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as store:
        store.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidInputError, match="has version 99"):
        add(newer, [day(1, 1.0)])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE points SET kernel = x'ff00'", "other types"),
        ("UPDATE points SET half_width = 1e999", "other types"),
        ("UPDATE points SET flush_bytes = 'none'", "other types"),
        ("UPDATE runs SET torch = x'ff00'", "UTF-8"),
        ("DROP TABLE points", "other things"),
        ("ALTER TABLE points DROP COLUMN timer", "no such column"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM points; END", "other things"),
        ("CREATE VIEW v AS WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r", "other things"),
    ],
)
def test_what_something_else_wrote_to_a_history_is_invalid(path, change, why):
    """Not a failure of warpwave or of the machine: the file is to blame."""
    add(path, [day(1, 8.0)])
    with sqlite3.connect(path) as store:
        store.execute(change)

    with pytest.raises(InvalidInputError, match=why):
        series(path)


def test_the_commands_keep_and_show(tmp_path, path, capsys):
    """From bundle to line, with all of it in JSON and a page for a summary."""
    for number in (1, 2):
        write_raw(tmp_path / str(number) / "raw" / "alpha", dataclasses.replace(day(number, 2.0 / number), compiled=()))
    bundles = [str(tmp_path / "1"), str(tmp_path / "2")]
    codes = [_run_cli(["history", "add", *bundles, "--file", str(path)]) for _ in range(2)]
    out = ["--markdown", str(tmp_path / "page.md"), "--json", str(tmp_path / "all.json")]
    codes += [_run_cli(["history", "show", "--file", str(path), *out]), _run_cli(["history", "show", "--file", str(path), "--kernel", "x"])]
    said = "".join(capsys.readouterr())

    assert codes == [0, 0, 0, int(ExitCode.NOTHING_RAN)]
    assert (said.count("added: run-"), said.count("there already: run-")) == (2, 2)
    assert all(text in said for text in ("2 runs, 1 line.", "2.000", "+100.0%", "▁█", "has no speed of x yet"))
    assert [point["median_ms"] for point in json.loads((tmp_path / "all.json").read_text())[0]["points"]] == [2.0, 1.0]
    assert "▁█" in (tmp_path / "page.md").read_text()
