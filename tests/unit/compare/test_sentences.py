"""What is said of targets and settings in words: which of them, how many, and in what order. All data is synthetic."""

from __future__ import annotations

import dataclasses
import math

import pytest
from synthetic import GPU_B, case, compiled, emulated, facts, no_gpu, record, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import Shortfall, headline, overview, shortfalls
from warpwave.compare.model import TargetSummary
from warpwave.compare.speeds import _flush, as_text, first_names, judge
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
    "a case that raised": (
        target(compiled={"passed": 4}, host_code={"not-run": 2}, host_code_not_run={"raised": 2}),
        "alpha compiled 4 binaries and did not run 2 cases to the end (2 raised)",
    ),
    "a case that fails in host code is no binary": (
        target(tests={"passed": 1}, compiled={"passed": 1}, host_code={"failed": 1}),
        "alpha passed 1 test, compiled 1 binary and failed 1 case in host code",
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
        Outcome(ExitCode.FAILED, "a failed 1 of 2 tests and could not compile 1 of 1 binary"),
    ),
    "a stage as a whole": ([target("a", Verdict.ERROR, reason="it\n broke.")], Outcome(ExitCode.FAILED, "a ended in an error (it broke)")),
    "a stage without a reason": ([target("a", Verdict.ERROR)], Outcome(ExitCode.FAILED, "a ended in an error")),
    "infrastructure": (
        [target("a", Verdict.INFRA, False, reason="no card"), target("b", Verdict.ABSENT, False)],
        Outcome(ExitCode.INFRASTRUCTURE, "a could not run (no card)"),
    ),
    "nothing ran": (
        [target("a", NOT_RUN, False), target("b", NOT_RUN, False)],
        Outcome(ExitCode.NOTHING_RAN, "a and b ran nothing"),
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
    assert _flush(sample(cache_bytes=1 << 26)) == "4 x cache"
    assert _flush(sample(cache_bytes=None)) == str(1 << 28)


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
    assert headline(found, ()) == "`_softmax_fwd` can launch on sy_80; no test was found on syn942-emulated."
    assert "found no test, loaded 1 file of benchmarks and compiled 1 binary" in found.sentence


# Every field of a shortfall, and the bounds of what is held beside it. All data is made up.

CARD_B = dataclasses.replace(facts(GPU_B), devices=(dataclasses.replace(facts(GPU_B).devices[0], architecture="syn942"),))
CASE = "softmax/N=1024"


def point(share, size=1024, **more):
    """A point that reaches this share of the made-up copy of 4000 GB/s."""
    return sample(size, 4000.0 * share, **more)


def code(architecture, provider="triton", **more):
    return compiled(architecture, origin=f"{CASE} [{provider}]", **more)


def short(*runs):
    comparison = compare(runs)
    return shortfalls(comparison, overview(comparison))


def evidence(*runs):
    return [hint.evidence for hint in short(*runs)[0].hints]


def test_every_field_of_a_shortfall():
    """`b` stays behind, and `a` comes closer to the copy."""
    near = run("a", samples=(point(0.95),), compiled=(code("sy_90"),))
    far = run("b", facts=CARD_B, samples=(point(0.5),), compiled=(code("syn942", spills=2),))
    (found,) = short(near, far)

    assert dataclasses.replace(found, figures=(), hints=()) == Shortfall(
        kernel="softmax",
        target="b",
        provider="triton",
        unit="GB/s",
        share=0.5,
        of="the copy",
        n=1,
        case=CASE,
        case_share=0.5,
        case_ms=0.5,
        architecture="syn942",
        against="a",
        other="sy_90",
        other_share=0.95,
    )
    assert [hint.evidence for hint in found.hints] == ["2 registers spilled on syn942, 0 on sy_90"]
    assert (found.figures[0].name, len(found.figures)) == ("launches", 6)


@pytest.mark.parametrize(
    ("mine", "theirs", "unknown", "figures"),
    [
        ((), (), "b", 0),
        ((), (code("sy_90"),), "b", 0),
        ((code("syn942"),), (), "a", 5),
        ((code("syn942"),), (code("sy_90"),), "", 6),
        ((code("syn942", "torch"),), (code("sy_90"),), "b", 0),
        ((code("syn942", verdict=Verdict.NOT_RUN),), (code("sy_90"),), "b", 0),
    ],
)
def test_code_that_is_missing_is_named_by_its_target(mine, theirs, unknown, figures):
    """What was not compiled, or by another provider, is no code of the case."""
    near, far = run("a", samples=(point(0.95),), compiled=theirs), run("b", facts=CARD_B, samples=(point(0.5),), compiled=mine)
    (found,) = short(near, far)

    assert found.unknown == (f"This report has no code of these cases for the card of {unknown}: run the compile stage." if unknown else "")
    assert len(found.figures) == figures


def test_code_of_the_same_card_may_come_from_another_target():
    """Its own first."""
    alone = run("a", samples=(point(0.5),), compiled=())
    other = run("c", samples=(), compiled=(code("sy_90", registers=7),))
    own = dataclasses.replace(alone, compiled=(code("sy_90", registers=9),))

    assert short(alone, other)[0].figures[0].here == "7"
    assert short(own, other)[0].figures[0].here == "9"


@pytest.mark.parametrize(("share", "count"), [(0.9, 0), (0.8996, 1)])
def test_a_share_of_90_percent_is_near(share, count):
    assert len(short(run("a", samples=(point(share),)))) == count


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"value": 2200.0}, ["torch is 1.10 times as fast at softmax/N=1024"]),
        ({"value": 2190.0}, []),
        ({"value": 3000.0, "provider": "copy"}, []),
        ({"value": 3000.0, "case": "softmax/N=1"}, []),
        ({"value": None, "verdict": Verdict.CRASHED}, []),
        ({"value": 9000.0}, []),  # more than the copy: suspect
        ({"value": 3000.0, "provider": "triton", "case": "softmax/N=2"}, []),
    ],
)
def test_which_peer_shows_that_more_is_possible(peer, expected):
    other = dataclasses.replace(sample(provider="torch"), median_ms=None, p20_ms=None, p80_ms=None, times_ms=())
    found = evidence(run("a", samples=(sample(value=2000.0), dataclasses.replace(other, **peer))))

    assert found == expected


def test_the_fastest_peer_is_named():
    """Of its own target; where less is better, the one with least."""
    rows = [sample(value=value, provider=provider) for provider, value in (("triton", 1500.0), ("torch", 3000.0), ("cub", 2000.0))]
    times = [sample(value=value, provider=provider, unit="ms") for provider, value in (("triton", 3.0), ("torch", 2.0), ("cub", 1.0))]

    assert evidence(run("a", samples=tuple(rows))) == ["torch is 2.00 times as fast at softmax/N=1024"]
    assert evidence(run("a", samples=tuple(times))) == ["cub is 3.00 times as fast at softmax/N=1024"]
    assert short(run("a", samples=tuple(times)))[0].of == "the fastest peer"
    beside = run("b", samples=(sample(value=1600.0), sample(value=3000.0, provider="torch")))
    assert evidence(run("a", samples=(sample(value=1500.0),)), beside) == []


def test_the_share_of_a_case_is_that_of_its_fastest_peer_on_the_same_target():
    """A speed that cannot be is none, and neither is that of another target."""
    speeds = {"triton": 10.0, "torch": 20.0, "cub": 40.0}
    rows = [sample(value=value, provider=provider, unit="TFLOP/s") for provider, value in speeds.items()]
    rows.append(sample(value=80.0, provider="odd", unit="TFLOP/s", verdict=Verdict.INVALID))
    other = run("b", samples=(sample(value=12.0, unit="TFLOP/s"), sample(value=160.0, provider="torch", unit="TFLOP/s")))
    found = {entry.target: (entry.share, entry.case_share, entry.of) for entry in short(run("a", samples=tuple(rows)), other)}

    assert found == {"a": (0.25, 0.25, "the fastest peer"), "b": (0.075, 0.075, "the fastest peer")}


def test_small_cases_need_three_at_either_end():
    """Five points are too few; the sizes order them, whatever the order of the file."""
    shares = [(1, 0.5), (2, 0.3), (4, 0.6), (8, 0.95), (16, 0.91), (32, 0.9)]

    def hints(pairs):
        rows = tuple(point(share, size, bytes_moved=size, median_ms=1 / size) for size, share in pairs)
        return evidence(run("a", samples=rows))

    assert hints(shares) == hints(shares[::-1]) == ["30% in 500 µs at softmax/N=2, 90% in 31.2 µs at softmax/N=32"]
    assert hints([*shares[:4], shares[5]]) == []
    assert hints([*shares[:2], (4, 0.9), (5, 0.6), (6, 0.6), *shares[3:]]) == []
    assert hints([*shares[:5], (32, 0.89)]) == []
