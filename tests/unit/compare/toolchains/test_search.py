"""Bisecting a list, and the question that it asks, on answers and runs that are made up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from synthetic import case, compiled, run, sample

from warpwave.compare.search import Answer, Kind, Question, Reply, bisect, reply
from warpwave.records import Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.upgrade import bisection_sections, bisection_sentence


def said(bad: bool) -> Reply:
    return Reply(Answer.BAD if bad else Answer.GOOD, "seen")


@given(st.integers(2, 60), st.data())
def test_the_first_bad_step_is_found(count, data):
    """Whatever is skipped, and with a logarithm of questions if nothing is. Each skipped step may cost itself and one beside the middle."""
    first = data.draw(st.integers(1, count - 1))
    skipped = data.draw(st.sets(st.integers(1, count - 2), max_size=8)) if count > 2 else set()
    names = [f"s{position}" for position in range(count)]
    asked = []

    def ask(name: str) -> Reply:
        asked.append(name)
        position = int(name[1:])
        return Reply(Answer.SKIPPED, "no build") if position in skipped else said(position >= first)

    found = bisect("?", names, ask)
    good, bad = (int(name[1:]) for name in (found.last_good, found.first_bad))

    assert good < first <= bad
    assert set(found.suspects) == {f"s{position}" for position in range(good + 1, bad)} <= {f"s{position}" for position in skipped}
    assert len(set(asked)) == len(asked) <= (count - 1).bit_length() + 2 + 2 * len(skipped)


def test_ends_that_are_not_what_they_should_be():
    """The search says so, and asks no more."""
    assert "a is bad, and should be good" in bisect("?", "abc", lambda name: said(True)).fault
    assert bisection_sentence(bisect("?", "abc", lambda name: said(False))).startswith("Nothing to search: c is good")


def test_words_of_a_bisection():
    """Skipped steps between the two are named."""
    found = bisect("?", "abcd", lambda name: Reply(Answer.SKIPPED, "no") if name == "c" else said(name == "d"))

    assert bisection_sentence(found) == "d or one that was skipped before it (c) is the first bad one; b is the last good one."
    assert "has it no more" in render_page("x", bisection_sections(found, fixed=True), good=True, all_in="x")


def ask(kind: Kind, what: str, base, head, **more) -> Answer:
    return reply(Question(kind, what, **more), [base], [head]).answer


def test_a_question_about_tests():
    """A failed test is bad; none at all, or a machine that could not run it, says nothing."""
    good, bad = run(cases=(case(),)), run(cases=(case(), case(verdict=Verdict.FAILED)))
    lost = replace(good, record=replace(good.record, verdict=Verdict.INFRA), cases=bad.cases)

    assert [ask(Kind.TEST, "x", good, one) for one in (good, bad, replace(good, cases=()), lost)] == [
        *(Answer.GOOD, Answer.BAD, Answer.SKIPPED, Answer.SKIPPED)
    ]
    assert ask(Kind.TEST, "x", good, bad, fixed=True) is Answer.GOOD
    told = [reply(Question(Kind.TEST, "x"), [good], [one]).reason for one in (good, replace(good, cases=(case(verdict=Verdict.NOT_RUN),)))]
    assert told == ["1 passed", "none of the tests ran"]


def test_a_question_about_code():
    """A gate is asked of the step alone, a figure is compared with the first step's. What does not compile says nothing."""
    good, spilling = (
        run(compiled=(compiled(), compiled("sy_80"))),
        run(compiled=(compiled(spills=4, broken={"spills": "4"}), compiled("sy_80"))),
    )
    dead = run(compiled=(compiled(verdict=Verdict.FAILED, registers=None),))

    for kind, what in ((Kind.GATE, "spills"), (Kind.WORSE, "spills")):
        assert ask(kind, what, good, good) is Answer.GOOD
        assert ask(kind, what, good, spilling) is Answer.BAD
        assert ask(kind, what, good, spilling, architecture="sy_80") is Answer.GOOD
        assert ask(kind, what, good, spilling, kernel="other") is Answer.SKIPPED
        assert ask(kind, what, good, dead) is Answer.SKIPPED
    assert ask(Kind.WORSE, "registers", good, spilling) is Answer.GOOD


def test_a_question_about_speed():
    """Slower is bad, the same is good, and what the intervals do not decide is ambiguous: it is never guessed."""
    base = run(samples=(sample(value=3000.0),))
    slow, doubtful = run(samples=(sample(value=1500.0),)), run(samples=(sample(value=3000.0, weak="a low clock"),))

    assert [ask(Kind.SLOWER, what, base, head) for what, head in (("softmax", base), ("*", slow), ("*", doubtful), ("other", slow))] == [
        *(Answer.GOOD, Answer.BAD, Answer.AMBIGUOUS, Answer.SKIPPED)
    ]
    lost = run(samples=(sample(verdict=Verdict.CRASHED, value=None, reason="a fault"),))
    told = [reply(Question(Kind.SLOWER, "*"), [base], [head]).reason for head in (base, slow, lost, doubtful)]
    assert told == [
        "1 points",
        f"1 of 1 points, {sample().case}: 0.500",
        f"1 of 1 points, {sample().case}: lost",
        "the intervals include both no change and a slowdown",
    ]
