"""The whole reply of each question that a search asks: the answer, and what was seen. All runs are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import case, compiled, record, run, sample

from warpwave.compare.search import Answer, Kind, Question, Reply, reply
from warpwave.records import Verdict

GOOD, BAD, SKIPPED, AMBIGUOUS = Answer
FAILED, PASSED = Verdict.FAILED, Verdict.PASSED


def cases(*found):
    return run(cases=tuple(case(*one[:2], message=one[2] if len(one) > 2 else "") for one in found))


def code(*rows):
    return run(compiled=tuple(compiled(**fields) for fields in rows))


def ended(verdict, reason=""):
    return run(record=record(verdict=verdict, reason=reason))


DEAD = {"verdict": FAILED, "registers": None, "reason": "out of resource"}
GATED = {"verdict": FAILED, "spills": 4, "broken": {"spills": "4 registers"}}
TEST, GATE, WORSE, SLOWER = (
    Question(Kind.TEST, "x"),
    Question(Kind.GATE, "spills"),
    Question(Kind.WORSE, "spills"),
    Question(Kind.SLOWER, "*"),
)
BASE = run()


@pytest.mark.parametrize(
    ("question", "head", "expected"),
    [
        (TEST, cases(("t.py::a", PASSED), ("t.py::b", PASSED)), Reply(GOOD, "2 passed")),
        (TEST, cases(("t.py::a", PASSED), ("t.py::b", Verdict.NOT_RUN)), Reply(GOOD, "1 passed")),
        (TEST, cases(("t.py::a", PASSED), ("t.py::b", FAILED, "wrong"), ("t.py::c", FAILED)), Reply(BAD, "t.py::b: wrong")),
        (TEST, cases(("t.py::a", Verdict.CRASHED)), Reply(BAD, "t.py::a: crashed")),
        (TEST, cases(("t.py", Verdict.ERROR, "no module")), Reply(SKIPPED, "t.py: no module", broken=True)),
        (TEST, cases(("t.py", Verdict.ERROR, "no"), ("t.py::a", FAILED, "wrong")), Reply(BAD, "t.py::a: wrong")),
        (TEST, cases(("t.py::a", FAILED, "there is no such test")), Reply(SKIPPED, "t.py::a: there is no such test")),
        (TEST, cases(("t.py::a", FAILED, "there is no such test"), ("u.py", FAILED, "no")), Reply(SKIPPED, "u.py: no", broken=True)),
        (TEST, cases(("t.py::a", Verdict.NOT_RUN)), Reply(SKIPPED, "none of the tests ran")),
        (TEST, ended(Verdict.INFRA, "no card"), Reply(SKIPPED, "alpha could not run: no card")),
        (TEST, ended(Verdict.STALE, "old"), Reply(SKIPPED, "alpha could not run: old")),
        (TEST, ended(Verdict.INVALID, "forged"), Reply(SKIPPED, "alpha could not run: forged")),
        (TEST, ended(Verdict.CRASHED, "it does not matter"), Reply(GOOD, "3 passed")),
        (TEST, replace(BASE, facts=None), Reply(SKIPPED, "alpha could not run: it left no facts")),
        (GATE, code({}, {"architecture": "sy_80"}), Reply(GOOD, "2 configurations keep it")),
        (GATE, code({}, GATED), Reply(BAD, "_softmax_fwd for sy_90: 4 registers")),
        (GATE, code({**GATED, "broken": {"occupancy": "10%"}}), Reply(GOOD, "1 configurations keep it")),
        (GATE, code({}, DEAD), Reply(SKIPPED, "_softmax_fwd does not compile for sy_90: out of resource")),
        (GATE, code({"verdict": Verdict.NOT_RUN}), Reply(SKIPPED, "nothing was compiled that the question is about")),
        (WORSE, code({}), Reply(GOOD, "none of 1 configurations is worse")),
        (WORSE, code({"spills": 4, "registers": 40}), Reply(BAD, "_softmax_fwd for sy_90: spilled registers 0 → 4")),
        (WORSE, code({"registers": 40}), Reply(GOOD, "none of 1 configurations is worse")),
        (WORSE, code(DEAD), Reply(SKIPPED, "_softmax_fwd does not compile for sy_90: out of resource")),
        (SLOWER, run(samples=()), Reply(SKIPPED, "No target was measured in both runs: BASE measured alpha, HEAD nothing.")),
        (SLOWER, run(samples=tuple(sample(n, 3900.0) for n in (1024, 2048, 4096))), Reply(GOOD, "3 points")),
        (replace(SLOWER, what="gelu"), BASE, Reply(SKIPPED, "no point of gelu could be compared")),
    ],
)  # fmt: skip
def test_the_reply(question, head, expected):
    assert reply(question, [BASE], [head]) == expected


def test_kernel_and_architecture_narrow_the_rows():
    """By the kernel's name or the function's."""
    head = code({}, {"architecture": "sy_80", "kernel": "gelu", "function": "_gelu"}, {"architecture": "sy_80"})
    asked = [("", ""), ("softmax", ""), ("_gelu", ""), ("", "sy_80"), ("gelu", "sy_80"), ("gelu", "sy_90"), ("soft", "")]
    told = [reply(replace(GATE, kernel=kernel, architecture=architecture), [BASE], [head]).reason for kernel, architecture in asked]

    assert [reason[0] for reason in told] == ["3", "2", "1", "2", "1", "n", "n"]


@pytest.mark.parametrize(
    ("question", "words", "stages", "compares"),
    [
        (TEST, "does a test fail (x)?", "test", False),
        (replace(GATE, kernel="k"), "is the gate spills of k broken?", "compile", False),
        (replace(GATE, architecture="sm_90"), "is the gate spills for sm_90 broken?", "compile", False),
        (replace(WORSE, kernel="k", architecture="a"), "is spills of k for a worse than in the first one?", "compile", True),
        (SLOWER, "is * slower than in the first one?", "test bench", True),
    ],
)
def test_a_question_in_words(question, words, stages, compares):
    assert (question.words, " ".join(stage.value for stage in question.stages), question.compares) == (words, stages, compares)


def test_a_repair_swaps_good_and_bad_only():
    answers = [reply(replace(TEST, fixed=True), [BASE], [head]).answer for head in (BASE, cases(("a::b", FAILED)), cases())]

    assert answers == [BAD, GOOD, SKIPPED]
    assert [answer.said(fixed=True) for answer in Answer] == ["has it", "has it no more", "skipped", "ambiguous"]
    assert [answer.said(fixed=False) for answer in Answer] == ["good", "bad", "skipped", "ambiguous"]
