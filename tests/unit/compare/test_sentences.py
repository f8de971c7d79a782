"""What is said of targets and settings in words: which of them, how many, and in what order. All data is synthetic."""

from __future__ import annotations

import dataclasses
import math

import pytest
from synthetic import case, compiled, emulated, no_gpu, record, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import headline
from warpwave.compare.model import TargetSummary
from warpwave.compare.speeds import as_text, first_names, flush, judge
from warpwave.compare.verdict import outcome, sentence, summarise
from warpwave.errors import ExitCode, Outcome
from warpwave.records import CaseResult, Stage, StageReport, Verdict

PASSED, FAILED, NOT_RUN = Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN


def target(name="alpha", verdict=PASSED, complete=True, **more):
    return TargetSummary(name, name, verdict, complete, **more)


DONE = {
    "one test": (target(tests={"passed": 1}), "alpha passed 1 test"),
    "tests": (target(tests={"passed": 2}), "alpha passed 2 tests"),
    "a skipped test": (target(tests={"passed": 1, "not-run": 2}), "alpha passed 1 test (2 skipped)"),
    "a failed test": (target(tests={"passed": 1, "failed": 1}), "alpha failed 1 of 2 tests"),
    "failed tests of several kinds": (target(tests={"failed": 1, "error": 2, "not-run": 1}), "alpha failed 3 of 4 tests (1 skipped)"),
    "the only test failed": (target(tests={"failed": 1}), "alpha failed 1 of 1 test"),
    "points": (target(points={"passed": 2}), "alpha measured 2 points"),
    "a point that failed": (target(points={"passed": 2, "error": 1}), "alpha could not measure 1 of 3 points"),
    "loads of benchmarks": (
        target(tests={"passed": 3}, loads=1),
        "alpha passed 3 tests and loaded 1 file of benchmarks",
    ),
    "several loads": (target(tests={"passed": 3}, loads=2), "alpha passed 3 tests and loaded 2 files of benchmarks"),
    "a narrowed run": (
        target(tests={"passed": 3}, narrowed=("-k x", "--quick", "-m y"), suspected=1),
        "alpha passed 3 tests of those that -k x and --quick chose (1 of them suspected)",
    ),
    "a narrowed run without tests": (target(points={"passed": 1}, narrowed=("-k x",)), "alpha measured 1 point"),
    "kernels": (target(compiled={"passed": 1}), "alpha compiled 1 binary"),
    "a kernel that failed": (target(compiled={"passed": 1, "failed": 1}), "alpha could not compile 1 of 2 binaries"),
    "a gate": (target(compiled={"passed": 1, "failed": 1}, only_gates=1), "alpha compiled 2 binaries and broke a gate with 1 of them"),
    "a gate, and a kernel that failed": (
        target(compiled={"passed": 1, "failed": 2}, only_gates=1),
        "alpha could not compile 1 of 3 binaries and broke a gate with 1 of them",
    ),
    "all of it": (
        target(tests={"passed": 1}, points={"passed": 2}, compiled={"passed": 3}),
        "alpha passed 1 test, measured 2 points and compiled 3 binaries",
    ),
    "two things": (target(tests={"passed": 1}, points={"passed": 2}), "alpha passed 1 test and measured 2 points"),
    "nothing": (target(), "alpha passed"),
    "no test": (
        target(verdict=NOT_RUN, complete=False, reason="no test was found.", points={"passed": 2}, compiled={"passed": 1}),
        "alpha ran no test (no test was found), measured 2 points and compiled 1 binary",
    ),
    "nothing at all": (target(verdict=NOT_RUN, complete=False, reason="a\n b."), "alpha ran nothing (a b)"),
    "absence": (target(verdict=Verdict.ABSENT, complete=False), "alpha is absent"),
    "a timeout": (
        target(verdict=Verdict.TIMEOUT, complete=False, reason="slow", tests={"passed": 1}),
        "alpha ran into its time limit (slow)",
    ),
    "a crash": (target(verdict=Verdict.CRASHED, complete=False), "alpha crashed"),
    "memory": (target(verdict=Verdict.OOM, complete=False), "alpha ran out of memory"),
    "a hang": (target(verdict=Verdict.GPU_HANG, complete=False), "alpha hung the GPU"),
    "invalid results": (target(verdict=Verdict.INVALID, complete=False), "alpha has results that cannot be used"),
    "a stale folder": (target(verdict=Verdict.STALE, complete=False), "alpha left files of another run"),
    "an incomplete run": (target(verdict=Verdict.INCOMPLETE, complete=False), "alpha is incomplete"),
    "infrastructure": (target(verdict=Verdict.INFRA, complete=False), "alpha could not run"),
    "a reason as long as may be": (target(verdict=Verdict.INFRA, complete=False, reason="x" * 160), f"alpha could not run ({'x' * 160})"),
    "a longer reason": (target(verdict=Verdict.INFRA, complete=False, reason="x" * 161), f"alpha could not run ({'x' * 160} …)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DONE)
def test_what_became_of_a_target(name):
    """Its tests, points and kernels if it is complete; else what went wrong, and why."""
    made, expected = DONE[name]

    assert sentence([made]).partition(": ")[2] == expected + "."


HEADS = [
    ([target()], "1 of 1 target is complete"),
    ([target(), target("beta")], "2 of 2 targets are complete"),
    ([target(), target("beta", Verdict.ABSENT, False)], "1 of 2 targets is complete"),
    ([target("alpha", Verdict.ABSENT, False)], "0 of 1 target is complete"),
    ([target("alpha", Verdict.ABSENT, False), target("beta", Verdict.ABSENT, False)], "0 of 2 targets are complete"),
    ([target(tests={"failed": 1, "passed": 9})], "1 of 1 target is complete, with 1 failed test"),
    (
        [target(tests={"failed": 1, "error": 1}), target("b", compiled={"failed": 1}, tests={"crashed": 1})],
        "2 of 2 targets are complete, with 3 failed tests and 1 failed binary",
    ),
    ([target(compiled={"failed": 2}, tests={"passed": 1})], "1 of 1 target is complete, with 2 failed binaries"),
]


@pytest.mark.parametrize(("targets", "head"), HEADS, ids=[head for _, head in HEADS])
def test_the_sentence_begins_with_how_many(targets, head):
    """In the right number, and with what failed on all of them."""
    assert sentence(targets).partition(":")[0] == head


def test_of_very_many_targets_those_that_need_a_look_are_named():
    """In their order, and how many more there are."""
    targets = [target(f"t{n}", Verdict.CRASHED if n in (3, 70) else PASSED, n not in (3, 70)) for n in range(80)]
    said = sentence(targets).partition(": ")[2].rstrip(".").split("; ")

    assert len(said) == 51
    assert [text for text in said if "crashed" in text] == ["t3 crashed", "t70 crashed"]
    assert said.index("t3 crashed") == 3
    assert said[-2:] == ["t70 crashed", "and 30 more"]
    assert len(sentence(targets[:50]).split("; ")) == 50
    assert sentence([]).startswith("Nothing ran: ")


TESTED = StageReport(Stage.TEST, PASSED)
OUTCOMES = {
    "all passed": ([target()], Outcome()),
    "a failed test": ([target("a", FAILED, tests={"failed": 1}), target("b")], Outcome(ExitCode.FAILED, "a failed 1 of 1 test")),
    "failed on two": (
        [target("a", FAILED, tests={"failed": 1}), target("b", FAILED, points={"error": 1})],
        Outcome(ExitCode.FAILED, "a failed 1 of 1 test; b could not measure 1 of 1 point"),
    ),
    "a failed test of a target that crashed": (
        [target("a", Verdict.CRASHED, False, tests={"failed": 1, "passed": 1}, compiled={"failed": 1})],
        Outcome(ExitCode.FAILED, "a failed 1 of 2 tests and failed 1 of 1 binary"),
    ),
    "a stage as a whole": ([target("a", Verdict.ERROR, reason="it\n broke.")], Outcome(ExitCode.FAILED, "a ended in an error (it broke)")),
    "a stage without a reason": ([target("a", Verdict.ERROR)], Outcome(ExitCode.FAILED, "a ended in an error")),
    "infrastructure": (
        [target("a", Verdict.INFRA, False, reason="no card"), target("b", Verdict.ABSENT, False)],
        Outcome(ExitCode.INFRASTRUCTURE, "a could not run (no card)"),
    ),
    "nothing ran": (
        [target("a", NOT_RUN, False), target("b", NOT_RUN, False)],
        Outcome(ExitCode.NOTHING_RAN, "a ran nothing; b ran nothing"),
    ),
    "no target": ([], Outcome(ExitCode.NOTHING_RAN, "nothing ran")),
    "an absent target": ([target("a"), target("b", Verdict.ABSENT, False)], Outcome(ExitCode.INCOMPLETE, "b is absent")),
    "only benchmarks, loaded on one": (
        [target("a", stages=(TESTED,), loads=1, compiled={"passed": 1}), target("b", NOT_RUN, False, stages=(TESTED,), loads=1)],
        Outcome(),
    ),
    "tests on one, only benchmarks on the other": (
        [target("a", stages=(TESTED,), tests={"passed": 1}), target("b", NOT_RUN, False, stages=(TESTED,), loads=1)],
        Outcome(ExitCode.INCOMPLETE, "b ran nothing"),
    ),
    "one ran nothing": ([target("a"), target("b", NOT_RUN, False)], Outcome(ExitCode.INCOMPLETE, "b ran nothing")),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_exit_code_has_a_reason(name):
    """The targets that decide, and no others."""
    targets, expected = OUTCOMES[name]

    assert outcome(targets) == expected


SUMMARIES = {
    "a reason of the host": ({"record": record(verdict=Verdict.TIMEOUT, reason="slow")}, Verdict.TIMEOUT, "slow"),
    "a stage": ({"stages": (StageReport(Stage.BENCH, Verdict.ERROR, reason="broke"),)}, Verdict.ERROR, "bench: broke"),
    "a stage without a reason": ({"stages": (StageReport(Stage.BENCH, Verdict.ERROR),)}, Verdict.ERROR, ""),
    "no bench": ({"stages": (StageReport(Stage.TEST, PASSED), StageReport(Stage.BENCH, NOT_RUN, reason="none"))}, PASSED, ""),
    "no test stage": ({"stages": (StageReport(Stage.TEST, NOT_RUN, reason="none"),)}, NOT_RUN, "test: none"),
    "no test": ({"cases": ()}, NOT_RUN, "no test was found"),
    "no test, and none asked for": ({"cases": (), "stages": (StageReport(Stage.BENCH, PASSED),)}, PASSED, ""),
    "nothing": (
        {"cases": (), "stages": (), "samples": (), "compiled": ()},
        NOT_RUN,
        "no test, no benchmark and no kernel was found",
    ),
    "every test skipped": ({"cases": (case(verdict=NOT_RUN),)}, NOT_RUN, "every test was skipped"),
    "one test skipped": ({"cases": (case(verdict=NOT_RUN), case("b"))}, PASSED, ""),
    "a failed test": ({"cases": (case(verdict=FAILED), case("b"))}, FAILED, "failed 1 of 2 tests"),
    "a kernel that was not compiled": ({"compiled": (compiled(verdict=NOT_RUN), compiled())}, PASSED, ""),
    "a kernel that failed": ({"compiled": (compiled(verdict=Verdict.CRASHED),)}, Verdict.CRASHED, "failed 1 of 1 binary"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_gravest_word_on_a_target_is_its_verdict(name):
    """With the reason of whoever said it first."""
    changes, verdict, reason = SUMMARIES[name]
    found = summarise("alpha", run(**changes))

    assert (found.verdict, found.reason) == (verdict, reason)


def test_many_names_are_some():
    """Ten of them, and how many more."""
    names = [str(n) for n in range(12)]

    assert (first_names(names[:10]), first_names(names)) == (", ".join(names[:10]), f"{', '.join(names[:10])} and 2 more")


def test_a_setting_in_a_sentence_has_a_bound():
    """32 parameters, and 1000 characters of any of them or of all."""
    some = {str(n): n for n in range(34)}

    assert as_text(dict(list(some.items())[:32])) == str(dict(list(some.items())[:32]))
    assert as_text(some) == str(dict(list(some.items())[:32]))[:-1] + ", and 2 more}"
    assert (as_text("x" * 1000), as_text("x" * 1001)) == ("x" * 1000, "x" * 1000 + "…")
    assert as_text({"a": "y" * 2000, "b": 1}) == ("{'a': '" + "y" * 1000)[:1000] + "…"
    assert as_text(3.5) == "3.5"


def test_a_flush_is_reported_by_its_margin():
    """Caches differ in size; without one, in bytes."""
    assert flush(sample(cache_bytes=1 << 26)) == "4 x cache"
    assert flush(sample(cache_bytes=None)) == str(1 << 28)


JUDGED = [
    ({}, PASSED, ""),
    ({"verdict": Verdict.ERROR, "reason": "why"}, Verdict.ERROR, "why"),
    ({"verdict": Verdict.ERROR}, Verdict.ERROR, "error"),
    ({"value": None, "reason": "why"}, Verdict.INVALID, "why"),
    ({"value": -1.0}, Verdict.INVALID, "-1 GB/s"),
    ({"value": math.inf}, Verdict.INVALID, "inf GB/s"),
    ({"median_ms": 0.0}, Verdict.INVALID, "0 ms"),
    ({"p20_ms": 1e40}, Verdict.INVALID, "1e+40 ms"),
    ({"p80_ms": -2.0}, Verdict.INVALID, "-2 ms"),
    ({"p20_ms": None, "p80_ms": None}, PASSED, ""),
    ({"times_ms": (0.0, 1.0)}, Verdict.INVALID, "0 to 1 ms"),
    ({"times_ms": (1.0, 1e40)}, Verdict.INVALID, "1 to 1e+40 ms"),
    ({"median_ms": 2.0, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "2 ms"),
    ({"median_ms": 0.25, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "0.25 ms"),
    ({"median_ms": 1.000009, "times_ms": (0.5, 1.0)}, PASSED, ""),
    ({"median_ms": 0.499991, "times_ms": (0.5, 1.0)}, PASSED, ""),
    ({"median_ms": 1.000011, "times_ms": (0.5, 1.0)}, Verdict.INVALID, "1.00001 ms"),
    ({"median_ms": None, "times_ms": (0.5, 1.0)}, PASSED, ""),
    ({"times_ms": ()}, PASSED, ""),
]


@pytest.mark.parametrize(("changes", "verdict", "words"), JUDGED, ids=[str(entry[0]) for entry in JUDGED])
def test_a_number_that_no_clock_has_given_is_invalid(changes, verdict, words):
    """With the figure that cannot be."""
    found = judge(dataclasses.replace(sample(), **{"p20_ms": None, "p80_ms": None, **changes}))

    assert found[0] is verdict
    assert found[1].startswith(words) if verdict is not Verdict.INVALID else words in found[1]


def test_a_benchmark_that_loads_is_no_test():
    """A kernel that nobody tested has no row that says so, and nothing claims that its tests pass."""
    load = CaseResult("bench_copy.py::module", "copy", Verdict.PASSED)
    only, alone = (emulated(load, **more) for more in ({"compiled": no_gpu().compiled[:1]}, {}))
    found, nothing = compare([only]), compare([alone])

    assert (found.exit_code, found.targets[0].tests, found.kernels, nothing.exit_code) == (0, {}, (), 5)
    assert headline(found, ()) == "No test was found on syn942-emulated."
    assert "found no test, loaded 1 file of benchmarks and compiled 1 binary" in found.sentence
