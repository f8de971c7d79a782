"""The cost of a report: linear work, pages that show a limited part and count the rest, and one budget for all files.

No test here measures time: they count interpreter steps. All data is synthetic; tests/bench/bundles.py measures.
"""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
from slow_cases import slow_but
from synthetic import CEILING, case, compiled, facts, no_gpu, record, run, sample, two_targets, write_raw

from warpwave.collect import collect_all, untrusted
from warpwave.compare import codegen, compare, speeds
from warpwave.compare import tests as collecting_parity
from warpwave.compare.answer import overview, shortfalls
from warpwave.compare.changed_codegen import Concern, bundle, diff
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.records import DeviceFacts, GateLimits, Gates, Verdict, Waiver, Which
from warpwave.render import excerpt as limits
from warpwave.render.charts.sweeps import sweeps
from warpwave.render.excerpt import shown
from warpwave.render.html import render_html
from warpwave.render.html.tests import numerics
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.changes import code_sentence


def targets(n, **more):
    """Runs of `n` different targets; a field may be a function of the target's number."""
    fields = [{key: value(t) if callable(value) else value for key, value in more.items()} for t in range(n)]
    return [run(f"t{t}", record=record(f"t{t}"), **found) for t, found in enumerate(fields)]


EMPTY = {"cases": (), "samples": (), "ceilings": (), "compiled": ()}
DEAD = {"verdict": Verdict.FAILED, "registers": None, "reason": "out of resource"}
SHAPES = {
    "kernels of tests": lambda n: [run(**{**EMPTY, "cases": tuple(case(f"k{i}/test_a.py::a", kernel=f"k{i}") for i in range(n))})],
    "kernels of points": lambda n: [run(**{**EMPTY, "samples": tuple(sample(1, kernel=f"k{i}") for i in range(n))})],
    "points with parameters of their own": lambda n: [
        run(samples=tuple(dataclasses.replace(sample(i), params={f"p{j}_{i}": j for j in range(8)}) for i in range(n)))
    ],
    "parameters that all rise": lambda n: [
        run(samples=tuple(dataclasses.replace(sample(i), params={**{f"p{j}": i + j + 1 for j in range(n)}, "z": i % 2}) for i in range(4)))
    ],
    "targets": lambda n: targets(n),
    "tests of their own": lambda n: targets(n, **{**EMPTY, "cases": lambda t: (case(f"k/test_a.py::a[{t}]"),)}),
    "one target against many": lambda n: [
        run(samples=tuple(sample(i) for i in range(n))),
        *targets(n, **{**EMPTY, "samples": (sample(0),)}),
    ],
    "providers": lambda n: [run(samples=tuple(sample(1, provider=f"p{i}") for i in range(n)))],
    "sweeps": lambda n: [run(samples=tuple(dataclasses.replace(sample(i % 3 + 1), case=f"softmax/s{i // 3}/N={i % 3}") for i in range(n)))],
    "units": lambda n: [run(samples=tuple(sample(i, kernel=f"k{i}", unit=f"u{i}") for i in range(n)))],
    "cards": lambda n: [
        run(
            facts=facts(devices=tuple(DeviceFacts(i, f"g{i}", "a", 1, 1, told={f"f{i}": "x"}) for i in range(n))),
            samples=tuple(sample(i, device=i) for i in range(n)),
            ceilings=tuple(dataclasses.replace(CEILING, device=i) for i in range(n)),
        )
    ],
    "configurations": lambda n: [run(compiled=tuple(compiled(constants={"B": i}) for i in range(n)))],
    "constants of one launch": lambda n: [run(compiled=tuple(compiled(f"sy_{i}", constants={f"c{i}": i}) for i in range(n)))],
    "launches": lambda n: [
        run(compiled=tuple(compiled(constants={"B": i}) for i in range(n)), launched=tuple(compiled(constants={"C": i}) for i in range(n)))
    ],
    "launches of many targets": lambda n: targets(n, compiled=(compiled(),), launched=(compiled(),)),
    "what dies on one vendor": lambda n: [
        run(compiled=tuple(compiled("sy_90" if i % 2 else "gy90", signature={}, constants={}, **({} if i % 2 else DEAD)) for i in range(n)))
    ],
    "waivers": lambda n: [
        run(
            compiled=tuple(compiled(function=f"f{i}") for i in range(4)),
            gates=Gates(GateLimits(), waivers=tuple(Waiver("spills", f"r{i}", Which(function=(f"*{i}*",))) for i in range(n))),
        )
    ],
    "numbers of tests": lambda n: [run(cases=tuple(case(f"k/test_a.py::a[{i}]", properties={f"p{i}": "1.5"}) for i in range(n)))],
}


def steps(work) -> int:
    """Return how many lines the interpreter runs, each turn of a loop counted anew."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def everything(runs) -> None:
    """Compute everything that is computed before drawing; drawing itself is limited by what is shown."""
    comparison = compare(runs)
    shortfalls(comparison, overview(comparison))
    for look in (sweeps, numerics, shown):
        look(comparison)
    if any(each.samples for each in runs):
        changed_speeds(runs, runs)
    if any(each.compiled for each in runs):
        side = bundle("a", runs)
        code_sentence(diff(side.kernels, [dataclasses.replace(row, num_warps=8, spills=9) for row in side.kernels]), tuple(Concern))


# Two of them take a second each. The others hold the same rule for each part of a bundle.
@pytest.mark.parametrize("name", slow_but(SHAPES, set(SHAPES) - {"launches of many targets", "targets"}))
def test_the_work_grows_with_the_bundle(name, monkeypatch):
    """Four times as much of one thing may take at most six times the steps; quadratic work would take sixteen."""
    monkeypatch.setattr(speeds, "_MOST_ONE_SIDED", 1000, raising=False)
    monkeypatch.setattr(codegen, "_MOST_OF_ALL", 1000, raising=False)
    everything(SHAPES[name](2))  # fill caches first
    bundles = [SHAPES[name](n) for n in (60, 240)]
    small, large = (steps(lambda runs=runs: everything(runs)) for runs in bundles)

    assert large < 6 * small, large / small


def test_a_page_shows_so_many_and_counts_the_rest(monkeypatch):
    """The gravest targets come first, then kernels that failed. Every cut has a sentence."""
    for name, most in {"TARGETS": 3, "KERNELS": 2, "PROVIDERS": 1, "POINTS": 8, "SPEEDS": 3, "COLUMNS": 2, "COMPILED": 3}.items():
        monkeypatch.setattr(limits, f"MOST_{name}", most)
    first, second = two_targets()
    worst = dataclasses.replace(no_gpu(), record=record("worst", verdict=Verdict.INFRA, reason="no driver"))
    comparison = compare([first, *targets(4), second, worst])
    found = shown(comparison)

    assert [target.target for target in found.comparison.targets] == ["alpha", "beta", "worst"]
    assert {entry.kernel for entry in found.comparison.kernels} == {"softmax", "vector_add"}
    assert {cell.target for row in found.comparison.rows for cell in row.cells} <= {"alpha", "beta"}
    assert len({cell.compiled.architecture for row in found.comparison.codegen for cell in row.cells}) <= 2
    assert [re.sub(r"[a-z ,;.]+", " ", text).split()[:2] for text in found.left_out][:1] == [["3", "7"]]
    for text in (render_html(comparison), render_markdown(comparison)):
        for line in found.left_out:
            assert line in text.replace("\\", "")


def test_the_files_of_a_report_share_one_room(tmp_path, monkeypatch):
    """The largest folder is read last and exceeds the budget; the others are complete."""
    monkeypatch.setattr(untrusted, "REPORT_MEMORY", 400_000)
    huge = run("a", record=record("a"), samples=tuple(sample(n) for n in range(400)))
    folders = [write_raw(tmp_path / each.record.target, each) for each in (huge, *targets(3))]
    found = collect_all(folders)

    assert [each.record.target for each in found] == ["a", "t0", "t1", "t2"]
    assert [each.problems for each in found[1:]] == [()] * 3
    (problem,) = found[0].problems
    assert problem == "bench/samples.jsonl: invalid: all files of a report together may take at most 0 MiB of memory"


@pytest.mark.parametrize("name", ["REPORT_DISK", "REPORT_ELEMENTS"])
def test_what_is_read_and_leaves_nothing_has_a_bound_too(tmp_path, monkeypatch, name):
    """Blank space, and XML elements that are no tests."""
    monkeypatch.setattr(untrusted, name, 20_000)
    raw = write_raw(tmp_path / "raw", run())
    (raw / "test/junit.xml").write_text(f"<testsuites><testsuite>{'<a/>' * 30_000}</testsuite></testsuites>")
    (raw / "bench/samples.jsonl").write_text((" " * 10_000 + "\n") * 10)

    assert any("all files of a report together" in problem for problem in collect_all([raw])[0].problems)


def test_a_test_in_many_files_takes_room_once(tmp_path, monkeypatch):
    """A thousand files with the same thousand tests make one table."""
    monkeypatch.setattr(untrusted, "REPORT_MEMORY", 2_000_000)
    tests = tuple(case(f"softmax/test_softmax.py::test[{'x' * 300}-{n}]") for n in range(100))
    same = [write_raw(tmp_path / f"same{t}", each) for t, each in enumerate(targets(20, **{**EMPTY, "cases": tests}))]

    assert [each.problems for each in collect_all(same)] == [()] * 20


def test_a_row_names_so_many_targets_and_its_cells_tell_the_rest(monkeypatch):
    """Otherwise each of a thousand tests could name a thousand targets that lack it."""
    monkeypatch.setattr(collecting_parity, "MOST_NAMED", 3)
    monkeypatch.setattr(collecting_parity, "_FEWEST_NAMED", 1)
    runs = targets(6, **{**EMPTY, "cases": lambda t: (case("k/test_a.py::a"),) if t < 2 else (case("k/test_b.py::b"),)})
    first, second = compare(runs).tests

    assert (first.on, second.on) == (("t2", "t3", "t4"), ("t0", "t1"))
    assert [len(row.cells) for row in (first, second)] == [2, 4]


def test_a_sentence_names_so_many_parameters():
    """A refusal stays one sentence, however many parameters differ."""
    many = dataclasses.replace(sample(1), params={f"p{n}": "x" * 400 for n in range(90)})
    (row,) = compare([run("a", record=record("a"), samples=(sample(1),)), run("b", record=record("b"), samples=(many,))]).rows

    assert "different parameters: a {'N': 1, 'dtype': 'fp32'}, b {'p0'" in row.ratios[0].reason
    assert len(row.ratios[0].reason) < 2500


def test_too_many_targets_for_portability_are_said(monkeypatch):
    """The report says that portability is left out."""
    monkeypatch.setattr(speeds, "_MOST_EFFICIENCIES", 1)
    comparison = compare(two_targets())

    assert (comparison.portabilities, comparison.problems) == (
        (),
        ("performance portability is not computed: 2 targets, with their kernels, are too many",),
    )


@pytest.mark.parametrize("count", [1, 8, 9, 4000])
def test_cards_of_many_kinds_are_counted(count):
    """The names of a target's GPUs are in the head of every suite."""
    devices = tuple(DeviceFacts(i, f"g{i}", "a", 1, 1) for i in range(count))
    names = compare([run(facts=facts(devices=devices))]).targets[0].gpus.split(" + ")

    assert names[-1] == (f"g{count - 1}" if count < 9 else f"{count - 8} more")
    assert len(names) == min(count, 9)
