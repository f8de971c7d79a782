"""`warpwave codegen diff`, as a user starts it: over rows that are made up, and over a package that is compiled here."""

import dataclasses
import json
import os
from dataclasses import replace
from pathlib import Path

import command
import pytest
from synthetic import GPU_A, GPU_B, compiled, day, facts, record, row, run, sample, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare.history import Measured, Series, lines, series
from warpwave.config.pyproject import tuned_configurations
from warpwave.errors import ConfigError
from warpwave.records import Verdict
from warpwave.render.sections.changes import history_sections


def warpwave(*arguments, cwd: Path, **more):
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parents[3]), **more}
    return command.warpwave(*arguments, cwd=cwd, env=environment)


def test_the_command_writes_what_it_prints(tmp_path):
    for name, kernel in (("base", row()), ("head", row(spills=4))):
        write_raw(tmp_path / name / "raw" / "alpha", run(compiled=(kernel,)))
    done = warpwave("codegen", "diff", "base", "head", "--markdown", "out.md", "--html", "out.html", "--json", "out.json", cwd=tmp_path)
    told = json.loads((tmp_path / "out.json").read_text())

    assert (done.returncode, told["exit_code"], told["ok"]) == (1, 1, False), done.stderr
    assert "1 regression (1 spills)" in done.stdout
    assert "❌ spilled registers 0 → 4" in (tmp_path / "out.md").read_text()
    assert '<b class="v-failed">spilled registers 0 → 4</b>' in (tmp_path / "out.html").read_text()
    assert told["diff"]["changes"][0]["deltas"][0] == {
        "concern": "spills",
        "trend": "worse",
        "what": "spilled registers",
        "before": "0",
        "after": "4",
        "weight": 16.0,
    }
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "nothing", cwd=tmp_path).returncode == 0
    assert warpwave("codegen", "diff", "base", "elsewhere", cwd=tmp_path).returncode == 4
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "x", cwd=tmp_path).returncode == 2


# `warpwave upgrade` on runs that are there already, and the tuned configurations of a package.

TUNED = '[tool.warpwave]\ntuned = [{files = "configs/*.json", key = "tiles"}]\n'


@pytest.fixture
def package(tmp_path):
    (tmp_path / "ops" / "configs").mkdir(parents=True)
    (tmp_path / "ops" / "pyproject.toml").write_text(TUNED)
    (tmp_path / "ops" / "configs" / "H200.json").write_text(
        '{"tiles": {"16": {"BLOCK": 1024, "num_warps": 4}, "by_dtype": [{"BLOCK": 2}]}}'
    )
    return tmp_path / "ops"


def test_the_page_of_two_legs(tmp_path, package, capsys):
    for toolchain, spills in (("triton-3.8.0", 0), ("triton-3.9", 8)):
        made = run("cpu", gpu=None, samples=(), again=(), ceilings=(), compiled=(compiled(spills=spills),))
        record = replace(made.record, target=f"cpu@{toolchain}", toolchain=toolchain)
        write_raw(tmp_path / "run" / "raw" / record.target, replace(made, record=record))
    files = [str(tmp_path / name) for name in ("page.md", "page.html", "line.txt")]
    words = ["upgrade", "--from", "3.8.0", "--to", "triton-3.9", "--read", str(tmp_path / "run"), "--kernels", str(package), "--json"]
    code = _run_cli([*words, "--markdown", files[0], "--html", files[1], "--summary", files[2]])
    told = json.loads(capsys.readouterr().out)

    assert (code, told["exit_code"], told["stale"][0]["entry"]) == (1, 1, "16")
    assert "1 function spills more (sy_90), 1 tuned configuration is stale" in (tmp_path / "line.txt").read_text()
    for name in ("page.md", "page.html"):
        assert "What changes" in (tmp_path / name).read_text()


def test_speeds_without_tests_are_refused_and_so_is_a_tuned_file_that_is_none(tmp_path, package, capsys):
    words = ["upgrade", "cuda", "--from", "3.8.0", "--to", "3.9.0", "--stage", "bench", "--kernels", str(package)]

    assert _run_cli([*words, "--out", str(tmp_path / "o")]) == 2
    assert "--stage test,bench" in " ".join(capsys.readouterr().err.split())

    (package / "configs" / "H200.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"H200\.json"):
        tuned_configurations(package)
    (package / "pyproject.toml").write_text('[tool.warpwave]\ntuned = ["configs/*.json"]\n')
    with pytest.raises(ConfigError, match="a list of tables"):
        tuned_configurations(package)


@pytest.mark.parametrize("pattern", ["link.json", "../*.json", "/etc/*.json", "/etc/hostname"])
def test_tuned_files_lie_in_the_repository(package, pattern):
    (package.parent / "private.json").write_text('{"16": {"A": 1}}')
    (package / "link.json").symlink_to("../private.json")
    (package / "pyproject.toml").write_text(f'[tool.warpwave]\ntuned = [{{files = "{pattern}"}}]\n')

    with pytest.raises(ConfigError, match="which no link leads out of"):
        tuned_configurations(package)


# Speeds over many runs: what is in a line, where a step is, and what the command says. All data is synthetic.


def line_of(*cases, half_width=0.002):
    """The line of cases with a time for each run; None where it was not measured."""
    found = []
    for number, times in enumerate(cases):
        points = tuple(
            Measured(f"run-{run}", f"2026-01-{run:02d}T00:00:00", f"c{run}", time, half_width) for run, time in enumerate(times, 1) if time
        )
        found.append(Series("softmax", f"softmax/fp32/N={number}", "triton", "a", "GPU", "timer", 0, points))
    (line,) = lines(found, 99)
    return line


def texts(sections):
    return "\n".join("".join(bit.text for bit in line) for section in sections for line in section.lines)


def test_series_are_in_the_order_of_the_runs():
    """However they were given; a run that is given twice counts once, and another target of it is another series."""
    found, left_out = series([day(2, 1.1), day(1, 1.0), day(1, 9.0), day(1, 1.0, target="beta")])

    assert [[(point.run_id, point.commit, point.median_ms) for point in one.points] for one in found] == [
        [("run-1", "c1", 1.0), ("run-2", "c2", 1.1)],
        [("run-1", "c1", 1.0)],
    ]
    assert found[0].points[0].half_width > 0
    assert left_out == []

    # It is of two runs, has no id or start, or has no speed; the others are shown all the same.
    runs = [
        day(1, 1.0),
        day(2, 1.0, record=record("alpha", verdict=Verdict.STALE)),
        day(3, 1.0, record=record("alpha", run_id="")),
        day(4, 1.0, record=record("alpha", started="")),
        day(5),
    ]
    found, left_out = series(runs)

    assert [[point.run_id for point in one.points] for one in found] == [["run-1"]]
    assert [text.rpartition(": ")[2] for text in left_out] == [
        *("its files are of two runs", "its run.json has no run id or no start", "its run.json has no run id or no start"),
        "it has no sound speed (passed)",
    ]
    assert "it has no sound speed" in texts(history_sections(lines(found, 20), left_out))

    # Not what failed, not what was weak, not what no test vouches for; and another GPU, timer or flush is another series.
    weak, other = sample(1, median_ms=1.0, weak="throttled"), sample(1, median_ms=1.0, timer="another")
    found, left_out = series(
        [day(1, 1.0), day(2, 1.0, cases=()), day(3, samples=(weak,)), day(4, samples=(other,)), day(5, 1.0, facts=facts(GPU_B))]
    )

    assert sorted(([point.run_id for point in one.points], one.timer, one.gpu) for one in found) == [
        (["run-1"], "synthetic", GPU_A),
        (["run-4"], "another", GPU_A),
        (["run-5"], "synthetic", GPU_B),
    ]
    assert [text.split(":")[0] for text in left_out] == ["alpha of run-2", "alpha of run-3"]


def test_a_line_is_over_the_cases_that_all_runs_have():
    """Two and eight times as fast are four times, geometrically; the case that came on the second day is in no figure. Hand-worked."""
    found, _ = series([day(1, 8.0, 8.0), day(2, 4.0, 1.0, 5.0), day(3, 4.0, 1.0, 5.0)])
    (whole,), (last,) = lines(found, 20), lines(found, 2)

    assert (whole.name, whole.n, whole.speeds) == ("softmax", 2, pytest.approx((1.0, 4.0, 4.0)))
    assert whole.bars == "▁██"
    assert (last.n, last.speeds, last.bars) == (3, pytest.approx((1.0, 1.0)), "▄▄")
    assert [one.name for one in lines(found, 20, by_case=True)] == ["softmax/N=1", "softmax/N=2", "softmax/N=4"]


def test_lines_differ_by_all_that_points_are_measured_by():
    """A dtype, provider, target, GPU, timer or flush of its own makes a line of its own."""
    point = Measured("r1", "2026-01-01", "c", 1.0, None)
    one = Series("k", "k/fp32/1", "triton", "alpha", GPU_A, "timer", 1, (point,))
    other = [{"case": "k/bf16/1"}, {"provider": "torch"}, {"target": "beta"}, {"gpu": GPU_B}, {"timer": "another"}, {"flush_bytes": 2}]
    found = lines([one, *(dataclasses.replace(one, **changed) for changed in other)], 9)

    assert [(line.dtype, line.provider, line.target, line.gpu, line.n) for line in found] == [
        *(("fp32", "triton", "alpha", GPU_A, 1), ("bf16", "triton", "alpha", GPU_A, 1), ("fp32", "torch", "alpha", GPU_A, 1)),
        *(("fp32", "triton", "beta", GPU_A, 1), ("fp32", "triton", "alpha", GPU_B, 1), ("fp32", "triton", "alpha", GPU_A, 1)),
        ("fp32", "triton", "alpha", GPU_A, 1),
    ]


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
    line = line_of(times, times)

    assert [(step.commits, round(step.speedup, 3)) for step in line.steps] == found
    assert all(step.confirmed == (step.after.run_id != f"run-{len(times)}") for step in line.steps)
    assert texts(history_sections([line], ())).count("not confirmed") == sum(not step.confirmed for step in line.steps)


def test_wide_intervals_are_no_step_and_half_of_the_cases_have_to_move():
    times = [1, 1, 1, 1.1, 1.1, 1.1]

    assert line_of(times).steps
    assert not line_of(times, half_width=0.06).steps

    still, moved = [1, 1, 1, 1, 1], [1, 1, 2, 2, 2]

    assert not line_of(still, still, still, moved).steps
    assert line_of(still, moved).steps[0].moved == 1


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, time in enumerate((1.0, 1.0, 1.5, 1.5), 1):
        who = day(number, time, time)
        samples = tuple(dataclasses.replace(point, p20_ms=time, p80_ms=time, times_ms=()) for point in who.samples)
        write_raw(tmp_path / "all" / str(number) / "raw" / "alpha", dataclasses.replace(who, samples=samples))
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_values_have_their_unit_and_other_providers_are_folded():
    """The kernel's own provider is the first of its benchmark, also where its first point is weak."""
    weak = dataclasses.replace(sample(2), weak="the clock was low")
    found, _ = series([run(samples=(weak, sample(provider="torch", value=2000.0), sample()))])
    drawn = lines(found, 20)

    assert {line.provider: (line.own, line.latest, line.unit) for line in drawn} == {
        "triton": (True, 3000.0, "GB/s"),
        "torch": (False, 2000.0, "GB/s"),
    }
    folded, whole = (history_sections(drawn, (), with_peers)[0] for with_peers in (False, True))
    assert ["".join(bit.text for bit in row[6]) for row in folded.rows] == ["3000 GB/s"]
    assert ("1 line of torch left out" in texts([folded]), len(whole.rows), "left out" in texts([whole])) == (True, 2, False)


def test_the_command_shows_lines_and_steps(runs, capsys):
    assert _run_cli(["history", "all/3", "all/4", "all/1", "all/2", "empty", "--markdown", "page.md", "--json", "all.json"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    document = json.loads((runs / "all.json").read_text())

    for text in ("4 runs, 1 line, 1 step down and 0 up.", "0.667", "██▁▁", "-33.3% from run-3", "c2..c3", "empty: there is no raw folder"):
        assert text in told, text
        assert text in " ".join((runs / "page.md").read_text().replace("\\", "").replace("`", "").split()), text
    assert [[point["median_ms"] for point in one["points"]] for one in document["series"]] == [[1.0, 1.0, 1.5, 1.5]] * 2
    assert [step["after"]["run_id"] for step in document["lines"][0]["steps"]] == ["run-3"]
    assert (document["exit_code"], document["left_out"]) == (0, ["empty: there is no raw folder in it"])

    for folders in (["all"], ["all", "all/2"]):
        assert _run_cli(["history", *folders, "--last", "2", "--kernel", "softmax"]) == 0
        told = capsys.readouterr().out
        assert "2 runs, 2 lines, 0 steps down and 0 up." in told
        assert "softmax/N=2" in told

    for number in (1, 2):
        for shard in (1, 2):
            who = record("alpha", run_id=f"night-{number}", started=f"2026-01-0{number}T00:00:00+00:00", commit="c", shard=f"{shard}/2")
            made = run(record=who, samples=(sample(shard, median_ms=1.0),))
            write_raw(runs / f"night-{number}" / f"shard{shard}" / "raw" / "alpha", made)

    assert _run_cli(["history", "night-1", "night-2", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["lines"]
    assert (line["n"], [one["run_id"] for one in line["runs"]]) == (2, ["night-1", "night-2"])
