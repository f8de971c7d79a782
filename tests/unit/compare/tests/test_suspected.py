"""Emulated targets in a comparison: a failure that only the emulator sees is suspected, and nothing of them is a speed."""

import dataclasses

import pytest
from synthetic import GPU_A, case, emulated, facts, run

from warpwave.compare import compare
from warpwave.records import DeviceFacts, Verdict

FAILED = case(verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5")


def suspected(*runs):
    found = compare(runs)
    return [(row.parity.value, row.suspected) for row in found.tests], {target.target: target.suspected for target in found.targets}


def test_what_passed_elsewhere_is_suspected():
    """On any target that is not emulated: the interpreter, or a card."""
    rows, counts = suspected(run("cpu", None, cases=(case(),)), emulated(FAILED))

    assert rows == [("failed-on", ("syn942-emulated",))]
    assert counts == {"cpu": 0, "syn942-emulated": 1}


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ((), "nothing to hold it against"),
        ((run("cpu", None, cases=(FAILED,)),), "it failed there, too"),
        ((run("cpu", None, cases=(case(verdict=Verdict.NOT_RUN),)),), "it was skipped there"),
        ((run("cpu", None, cases=(case(),)), run("alpha", cases=(FAILED,))), "a card failed it, too"),
        ((emulated(case(), target="syn1201-emulated"),), "only another emulated target passed it"),
    ],
)
def test_what_has_another_explanation_is_not(others, why):
    """A word that is always there says nothing."""
    rows, counts = suspected(*others, emulated(FAILED))

    assert [doubt for _, doubt in rows] == [()], why
    assert set(counts.values()) == {0}


def test_what_host_code_raised_is_no_suspicion():
    """No kernel was executed for it, or the compiler proved it: a card does the same."""
    why = "KeyError was raised at test_a.py:3, before the first launch"
    rows, counts = suspected(run("cpu", None, cases=(case(),)), emulated(dataclasses.replace(FAILED, properties={"host_error": why})))

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
    found = compare([run("beta", facts=card, cases=(case(),)), emulated(FAILED)])

    assert [target.target for target in found.targets] == ["beta", "syn942-emulated"]
    assert [target.emulated for target in found.targets] == ["", "syn942"]
    assert found.exit_code == 1


def test_the_sentence_says_how_many_are_suspected():
    """Beside how many failed."""
    second = dataclasses.replace(FAILED, id="softmax/test_softmax.py::test_other")
    found = compare([run("cpu", None, cases=(case(),), samples=(), ceilings=(), compiled=()), emulated(FAILED, second)])

    assert "syn942-emulated failed 2 of 2 tests (1 of them suspected)" in found.sentence


def test_an_emulated_target_is_in_no_mean_and_no_portability():
    """It has no speeds: two targets with a card are compared as if it were not there."""
    measured = [run("alpha"), run("beta")]
    with_it, without = compare([*measured, emulated()]), compare(measured)

    assert (with_it.geomeans, with_it.portabilities, with_it.rows) == (without.geomeans, without.portabilities, without.rows)
    assert with_it.geomeans
