"""A run that was asked for some of the tests is never mistaken for one of all: in the report, beside another target, since the base."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import case, compiled, edit, run, write_raw

from warpwave.collect.raw_folder import collect
from warpwave.compare import compare
from warpwave.compare.changed_codegen import bundle, notes
from warpwave.compare.tests import Fate, changed_tests
from warpwave.records import Chosen, Narrowed, Stage, StageReport, Verdict
from warpwave.records.selection import narrowed
from warpwave.render.markdown import render_markdown

WHY = ("1 of 3 test files and benches are touched by what has changed since main (1234567)", "k/test_k.py: needs k/k.py")
SOME = Narrowed(("--changed-since main",), Chosen(("k/test_k.py",), how=("--changed-since main",), why=WHY))
OTHER = Narrowed(("--test",), Chosen(("k/test_k.py::test_other",), how=("--test",)))
ALL = Narrowed()


def side(*names, how=ALL, deselected=0, target="alpha"):
    """A run with these tests, all passed."""
    cases = tuple(case(f"k/test_k.py::test_{name}") for name in names)
    stages = (StageReport(Stage.TEST, Verdict.PASSED, counts={"passed": len(cases)}, deselected=deselected),)
    return run(target, cases=cases, samples=(), compiled=(), stages=stages, narrowed=how)


@pytest.mark.parametrize(
    ("options", "by"),
    [
        ({}, ()),
        ({"chosen": SOME.chosen}, ("--changed-since main",)),
        ({"quick": True, "pytest_args": ["-k=a or b", "-x", "--tb=short"]}, ("-k a or b", "--quick")),
        ({"pytest_args": ["-m=not slow", "--ignore=x", "--deselect=y"]}, ("-m not slow", "--ignore=x", "--deselect=y")),
    ],
)
def test_a_job_says_how_it_was_narrowed(tmp_path, options, by):
    """What stops early, or only prints, narrows nothing."""
    raw = write_raw(tmp_path / "alpha", run("alpha"))
    chosen = options.get("chosen", Chosen())
    edit(raw / "job.json", **{**options, "chosen": dataclasses.asdict(chosen)})
    found = collect(raw)

    assert (found.narrowed.by, found.narrowed.chosen, found.problems) == (by, chosen, ())


def test_the_report_says_what_was_asked_for_and_why():
    """In its first sentence, and below its targets."""
    comparison = compare([side("it", how=SOME, deselected=11)])
    page = render_markdown(comparison)

    assert comparison.sentence == "1 of 1 target is complete: alpha passed 1 test of those that --changed-since main chose."
    assert "`only 1 of 12 tests were asked for (--changed-since main)`" in page
    assert "alpha: k/test_k.py: needs k/k.py" in page
    assert "by an option of the run or by the package" not in page


def test_a_quick_run_counts_what_it_left_out_among_what_was_asked_for():
    """12 asked for, of which 9 were left out."""
    how = narrowed(Chosen(("k",), how=("--test",)), True, ())
    one = side("a", "b", "c", how=how, deselected=8)
    one = dataclasses.replace(one, stages=tuple(dataclasses.replace(stage, left_out=9) for stage in one.stages))

    assert "`only 12 of 20 tests were asked for (--test)`" in render_markdown(compare([one]))


@pytest.mark.parametrize(
    ("base", "head", "fates"),
    [
        (ALL, ALL, [Fate.GONE, Fate.NEW]),
        (ALL, SOME, [Fate.NEW]),
        (SOME, ALL, [Fate.GONE]),
        (SOME, OTHER, []),
        (SOME, SOME, [Fate.GONE, Fate.NEW]),
    ],
)
def test_a_test_that_nobody_asked_for_is_not_lost(base, head, fates):
    """Nor is one new that the base was not asked for; if both were asked for the same, it is."""
    found = changed_tests([side("kept", "old", how=base)], [side("kept", "fresh", how=head)])

    assert [entry.fate for entry in found.found] == fates


@pytest.mark.parametrize(("how", "on"), [(ALL, ("beta",)), (SOME, ())])
def test_a_test_is_not_missing_where_nobody_asked_for_it(how, on):
    """Beside a target that ran all of them."""
    rows = compare([side("a", "b"), side("a", how=how, target="beta")]).tests

    assert {row.id: row.on for row in rows} == {"k/test_k.py::test_a": (), "k/test_k.py::test_b": on}


def test_generated_code_that_nobody_asked_for_is_noted():
    """If only one side was narrowed, or the two in different ways."""
    whole, some = (bundle("x", [dataclasses.replace(run("alpha", compiled=(compiled(),)), narrowed=how)]) for how in (ALL, SOME))
    told = "HEAD had some of the package's tests only (--changed-since main): kernels may be missing from it."

    assert (notes(whole, some), notes(some, some), notes(whole, whole)) == ((told,), (), ())


def test_a_stage_that_was_never_reached_lacks_no_file(tmp_path):
    """Its report says why; a stage that claims to have passed does lack it."""
    told = []
    for verdict in (Verdict.TIMEOUT, Verdict.CRASHED, Verdict.PASSED):
        stages = (StageReport(Stage.TEST, Verdict.PASSED, exit_code=0, counts={"passed": 2}), StageReport(Stage.COMPILE, verdict))
        raw = write_raw(tmp_path / verdict.value, run("alpha", compiled=(), stages=stages))
        (raw / "compile" / "kernels.jsonl").unlink()
        told.append([problem for problem in collect(raw).problems if "kernels.jsonl" in problem])

    assert told == [[], [], ["compile/kernels.jsonl: incomplete: it is missing"]]
