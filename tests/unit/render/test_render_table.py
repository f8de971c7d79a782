"""bandwidth.csv. All data is synthetic."""

import csv
import dataclasses

import pytest
from synthetic import case, run, sample, two_targets

from warpwave.compare import compare
from warpwave.records import Verdict
from warpwave.render.files import COLUMNS, render_csv


def read(runs) -> list[dict[str, str]]:
    """The lines by column, as read by any CSV parser."""
    return list(csv.DictReader(render_csv(compare(runs)).splitlines()))


def test_a_line_per_number_with_all_that_a_plot_needs():
    """Tidy: one number, its band, its share and its origin."""
    (line,) = read([run(samples=(sample(1024, 2000.0),))])

    assert line == {
        "kernel": "softmax",
        "case": "softmax/N=1024",
        "provider": "triton",
        "dtype": "fp32",
        "x": "1024",
        "x_label": "N=1024",
        "metric": "bandwidth",
        "unit": "GB/s",
        "value": "2000.0",
        "median_ms": "0.5",
        "p20_ms": "0.495",
        "p80_ms": "0.505",
        "ceiling_share": "0.5",
        "target": "alpha",
        "device": "Synthetic GPU A",
        "verdict": "passed",
        "gpu": "0",
        "commit": "0123abc",
        "run": "run-1",
    }
    assert tuple(line) == COLUMNS


def test_no_measured_point_is_missing():
    """Both targets, all points, and an empty value for the invalid one."""
    lines = read(two_targets())

    assert len(lines) == 128
    assert [line["verdict"] for line in lines if not line["value"]] == ["invalid"]


@pytest.mark.parametrize(
    ("changes", "tests", "verdict"),
    [
        ({"value": 9000.0}, (case(),), "suspect"),
        ({}, (case(verdict=Verdict.FAILED),), "unverified"),
        ({"value": float("nan")}, (case(),), "invalid"),
        ({"value": None, "verdict": Verdict.OOM}, (case(),), "oom"),
    ],
)
def test_an_unsound_number_says_so(changes, tests, verdict):
    """A plot can leave it out without knowing the rules."""
    assert [line["verdict"] for line in read([run(samples=(sample(**changes),), cases=tests)])] == [verdict]


@pytest.mark.parametrize(
    ("params", "dtype", "x", "label"),
    [
        ({"N": 8}, "", "8", "N=8"),
        ({"M": 4, "N": 8}, "", "", "M=4 N=8"),
        ({"M": 4, "N": 8, "in_dtype": "bf16"}, "bf16", "", "M=4 N=8"),
        ({"N": 8, "dtype": "torch.float16"}, "torch.float16", "8", "N=8"),
        ({"N": 8, "mode": "fwd"}, "", "8", "N=8 mode=fwd"),
        ({}, "", "", ""),
    ],
)
def test_size_and_type_are_columns_of_their_own(params, dtype, x, label):
    """Whatever the author called them."""
    (line,) = read([run(samples=(sample(params=params),))])

    assert (line["dtype"], line["x"], line["x_label"]) == (dtype, x, label)


def test_of_several_sizes_the_swept_one_is_x():
    """It is the one on the axis of the drawing."""
    sizes = [(4096, 256), (4096, 512), (4096, 1024)]
    samples = tuple(dataclasses.replace(sample(params={"M": m, "N": n}), case=f"softmax/M={m},N={n}") for m, n in sizes)

    assert [line["x"] for line in read([run(samples=samples)])] == ["256", "512", "1024"]


@pytest.mark.parametrize(("unit", "metric"), [("GB/s", "bandwidth"), ("ms", "time"), ("TFLOPS", "throughput")])
def test_the_metric_follows_from_the_unit(unit, metric):
    """Higher is better for one, lower for the other."""
    assert [line["metric"] for line in read([run(samples=(sample(unit=unit),))])] == [metric]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "\r=1", 'a,b\n"c"', "\x1b[31m"])
def test_no_cell_is_a_formula_or_breaks_its_line(name):
    """A spreadsheet shows it as text, and every line has all columns."""
    lines = read([run(samples=(sample(kernel=name, provider=name, params={"N": name}), sample(2048)))])

    assert len(lines) == 2
    for column in ("kernel", "provider", "x_label"):
        assert lines[0][column][:1] not in ("=", "+", "-", "@")
        assert not lines[0][column].lstrip().startswith(("=", "+", "-", "@"))
        assert lines[0][column].isprintable()
