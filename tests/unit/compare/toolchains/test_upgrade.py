"""What an upgrade changes, from runs that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import case, compiled, run, sample

from warpwave.cli.toolchains import outcome
from warpwave.compare.changed_codegen import Concern
from warpwave.compare.upgrade import Tuned, stale, upgrade, used
from warpwave.errors import ExitCode, UsageError
from warpwave.records import TargetRun, Verdict
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


def test_everything_got_worse():
    """Each thing has its words, its row and its section; the exit code is 1."""
    rows = (compiled(in_flight=("one read",)), compiled("sy_80"), compiled("sy_100"))
    after = (compiled(in_flight=()), compiled("sy_80", spills=4), replace(rows[2], verdict=Verdict.FAILED, registers=None, reason="no"))
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
        "Triton a → b: 1 test fails now (alpha), 1 function no longer compiles (sy_100), 1 function spills more (sy_80), "
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


def test_registers_alone_are_in_the_sentence():
    """They fail nothing, and the page has them in its table."""
    sides = [on(name, compiled=(compiled(registers=count),)) for name, count in (("a", 30), ("b", 34))]

    assert sentence(upgrade(sides, "a", "b")).startswith("Triton a → b: nothing got worse but registers, geomean")
    assert outcome(upgrade(sides, "a", "b"), FAILING, "x").ok


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
