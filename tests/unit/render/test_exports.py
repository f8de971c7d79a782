"""Each export is checked against what its consumer accepts. All data is synthetic."""

import csv
import io
import json

import pytest
from consumers import BENCHER, BENCHMARK_ACTION, PYTORCH
from hostile import PAGE_NAMES, hostile
from jsonschema import Draft202012Validator
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from synthetic import no_gpu, run, sample, two_targets

from warpwave.__main__ import _run_cli
from warpwave.compare import compare
from warpwave.records import Verdict
from warpwave.render.exports import FORMATS
from warpwave.render.files import COLUMNS

SCHEMAS = {"benchmark-action": BENCHMARK_ACTION, "benchmark-action-times": BENCHMARK_ACTION, "bencher": BENCHER, "pytorch": PYTORCH}
NAMES = (*PAGE_NAMES, 'a"b\\c\nd', "# EOF", "=1+1", "", "é" * 2000)


def texts(name):
    """A sound comparison in which everything from outside is `name`."""
    points = tuple(
        sample(kernel="softmax", case=f"softmax/{name}/{n}", provider=name, unit=name, params={name: name}, value=100.0 + n) for n in (1, 2)
    )
    return compare([run(name or "-", samples=points)], [name or "-"])


def every():
    return [compare([]), compare([no_gpu()]), compare(two_targets(), ["alpha", "beta"]), *map(texts, NAMES), *map(hostile, PAGE_NAMES)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_is_what_its_consumer_takes(name):
    """With two targets, without any number, and with any names."""
    validator = Draft202012Validator(SCHEMAS[name])
    for comparison in every():
        assert [error.message for error in validator.iter_errors(json.loads(FORMATS[name](comparison)))] == []


def test_openmetrics_is_read_by_prometheus_own_parser():
    """It reads back every sample with its labels, whatever they contain."""
    for comparison in every():
        families = {family.name: family for family in text_string_to_metric_families(FORMATS["openmetrics"](comparison))}
        sound = [cell for row in comparison.rows for cell in row.cells if cell.sound]
        assert len(families["warpwave_speed"].samples if sound else []) == len(sound)

    found = text_string_to_metric_families(FORMATS["openmetrics"](compare(two_targets(), ["alpha", "beta"])))
    samples = {
        (s.name, s.labels.get("target"), s.labels.get("case"), s.labels.get("provider"), s.labels.get("verdict")): s.value
        for f in found
        for s in f.samples
    }
    assert samples["warpwave_speed", "alpha", "vector_add/N=256", "triton", None] == 2400.0
    assert samples["warpwave_copy_bytes_per_second", "beta", None, None, None] == 5e12
    assert samples["warpwave_target_complete", "alpha", None, None, "passed"] == 1


def test_the_same_number_is_in_every_format():
    """Follow one point through all formats."""
    comparison = compare([run()], ["alpha"])
    point = "softmax/N=1024 [triton] on alpha, Synthetic GPU A"
    action = {entry["name"]: entry for entry in json.loads(FORMATS["benchmark-action"](comparison))}[point]
    bencher = json.loads(FORMATS["bencher"](comparison))[point]
    pytorch = next(entry for entry in json.loads(FORMATS["pytorch"](comparison)) if entry["model"]["name"] == "softmax/N=1024")
    table = next(csv.DictReader(io.StringIO(FORMATS["csv"](comparison))))

    assert (action["value"], action["unit"], action["range"]) == (3128.0, "GB/s", "± 31.28")
    assert bencher["gb-s"] == {
        "value": 3128.0,
        "lower_value": pytest.approx(3097.03, abs=0.01),
        "upper_value": pytest.approx(3159.6, abs=0.01),
    }
    assert bencher["ceiling-share"]["value"] == pytest.approx(0.782)
    assert (pytorch["metric"]["benchmark_values"], pytorch["benchmark"]["dtype"], pytorch["model"]["backend"]) == (
        [3128.0],
        "fp32",
        "triton",
    )
    assert pytorch["runners"][0]["gpu_info"] == "Synthetic GPU A"
    assert float(table["value"]) == 3128.0


def test_only_sound_numbers_leave():
    """Failed, unverified and suspect points are left out, except in CSV, which has a column for them."""
    unsound = (sample(1, None, verdict=Verdict.FAILED), sample(2, 1e9), sample(3, kernel="untested"), sample(4))
    comparison = compare([run(samples=unsound)])

    for name in ("benchmark-action", "bencher", "pytorch"):
        assert len(json.loads(FORMATS[name](comparison))) == 1
    assert len(FORMATS["csv"](comparison).splitlines()) == 5


def test_times_and_rates_do_not_share_a_file():
    """The action takes one direction per file: a faster kernel must not raise an alarm."""
    comparison = compare([run(samples=(sample(1), sample(2, 0.5, unit="ms")))])

    assert [entry["unit"] for entry in json.loads(FORMATS["benchmark-action"](comparison))] == ["GB/s"]
    assert [entry["unit"] for entry in json.loads(FORMATS["benchmark-action-times"](comparison))] == ["ms"]


def test_the_table_is_tidy():
    """One line per number, one column per variable, every line complete; no cell that a spreadsheet would compute."""
    for comparison in every():
        header, *lines = csv.reader(io.StringIO(FORMATS["csv"](comparison)))
        assert tuple(header) == COLUMNS
        assert len(lines) == sum(len(row.cells) for row in comparison.rows)
        assert {len(line) for line in lines} <= {len(COLUMNS)}
        numbers = [COLUMNS.index(name) for name in ("value", "median_ms", "p20_ms", "p80_ms", "ceiling_share")]
        assert not any(cell[:1] in "=+-@" for line in lines for position, cell in enumerate(line) if cell and position not in numbers)


def test_export_prints_or_writes(tmp_path, capsys):
    """Standard output contains only the document."""
    from synthetic import write_raw

    write_raw(tmp_path / "raw" / "alpha", run(samples=(sample(1), sample(2, 1e9))))
    assert _run_cli(["export", str(tmp_path), "--format", "bencher"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 1
    assert printed.err == "1 of 2 points are not sound and were left out.\n"

    assert _run_cli(["export", str(tmp_path), "--format", "csv", "--out", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text().count("\n") == 3
    assert capsys.readouterr() == ("", "")

    assert _run_cli(["export", str(tmp_path), "--format", "xlsx"]) == 2
    assert "Choose from benchmark-action, " in capsys.readouterr().err


def test_a_run_without_speeds_has_nothing_to_export_or_plot(tmp_path, capsys):
    """An empty document would look like a result."""
    from synthetic import write_raw

    write_raw(tmp_path / "raw" / "alpha", run(samples=()))

    for words in (["export", "--format", "bencher"], ["export", "--format", "csv"], ["plot"]):
        assert _run_cli([*words, str(tmp_path)]) == 2
        said = capsys.readouterr()
        assert (said.out, "No target has measured points." in said.err) == ("", True)
