"""Tests that changed between two runs: each is found once, and tests that a crashed stage did not reach are ignored."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import PurePath

import pytest
from synthetic import GPU_A, case, compiled, edit, emulated, facts, record, run, write_raw

from warpwave.ci import base as since_base
from warpwave.collect.raw_folder import collect
from warpwave.compare import compare
from warpwave.compare.changed_codegen import bundle, notes
from warpwave.compare.runs import join, outcome
from warpwave.compare.tests import ChangedTests, Fate, changed_tests
from warpwave.errors import ExitCode
from warpwave.records import Chosen, DeviceFacts, Narrowed, Stage, StageReport, Verdict
from warpwave.records.selection import NO_SUCH_TEST, RAN_NO_TEST, narrowed
from warpwave.render.commands import next_commands
from warpwave.render.markdown import render_markdown

PASSED, FAILED, SKIPPED = Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN


def one(verdict, end=PASSED):
    """A run with one test, or without it; another test is always there. `end` is the result of the test stage."""
    cases = (case("k/test_k.py::test_other"), *([case("k/test_k.py::test_it", verdict, message="why")] if verdict else []))
    return run(cases=cases, stages=(StageReport(Stage.TEST, end),))


@pytest.mark.parametrize(
    ("before", "after", "fate"),
    [
        *((PASSED, FAILED, Fate.BROKEN), (None, FAILED, Fate.BROKEN), (FAILED, Verdict.CRASHED, Fate.STILL), (PASSED, None, Fate.GONE)),
        *((PASSED, SKIPPED, Fate.SKIPPED), (FAILED, SKIPPED, Fate.SKIPPED), (FAILED, PASSED, Fate.FIXED), (SKIPPED, PASSED, Fate.FIXED)),
        *((None, PASSED, Fate.NEW), (PASSED, PASSED, None), (SKIPPED, SKIPPED, None), (SKIPPED, FAILED, Fate.BROKEN)),
    ],
)
def test_what_became_of_a_test(before, after, fate):
    """A failure that is only skipped now is not fixed."""
    found = changed_tests([one(before)], [one(after)])

    assert [entry.fate for entry in found.found] == ([fate] if fate else [])
    assert found.compared == 1 + bool(before and after)


LEFT = {"gone": None, "skipped": SKIPPED, "expected to fail": Verdict.XFAILED}


@pytest.mark.parametrize("after", LEFT)
@pytest.mark.parametrize("before", [*Verdict, None], ids=lambda verdict: verdict.value if verdict else "not there")
def test_only_a_test_that_passed_can_be_lost(tmp_path, before, after):
    """In BASE it was skipped, failed, an error, an expected failure, or ended by a fault."""
    old = [one(before)]
    new = [run(cases=(one(None).cases + ((case("k/test_k.py::test_it", LEFT[after], message="why"),) if LEFT[after] else ())))]
    told = since(tmp_path, old, new, "lost-tests")

    assert [turned.id for turned in changed_tests(old, new).lost] == (["k/test_k.py::test_it"] if before is PASSED else [])
    assert bool(told.worse) == (before is PASSED)
    assert len(told.annotations) == (before is PASSED)
    assert since(tmp_path, old, new, "slower").worse == ""


def test_a_case_under_another_name_is_lost_and_another_is_new(tmp_path):
    """A renamed test looks like one that was removed."""
    named = [run(cases=(case(f"k/test_k.py::test_it[{name}]"),)) for name in ("fp32-1", "fp32-one")]
    found = changed_tests(named[:1], named[1:])

    assert [(turned.id[-8:], turned.fate) for turned in found.found] == [("[fp32-1]", Fate.GONE), ("p32-one]", Fate.NEW)]
    assert since(tmp_path, named[:1], named[1:], "lost-tests").worse == "1 test that passed before is gone, skipped or expected to fail"


def test_of_two_tests_of_one_name_one_is_lost(tmp_path):
    """They are counted, not merged."""
    twice = [run(cases=(case("k/test_k.py::test_it"),) * number) for number in (2, 1)]

    assert len(changed_tests(twice[:1], twice[1:]).lost) == 1


@pytest.mark.parametrize("end", [Verdict.CRASHED, Verdict.TIMEOUT, Verdict.INFRA, Verdict.INCOMPLETE])
@pytest.mark.parametrize("after", [None, SKIPPED])
def test_of_a_stage_that_died_nothing_is_lost(tmp_path, end, after):
    """Tests that it did not reach are recorded as not run. Nobody skipped them."""
    assert since(tmp_path, [one(PASSED)], [one(after, end)], "lost-tests").worse == ""


def test_of_a_target_that_is_absent_nothing_is_lost(tmp_path):
    """The report says that the target is absent."""
    beta = run(record=record("beta"))

    assert since(tmp_path, [one(PASSED), beta], [one(PASSED)], "lost-tests").worse == ""
    assert since(tmp_path, [beta], [one(PASSED)], "lost-tests").worse == ""


def test_of_a_shard_that_is_missing_nothing_is_lost(tmp_path):
    """Its tests are not gone, and its kernels are not removed: the report says that the shard is missing."""
    whole = run(cases=tuple(case(f"{kernel}/test_{kernel}.py::test", kernel=kernel) for kernel in "ab"))
    parts = [
        dataclasses.replace(whole, record=dataclasses.replace(whole.record, shard=f"{number}/2", run_id=f"run-{number}"), cases=(test,))
        for number, test in enumerate(whole.cases, 1)
    ]

    assert since(tmp_path, [whole], parts, "lost-tests").worse == ""
    assert since(tmp_path, [whole], parts[:1], "lost-tests").worse == ""
    assert bundle("x", join(parts[:1])).faults == ("alpha: shard 2 of 2 is missing",)
    assert bundle("x", join(parts)).faults == ()


def since(folder, base, head, fail_on):
    """The result of `ci report` for two commits on disk, with a folder for each target or shard of a run."""
    shutil.rmtree(folder / "two", ignore_errors=True)
    for name, runs in (("base", base), ("head", head)):
        for number, each in enumerate(runs):
            write_raw(folder / "two" / name / str(number) / "raw" / each.record.target, each)
    with pytest.MonkeyPatch.context() as patch:  # for verdicts that no JUnit file contains
        both = {"base": base, "head": head}
        patch.setattr(since_base, "collect_all", lambda folders: [both[raw.parts[-4]][int(raw.parts[-3])] for raw in folders])
        return since_base.against_base(folder / "two" / "base", [folder / "two" / "head"], since_base.parse_asked(fail_on, None))


def test_what_a_dead_stage_left_out_is_not_gone():
    """After a base that crashed, nothing counts as new. Targets are compared by name."""
    assert changed_tests([one(PASSED)], [one(None, Verdict.CRASHED)]).found == ()
    assert changed_tests([one(None, Verdict.TIMEOUT)], [one(PASSED)]).found == ()
    assert changed_tests([one(PASSED)], [run(record=record("beta"), cases=())]).compared == 0
    beta = run(record=record("beta"))
    assert changed_tests([one(PASSED)], [one(PASSED), beta]) == changed_tests([one(PASSED), beta], [one(PASSED)]) == ChangedTests((), 2)


@pytest.mark.parametrize(
    ("before", "after", "told_when"),
    [
        (PASSED, None, {"base": True, "head": False}),
        (PASSED, SKIPPED, {"base": True, "head": False}),
        (None, PASSED, {"base": False, "head": True}),
        (None, FAILED, {"base": False, "head": True}),
        (PASSED, FAILED, {"base": True, "head": True}),
        (FAILED, PASSED, {"base": True, "head": True}),
    ],
)
@pytest.mark.parametrize("died", ["base", "head"])
def test_only_the_side_that_lacks_a_test_has_to_be_whole(before, after, told_when, died):
    """A test that HEAD lacks is gone if HEAD's stage ended, whatever became of BASE's; one that both have is compared in any case."""
    end = {"base": PASSED, "head": PASSED} | {died: Verdict.CRASHED}
    found = changed_tests([one(before, end["base"])], [one(after, end["head"])])

    assert bool(found.found) == told_when[died]


# Options that choose tests and are wrong: their words lead, the exit code is 2, and nothing is called a failure of the package.

BAD = case("k/test_k.py::test_it[nope]", Verdict.ERROR, kernel="k", message=f"--test: {NO_SUCH_TEST}")
GOOD = case("k/test_k.py::test_it[1]", kernel="k")
WRONG = case("k/test_k.py::test_it[2]", Verdict.FAILED, kernel="k", message="0.3 > 0.1")
HOW = Narrowed(("--test",), Chosen((BAD.id,), how=("--test",), must_exist=True))
WORDS = "Wrong expression passed to '-k': a and and b"


def side(*cases, target="alpha", verdict=Verdict.ERROR, reason="", how=HOW, **more):
    stages = (StageReport(Stage.TEST, verdict, reason=reason),)
    return run(target, record=record(target), cases=cases, samples=(), ceilings=(), stages=stages, narrowed=how, **{"compiled": (), **more})


@pytest.mark.parametrize("others", [(), (GOOD,)])
def test_an_id_of_no_test_is_named_and_is_no_failure(others):
    comparison = compare([side(BAD, *others)])
    page = render_markdown(comparison)

    assert (outcome(comparison).code, comparison.exit_code) == (ExitCode.USAGE, 2)
    assert outcome(comparison).reason == f"{NO_SUCH_TEST}: {BAD.id}"
    assert page.replace("\\", "").startswith(f"### ❌ There is no such test: {BAD.id}.\n")
    assert "That test alone" not in page
    led = dataclasses.replace(comparison, sentence=outcome(comparison).lead(comparison.sentence))
    assert render_markdown(led).splitlines()[0] == page.splitlines()[0]
    assert "--last-failed" not in next_commands(comparison, PurePath("out"))[0]


def test_what_pytest_refuses_is_said_in_its_words():
    comparison = compare([side(reason=f"{RAN_NO_TEST}{WORDS}", how=Narrowed(("-k a and and b",)))])

    assert (outcome(comparison).code, outcome(comparison).reason) == (ExitCode.USAGE, WORDS)
    assert render_markdown(comparison).count(f"{WORDS}.") >= 1


@pytest.mark.parametrize(
    "runs",
    [
        [side(BAD, WRONG)],
        [side(BAD), side(WRONG, target="beta", verdict=Verdict.FAILED)],
        [side(BAD, compiled=(dataclasses.replace(compiled(), verdict=Verdict.FAILED, reason="no"),))],
        [side(reason=f"{RAN_NO_TEST}{WORDS}", how=Narrowed())],  # the package's own settings
    ],
    ids=["a failed test", "on another target", "a binary", "not an option of the run"],
)
def test_a_failure_of_the_package_comes_first(runs):
    assert outcome(compare(runs)).code is ExitCode.FAILED


def test_the_command_is_for_a_test_that_exists():
    page = render_markdown(compare([side(BAD, WRONG)]))

    assert f"--test '{WRONG.id}'" in page
    assert f"--test '{BAD.id}'" not in page


# A run that was asked for some of the tests is never mistaken for one of all: in the report, beside another target, since the base.

WHY = ("1 of 3 test files and benches are touched by what has changed since main (1234567)", "k/test_k.py: needs k/k.py")
SOME = Narrowed(("--changed-since main",), Chosen(("k/test_k.py",), how=("--changed-since main",), why=WHY))
OTHER = Narrowed(("--test",), Chosen(("k/test_k.py::test_other",), how=("--test",)))
ALL = Narrowed()


def asked(*names, how=ALL, deselected=0, target="alpha"):
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
    edit(raw / "job.json", what={**options, "chosen": dataclasses.asdict(chosen)})
    found = collect(raw)

    assert (found.narrowed.by, found.narrowed.chosen, found.problems) == (by, chosen, ())


def test_a_quick_run_counts_what_it_left_out_among_what_was_asked_for():
    """12 asked for, of which 9 were left out."""
    how = narrowed(Chosen(("k",), how=("--test",)), True, ())
    one = asked("a", "b", "c", how=how, deselected=8)
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
    found = changed_tests([asked("kept", "old", how=base)], [asked("kept", "fresh", how=head)])

    assert [entry.fate for entry in found.found] == fates


@pytest.mark.parametrize(("how", "on"), [(ALL, ("beta",)), (SOME, ())])
def test_a_test_is_not_missing_where_nobody_asked_for_it(how, on):
    """Beside a target that ran all of them."""
    rows = compare([asked("a", "b"), asked("a", how=how, target="beta")]).tests

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


# Emulated targets in a comparison: a failure that only the emulator sees is suspected, and nothing of them is a speed.

FAILED_CASE = case(verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5")


def suspected(*runs):
    found = compare(runs)
    return [(row.parity.value, row.suspected) for row in found.tests], {target.target: target.suspected for target in found.targets}


def test_what_passed_elsewhere_is_suspected():
    """On any target that is not emulated: the interpreter, or a card."""
    rows, counts = suspected(run("cpu", None, cases=(case(),)), emulated(FAILED_CASE))

    assert rows == [("failed-on", ("syn942-emulated",))]
    assert counts == {"cpu": 0, "syn942-emulated": 1}


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ((), "nothing to hold it against"),
        ((run("cpu", None, cases=(FAILED_CASE,)),), "it failed there, too"),
        ((run("cpu", None, cases=(case(verdict=Verdict.NOT_RUN),)),), "it was skipped there"),
        ((run("cpu", None, cases=(case(),)), run("alpha", cases=(FAILED_CASE,))), "a card failed it, too"),
        ((emulated(case(), target="syn1201-emulated"),), "only another emulated target passed it"),
    ],
)
def test_what_has_another_explanation_is_not(others, why):
    """A word that is always there says nothing."""
    rows, counts = suspected(*others, emulated(FAILED_CASE))

    assert [doubt for _, doubt in rows] == [()], why
    assert set(counts.values()) == {0}


def test_what_host_code_raised_is_no_suspicion():
    """No kernel was executed for it, or the compiler proved it: a card does the same."""
    why = "KeyError was raised at test_a.py:3, before the first launch"
    rows, counts = suspected(run("cpu", None, cases=(case(),)), emulated(dataclasses.replace(FAILED_CASE, properties={"host_error": why})))

    assert rows == [("failed-on", ())]
    assert set(counts.values()) == {0}


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED])
def test_a_gap_of_the_emulator_is_no_suspicion(verdict):
    """Its verdict already says that the kernel was not executed."""
    rows, _ = suspected(run("cpu", None, cases=(case(),)), emulated(case(verdict=verdict)))

    assert rows == [("failed-on", ())]


def test_a_card_does_not_replace_the_emulated_target():
    """It adds a column. A failure in the emulator still counts."""
    card = facts(devices=(DeviceFacts(0, GPU_A, "syn942", 1 << 36, 100),))
    found = compare([run("beta", facts=card, cases=(case(),)), emulated(FAILED_CASE)])

    assert [target.target for target in found.targets] == ["beta", "syn942-emulated"]
    assert [target.emulated for target in found.targets] == ["", "syn942"]
    assert found.exit_code == 1


def test_an_emulated_target_is_in_no_mean_and_no_portability():
    """It has no speeds: two targets with a card are compared as if it were not there."""
    measured = [run("alpha"), run("beta")]
    with_it, without = compare([*measured, emulated()]), compare(measured)

    assert (with_it.geomeans, with_it.portabilities, with_it.rows) == (without.geomeans, without.portabilities, without.rows)
    assert with_it.geomeans
