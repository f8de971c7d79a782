"""Speeds, field by field: a figure under another's name would be believed. All data is synthetic."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner
from slow_cases import slow_but
from synthetic import CEILING, GPU_A, GPU_B, case, facts, pair, record, run, sample, write_raw

from warpwave import report
from warpwave.__main__ import _run_cli
from warpwave.compare import compare
from warpwave.compare.changed_speeds import GroupChange, PointChange, TargetPair, changed_speeds
from warpwave.compare.model import Cell, Change, Geomean, Noise, Portability, Ratio, Refusal, Speed
from warpwave.compare.speeds import cells, dtype_in, explain, intensity, noise, speedup
from warpwave.compare.upgrade import changed_errors
from warpwave.errors import ExitCode
from warpwave.records import Verdict

A, B = ["alpha"], ["alpha", "beta"]
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def test_a_cell_has_all_that_its_sample_says():
    """The share is of the 4000 GB/s that a copy reached; timings of 10 ms, 1% to either side."""
    point = dataclasses.replace(
        sample(value=1000.0, median_ms=10.0),
        **{"low": 900.0, "high": 1100.0, "quiet": True, "graph_ms": 9.0, "cache_bytes": 1 << 26, "weak": "throttled", "warmup": 7},
    )
    ((told, cell),) = cells("alpha", run(samples=(point,)))

    assert told is point
    assert cell.half_width == pytest.approx(0.005, rel=1.0)
    assert dataclasses.replace(cell, half_width=None) == Cell(
        target="alpha",
        device=0,
        gpu=GPU_A,
        verdict=PASSED,
        unit="GB/s",
        value=1000.0,
        low=900.0,
        high=1100.0,
        median_ms=10.0,
        p20_ms=9.9,
        p80_ms=10.1,
        share=0.25,
        share_of="the copy",
        verified=True,
        suspect=False,
        reason="",
        timings=21,
        timer="synthetic",
        flush_bytes=1 << 28,
        warmup=7,
        bytes_moved=1024 * 4096,
        half_width=None,
        quiet=True,
        graph_ms=9.0,
        cache_bytes=1 << 26,
        weak="throttled",
    )


def test_a_cell_says_what_is_wrong_with_its_number():
    """All of it: no number, one that memory cannot reach, and no test that passed; a device that nobody named has its index."""
    points = (sample(1, value=None, verdict=Verdict.ERROR, reason="out of memory"), sample(2, value=5000.0), sample(3, device=7))
    broken, above, elsewhere = (cell for _, cell in cells("alpha", run(samples=points, cases=())))

    assert (broken.verdict, broken.value, broken.share, broken.verified) == (Verdict.ERROR, None, None, False)
    assert broken.reason.startswith("out of memory; ")
    assert (above.suspect, above.share, above.verified) == (True, 1.25, False)
    assert above.reason.startswith("1.25 times ")
    assert above.reason.count("; ") == 1
    assert (elsewhere.gpu, elsewhere.share, elsewhere.device) == ("GPU 7", None, 7)


def test_timings_that_are_all_alike_are_doubted():
    """Twenty of them: a clock resolves nanoseconds. Nineteen may be alike, and so may one that differs."""
    found = {}
    for name, times in {"alike": (1.0,) * 20, "few": (1.0,) * 19, "one differs": (1.0,) * 19 + (1.000001,)}.items():
        ((_, found[name]),) = cells("alpha", run(samples=(dataclasses.replace(sample(median_ms=1.0), times_ms=times),)))

    assert [bool(cell.weak) for cell in found.values()] == [True, False, False]
    assert "20" in found["alike"].weak


def test_a_ratio_has_all_that_two_cells_say():
    """Twice as fast in half the time, beyond the 3% that are assumed; the interval is that of the times, 1% to either side."""
    comparison = compare(pair({"samples": (sample(value=1000.0),)}, {"samples": (sample(value=2000.0),)}), B)
    ((ratio,),) = (row.ratios for row in comparison.rows)

    assert dataclasses.replace(ratio, low=None, high=None) == Ratio("beta", "alpha", 2.0, Change.FASTER, "", 2.0, None, None, 0.03)
    assert 1.95 < ratio.low < 2.0 < ratio.high < 2.05
    (mean,) = comparison.geomeans
    assert mean == Geomean("softmax", "triton", "GB/s", "beta", "alpha", 1, pytest.approx(2.0), ())


def test_what_was_not_compared_is_grouped_by_its_reason():
    """Cases of one reason in one line; each kernel, provider and target by itself."""
    left = tuple(sample(n, provider=p) for p in ("triton", "torch") for n in (1, 2, 3))
    right = tuple(dataclasses.replace(point, timer="another") for point in left[:5])
    found = compare(pair({"samples": left}, {"samples": right}), B).refusals
    assert [(entry.kernel, entry.provider, entry.target, entry.baseline, entry.cases) for entry in found] == [
        ("softmax", "triton", "beta", "alpha", ("softmax/N=1", "softmax/N=2", "softmax/N=3")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=1", "softmax/N=2")),
        ("softmax", "torch", "beta", "alpha", ("softmax/N=3",)),
    ]
    assert all(isinstance(entry, Refusal) and entry.reason for entry in found)
    assert "timers" in found[0].reason
    assert "beta" in found[2].reason


def test_a_sweep_is_condensed_field_by_field():
    """Hand-worked: the fastest is neither the largest nor the last; one is no number and one is more than memory can give."""
    points = (sample(4, 2000.0), sample(2, 3000.0), sample(1, 1000.0), sample(8, None, verdict=Verdict.ERROR), sample(16, 5000.0))
    (speed,) = compare([run(samples=points)], A).speeds

    assert speed == Speed(
        kernel="softmax",
        provider="triton",
        unit="GB/s",
        target="alpha",
        gpu=GPU_A,
        n=3,
        left_out=2,
        verified=True,
        reason="",
        best=3000.0,
        best_share=0.75,
        share_of="the copy",
        best_case="softmax/N=2",
        median=2000.0,
        median_share=0.5,
        largest=2000.0,
        largest_share=0.5,
        largest_case="softmax/N=4",
    )


def test_a_sweep_of_times_is_best_where_it_is_shortest():
    """Nothing is a share of a copy there; of points of one size the last stands for it."""
    points = tuple(sample(n, None, unit="ms", provider=p) for p, n in (("a", 1), ("a", 2)))
    points = tuple(dataclasses.replace(p, value=v, params={"N": 4, "flag": True, "M": 0}) for p, v in zip(points, (3.0, 5.0), strict=True))
    (speed,) = compare([run(samples=points, cases=())], A).speeds

    assert (speed.best, speed.best_case, speed.best_share) == (3.0, "softmax/N=1", None)
    assert (speed.median, speed.median_share, speed.largest, speed.largest_case) == (4.0, None, 5.0, "softmax/N=2")
    assert (speed.verified, bool(speed.reason)) == (False, True)


def test_a_sweep_without_a_sound_number_is_there():
    """With how many there would have been."""
    (speed,) = compare([run(samples=(sample(1, None, verdict=Verdict.ERROR), sample(2, 9000.0)))], A).speeds

    assert speed == Speed("softmax", "triton", "GB/s", "alpha", GPU_A, 0, 2, True, "")


def test_a_portability_field_by_field():
    """Shares of a half and a quarter: the harmonic mean of the two. Another provider is another."""
    left = (sample(1, 2000.0), sample(1, 4000.0, provider="torch"))
    right = (sample(1, 1000.0), sample(1, 4000.0, provider="torch"))
    found = compare(pair({"samples": left}, {"samples": right}), B).portabilities

    assert found == (
        Portability("softmax", "triton", {"alpha": pytest.approx(0.5), "beta": pytest.approx(0.25)}, 1, pytest.approx(1 / 3)),
        Portability("softmax", "torch", {"alpha": pytest.approx(1.0), "beta": pytest.approx(1.0)}, 1, pytest.approx(1.0)),
    )


def test_the_half_width_is_half_of_the_interval_of_the_median():
    """Five timings: the interval is from the least to the most. Hand-worked."""
    point = dataclasses.replace(sample(median_ms=10.0), times_ms=(9.0, 9.5, 10.0, 10.5, 11.0))
    ((_, cell),) = cells("alpha", run(samples=(point,)))

    assert cell.half_width == pytest.approx(0.1)


def test_kernel_sources_are_shown_by_the_beginning_of_their_hash():
    """Twelve digits of each, as they are all over the report."""
    runs = pair({"facts": facts(kernels_hash="a" * 64)}, {"facts": facts(kernels_hash="b" * 64)})
    reason = compare(runs, B).rows[0].ratios[0].reason

    assert (reason.count("a" * 12 + ","), reason.count("a" * 13), reason.endswith("b" * 12), reason.count("b" * 13)) == (1, 0, True, 0)


def test_a_weak_point_keeps_its_interval():
    """It is ambiguous whatever the interval, and both sides' reasons are told once."""
    weak = dataclasses.replace(sample(value=1000.0), weak="throttled")
    found = speedup(weak, dataclasses.replace(sample(value=2000.0), weak="throttled"), 0.03)

    assert (found.change, found.interval.value, found.reason) == (Change.AMBIGUOUS, 2.0, "weak: throttled")


def test_noise_field_by_field():
    """Three points moved by 0, 10 and 50%: too few to ask for less than is assumed; the quantile lies at 46%. Hand-worked."""
    points = tuple(sample(n, scatter=0.0) for n in (1, 2, 3))
    second = tuple(
        dataclasses.replace(point, times_ms=tuple(time * by for time in point.times_ms))
        for point, by in zip(points, (1.0, 1.1, 1 / 1.5), strict=True)
    )
    found = noise("alpha", run(samples=points, again=second))

    assert found == Noise("alpha", 3, False, pytest.approx(1.25), pytest.approx(0.46), pytest.approx(0.5), "softmax/N=3 triton")
    assert noise("alpha", run(samples=points, again=points)) == Noise("alpha", 3, False, 0.03, 0.0, 0.0, "")
    assert noise("alpha", run(samples=points)) is None
    assert "3%" in explain([])
    assert "alpha 125.0% (3 points" in explain([found])
    assert explain([found]) != explain([dataclasses.replace(found, enough=True)])


# Two commits, field by field: what moved, what one of them lacks, and what is refused. All data is synthetic.

B_COMMIT_FIELDS = ["alpha", "beta"]
PASSED_COMMIT_FIELDS, FAILED_COMMIT_FIELDS = Verdict.PASSED, Verdict.FAILED


def two_commits(before, after, at_least=None, **head):
    base = run(samples=before, record=record(commit="old", run_id="run-1"))
    return changed_speeds([base], [run(samples=after, record=record(commit="new", run_id="run-2"), **head)], at_least)


def test_a_point_that_moved_field_by_field():
    """BASE's time over HEAD's, and where it lies."""
    found = two_commits((sample(1, median_ms=2.0),), (sample(1, median_ms=1.0),))
    (point,) = found.points

    assert 1.95 < point.low < 2.0 < point.high < 2.05
    assert dataclasses.replace(point, low=None, high=None) == PointChange(
        *("softmax", "softmax/N=1", "triton", "alpha", 0, Change.FASTER, 2.0, 1.0, 2.0)
    )
    assert found.groups == (GroupChange("softmax", "triton", "alpha", 1, pytest.approx(2.0), {"faster": 1}, ()),)
    assert found.pairs == (TargetPair("alpha", (GPU_A,), ("old", "new"), ("run-1", "run-2"), 0.03, versions={}),)
    assert (found.only, found.lost, found.skipped) == ((), (), ())


ERROR = {"value": None, "verdict": Verdict.ERROR, "reason": "it failed"}
IDLE = {"value": None, "verdict": Verdict.NOT_RUN, "reason": "not installed"}


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ({}, None, {"change": Change.ONE_SIDED, "base_ms": 1.0, "reason": "not in HEAD"}),
        (None, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "not in BASE"}),
        (IDLE, IDLE, {"skipped": True, "reason": "skipped in both: not installed"}),
        (IDLE, {}, {"change": Change.ONE_SIDED, "head_ms": 1.0, "reason": "skipped in BASE: not installed"}),
        ({}, ERROR, {"lost": True, "base_ms": 1.0, "reason": "it failed"}),
        ({}, IDLE, {"base_ms": 1.0, "reason": "HEAD: not installed"}),
        (ERROR, {}, {"head_ms": 1.0, "reason": "BASE: it failed"}),
        (ERROR, ERROR, {"change": Change.SAME, "failing": True, "reason": "it failed"}),
        (ERROR, {**ERROR, "verdict": Verdict.CRASHED}, {"lost": True, "reason": "it failed"}),
        (ERROR, {**ERROR, "verdict": Verdict.KNOWN}, {"change": Change.SAME, "failing": True, "reason": "it failed"}),
        (IDLE, ERROR, {"reason": "BASE: not installed; HEAD: it failed"}),
    ],
)
def test_a_point_that_one_run_lacks_field_by_field(base, head, expected):
    """Which of the two, and why; what failed in HEAD alone is lost, what was skipped in both is none."""
    sides = [() if more is None else (sample(1, median_ms=None if more else 1.0, **more),) for more in (base, head)]
    other = sample(2)
    (point, _) = sorted(two_commits((*sides[0], other), (*sides[1], other)).points, key=lambda point: point.case)

    assert point == dataclasses.replace(PointChange("softmax", "softmax/N=1", "triton", "alpha", 0, Change.REFUSED), **expected)


def test_points_without_enough_timings_are_ambiguous():
    """There is no interval, and so no speedup."""
    few = [dataclasses.replace(sample(1, median_ms=time), times_ms=(time,) * 3) for time in (1.0, 2.0)]
    (point,) = two_commits((few[0],), (few[1],)).points

    assert (point.change, point.speedup, point.low, point.base_ms, point.head_ms) == (Change.AMBIGUOUS, None, None, 1.0, 2.0)
    assert point.reason


def test_a_point_that_moved_to_another_card_is_refused():
    """Each card has a speed of its own; the other side is named."""
    first, second = two_commits((sample(1),), (sample(1, device=1),)).points

    assert (first.change, second.change) == (Change.REFUSED, Change.REFUSED)
    assert "GPU 1 in HEAD" in first.reason
    assert "GPU 0 in BASE" in second.reason


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("parameters", {"params": {"N": 5}}),
        ("units", {"unit": "TFLOP/s"}),
        ("timers", {"timer": "another"}),
        ("flush sizes", {"flush_bytes": 1}),
    ],
)
def test_a_point_that_was_measured_otherwise_is_refused(what, changes):
    """Both settings are told, BASE's first."""
    (point,) = two_commits((sample(1),), (dataclasses.replace(sample(1), **changes),)).points

    assert (point.change, point.speedup) == (Change.REFUSED, None)
    assert point.reason.startswith(f"different {what}: BASE ")
    assert ", HEAD " in point.reason


def test_the_groups_of_two_commits_keep_what_they_leave_out():
    """Per kernel, provider and target; counts by verdict, and skipped ones apart."""
    idle = dataclasses.replace(sample(4, None), verdict=Verdict.NOT_RUN, reason="no")
    base = (sample(1, median_ms=4.0), sample(2, median_ms=1.0), sample(3), idle, sample(1, provider="torch"))
    head = (sample(1, median_ms=1.0), sample(2, median_ms=1.0), idle, sample(1, provider="torch"))
    first, second = two_commits(base, head).groups

    assert (first.kernel, first.provider, first.target, first.n, first.mean) == ("softmax", "triton", "alpha", 2, pytest.approx(2.0))
    assert first.changes == {"faster": 1, "same": 1, "one-sided": 1, "skipped": 1}
    assert [gone.case for gone in first.exclusions] == ["softmax/N=3", "softmax/N=4"]
    assert (second.provider, second.n, second.changes) == ("torch", 1, {"same": 1})


def test_what_differs_between_two_commits_is_on_record():
    """Versions are shown; another GPU or arithmetic, or facts that are missing, forbid any comparison on that target."""
    newer = facts(torch="2.14", python="3.13", driver="1.1", runtime="synthetic 1.1", triton="3.10")
    both = [run(record=record(name), target=name) for name in B_COMMIT_FIELDS]
    (told,) = two_commits((sample(1),), (sample(1),), 0.2, facts=newer).pairs
    assert told.versions == {
        "torch": ("2.13.0+synthetic", "2.14"),
        "triton": ("3.9.0", "3.10"),
        "runtime": ("synthetic 1.0", "synthetic 1.1"),
        "driver": ("1.0", "1.1"),
        "python": ("3.12.0", "3.13"),
    }
    assert told.threshold == 0.2

    for changes, words in (
        ({"facts": facts(GPU_B)}, f"different GPUs on alpha: BASE {GPU_A}, HEAD {GPU_B}"),
        ({"facts": facts(fp_fusion="0")}, "different FP fusion settings on alpha: BASE 1, HEAD 0"),
        ({"facts": None}, "the facts of alpha are missing in HEAD"),
    ):
        found = changed_speeds(both, [dataclasses.replace(both[0], **changes), both[1]])
        assert [pair.barriers for pair in found.pairs] == [(words,), ()]
        assert {point.target for point in found.points} == {"beta"}
    (told, _) = changed_speeds([dataclasses.replace(both[0], facts=None), both[1]], both).pairs
    assert told.barriers == ("the facts of alpha are missing in BASE",)
    assert told.versions == {}


def test_points_of_one_verdict_are_in_the_order_of_how_far_they_moved():
    """In either direction: 20% faster is further than 10% slower."""
    times = (1.0, 1.0 / 0.9, 1.0 / 1.2, 1.05)
    base, head = (tuple(sample(n, median_ms=time) for n, time in enumerate(sides)) for sides in ((1.0,) * 4, times))

    assert [point.case for point in two_commits(base, head, 0.5).of(Change.SAME)] == [f"softmax/N={n}" for n in (2, 1, 3, 0)]


def test_a_target_of_one_commit_alone_is_named():
    """With the side that has it."""
    both = {name: run(record=record(name), target=name) for name in ("alpha", "beta", "gamma")}
    found = changed_speeds([both["alpha"], both["beta"]], [both["alpha"], both["gamma"]])

    assert [(words.split()[0], words.split()[4]) for words in found.only] == [("beta", "BASE"), ("gamma", "HEAD")]


# Finite numbers whose quotients, products or sums overflow: no traceback, no infinity, every file written. All data is synthetic.

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
    monkeypatch.setattr(report, "_remove", lambda _: None)
    (tmp_path / name).write_text("of an earlier run")

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


def test_a_writer_that_fails_costs_its_own_file_where_nothing_was_brought_too(tmp_path, monkeypatch):
    """`ci report` without any artifact writes the same files, in the same way."""
    (tmp_path / "in").mkdir()
    monkeypatch.setitem(report.WRITERS, "junit.xml", lambda *_: 1 / 0)

    code, _ = invoke("ci", "report", tmp_path / "in", "--out", tmp_path / "out", "--expect", "alpha")

    assert code == ExitCode.INCOMPLETE
    assert {path.name for path in (tmp_path / "out").glob("*.*")} == FILES - {"junit.xml"}


# The numbers beside a speed: operations for each byte, dtypes by their short names, times that cannot be, and errors that tests record.


def product(value: float, unit: str, argument_bytes: int = 10**9):
    """A point that takes two milliseconds."""
    return dataclasses.replace(sample(1024, value, unit=unit), median_ms=2.0, argument_bytes=argument_bytes)


def test_operations_for_each_byte_go_by_the_unit():
    """Two milliseconds at 300 TFLOP/s are 6 * 10**11 operations."""
    assert intensity(product(300.0, "TFLOP/s")) == pytest.approx(600.0)
    assert intensity(product(300_000.0, "GFLOP/s")) == pytest.approx(600.0)
    assert intensity(product(300.0, "GB/s")) is None
    assert intensity(product(1e-25, "TFLOP/s", 10**18)) is None  # too small to be a number of operations


@pytest.mark.parametrize(
    ("word", "short"), [("float8_e4m3fn", "fp8"), ("fp8e5", "fp8"), ("bfloat16", "bf16"), ("fp32", "fp32"), ("N=4", "")]
)
def test_dtypes_have_short_names(word, short):
    """Authors write them in either way."""
    assert dtype_in(f"softmax/{word}/N=4") == short


def test_a_time_that_cannot_be_is_not_shown():
    """A result from elsewhere may say anything; the row stays."""
    strange = dataclasses.replace(sample(1024, 100.0), p20_ms=0.0, p80_ms=1e300, graph_ms=-1.0)
    (row,) = compare([run(samples=(strange,))]).rows
    (cell,) = row.cells

    assert (cell.median_ms is not None, cell.p20_ms, cell.p80_ms, cell.graph_ms) == (True, None, None, None)


def test_only_errors_count_as_errors():
    """A test may record other numbers, such as the seconds that it took."""
    before, after = (
        run(cases=(case("a.py::test_a", properties={"max_abs_err": one, "seconds": one, "error_free": "yes"}),)) for one in ("1.0", "2.0")
    )

    assert [(one.name, one.before, one.after) for one in changed_errors([before], [after])] == [("max_abs_err", 1.0, 2.0)]
