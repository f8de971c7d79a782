"""Known failures: what is listed is grey, what is new is red, and what is fixed is named."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from synthetic import case, compiled, finding, record, run, sample

from warpwave.cli.compare import speed_outcome
from warpwave.compare import compare, outcome
from warpwave.compare.answer import headline, overview
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.compare.known import Entry, Known, Listed, entries_of, parse, reached, render, update
from warpwave.compare.model import Change, Standing
from warpwave.errors import ConfigError
from warpwave.records import HOST_CODE, RAISES, RUNS_ON, Defect, NotRun, Stage, StageReport, Verdict
from warpwave.records.selection import Narrowed
from warpwave.render.junit import render_junit
from warpwave.render.markdown import render_markdown

BAD, GOOD = "softmax/test_softmax.py::test_bad", "softmax/test_softmax.py::test_good"
LISTED = Entry(("test", "failed", BAD), "alpha")
LDS = "needs 131072 bytes of shared memory, sy_90 has 65536"


def ran(*cases, target="alpha", verdict=Verdict.FAILED, stages=None, **more):
    """A whole run with these tests, whose test stage has this verdict."""
    counts = {each.verdict.value: 1 for each in cases}
    reports = stages or (StageReport(Stage.TEST, verdict, reason="one of them", counts=counts, exit_code=0),)
    told = {"verdict": verdict, "reason": "test: one of them", **more.pop("told", {})}
    own = dataclasses.replace(record(target), **told)
    return run(target, **{"record": own, "cases": cases, "samples": (), "compiled": (), "stages": reports, **more})


def bad(verdict=Verdict.FAILED, test=BAD, **more):
    return case(test, verdict, message="AssertionError: not close", **more)


def judged(made, *entries, **policy):
    return compare([made] if not isinstance(made, list) else made, known=Known(entries, "known.txt", **policy))


def standings(comparison):
    return {use.entry: use.standing for use in comparison.known.uses}


# The file.


@pytest.mark.parametrize(
    "subject",
    [
        "t.py::test[a b]",
        "t.py::test[c#]",
        "#t.py::x",
        't.py::test["]',
        "t.py::tést[ü-\u202e-\n]",
        "t.py::test[\ud800]",
        "x" * 5000,
        "until",
    ],
)
def test_every_id_survives_the_file(subject):
    """Spaces, signs of comments and quotes, what cannot be seen, and any length: an entry is one line, and is read as it was written."""
    entry = Entry(("test", "failed", subject), "alpha", "2027-01-31", "why # really")
    text = render(Listed((entry,)))

    assert parse(text, "f").entries == (entry,)
    assert len(text.split("\n")) == len(render(Listed()).split("\n")) + 1
    assert text.encode("utf-8")


def test_a_hand_written_file_is_read():
    """With comments, a date, other line ends, a mark of byte order, and entries that a merge doubled."""
    text = "\ufeff# ours\r\n\r\n# a story\r\ntest * failed a.py::b   until 2027-01-31  # slow card\r\ngate alpha spills sm_90 k f\n# end\n"
    listed = parse(text + "gate alpha spills sm_90 k f # late\n", "f")

    assert listed.header == ("# ours",)
    assert listed.entries == (
        Entry(("test", "failed", "a.py::b"), "*", "2027-01-31", "slow card", ("# a story",)),
        Entry(("gate", "spills", "sm_90", "k", "f"), "alpha", "", "late"),
    )
    assert parse(render(listed), "f").entries == tuple(sorted(listed.entries, key=lambda entry: entry.line))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tset alpha failed a.py::b", "no kind of entry"),
        ("test alpha failed", "no entry"),
        ("test alpha failed a.py::b more", "no entry"),
        ("test alpha failed a.py::b until tomorrow", "no day"),
        ("test alpha failed a.py::b until 2027-02-30", "no day"),
        ('test alpha "failed a.py::b', "quotes"),
        ('test alpha "failed"x a.py::b', "quotes"),
        ("<<<<<<< HEAD", "mark of git"),
        ("test alpha failed " + "x " * 20_000, "has 40017 characters"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line, said):
    """Nothing of the file is used then: a misspelt entry would excuse nothing, or too much."""
    with pytest.raises(ConfigError, match=f"known.txt, line 3:? .*{said}"):
        parse(f"# known\n\n{line}\n", "known.txt")


# What is listed does not fail.


def test_a_listed_failure_is_known_and_fails_nothing():
    """It stays visible, counted and not passed; the target is complete."""
    comparison = judged(ran(bad(), case(GOOD)), LISTED)
    (target,) = comparison.targets

    assert (comparison.exit_code, target.verdict, target.complete) == (0, Verdict.PASSED, True)
    assert target.tests == {"known": 1, "passed": 1}
    assert headline(comparison, overview(comparison)).text == "All other tests pass on alpha; 1 known failure."
    assert "known on alpha: test alpha failed" in render_markdown(comparison).replace("`", "").replace("\\", "")
    assert '<skipped message="failed: AssertionError: not close" type="known"' in render_junit(comparison)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (ran(bad(), bad(test=GOOD)), 1),  # another test
        (ran(bad(Verdict.CRASHED), case(GOOD), verdict=Verdict.CRASHED), 1),  # another reason
        (ran(bad(), case(GOOD), target="beta"), 1),  # another target
        (ran(bad(), case(GOOD), told={"verdict": Verdict.INFRA, "reason": "the card is gone"}), 3),  # more than a failure
        (ran(bad(), case(GOOD), stages=(StageReport(Stage.TEST, Verdict.CRASHED, counts={"failed": 1}, exit_code=9),)), 4),
    ],
)
def test_what_is_not_listed_fails(made, code):
    """A list excuses what it names, for the reason that it names."""
    assert judged(made, LISTED).exit_code == code


def test_a_stage_that_doubts_its_results_is_not_excused():
    """Its rows do not explain its verdict."""
    doubted = StageReport(Stage.TEST, Verdict.INVALID, counts={"failed": 1}, doubts=("2 collected, 1 reported",))
    assert judged(ran(bad(), case(GOOD), stages=(doubted,), told={"verdict": Verdict.INVALID}), LISTED).exit_code != 0


def test_a_new_defect_in_a_known_test_is_new():
    """The sanitizer's findings are reasons of their own."""
    race = finding(case=BAD, defect=Defect.RACE)
    made = ran(bad(), case(GOOD), findings=(race,))

    assert judged(made, LISTED).exit_code == 1
    assert judged(made, *entries_of([made])).exit_code == 0


@pytest.mark.parametrize("about", [("kernel", "too big"), ("case", "KeyError")])
@pytest.mark.parametrize(("architecture", "standing"), [("sy_90", Standing.GONE), ("sy_80", Standing.UNSEEN)])
def test_what_another_architecture_fails_in_is_not_gone(about, architecture, standing):
    """A run for some architectures (`--architectures`) says nothing about the others."""
    entry = Entry((*about, architecture, *(["ladder", "rank_kernel"] if about[0] == "kernel" else ["a/N=1"])), "alpha")
    stages = (StageReport(Stage.COMPILE, Verdict.PASSED),)
    made = ran(case(GOOD), verdict=Verdict.PASSED, stages=stages, compiled=(compiled(),))

    assert standings(judged(made, entry)) == {entry.line: standing}


def test_kernels_gates_host_code_and_points_are_known_too():
    """A whole run in which something of each kind fails is green with its own failures, and red without any one of them."""
    rows = (
        compiled(function="big", verdict=Verdict.FAILED, reason=LDS),
        compiled(function="spilling", verdict=Verdict.FAILED, broken={"spills": "6 registers, 0 allowed"}, reason="spills: 6 registers"),
        compiled(function=HOST_CODE, verdict=Verdict.FAILED, origin=GOOD, reason=f"{RUNS_ON} sy_80 and raises KeyError on sy_90: 'hip'"),
        compiled(function=HOST_CODE, verdict=Verdict.FAILED, origin="a/N=1", reason=f"{RAISES} TypeError on every architecture: size"),
        compiled(),
    )
    stages = (
        StageReport(Stage.TEST, Verdict.PASSED),
        StageReport(Stage.BENCH, Verdict.ERROR, reason="a point", counts={"error": 1}),
        StageReport(Stage.COMPILE, Verdict.FAILED, reason="a kernel", counts={"failed": 4}),
    )
    points = (sample(), sample(2048, value=None, verdict=Verdict.ERROR, reason="RuntimeError"))
    made = ran(case(GOOD), stages=stages, compiled=rows, samples=points, verdict=Verdict.ERROR)
    entries = entries_of([made])

    assert {entry.key[:2] for entry in entries} == {
        ("kernel", "needs N bytes of shared memory, sy_90 has N"),
        ("gate", "spills"),
        ("case", "KeyError"),
        ("case", "TypeError"),
        ("bench", "error"),
    }
    assert judged(made, *entries).exit_code == 0
    for left in entries:
        assert judged(made, *(entry for entry in entries if entry != left)).exit_code == 1, left.line


def test_other_numbers_are_the_same_reason():
    """Bytes, lines and addresses change with every commit; a kernel that fails otherwise is new."""
    first, again, other = (
        ran(case(GOOD), verdict=Verdict.FAILED, stages=STAGES, compiled=(compiled(verdict=Verdict.FAILED, reason=reason),))
        for reason in (LDS, LDS.replace("131072", "262144"), "CompilationError: at 3:4")
    )

    assert judged(again, *entries_of([first])).exit_code == 0
    assert judged(other, *entries_of([first])).exit_code == 1


STAGES = (StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.COMPILE, Verdict.FAILED, counts={"failed": 1}))


def test_listed_advice_is_counted_and_said_no_more():
    """It fails nothing; a list that has it keeps the first line short. Other advice stays."""
    made = ran(case(GOOD), verdict=Verdict.PASSED, compiled=(compiled(advice={"spills": "6 registers", "private_bytes": "8 bytes"}),))
    comparison = judged(made, Entry(("gate", "spills", "sy_90", "softmax", "_softmax_fwd"), "alpha"))

    assert comparison.codegen[0].cells[0].compiled.advice == {"private_bytes": "8 bytes"}
    assert (comparison.exit_code, comparison.known.words) == (0, "1 known failure")


def spilling(registers, **change):
    """A run of one kernel in two configurations that breaks the gate for spills; the second spills one register."""
    rows = [
        compiled(verdict=Verdict.FAILED, spills=number, broken={"spills": f"{number} registers, 0 allowed"}, num_warps=warps)
        for number, warps in ((registers, 1), (1, 2))
    ]
    compile_stage = StageReport(Stage.COMPILE, Verdict.FAILED, counts={"failed": 2}, exit_code=0)
    return ran(case(GOOD), stages=(StageReport(Stage.TEST, Verdict.PASSED), compile_stage), compiled=tuple(rows), **change)


@pytest.mark.parametrize(
    ("listed", "code"), [("spills<=12", 0), ("spills<=13", 0), ("spills", 0), ("spills<=11", 1), ("private_bytes<=99", 1)]
)
def test_a_listed_spill_excuses_no_larger_one(listed, code):
    """A change that spills more in the same kernel is new; an entry without an amount excuses any."""
    where = ("sy_90", "softmax", "_softmax_fwd")
    comparison = judged(spilling(12), Entry(("gate", listed, *where), "alpha"))

    assert comparison.exit_code == code
    (use,) = comparison.known.uses
    assert listed.startswith("private") or use.standing is (Standing.CHANGED if code else Standing.KNOWN)


def test_the_list_follows_the_amount_of_a_gate():
    """`known update` writes the worst configuration's, and keeps the comment; `--prune` and a narrowed run raise or lower nothing."""
    (entry,) = entries_of([spilling(12)])
    listed = Listed((replace(entry, comment="split K first"),))
    narrowed = spilling(8, narrowed=Narrowed(("-k good",)))

    assert entry.line == "gate alpha spills<=12 sy_90 softmax _softmax_fwd"
    for made, prune, amount in (
        (spilling(14), False, 14),
        (spilling(14), True, None),
        (spilling(8), False, 8),
        (spilling(8), True, 8),
        (narrowed, False, 12),
    ):
        entries = update(listed, [made], "2026-01-01", prune=prune).listed.entries
        assert [(each.key[1], each.comment) for each in entries] == ([(f"spills<={amount}", "split K first")] if amount else [])


# What became of an entry.


@pytest.mark.parametrize(
    ("made", "standing"),
    [
        (ran(bad(), case(GOOD)), Standing.KNOWN),
        (ran(case(BAD), case(GOOD), verdict=Verdict.PASSED), Standing.FIXED),
        (ran(case(BAD, Verdict.XFAILED), case(GOOD), verdict=Verdict.PASSED), Standing.FIXED),
        (ran(case(GOOD), verdict=Verdict.PASSED), Standing.GONE),
        (ran(bad(Verdict.TIMEOUT), case(GOOD), verdict=Verdict.TIMEOUT), Standing.CHANGED),
        (ran(case(BAD, Verdict.NOT_RUN, not_run=NotRun.SKIPPED), case(GOOD), verdict=Verdict.PASSED), Standing.UNSEEN),
        (ran(case(GOOD), verdict=Verdict.PASSED, narrowed=Narrowed(("-k good",))), Standing.UNSEEN),
        (ran(case(GOOD), verdict=Verdict.PASSED, missing="shard 2 of 2 is missing"), Standing.UNSEEN),
        (ran(case(GOOD), stages=(StageReport(Stage.TEST, Verdict.PASSED, left_out=3),)), Standing.UNSEEN),
        (ran(case(GOOD), stages=(StageReport(Stage.TEST, Verdict.PASSED, out_of_time=True),)), Standing.UNSEEN),
        (ran(case(GOOD), stages=(StageReport(Stage.TEST, Verdict.CRASHED),)), Standing.UNSEEN),
        (ran(case(BAD.partition("::")[0], Verdict.ERROR), case(GOOD), verdict=Verdict.ERROR), Standing.UNSEEN),  # it does not import
        (ran(case(GOOD), target="beta", verdict=Verdict.PASSED), Standing.UNSEEN),
    ],
)
def test_what_became_of_a_test(made, standing):
    """Only what ran is fixed, and only what a whole run does not have is gone."""
    assert standings(judged(made, LISTED)) == {LISTED.line: standing}


def test_a_kernel_is_fixed_by_a_whole_run_only():
    """A quick run that leaves sizes out may have left out the one that fails."""
    entry = Entry(("kernel", "needs N bytes of shared memory, sy_90 has N", "sy_90", "softmax", "_softmax_fwd"), "alpha")
    stages = (StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.COMPILE, Verdict.PASSED))
    for quick, origin, standing in (
        (False, "bench", Standing.FIXED),
        (True, "bench", Standing.UNSEEN),
        (True, GOOD, Standing.FIXED),
    ):
        narrowed = Narrowed(("--quick",) if quick else ())
        made = ran(case(GOOD), verdict=Verdict.PASSED, stages=stages, compiled=(compiled(origin=origin),), narrowed=narrowed)
        assert standings(judged(made, entry)) == {entry.line: standing}
    other = ran(case(GOOD), verdict=Verdict.PASSED, stages=stages, compiled=(compiled(function="other"),), some_launches=True)
    assert standings(judged(other, entry)) == {entry.line: Standing.UNSEEN}


def test_any_target_is_not_judged_by_one():
    """An entry of all targets is fixed if it passes on several, and known if it fails on one."""
    entry = dataclasses.replace(LISTED, target="*")
    good, other = (ran(case(BAD), target=target, verdict=Verdict.PASSED) for target in ("alpha", "beta"))

    assert standings(judged(good, entry)) == {entry.line: Standing.UNSEEN}
    assert standings(judged([good, other], entry)) == {entry.line: Standing.FIXED}
    assert standings(judged([good, ran(bad(), case(GOOD), target="beta")], entry)) == {entry.line: Standing.KNOWN}


def test_an_entry_of_a_target_counts_on_its_toolchains():
    """`cpu` is meant on `cpu@triton-3.8`, too."""
    made = ran(bad(), case(GOOD), target="alpha@new", told={"toolchain": "new"})
    assert judged(made, LISTED).exit_code == 0


def test_an_expired_entry_excuses_nothing():
    """Its last day is in it."""
    entry = dataclasses.replace(LISTED, until="2027-01-31")
    made = ran(bad(), case(GOOD))

    assert judged(made, entry, today="2027-01-31").exit_code == 0
    late = judged(made, entry, today="2027-02-01")
    assert (late.exit_code, standings(late)) == (1, {entry.line: Standing.EXPIRED})


def test_what_a_change_adds_excuses_nothing_and_is_shown():
    """Nobody hides a fault beside the line that excuses it."""
    comparison = judged(ran(bad(), case(GOOD)), added=(LISTED,))

    assert (comparison.exit_code, standings(comparison)) == (1, {LISTED.line: Standing.ADDED})
    assert "is added by this change on alpha" in render_markdown(comparison).replace("`", "")


# The last word on the exit code.


@pytest.mark.parametrize(
    ("made", "policy", "code"),
    [
        (ran(bad(), case(GOOD)), {"fail_on": "new"}, 0),
        (ran(bad(), case(GOOD)), {"fail_on": "any"}, 1),
        (ran(bad(), bad(test=GOOD)), {"fail_on": "nothing"}, 0),
        (ran(bad(), told={"verdict": Verdict.INFRA, "reason": "no card"}), {"fail_on": "nothing"}, 0),
        (ran(case(BAD), verdict=Verdict.PASSED), {}, 0),
        (ran(case(BAD), verdict=Verdict.PASSED), {"strict": True}, 1),
        (ran(case(GOOD), verdict=Verdict.PASSED, narrowed=Narrowed(("-k good",))), {"strict": True}, 0),
    ],
)
def test_the_policy_has_the_last_word(made, policy, code):
    """The report and the command's own outcome agree, and every code has its reason."""
    comparison = judged(made, LISTED, **policy)
    ended = outcome(comparison)

    assert (comparison.exit_code, int(ended.code), bool(ended.reason)) == (code, code, code != 0)


def test_what_got_slower_since_the_base_fails_where_it_is_asked_for():
    """`worse` is `new`, and speeds."""
    base, slow = (run(samples=tuple(sample(n, value) for n in (1024, 2048))) for value in (3000.0, 1500.0))
    for fail_on, code in (("new", 0), ("worse", 1), ("any", 1), ("nothing", 0)):
        comparison = compare([slow], base=[base], known=Known(fail_on=fail_on))
        assert (comparison.exit_code, int(outcome(comparison).code)) == (code, code), fail_on


# A failing test costs what it touches.


def launched(*functions):
    return {"launched": " ".join(functions)}


def points(**functions):
    """A point a provider, with what it launches; None for a run that did not note it."""
    return tuple(sample(provider=provider, launches_noted=names is not None, launched=names or ()) for provider, names in functions.items())


def verified(made):
    return {row.provider: row.cells[0].verified for row in compare([made]).rows}


def test_a_failing_test_costs_the_functions_that_it_launched():
    """Not the rest of its folder, and not a provider without a launch."""
    tests = (bad(properties=launched("wrong", "helper")), case(GOOD, properties=launched("right", "helper")))
    made = run(cases=tests, samples=points(own=("wrong",), other=("right",), shared=("right", "helper"), torch=(), old=None))

    assert verified(made) == {"own": False, "other": True, "shared": False, "torch": True, "old": False}
    reasons = {row.provider: row.cells[0].reason for row in compare([made]).rows}
    assert reasons["own"] == "1 test that launches wrong did not pass here"
    assert verified(compare_known(made)) == verified(made)  # a known failure is no proof


def compare_known(made):
    """The run with its own failures known."""
    from warpwave.compare.known import apply

    return apply([made], Known(entries_of([made])))[0][0]


@pytest.mark.parametrize("properties", [{}, {"launched": "a b … 30 characters cut"}])
def test_where_launches_are_not_known_a_failing_test_costs_its_folder(properties):
    """Of a process that died, or a list that was cut."""
    made = run(
        cases=(bad(Verdict.CRASHED, properties=properties), case(GOOD, properties=launched("right"))), samples=points(own=("right",))
    )
    elsewhere = dataclasses.replace(made, cases=(dataclasses.replace(made.cases[0], kernel="gelu"), made.cases[1]))

    assert verified(made) == {"own": False}
    assert verified(elsewhere) == {"own": True}


def test_a_failing_test_of_another_folder_counts():
    """What it launched decides, not where it is."""
    made = run(cases=(bad(kernel="gelu", properties=launched("shared")), case(GOOD)), samples=points(own=("shared",), other=("right",)))
    assert verified(made) == {"own": False, "other": True}


def test_without_any_passing_test_only_torch_is_verified():
    """No test of the folder passed, and none elsewhere launched its function."""
    lone = run(cases=(case(GOOD, kernel="gelu", properties=launched("right")),), samples=points(own=("wrong",), other=("right",), torch=()))
    assert verified(lone) == {"own": False, "other": True, "torch": True}


def commit(value, *cases):
    return run(samples=tuple(sample(n, value, launches_noted=True, launched=("f",)) for n in (1, 2)), cases=cases)


def test_points_with_the_same_failing_test_on_both_sides_are_compared_and_marked():
    """A test that fails otherwise, or on one side only, leaves them unverified."""
    failing = bad(properties=launched("f"))
    crashed = dataclasses.replace(failing, verdict=Verdict.CRASHED)
    same = changed_speeds([commit(1000.0, failing)], [commit(500.0, failing)])

    assert [(point.change, bool(point.speedup)) for point in same.points] == [(Change.SLOWER, True)] * 2
    assert "unverified in both: 1 test that launches f did not pass here" in same.points[0].reason
    for other in (crashed, case(BAD)):
        refused = changed_speeds([commit(1000.0, other)], [commit(500.0, failing)])
        assert {point.change for point in refused.points} == {Change.REFUSED}
    known = compare_known(commit(500.0, failing))
    assert {point.change for point in changed_speeds([commit(1000.0, failing)], [known]).points} == {Change.SLOWER}


@pytest.mark.parametrize(
    ("fail_on", "slower", "lost", "both"), [("new", 0, 1, 0), ("worse", 1, 1, 0), ("any", 1, 1, 1), ("nothing", 0, 0, 0)]
)
def test_compare_fails_on_what_it_is_told_to(fail_on, slower, lost, both):
    """The same words as everywhere."""
    good, slow = commit(1000.0, case(GOOD)), commit(500.0, case(GOOD))
    failing = dataclasses.replace(good, samples=(good.samples[0], dataclasses.replace(good.samples[1], value=None, verdict=Verdict.ERROR)))

    codes = [
        speed_outcome(changed_speeds([base], [head]), fail_on).code for base, head in ((good, slow), (good, failing), (failing, failing))
    ]
    assert codes == [slower, lost, both]


def test_a_test_that_fails_in_another_place_is_a_new_failure():
    """The list has by what it failed. One that a person wrote, with how it ended alone, stands for all of them."""
    before, after = (bad(properties={"failed_by": f"AssertionError at assert {name} == 1"}) for name in "ab")
    listed = update(Listed(), [ran(before)], "2026-01-01").listed
    (entry,) = listed.entries

    assert parse(render(listed), "f") == listed
    assert entry.line == f'test alpha "failed AssertionError at assert a == 1" {BAD}'
    assert judged(ran(before), entry).exit_code == 0
    assert standings(judged(ran(after), entry)) == {entry.line: Standing.CHANGED}
    assert judged(ran(after), entry).exit_code == 1
    assert {judged(ran(each), LISTED).exit_code for each in (before, after)} == {0}
    assert standings(judged(ran(after), LISTED)) == {LISTED.line: Standing.KNOWN}
    assert not update(Listed((LISTED,)), [ran(after)], "2026-01-01").added

    one, other = (finding(case=BAD, defect=Defect.RACE, function=name) for name in ("one", "other"))
    entries = entries_of([ran(bad(), findings=(one,))])
    assert judged(ran(bad(), findings=(one,)), *entries).exit_code == 0
    assert judged(ran(bad(), findings=(one, other)), *entries).exit_code == 1


# The file after a run.


def test_an_update_adds_removes_and_keeps():
    """What fails is listed once, what passes is not, and what did not run keeps its line, comment and date."""
    fixed, other = Entry(("test", "failed", GOOD), "alpha"), Entry(("test", "failed", BAD), "beta", "2020-01-01", "a card is on its way")
    kept = dataclasses.replace(LISTED, until="2020-01-01", comment="for a year", above=("# why",))
    new = bad(test="softmax/test_softmax.py::test_new")
    made = update(Listed((fixed, other, kept), ("# ours",)), [ran(bad(), case(GOOD), new)], "2026-01-01")

    assert set(made.listed.entries) == {other, kept, Entry(("test", "failed", new.id), "alpha")}
    assert made.listed.header == ("# ours",)
    assert (len(made.added), made.removed, made.expired) == (1, (fixed.line,), (kept.line,))
    pruned = update(Listed((fixed, other, kept)), [ran(bad(), case(GOOD), new)], "2026-01-01", prune=True)
    assert set(pruned.listed.entries) == {other, kept}


def test_an_update_makes_the_same_run_green_and_twice_changes_nothing():
    """Also where two tests have one id and end differently."""
    made = ran(bad(), bad(Verdict.CRASHED), case(GOOD), verdict=Verdict.CRASHED)
    once = update(Listed(), [made], "2026-01-01").listed

    assert judged(made, *once.entries).exit_code == 0
    assert update(parse(render(once), "f"), [made], "2026-01-01") == update(once, [made], "2026-01-01")
    assert not update(once, [made], "2026-01-01").added


def test_a_list_from_a_run_that_a_budget_cut_short_says_how_far_it_came():
    """The next run with that budget goes no further, so nothing that was never run looks new. A longer one and one without do."""
    told = {"reached": {"softmax/test_softmax.py": 2, "sy_90": 7}, "budget_s": 240.0, "out_of_time": True}
    stage = StageReport(Stage.TEST, Verdict.FAILED, counts={"failed": 1}, exit_code=0, **told)
    made = update(Listed(), [ran(bad(), case(GOOD), stages=(stage,))], "2026-11-28")
    seen = [entry for entry in parse(render(made.listed), "known.txt").entries if entry.key[0] == "seen"]

    assert made.added == (LISTED.line,)
    assert [entry.line for entry in seen] == ["seen alpha 240 2 test softmax/test_softmax.py", "seen alpha 240 7 test sy_90"]
    assert reached(seen, 240) == {"alpha": {"test softmax/test_softmax.py": 2, "test sy_90": 7}}
    assert reached(seen, 241) == {}
    assert update(made.listed, [ran(bad(), case(GOOD))], "2026-11-28").listed.entries == (LISTED,)
    chosen = update(Listed(), [ran(bad(), stages=(stage,), narrowed=Narrowed(("--budget", "-k bad")))], "2026-11-28")
    assert (chosen.listed.entries, chosen.chosen_by, made.chosen_by) == ((LISTED,), ("-k bad",), ())
