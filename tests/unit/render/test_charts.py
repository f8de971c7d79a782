"""What becomes a curve and what a list, and the positions of marks. All data is synthetic."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import pytest
from hostile import PAGE_NAMES, hostile
from synthetic import CEILING, case, profile, record, run, sample, two_targets, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare import compare
from warpwave.compare.answer import overview
from warpwave.compare.profile import largest
from warpwave.records import Ceiling, Verdict
from warpwave.render.charts.pictures import pictures
from warpwave.render.charts.roofline import counted, roofline
from warpwave.render.charts.svg import draw, size_ticks, sizes_scale, values_scale
from warpwave.render.charts.sweeps import sweeps
from warpwave.render.commands import repro
from warpwave.render.html import render_html


def points(*params, plot="softmax", **more):
    found = []
    for number, sizes in enumerate(params):
        case = f"{plot}/" + ",".join(f"{key}={value}" for key, value in sizes.items())
        found.append(sample(1, 1000.0 + number, case=case, params=sizes, **more))
    return compare([run(samples=tuple(found))])


@pytest.mark.parametrize(
    ("params", "axis"),
    [
        ([{"N": 1}, {"N": 2}, {"N": 4}], "N"),
        ([{"M": 8, "N": 1}, {"M": 4, "N": 2}, {"M": 2, "N": 4}], "N"),
        ([{"M": 1, "N": 1}, {"M": 2, "N": 2}, {"M": 4, "N": 4}], "M = N"),
        ([{"M": 8, "N": 1}, {"M": 8, "N": 2}, {"M": 8, "N": 4}], "N"),
        ([{"M": 1, "N": 4}, {"M": 4, "N": 2}, {"M": 2, "N": 1}], None),
        ([{"N": 1}, {"N": 2}], None),
        ([{"N": 0}, {"N": 2}, {"N": 3}], None),
        ([{"op": "a"}, {"op": "b"}, {"op": "c"}], None),
        ([{"N": 1, "op": "a"}, {"N": 2, "op": "b"}, {"N": 3, "op": "c"}], None),
        ([{"N": 1, "flag": True}, {"N": 2, "flag": False}, {"N": 3, "flag": True}], None),
    ],
)
def test_a_curve_needs_one_size_to_stand_on(params, axis):
    """If another parameter varies independently of the size, the drawing is a list: a line would suggest a trend."""
    (sweep,) = sweeps(points(*params))

    assert (sweep.x_name or None, sweep.sizes is not None) == (axis, axis is not None)
    assert len(sweep.labels) == len(params)


def test_sweeps_are_the_authors_plots():
    """Cases that differ only in their sizes. Sweeps too short for a curve come last, in one list per unit."""
    found = []
    for plot, many in (("softmax/forward", 4), ("softmax/backward", 3), ("softmax/odd", 1), ("softmax/short", 2)):
        found += [sample(n, case=f"{plot}/N={n}", params={"N": n}) for n in range(1, many + 1)]
    named = [(sweep.title, len(sweep.cases), sweep.sizes is None) for sweep in sweeps(compare([run(samples=tuple(found))]))]

    assert named == [("forward", 4, False), ("backward", 3, False), ("further cases", 3, True)]


def test_no_point_is_lost_and_sizes_rise():
    """In whatever order the author swept."""
    shuffled = [sample(n, case=f"softmax/N={n}", params={"N": n}) for n in (8, 1, 4, 2)]
    (sweep,) = sweeps(compare([run(samples=tuple(shuffled))]))

    assert sweep.sizes == (1, 2, 4, 8)
    assert all(point for point in sweep.series[0].points)


def test_a_line_never_leads_over_a_hole():
    """An invalid point ends the line, and the next point starts another."""
    samples = [sample(n, case=f"softmax/N={n}", params={"N": n}) for n in range(1, 8)]
    samples[3] = sample(4, None, case="softmax/N=4", params={"N": 4}, verdict=Verdict.FAILED)
    (sweep,) = sweeps(compare([run(samples=tuple(samples))]))
    path = re.search(r'class="line s0 t0"|d="(M[^"]*)" class="line', draw(sweep).body).group(1)

    assert [len(part.split("L")) for part in path.split("M")[1:]] == [3, 3]


def test_the_ceiling_is_a_curve_where_smaller_copies_were_measured():
    """At each case it has the speed of a copy of that size; one figure is a straight line."""
    small = dataclasses.replace(CEILING, bytes_moved=4_000_000, median_ms=0.005, p20_ms=0.005, p80_ms=0.005)  # 800 GB/s
    shared = tuple(sample(n, 500.0, bytes_moved=n * 1_000_000) for n in (2, 4, 8000))
    (curve,), (line,) = (sweeps(compare([run(samples=shared, ceilings=found)])) for found in ((small, CEILING), (CEILING,)))

    assert [round(copy) for copy in curve.ceilings[0].copies] == [400, 800, 4000]
    assert re.search(r'<path d="M[^"]*" class="ceiling', draw(curve).body)
    assert re.search(r'<line [^>]*class="ceiling', draw(line).body)


def test_only_a_bandwidth_has_a_ceiling():
    """No theoretical peak is drawn for TFLOP/s."""
    assert [ceiling.gbps for ceiling in sweeps(points({"N": 1}, {"N": 2}, {"N": 4}))[0].ceilings] == [4000.0]
    assert sweeps(points({"N": 1}, {"N": 2}, {"N": 4}, unit="TFLOP/s"))[0].ceilings == ()


def test_the_band_of_a_time_is_the_right_way_round():
    """If low is good, the 20th percentile of the time is the low end of the value."""
    (sweep,) = sweeps(points({"N": 1}, {"N": 2}, {"N": 4}, unit="ms", median_ms=1.0))
    point = sweep.series[0].points[0]

    assert point.low < point.value < point.high


def test_marks_are_inside_of_the_drawing():
    """For curves and lists, even if a suspect point is far above all others."""
    samples = [sample(n, case=f"softmax/N={n}", params={"N": n}) for n in range(1, 8)]
    samples[5] = sample(6, 2e5, case="softmax/N=6", params={"N": 6})
    for chosen in (samples, samples[:2]):
        drawing = draw(sweeps(compare([run(samples=tuple(chosen))]))[0])
        marks = re.findall(r"M([\d.-]+) ([\d.-]+)m", drawing.body)
        assert len(marks) == len(chosen)
        for x, y in marks:
            assert 0 <= float(x) <= drawing.width
            assert 0 <= float(y) <= drawing.height


def test_targets_differ_by_dash_and_shape_and_providers_by_colour():
    """A grey print, and readers with red-green colour blindness, can tell them apart."""
    body = draw(sweeps(compare(two_targets(), ["alpha", "beta"]))[0]).body

    assert re.findall(r'class="line (s\d t\d)"', body) == ["s1 t1", "s1 t0", "s0 t1", "s0 t0"]
    outlines = re.findall(r'd="M[\d.]+ [\d.]+(m[^M"]+z)[^"]*" class="dot (s\d)', body)
    assert len({colour for _, colour in outlines}) == 2
    assert len({outline for outline, _ in outlines}) == 2


@pytest.mark.parametrize(("sizes", "log"), [((256, 16384), True), ((1, 4), False), ((1000, 5000), False), ((5, 5), False)])
def test_scales_hold_their_ends_and_a_few_ticks(sizes, log):
    """Doublings are spread evenly, and both ends are on the axis."""
    scale = sizes_scale(sizes, 10, 110)

    assert scale.log is log
    if sizes[0] != sizes[1]:
        assert (scale(sizes[0]), scale(sizes[1])) == (10, 110)
        assert 2 <= len(size_ticks(scale)) <= 8


def test_the_axis_of_values_starts_at_nothing():
    """A truncated axis makes a percent look like a half."""
    scale, ticks = values_scale([4248.0], 0, 100)

    assert (scale.low, ticks[0]) == (0, 0)
    assert scale.high > 4248
    assert ticks == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("test", "command", "expected"),
    [
        ("a/t.py::test_x[1-fp32]", (), "warpwave run b --stage test --test 'a/t.py::test_x[1-fp32]'"),
        (
            "a/t.py::T::test_x",
            ("warpwave", "run", "b", "c", "--kernels", "../my ops", "--out", "x"),
            "warpwave run b --kernels '../my ops' --stage test --test a/t.py::T::test_x",
        ),
        (
            "a/t.py::test_x[(1, 2)]",
            ("warpwave", "run", "--gpu=1", "--quick"),
            "warpwave run b --gpu=1 --quick --stage test --test 'a/t.py::test_x[(1, 2)]'",
        ),
        (
            "a/t.py::test_x",
            ("warpwave", "run", "b", "--test", "--install", "--last-failed=x", "--pytest-args", "--engine", "--install"),
            "warpwave run b --pytest-args --engine --install --stage test --test a/t.py::test_x",
        ),
        ("a/t.py::test_x[c::d]", (), "warpwave run b --stage test --test 'a/t.py::test_x[c::d]'"),
        ("$(rm -rf /)", (), "warpwave run b --stage test --test '$(rm -rf /)'"),
    ],
)
def test_the_way_back_to_a_failure(test, command, expected):
    """The command runs that test alone in the run's environment, and a shell takes every name literally."""
    (target,) = compare([run("b")]).targets

    assert repro(type(target)(**{**vars(target), "command": command}), case(test)) == expected


def test_a_failure_is_repeated_with_the_configuration_that_a_tuner_chose():
    """Also if that run was asked for it; what had no choice is not named."""
    properties = {"configuration of mul": "BLOCK=64, num_warps=4 (chosen by the tuner)", "configuration of add": "BLOCK=64"}
    (target,) = compare([run("b", record=record("b", command=("warpwave", "run", "b", "--config", "mul: BLOCK=64", "--sanitize")))]).targets

    again = "warpwave run b --sanitize --stage test --test t.py::test_x --config 'mul: BLOCK=64, num_warps=4'"
    assert repro(target, case("t.py::test_x", properties=properties)) == again


@pytest.mark.parametrize("kind", ["curves", "list"])
def test_labels_of_many_ceilings_do_not_overlap(kind):
    """Beside each other, or below; a target with a very long name keeps inside of the drawing."""
    sizes = ({"N": 1}, {"N": 2}, {"N": 4}) if kind == "curves" else ({"op": "a"}, {"op": "b"})
    rows = tuple(sample(1, 1000.0, case=f"softmax/{number}", params=each) for number, each in enumerate(sizes))
    names = [f"target-{number}" for number in range(4)] + ["a-very-long-name-of-a-target" * 3]
    drawing = draw(sweeps(compare([run(name, record=record(name), samples=rows) for name in names]))[0])
    found = re.findall(r'<text[^>]*x="([\d.]+)" y="([\d.]+)" class="ceiling-label" text-anchor="(\w+)">([^<]+)<', drawing.body)
    spans = []
    for x, y, anchor, label in found:
        right = float(x) if anchor == "end" else float(x) + 3 * len(label)
        spans.append((float(y), right - 6 * len(label), right))

    assert len(spans) == 5
    assert all(left >= 0 and right <= drawing.width and 0 < y < drawing.height for y, left, right in spans)
    assert not [1 for y, left, _ in spans for other, begin, end in spans if y == other and begin < left < end]


# One picture per kernel. All data is synthetic.

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_names_stay_names(name):
    """The picture is well-formed, has only elements of drawings, and its file is in the right folder."""
    for picture in pictures(hostile(name)):
        kinds = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(picture.svg).iter()}
        assert kinds <= {"svg", "title", "style", "rect", "text", "path", "line", "circle", "polygon", "g"}
        assert picture.file.replace("-", "").replace("_", "").isalnum()


def test_two_kernels_never_share_a_file():
    """Two names may become equal when unsafe characters are removed."""
    found = pictures(compare([run(samples=tuple(sample(kernel=name) for name in ("a/b", "a.b", "../a", "…")))]))

    assert [picture.file for picture in found] == ["a-b", "a-b-2", "a", "kernel"]


def test_plot_writes_svg_and_png(tmp_path, capsys):
    """Both look the same. PNG needs an extra, and the error says so if it is missing."""
    pytest.importorskip("resvg_py", reason="the extra `png` is not installed")
    write_raw(tmp_path / "run" / "raw" / "alpha", run())
    assert _run_cli(["plot", str(tmp_path / "run"), "--png"]) == 0

    beside = tmp_path / "run-plots"
    assert capsys.readouterr().out.split() == [str(beside / f"softmax.{kind}") for kind in ("svg", "png")]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["raw"]
    png = (beside / "softmax.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == 2 * int(ElementTree.parse(beside / "softmax.svg").getroot().get("width"))


# The roofline, and shares of matrix products. All data is synthetic.

# 1 TB/s, 500 TFLOP/s in bf16, 50 in fp32 and 250 in tf32.
CEILINGS = (
    Ceiling(0, 10**9, 1.0, 1.0, 1.0, "before"),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "bf16", 5 * 10**11),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "fp32", 5 * 10**10),
    Ceiling(0, 3, 1.0, 1.0, 1.0, "after", "tf32", 25 * 10**10),
)


def product(value: float, dtype: str, **changes):
    """A point of a product: a millisecond, for tensors of a gigabyte."""
    point = sample(1024, value, unit="TFLOP/s", params={"N": 1024, "dtype": dtype}, case=f"softmax/{dtype}/N=1024")
    return dataclasses.replace(
        point, **{"median_ms": 1.0, "p20_ms": 1.0, "p80_ms": 1.0, "times_ms": (), "argument_bytes": 10**9, **changes}
    )


def test_a_kernel_in_tflops_has_a_gap_to_the_product():
    """Not to its fastest peer, and not to the copy."""
    (line,) = overview(compare([run(samples=(product(400.0, "bf16"),), ceilings=CEILINGS)]))

    assert line.squares[0].reached[0].ground == "product"
    assert line.gap == pytest.approx(0.2)


def test_points_stand_at_their_operations_a_byte():
    """400 TFLOP/s for a millisecond are 4e11 operations, for a gigabyte of tensors: 400 a byte."""
    comparison = compare([run(samples=(product(400.0, "bf16"), sample(1024, 800.0)), ceilings=CEILINGS)])
    found = roofline(comparison)

    assert comparison.rows[0].cells[0].flops_per_byte == pytest.approx(400.0)
    assert found is not None
    assert "400 TFLOP/s, 400 FLOP a byte, 80% of the bf16 product" in found.body
    assert found.body.count('class="dot') == 1
    assert 'id="roofline"' in render_html(comparison)


def test_without_bytes_or_products_there_is_no_roofline():
    """Nothing is guessed."""
    without_bytes = run(samples=(product(400.0, "bf16", argument_bytes=None),), ceilings=CEILINGS)
    without_products = run(samples=(product(400.0, "bf16"),), ceilings=CEILINGS[:1])

    for given in (without_bytes, without_products):
        assert roofline(compare([given])) is None
        assert 'id="roofline"' not in render_html(compare([given]))


def test_counts_of_an_emulated_kernel_have_the_same_drawing():
    """36,864 bytes and ten times as many operations; memory needs 4.1 µs, so that the kernel stands on its slope."""
    counts = dict.fromkeys(("read_bytes", "written_bytes"), 18432) | {"flop": 368640}
    comparison = compare([run(profiles=(profile(counters=counts, bounds={"memory": 4.096}),))])
    found = counted(largest(comparison.profiles))
    drawing = render_html(comparison).partition("Roofline of the counts")[2]

    assert found is not None
    assert "10.0 operations a byte, at most 0.09 TFLOP/s" in found.words
    assert "memory 9 GB/s" in drawing
    assert drawing.count("<title>_softmax_fwd on alpha") == 1
    assert counted(largest(compare([run(profiles=(profile(),))]).profiles)) is None  # nothing counted its operations
