"""`warpwave codegen diff`, as a user starts it: over rows that are made up, and over a package that is compiled here."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import command
import pytest
from synthetic import GPU_B, compiled, day, facts, record, row, run, sample, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare.trends import trends
from warpwave.config.pyproject import tuned_configurations
from warpwave.errors import ConfigError, ExitCode, InvalidInputError
from warpwave.history import add, series
from warpwave.records import Verdict
from warpwave.render.sections.changes import trend_sections


def warpwave(*arguments, cwd: Path, **more):
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parents[3]), **more}
    return command.warpwave(*arguments, cwd=cwd, env=environment)


def test_the_command_writes_what_it_prints(tmp_path):
    """The terminal, Markdown, HTML and JSON say the same, and the exit code is in the JSON, too."""
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


PACKAGE = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({{"BLOCK": 1024}}, num_warps=warps) for warps in {warps}], key=["n"])
@triton.jit
def normalise_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0) * n + columns, row / tl.sum(row), mask=columns < n)


@triton.jit
def held_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + columns)
    tl.store(y_ptr + columns, row / tl.sum(row))


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [{n}], line_arg="p", line_vals=["triton"], line_names=["triton"], plot_name="rows", args={{}})
)
def bench(n, p):
    x = torch.empty((64, n), device="cuda")
    normalise_kernel[(64,)](x, torch.empty_like(x), n)
    held_kernel[(64,)](x, torch.empty_like(x), BLOCK={block}, num_warps=1)
"""


@pytest.mark.slow
def test_two_versions_of_a_real_package_are_kept_apart(tmp_path):
    """Compiled here: a row of 16384 is too much for one warp, and 32 warps of 64 lanes are more than a block may have."""
    pytest.importorskip("triton", reason="compiling needs torch and triton; `nox -s tests` installs them")
    (tmp_path / "two.yml").write_text("schema_version: 1\ntargets:\n  cpu:\n    architectures: [sm_90, gfx942]\n")
    for name, values in (("base", {"warps": "(4, 8)", "block": 256, "n": 1000}), ("head", {"warps": "(4, 32)", "block": 16384, "n": 1000})):
        (tmp_path / name / "rows").mkdir(parents=True)
        (tmp_path / name / "rows" / "bench_rows.py").write_text(PACKAGE.format(**values))
        # By default a configuration that a tuner would discard is no finding.
        (tmp_path / name / "pyproject.toml").write_text('[tool.warpwave.gates]\ncandidates = "all"\n')
        arguments = ("run", "cpu", "--engine", "local", "--stage", "compile", "--kernels", name, "--targets", "two.yml", "--no-report")
        done = warpwave(*arguments, "--out", f"run-{name}", cwd=tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache"))
        assert (tmp_path / f"run-{name}/raw/cpu/compile/kernels.jsonl").is_file(), done.stdout + done.stderr
    done = warpwave("codegen", "diff", "run-base", "run-head", "--json", "out.json", cwd=tmp_path)
    changes = json.loads((tmp_path / "out.json").read_text())["diff"]["changes"]
    told = {(change["function"], change["architecture"]): change for change in changes}

    assert done.returncode == 1
    # The default gates ask for no spill, so that a spill is a verdict, too.
    assert {change["architecture"] for change in changes if change["deltas"][0]["concern"] == "verdict"} == {"sm_90", "gfx942"}
    died = told["normalise_kernel", "gfx942"]
    assert (died["deltas"][0]["concern"], died["moved"], died["survivors"]) == ("verdict", ["8 → 32 warps"], 1)
    assert told["normalise_kernel", "sm_90"]["moved"] == ["8 → 32 warps"]
    worse = {
        name: {delta["concern"] for delta in told["held_kernel", name]["deltas"] if delta["trend"] == "worse"}
        for name in ("sm_90", "gfx942")
    }
    assert worse == {"sm_90": {"verdict", "spills", "registers", "size"}, "gfx942": {"occupancy", "registers", "size"}}
    assert {change["moved"][0] for key, change in told.items() if key[0] == "held_kernel"} == {"BLOCK 256 → 16384"}
    assert "Compiles on one vendor only, new in HEAD" in done.stdout
    assert "  fails on gfx942: failed: 32 warps of 64 are 2048 threads" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


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
    """In four forms, with exit code 1 for a kernel that spills, and the tuned configuration that is stale by that."""
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


def test_speeds_without_tests_are_refused(tmp_path, package, capsys):
    """They would hold a card for minutes, and none of them would be compared."""
    words = ["upgrade", "cuda", "--from", "3.8.0", "--to", "3.9.0", "--stage", "bench", "--kernels", str(package)]

    assert _run_cli([*words, "--out", str(tmp_path / "o")]) == 2
    assert "--stage test,bench" in " ".join(capsys.readouterr().err.split())


def test_tuned_entries_at_any_depth(package):
    """Below the key, each innermost mapping is an entry with its path."""
    assert [(one.entry, one.values) for one in tuned_configurations(package)] == [
        ("16", {"BLOCK": 1024, "num_warps": 4}),
        ("by_dtype/0", {"BLOCK": 2}),
    ]


def test_a_tuned_file_that_is_none(package):
    """Three beats, with the file's name."""
    (package / "configs" / "H200.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"H200\.json"):
        tuned_configurations(package)
    (package / "pyproject.toml").write_text('[tool.warpwave]\ntuned = ["configs/*.json"]\n')
    with pytest.raises(ConfigError, match="a list of tables"):
        tuned_configurations(package)


# Runs over time in one file: what is kept, once, by several writers, and the lines drawn from it. All data is synthetic.

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
