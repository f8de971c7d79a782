"""How speeds changed since a base run, in the overview of a report. All data is made up."""

import io

import pytest
from rich.console import Console
from synthetic import GPU_B, facts, record, run, sample, write_raw

from warpwave.__main__ import cli
from warpwave.compare import compare
from warpwave.compare.answer import overview
from warpwave.render.html import render_html
from warpwave.render.terminal import render_terminal


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


def test_the_command_reads_the_folder_of_the_base_run(tmp_path, capsys):
    write_raw(tmp_path / "base" / "raw" / "alpha", BASE)
    write_raw(tmp_path / "head" / "raw" / "alpha", at(1500.0))
    cli.main(["report", str(tmp_path / "head"), "--base", str(tmp_path / "base")], standalone_mode=False)

    assert "▼ 0.75" in capsys.readouterr().out
    assert '"since":[{"kernel":"softmax"' in (tmp_path / "head" / "comparison.json").read_text().replace(" ", "").replace("\n", "")
