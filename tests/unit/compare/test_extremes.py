"""Finite numbers whose quotients, products or sums overflow: no traceback, no infinity, every file written. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner
from slow_cases import slow_but
from synthetic import CEILING, run, sample, write_raw

from warpwave import report
from warpwave.__main__ import _run_cli
from warpwave.errors import ExitCode
from warpwave.records import Verdict

EXTREMES = (1e308, 5e-324, 2.3e-308)

PAIRS = [(1e308, 1e308), (1e308, 5e-324), (5e-324, 1e308), (5e-324, 5e-324), (1e300, 1e-300), (2.3e-308, 1.7e308)]

FILES = {"junit.xml", "bandwidth.csv", "comparison.html", "comparison.md", "comparison.json"}


def invoke(*words: object) -> tuple[int, str]:
    """The exit code, and everything that was printed."""
    with CliRunner().isolation() as (out, err, *_):
        code = _run_cli([str(word) for word in words])
        return code, out.getvalue().decode() + err.getvalue().decode()


def points(value, time, sizes=(1024, 2048, 4096)):
    """A sweep with the same value and time at every point."""
    return tuple(sample(n, value, median_ms=time, times_ms=(time,) * 21, p20_ms=time, p80_ms=time) for n in sizes)


def check(folder, tmp_path):
    """Run everything that reads a bundle on this one; everything printed or written as JSON must be strict."""
    code, said = invoke("report", folder, "--out", tmp_path / "out", "--json", "--svg", tmp_path / "out.svg")
    told, _ = json.JSONDecoder(parse_constant=pytest.fail).raw_decode(said)  # and behind it, why the exit code is not 0
    assert code == told["exit_code"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= FILES
    assert not [text for text in told["comparison"]["problems"] if "not written" in text]
    json.loads((tmp_path / "out" / "comparison.json").read_text(), parse_constant=pytest.fail)
    for words in (
        ("report", folder, "--out", tmp_path / "full", "--full"),
        ("plot", folder, "--out", tmp_path / "plots"),
        ("compare", folder, folder, "--full", "--json", tmp_path / "compare.json", "--markdown", tmp_path / "compare.md"),
        ("codegen", "diff", folder, folder, "--full", "--json", tmp_path / "diff.json"),
        ("ci", "report", folder, "--out", tmp_path / "ci", "--base", folder, "--fail-on", "any"),
        ("history", folder, "--json", tmp_path / "history.json"),
        *(("export", folder, "--format", name, "--out", tmp_path / name) for name in ("bencher", "pytorch", "openmetrics", "csv")),
        *(("export", folder, "--format", name, "--out", tmp_path / name) for name in ("benchmark-action", "benchmark-action-times")),
    ):
        assert invoke(*words)[0] in tuple(ExitCode), words
    for path in tmp_path.glob("*.json"):
        json.loads(path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(("value", "copy"), PAIRS)
def test_a_value_and_a_ceiling_may_be_any_finite_number(tmp_path, value, copy):
    """With two targets, so that there are ratios, shares and portabilities."""
    ceiling = dataclasses.replace(CEILING, median_ms=copy, p20_ms=copy, p80_ms=copy)
    write_raw(tmp_path / "in" / "raw" / "alpha", run(samples=points(value, copy), ceilings=(ceiling,), again=points(value, value)))
    write_raw(tmp_path / "in" / "raw" / "beta", run("beta", samples=points(3000.0, value), ceilings=(CEILING,)))
    for name in ("alpha", "beta"):
        path = tmp_path / "in" / "raw" / name / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "target": name}))

    check(tmp_path / "in", tmp_path)


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize(
    "field", slow_but(["low", "high", "p20_ms", "p80_ms", "host_ms", "graph_ms", "params"], ["low", "p80_ms", "params"])
)
def test_no_field_of_a_point_overflows(tmp_path, field, extreme):
    """One extreme field at a time, beside normal ones."""
    sizes = enumerate((1.0, extreme, extreme / 3, 3.0))
    rows = [
        dataclasses.replace(
            sample(n + 1, 3000.0 + n), **({"params": {"N": size, "dtype": "fp32"}} if field == "params" else {field: extreme})
        )
        for n, size in sizes
    ]
    write_raw(tmp_path / "in" / "raw" / "alpha", run(samples=tuple(rows)))

    check(tmp_path / "in", tmp_path)


def test_what_is_beyond_any_measurement_is_named(tmp_path):
    """It is no speed and no time: the cell says so, and the other points stay."""
    rows = (sample(1024, 1e308), sample(2048, 3000.0, median_ms=1e300), sample(4096))
    write_raw(tmp_path / "in" / "raw" / "alpha", run(samples=rows))
    comparison = report.write_report([tmp_path / "in"], tmp_path / "out")

    assert [row.cells[0].verdict for row in comparison.rows] == [Verdict.INVALID, Verdict.INVALID, Verdict.PASSED]
    assert [row.cells[0].reason for row in comparison.rows[:2]] == [
        "1e+308 GB/s is not a speed",
        "1e+300 ms is not a possible time",
    ]
    assert (comparison.targets[0].verdict, comparison.exit_code) == (Verdict.INVALID, ExitCode.INCOMPLETE)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_was_not_written_is_not_listed(tmp_path, monkeypatch, name):
    """This holds even if a file of an earlier run is in the way. The message says which file is missing."""
    write_raw(tmp_path / "raw" / "alpha", run())
    monkeypatch.setitem(report.WRITERS, name, lambda *_: 1 / 0)
    (tmp_path / name).mkdir()  # it cannot be removed as a file

    code, said = invoke("report", tmp_path)
    listed = next(line for line in said.splitlines() if line.startswith("Reports: "))

    assert code == ExitCode.INFRASTRUCTURE
    assert (name if name.startswith(("junit", "bandwidth")) else name.removeprefix("comparison")) not in listed.replace(str(tmp_path), "")
    assert f"{name} was not written" in said.replace("\n", " ")


def test_no_file_at_all_is_listed_as_none(tmp_path, monkeypatch):
    """The terminal still shows the comparison."""
    write_raw(tmp_path / "raw" / "alpha", run())
    for name in FILES:
        monkeypatch.setitem(report.WRITERS, name, lambda *_: 1 / 0)

    code, said = invoke("report", tmp_path)

    assert (code, "Reports:" in said) == (ExitCode.INFRASTRUCTURE, False)
    assert "No report could be written" in said
