"""What an upgrade changes, from runs that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_requests import make_options
from hypothesis import given
from hypothesis import strategies as st
from synthetic import case, compiled, record, run, sample

from warpwave.cli import toolchains
from warpwave.cli.toolchains import outcome
from warpwave.compare.changed_codegen import Concern
from warpwave.compare.search import Answer, Kind, Question, Reply, bisect, reply
from warpwave.compare.upgrade import ChangedError, FirstPass, Tuned, changed_errors, changed_waits, first_passes, stale, upgrade, used
from warpwave.config.targets import load_toolchains
from warpwave.config.toolchains import one
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Stage, TargetRun, Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.upgrade import sentence, upgrade_sections

FAILING = (Concern.VERDICT, Concern.SPILLS)


def on(toolchain: str, target: str = "alpha", triton: str = "", **more) -> TargetRun:
    """A run of a leg."""
    made = run(target, **more)
    record = replace(made.record, target=f"{target}@{toolchain}", toolchain=toolchain)
    return replace(made, record=record, facts=replace(made.facts, triton=triton or toolchain))


def page(found, old=()) -> str:
    return render_page(sentence(found, old), upgrade_sections(found, FAILING, old, full=True), good=False, all_in="x")


def test_nothing_got_worse():
    """Two legs of one target are compared under its name, and the sentence names what differs."""
    found = upgrade([on("3.8.0"), on("3.9.0")], "3.8.0", "3.9.0")

    assert (found.targets, found.versions) == (("alpha",), {"triton": ("3.8.0", "3.9.0")})
    assert sentence(found) == "Triton 3.8.0 → 3.9.0: nothing got worse, geomean 1.00 on alpha."
    assert outcome(found, FAILING, "x").ok


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("front_end:1 cse:2 coalesce:3", "front_end:1 coalesce:3 n:3 pipeline:4 more:5", "pipeline"),
        ("front_end:1 cse:2 coalesce:3", "front_end:9 cse:2 coalesce:4", "coalesce"),  # two front ends, of which one code was made
        ("front_end:1 cse:2", "front_end:3 cse:4", "front_end"),
        ("front_end:1 cse:2", "front_end:3 cse:2", "LLVM"),
    ],
)
def test_the_first_pass_that_differs_is_named(before, after, differs):
    """By what each side's code computes, and by the first step of HEAD from which on no code is one of BASE."""
    told = ("all the same", "what comes behind them does")
    sides = [
        [on(name, cases=(case("t.py::a", properties={"code of mul": code, "passes of mul": words}),))]
        for name, code, words in zip("ab", (before, after), told, strict=True)
    ]
    found = first_passes(*sides)

    assert found == (FirstPass("alpha", "t.py::a", "mul", told[1], told[0], differs),)
    assert first_passes([], sides[1]) == (replace(found[0], before="not launched", differs=""),)
    shown = page(replace(upgrade([*sides[0], *sides[1]], "a", "b"), passes=found))
    for words in ("mul in t.py::a on alpha: what comes behind them does", "on a: all the same", f"from {differs} on"):
        assert words in shown.replace("`", "")


def test_broken_tests_of_an_emulated_target_run_again(monkeypatch, tmp_path):
    """On both toolchains, beside the results of the upgrade, with those tests alone."""
    emulated, name = "gfx942-emulated", "t.py::a"
    sides = [one(load_toolchains(None), release, str) for release in ("3.8.0", "3.9.0")]
    verdicts = zip(sides, (Verdict.PASSED, Verdict.FAILED), strict=True)
    old, new = (on(side.name, emulated, cases=(case(name, verdict),)) for side, verdict in verdicts)
    new = replace(new, record=replace(new.record, emulated="gfx942"))
    told = [replace(run, cases=(case(name, properties={"passes of mul": run.record.toolchain}),)) for run in (old, new)]
    asked = []
    monkeypatch.setattr("warpwave.cli.parse.parse_options", lambda options: make_options("x", tmp_path / "out", tmp_path))
    monkeypatch.setattr("warpwave.search.steps.run_legs", lambda legs, options, *rest: asked.append((legs, options)))
    monkeypatch.setattr("warpwave.cli.toolchains.read_runs", lambda folders: told)
    found = toolchains._passes(upgrade([old, new], *(side.name for side in sides)), sides, {"overlay": None})

    ((legs, options),) = asked
    assert [leg.name for leg in legs] == [f"{emulated}@{side.name}" for side in sides]
    assert (options.what.passes, options.what.stages, options.what.chosen.tests) == (True, (Stage.TEST,), (name,))
    assert options.where.out == tmp_path / "out-passes"
    assert found == (FirstPass(emulated, name, "mul", sides[1].name, sides[0].name, ""),)


def test_everything_got_worse():
    """Each thing has its words, its row and its section; the exit code is 1."""
    rows = (compiled(in_flight=("one read",)), compiled("sy_80", order="store@3 bar.sync@3 load@4"), compiled("sy_100"))
    after = (
        compiled(in_flight=()),
        compiled("sy_80", order="store@3 load@4", spills=4),
        replace(rows[2], verdict=Verdict.FAILED, registers=None, reason="no"),
    )
    old = on(
        "a",
        compiled=rows,
        cases=(case(), case("t.py::two", kernel="other", properties={"max_abs_err": "0.001"})),
        samples=(sample(value=3000.0, kernel="other"),),
    )
    new = on(
        "b",
        compiled=after,
        cases=(case(verdict=Verdict.FAILED, message="wrong"), case("t.py::two", kernel="other", properties={"max_abs_err": "0.1"})),
        samples=(sample(value=1500.0, kernel="other"),),
    )
    found = upgrade([old, new], "a", "b")
    text = page(found)

    assert sentence(found) == (
        "Triton a → b: 1 test fails now (alpha), 1 function no longer compiles (sy_100), "
        "1 function lost a barrier or a wait (sy_80), 1 function spills more (sy_80), "
        "1 of 1 point is slower or lost (alpha), 1 recorded error grew, geomean 0.50 on alpha."
    )
    for words in ("Tests that fail now", "Regressions", "LDS accesses in flight: gone", "0.001 → 0.1", "Slower"):
        assert words in text, words
    assert outcome(found, FAILING, "x").code is ExitCode.FAILED
    back = upgrade([old, new], "b", "a")
    assert "1 function may race in LDS (sy_90)" in sentence(back)
    assert "grew" not in sentence(back)
    assert outcome(
        upgrade([replace(old, compiled=rows[:1]), replace(old, record=new.record, compiled=rows[:1])], "a", "b"), FAILING, "x"
    ).ok


def test_a_new_barrier_alone_fails_the_upgrade():
    """Whatever --fail-on says: results may be wrong."""
    sides = [on(name, compiled=(compiled(in_flight=found),)) for name, found in (("a", ()), ("b", ("one read",)))]

    assert outcome(upgrade(sides, "a", "b"), (), "x").code is ExitCode.FAILED
    assert outcome(upgrade(sides, "b", "a"), (), "x").ok


def test_what_is_not_compared_is_named():
    """Without a card there are no speeds; a leg that did not end makes the answer incomplete."""
    bare = [on(name, samples=(), again=()) for name in ("a", "b")]
    stages = tuple(replace(report, verdict=Verdict.INCOMPLETE, reason="time") for report in bare[1].stages)
    found = upgrade([bare[0], replace(bare[1], stages=stages)], "a", "b")

    assert "Speeds were not compared: no target has a card." in page(found)
    assert "No test was compared" not in page(found)
    assert "No test was compared" in page(upgrade([replace(bare[0], cases=()), bare[1]], "a", "b"))
    assert outcome(found, FAILING, "x").code is ExitCode.INCOMPLETE
    with pytest.raises(UsageError, match="both a and c"):
        upgrade(bare, "a", "c")


def test_slower_points_are_in_the_sentence_and_peers_in_no_mean():
    """The geometric mean is that of the package's own points, unless there are only others."""
    points = [sample(value=3000.0), sample(value=3000.0, provider="torch")]
    new = on("b", samples=(sample(value=1500.0), points[1]))
    found = upgrade([on("a", samples=tuple(points)), replace(new, peers=("torch",))], "a", "b")
    words = "Triton a → b: 1 of 2 points is slower or lost (alpha), geomean"

    assert sentence(found) == f"{words} 0.50 on alpha."
    assert sentence(upgrade([on("a", samples=tuple(points)), new], "a", "b")) == f"{words} 0.71 on alpha."
    assert sentence(replace(found, peers=("triton", "torch"))) == f"{words} 0.71 on alpha."


def test_an_upgrade_field_by_field():
    """The targets of both sides alone, each fact that differs, and what the package and its targets are."""
    old = [on("a", "beta"), on("a"), on("a", "gone")]
    head = [on("b"), on("b", "beta"), on("b", "new")]
    head[0] = replace(head[0], peers=("torch", "cub"), facts=replace(head[0].facts, driver="2.0"))
    head[1] = replace(head[1], peers=("torch",), record=replace(head[1].record, emulated="gfx942"))
    found = upgrade([*old, *head], "a", "b")

    assert (found.base, found.head, found.targets, found.emulated, found.peers) == (
        "a",
        "b",
        ("beta", "alpha"),
        ("beta",),
        ("torch", "cub"),
    )
    assert found.versions == {"triton": ("a", "b"), "driver": ("1.0", "2.0, 1.0")}
    assert (found.faults, found.lacking) == ((), ())
    assert (found.code.base.folder, found.code.head.folder, found.code.diff.compared) == ("a", "b", 1)
    bare = [replace(one, facts=None) for one in head]
    assert upgrade([*old, *bare], "a", "b").versions["driver"] == ("1.0", "unknown")


def test_each_leg_that_is_incomplete_is_a_fault():
    """One for each stage, or one for the leg if no stage says why."""
    bad = on("b", "beta")
    reports = [replace(report, verdict=Verdict.TIMEOUT, reason=f"slow {report.stage.value}") for report in bad.stages]
    bad = replace(bad, stages=(reports[0], replace(reports[1], verdict=Verdict.NOT_RUN), reports[2]))
    old = on("a")
    old = replace(old, record=replace(old.record, verdict=Verdict.CRASHED, reason="it died"))
    found = upgrade([old, on("a", "beta"), on("b"), bad], "a", "b")
    slow = [f"beta on b: {report.stage.value} timeout, slow {report.stage.value}" for report in (reports[0], reports[2])]

    assert found.faults == ("alpha on a: crashed, it died", *slow)


def test_a_leg_that_was_stopped_is_incomplete():
    """Also if a stage of one shard left no report, and all reports that there are have passed."""
    new = on("b")
    stopped = replace(new, record=replace(new.record, verdict=Verdict.INCOMPLETE, reason="shard 3/3: stopped"))
    found = upgrade([on("a"), stopped], "a", "b")

    assert found.faults == ("alpha on b: incomplete, shard 3/3: stopped",)
    assert outcome(found, FAILING, "x").code is ExitCode.INCOMPLETE


def test_speeds_that_do_not_count_are_no_comparison():
    """Both sides measured and tested nothing: that is not "nothing got worse", and not a pass."""
    found = upgrade([on(toolchain, cases=(), compiled=()) for toolchain in ("3.8.0", "3.9.0")], "3.8.0", "3.9.0")

    assert sentence(found) == "Triton 3.8.0 → 3.9.0: nothing was compared."
    assert found.lacking[-1] == "Speeds were not compared: no point has one that counts on both."
    assert found.lacking[-1] in page(found)
    assert (outcome(found, FAILING, "x").code, found.points) == (ExitCode.NOTHING_RAN, 0)


def test_tuned_configurations_that_are_stale():
    """An entry is matched by all of its constants and options; one that nobody launches is not judged."""
    entries = [Tuned("x.json", "16", {"BLOCK": 1024, "num_warps": 4, "GROUP": 8}), Tuned("x.json", "32", {"BLOCK": 512, "num_warps": 4})]
    sides = [on(name, compiled=(compiled(spills=spills),)) for name, spills in (("a", 0), ("b", 8))]
    found = upgrade(sides, "a", "b")
    old = stale(entries, found.code.diff)

    assert [(one.entry, one.architecture, one.why) for one in old] == [("16", "sy_90", "spilled registers 0 → 8")]
    assert used(entries, found.code.head.kernels) == 1
    assert stale([replace(entries[0], function="other")], found.code.diff) == ()
    assert stale(entries, upgrade(sides, "b", "a").code.diff) == ()
    assert "1 tuned configuration is stale" in sentence(found, old)


# Barriers at which accesses to shared memory are in flight, before and after an upgrade. All data is made up.

READ = {"in_flight": ("one read",)}


def test_what_is_worse_now_comes_first_then_what_changed_most():
    shapes = [{"constants": {"N": n}} for n in range(3)]
    before = [compiled("sy_80", **READ), *(compiled("sy_90", **shape) for shape in shapes), *(compiled("sy_100", **one) for one in shapes)]
    after = [compiled("sy_80"), *(compiled("sy_90", **shape, **READ) for shape in shapes)]
    after += [compiled("sy_100", **shapes[0], **READ), *(compiled("sy_100", **one) for one in shapes[1:])]

    found = [(one.architecture, one.configurations, one.before, one.after, one.worse) for one in changed_waits(before, after)]

    assert found == [("sy_90", 3, 0, 3, True), ("sy_100", 3, 0, 1, True), ("sy_80", 1, 1, 0, False)]


# Errors that tests recorded, before and after an upgrade. All data is made up.


def recorded(target="alpha", verdict=Verdict.PASSED, **properties):
    return run(target, cases=(case("t.py::a", verdict, properties=properties),))


@pytest.mark.parametrize(
    ("name", "before", "after", "shown"),
    [
        ("max_abs_err", "1", "2", True),
        ("error", "2", "1", True),
        ("ulps_max", "0", "1", True),
        ("rmse", "1", "0", True),
        ("a_diff", "100", "102", True),
        ("max_abs_err", "100", "101", False),  # within 1% of the larger one
        ("max_abs_err", "99", "100", False),  # exactly 1%
        ("max_abs_err", "0", "0", False),
        ("different", "1", "2", False),
        ("seconds", "1", "2", False),
        ("max_abs_err", "-1", "2", False),
        ("max_abs_err", "1", "inf", False),
        ("max_abs_err", "nan", "1", False),
        ("max_abs_err", "1", "large", False),
    ],
)
def test_which_numbers_are_errors_that_changed(name, before, after, shown):
    found = changed_errors([recorded(**{name: before})], [recorded(**{name: after})])

    assert found == ((ChangedError("alpha", "t.py::a", name, float(before), float(after)),) if shown else ())
    assert [one.worse for one in found] == ([float(after) > float(before)] if shown else [])


def test_only_tests_that_passed_on_both_sides_count():
    good, bad = recorded(err="1"), recorded(verdict=Verdict.FAILED, err="5")

    assert changed_errors([good], [bad]) == changed_errors([bad], [good]) == changed_errors([good], [recorded("beta", err="5")]) == ()
    assert len(changed_errors([good], [recorded(err="5", diff="1")])) == 1
    assert changed_errors([good], [recorded(text="x", err="5")])[0].after == 5  # what is no error hides none


def test_the_error_that_grew_most_comes_first():
    """One that was 0 before all others; equal ones by target, test and name."""
    sides = [
        {"a_err": "1", "b_err": "1", "c_err": "0", "d_err": "2", "e_err": "1"},
        {"a_err": "2", "b_err": "4", "c_err": "1", "d_err": "1", "e_err": "2"},
    ]
    found = changed_errors(*([recorded("beta", **side), recorded(**side)] for side in sides))

    assert [f"{one.name[0]} {one.target[0]}" for one in found] == ["c a", "c b", "b a", "b b", "a a", "e a", "a b", "e b", "d a", "d b"]


# The whole reply of each question that a search asks: the answer, and what was seen. All runs are made up.

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


# Bisecting a list, and the question that it asks, on answers and runs that are made up.


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


def ask(kind: Kind, what: str, base, head, **more) -> Answer:
    return reply(Question(kind, what, **more), [base], [head]).answer


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
