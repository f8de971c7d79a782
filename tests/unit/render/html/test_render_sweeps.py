"""What becomes a curve and what a list, and the positions of marks. All data is synthetic."""

import re

import pytest
from synthetic import no_gpu, record, run, sample, two_targets

from warpwave.compare import compare
from warpwave.records import Verdict
from warpwave.render.charts.svg import draw, short, size_ticks, sizes_scale, values_scale
from warpwave.render.charts.sweeps import sweeps
from warpwave.render.commands import repro


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


def test_the_first_target_that_measured_has_the_plain_line():
    """A target without a GPU before it uses no style."""
    (sweep, *_) = sweeps(compare([no_gpu(), run()], ["gone", "cpu", "alpha"]))

    assert [(entry.target, entry.target_style) for entry in sweep.series] == [("alpha", 0)]
    assert [ceiling.target_style for ceiling in sweep.ceilings] == [0]


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
    ("value", "text"), [(512, "512"), (4096, "4 Ki"), (1 << 27, "128 Mi"), (5000, "5000"), (15000, "15 k"), (12800, "12.8 k")]
)
def test_ticks_are_short(value, text):
    """They still say what they are."""
    assert short(value) == text


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

    assert repro(type(target)(**{**vars(target), "command": command}), test) == expected


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
