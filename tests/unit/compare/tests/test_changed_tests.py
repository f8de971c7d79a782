"""Tests that changed between two runs: each is found once, and tests that a crashed stage did not reach are ignored."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from synthetic import case, record, run, write_raw

from warpwave.ci import base as since_base
from warpwave.compare.changed_codegen import bundle
from warpwave.compare.model import FAILING
from warpwave.compare.runs import join
from warpwave.compare.tests import ChangedTests, Fate, changed_tests
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import changed_test_sections, changed_tests_sentence

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


@pytest.mark.parametrize("after", [verdict for verdict in Verdict if verdict in FAILING or verdict is PASSED])
def test_what_still_has_its_turn_is_not_lost(tmp_path, after):
    """The report itself shows a failure, with or without a base. A flaky test that passed in the end has passed."""
    assert since(tmp_path, [one(PASSED)], [one(after)], "lost-tests").worse == ""


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


def test_the_page_counts_and_shows_names_literally():
    """Tests that need attention are open, the rest is folded."""
    tests = [case(f"k/test_k.py::test[<b>{n}]") for n in range(30)]
    found = changed_tests([run(cases=tuple(tests[:25]))], [run(cases=(*tests[25:], *tests[:1]))])
    page = render_page(changed_tests_sentence(found), changed_test_sections(found), good=True)

    assert changed_tests_sentence(found) == "24 tests are gone, 5 tests are new."
    assert (
        page.index("Tests that are gone") < page.index("… and 4 more") < page.index("<details>") < page.index("`k/test_k.py::test[<b>29]`")
    )
    assert changed_tests_sentence(changed_tests([one(PASSED)], [one(PASSED)])) == "None of 2 tests changed."
