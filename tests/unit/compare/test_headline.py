"""The clauses of the first sentence, one kind at a time, and their bounds. All targets and lines are made up."""

from __future__ import annotations

import pytest

from warpwave.compare.answer import KernelLine, Reached, Square, headline
from warpwave.compare.model import Comparison, Since, TargetSummary
from warpwave.compare.verdict import sentence
from warpwave.records import Verdict


def target(name="a", verdict=Verdict.PASSED, complete=True, **more):
    return TargetSummary(name, name, verdict, complete, **more)


def reached(share, ground="copy"):
    unit, of_ceiling, of_best = {"copy": ("GB/s", share, None), "product": ("TFLOP/s", share, None), "peer": ("GB/s", None, share)}[ground]
    return Reached(unit, "triton", 1, None, of_ceiling, of_best, True)


def line(kernel, slower=None, **by_target):
    """A kernel, with what it reaches by target; `slower` says for how many cases it is slower than before, by target."""
    since = {name: Since(kernel, "triton", name, 3, 0.5, {"slower": cases, "same": 1}, "c") for name, cases in (slower or {}).items()}
    names = dict.fromkeys([*by_target, *since])
    return KernelLine(kernel, tuple(Square(name, {}, {}, tuple(by_target.get(name, ())), since.get(name)) for name in names), None, ())


def said(targets, lines=(), exit_code=0):
    return headline(Comparison(sentence(targets), exit_code, tuple(targets)), lines)


def many(count, **more):
    return [target(f"t{place}", **more) for place in range(count)]


FAR, NEAR = (reached(0.69),), (reached(0.7),)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line("k", a=FAR)], "1 kernel reaches less than 70% of the copy on a."),
        ([line("k", a=FAR), line("l", a=FAR, b=FAR)], "2 kernels reach less than 70% of the copy on a, 1 on b."),
        ([line("k", a=(reached(0.5, "product"),))], "1 kernel reaches less than 70% of a product on a."),
        ([line(name, a=(reached(0.5, "product"),)) for name in "kl"], "2 kernels reach less than 70% of a product on a."),
        ([line("k", a=(reached(0.5, "peer"),))], "1 kernel is below 70% of its fastest peer on a."),
        ([line(name, a=(reached(0.5, "peer"),)) for name in "kl"], "2 kernels are below 70% of their fastest peers on a."),
        ([line("k", slower={"a": 1})], "1 kernel is slower than in the base run on a."),
        ([line("k", slower={"a": 2}), line("l", slower={"a": 1, "b": 0})], "2 kernels are slower than in the base run on a."),
        (
            [line("k", slower={"a": 1}, a=FAR)],
            "1 kernel is slower than in the base run on a; 1 kernel reaches less than 70% of the copy there.",
        ),
        (
            [line("k", slower={"a": 1}, b=FAR)],
            "1 kernel is slower than in the base run on a; 1 kernel reaches less than 70% of the copy on b.",
        ),
        (
            [line("k", slower={"a": 1, "b": 1}, a=FAR, b=FAR)],
            "1 kernel is slower than in the base run on a, 1 on b; 1 kernel reaches less than 70% of the copy on a, 1 on b.",
        ),
        ([line("k", a=NEAR)], "Every kernel reaches at least 70% of the copy (k on a is the furthest away)."),
        ([line("k", a=NEAR), line("l", b=(reached(0.8),))], "Every kernel reaches at least 70% of the copy (k on a is the furthest away)."),
        (
            [line("k", a=(reached(0.9, "product"), reached(0.95)))],
            "Every kernel reaches at least 95% of the copy (k on a is the furthest away).",
        ),
    ],
)  # fmt: skip
def test_each_clause_about_speeds(lines, expected):
    assert said([target("a"), target("b")], lines) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tests": {"failed": 1, "passed": 4}}, "1 test fails on a."),
        ({"tests": {"failed": 1, "error": 1}}, "2 tests fail on a."),
        ({"tests": {"crashed": 1, "timeout": 2, "failed": 1}}, "4 tests fail on a (2 timeout, 1 crashed)."),
        ({"tests": {"failed": 2}, "suspected": 2}, "2 tests fail on a (suspected)."),
        ({"tests": {"failed": 2}, "suspected": 1}, "2 tests fail on a (1 suspected)."),
        ({"tests": {"failed": 2, "oom": 1}, "suspected": 1}, "3 tests fail on a (1 suspected, 1 oom)."),
        ({"points": {"error": 1}}, "1 point could not be measured on a."),
        ({"points": {"error": 1, "invalid": 1, "not-run": 4}}, "2 points could not be measured on a."),
        ({"points": {"error": 1, "passed": 1}, "tests": {"passed": 1}}, "All tests that ran pass on a."),
        ({"tests": {"failed": 1}, "points": {"error": 1}}, "1 test fails on a; 1 point could not be measured there."),
        ({"verdict": Verdict.INFRA, "complete": False, "reason": "no card"}, "a could not run (no card)."),
    ],
)
def test_each_clause_about_a_target(fields, expected):
    assert said([target(**fields)]) == expected


def test_a_remark_is_about_tests_alone():
    made = target(tests={"timeout": 1}, points={"error": 1})

    assert said([made, target("b", tests={"crashed": 3})]) == (
        "1 test fails on a (1 timeout), 3 on b (3 crashed); 1 point could not be measured on a."
    )


def test_a_clause_names_eight_targets():
    """Of more, it says how many."""
    names = [f"t{place}" for place in range(8)]

    assert said(many(8, tests={"passed": 1})) == f"All tests that ran pass on {', '.join(names)}."
    assert said(many(9, tests={"passed": 1})) == f"All tests that ran pass on {', '.join(names)} and 1 more targets."
    assert said(many(8, tests={"failed": 1})) == "1 test fails on t0, " + ", ".join(f"1 on {name}" for name in names[1:]) + "."
    assert said(many(10, tests={"failed": 1})).endswith(", 1 on t7, some on 2 more targets.")
    absent = many(9, verdict=Verdict.CRASHED, complete=False)
    assert said(absent) == "; ".join(f"{name} crashed" for name in names) + "."


def test_all_that_is_good_is_one_sentence():
    found = said([target(tests={"passed": 1}), target("b")], [line("k", a=(reached(0.9),))])

    assert found == "All tests that ran pass on a; every kernel reaches at least 90% of the copy (k on a is the furthest away)."


def test_an_error_without_a_clause_is_the_comparisons_own_sentence():
    """What is good is no answer to why the command failed."""
    made = target(tests={"passed": 1})

    assert said([made], exit_code=4) == "1 of 1 target is complete: a passed 1 test."
    assert said([target()]) == "1 of 1 target is complete: a passed."
    stopped = Comparison(f"The disk is full. {sentence([made])}", 4, (made,))
    assert headline(stopped, ()) == "The disk is full. All tests that ran pass on a."
