"""Options that choose tests and are wrong: their words lead, the exit code is 2, and nothing is called a failure of the package."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

import pytest
from synthetic import case, compiled, record, run

from warpwave.compare import compare
from warpwave.compare.runs import outcome
from warpwave.errors import ExitCode
from warpwave.records import Chosen, Narrowed, Stage, StageReport, Verdict
from warpwave.records.selection import NO_SUCH_TEST, RAN_NO_TEST
from warpwave.render.commands import next_commands
from warpwave.render.markdown import render_markdown

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
