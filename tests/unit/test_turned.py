"""Tests that changed sides between two runs: found once each, and nothing made of what a dead stage left out."""

from __future__ import annotations

import pytest
from synthetic import case, record, run

from harness.compare.turned import Turn, turns
from harness.records import Stage, StageReport, Verdict
from harness.render.markdown import render_page
from harness.render.turned import sentence, turned_sections

PASSED, FAILED, SKIPPED = Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN


def one(verdict, end=PASSED):
    """A run of one test, or none of it; another one is always there. `end` is what the test stage came to."""
    cases = (case("k/test_k.py::test_other"), *([case("k/test_k.py::test_it", verdict, message="why")] if verdict else []))
    return run(cases=cases, stages=(StageReport(Stage.TEST, end),))


@pytest.mark.parametrize(
    ("before", "after", "turn"),
    [
        *((PASSED, FAILED, Turn.BROKEN), (None, FAILED, Turn.BROKEN), (FAILED, Verdict.CRASHED, Turn.STILL), (PASSED, None, Turn.GONE)),
        *((PASSED, SKIPPED, Turn.SKIPPED), (FAILED, SKIPPED, Turn.SKIPPED), (FAILED, PASSED, Turn.MENDED), (SKIPPED, PASSED, Turn.MENDED)),
        *((None, PASSED, Turn.NEW), (PASSED, PASSED, None), (SKIPPED, SKIPPED, None), (SKIPPED, FAILED, Turn.BROKEN)),
    ],
)
def test_what_became_of_a_test(before, after, turn):
    """A failure that is only skipped now is not mended."""
    found = turns([one(before)], [one(after)])

    assert [entry.turn for entry in found.found] == ([turn] if turn else [])
    assert found.compared == 1 + bool(before and after)


def test_what_a_dead_stage_left_out_is_not_gone():
    """Nor is what comes after a base that died new; and another target's tests are nobody's."""
    assert turns([one(PASSED)], [one(None, Verdict.CRASHED)]).found == ()
    assert turns([one(None, Verdict.TIMEOUT)], [one(PASSED)]).found == ()
    assert turns([one(PASSED)], [run(record=record("beta"), cases=())]).compared == 0


def test_the_page_counts_and_shows_names_literally():
    """What needs a look stands open, the rest is folded."""
    tests = [case(f"k/test_k.py::test[<b>{n}]") for n in range(30)]
    found = turns([run(cases=tuple(tests[:25]))], [run(cases=(*tests[25:], *tests[:1]))])
    page = render_page(sentence(found), turned_sections(found), good=True)

    assert sentence(found) == "24 tests are gone, 5 tests are new."
    assert (
        page.index("Tests that are gone") < page.index("… and 4 more") < page.index("<details>") < page.index("`k/test_k.py::test[<b>29]`")
    )
    assert sentence(turns([one(PASSED)], [one(PASSED)])) == "None of 2 tests changed sides."
