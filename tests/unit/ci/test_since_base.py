"""What `warpwave ci report` says of the base branch: which changes fail the job, which warn, and what each annotation names."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from synthetic import case, compiled, record, run, sample

from warpwave.ci import base as since_base
from warpwave.ci.base import Asked, against_base, parse_asked
from warpwave.compare.changed_codegen import Concern
from warpwave.errors import UsageError
from warpwave.records import Verdict


@pytest.fixture
def since(monkeypatch, tmp_path):
    """Compare two runs without files of theirs."""

    def compare(before, after, asked):
        sides = {"base": [before] if before else [], "head": [after] if after else []}
        monkeypatch.setattr(since_base, "latest", lambda folders: folders)
        monkeypatch.setattr(since_base, "find_raw", lambda folders: folders)
        monkeypatch.setattr(since_base, "collect_all", lambda folders: sides[folders[0].name])
        return against_base(tmp_path / "base", [tmp_path / "head"], asked)

    return compare


def measured(*times, scatter=0.001, **more):
    """A run of a point for each time in ms, with tests that passed; without code."""
    points = tuple(sample(1 << n, median_ms=time, scatter=scatter) if time else failed(1 << n) for n, time in enumerate(times))
    return run(compiled=(), samples=points, **more)


def failed(n):
    return sample(n, value=None, verdict=Verdict.ERROR, reason="out of memory\nat line 3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", Asked((), slower=False, lost_tests=False, threshold=0.1)),
        ("any", Asked(tuple(Concern), slower=True, lost_tests=True, threshold=0.1)),
        ("slower", Asked((), slower=True, lost_tests=False, threshold=0.1)),
        ("lost-tests,spills", Asked((Concern.SPILLS,), slower=False, lost_tests=True, threshold=0.1)),
        ("spills,slower,verdict", Asked((Concern.SPILLS, Concern.VERDICT), slower=True, lost_tests=False, threshold=0.1)),
    ],
)
def test_what_may_not_get_worse_is_named(text, expected):
    """One word for all and one for none; else what is named, and nothing beside it."""
    assert parse_asked(text, 0.1) == expected


@pytest.mark.parametrize("text", ["", "slow", "slower, spills", "any,slower", "nothing,slower", "spills,,slower"])
def test_what_nobody_knows_is_refused_with_all_that_is_known(text):
    """A word that is misspelt would fail no job."""
    with pytest.raises(UsageError) as caught:
        parse_asked(text, None)

    assert all(word in caught.value.remedy for word in ("spills", "slower", "lost-tests", "any", "nothing"))


def test_a_point_that_became_slower_is_named_with_its_times(since):
    """The annotation shows both medians, the change, its interval and the threshold. It is an error with `--fail-on`, else a warning."""
    runs = measured(1.0, 0.5), measured(1.25, 0.5)
    strict, lax = since(*runs, Asked(threshold=0.05)), since(*runs, Asked(slower=False, threshold=0.05))
    (line,) = strict.annotations
    figures = re.findall(r"\d[\d,.]*", line.partition("::")[2].partition("::")[2].replace("%25", "%"))

    assert line.startswith("::error title=slower%3A softmax/N=1 triton on alpha::")
    assert (figures[:3], figures[-1].rstrip(".")) == (["1000", "1250", "0.800"], "5.0")
    assert 0.79 < float(figures[3]) < 0.8 < float(figures[4]) < 0.81
    assert strict.worse
    assert "## Since the base branch" in strict.page
    assert "softmax" in strict.page
    assert lax.annotations == (line.replace("::error", "::warning"),)
    assert (lax.worse, lax.page) == ("", strict.page)


def test_a_point_that_fails_now_is_named_with_the_first_line_of_its_error(since):
    """It has no time to compare, and it was measured before."""
    found = since(measured(1.0, 0.5), measured(None, 0.5), Asked(threshold=0.05))

    assert found.annotations == ("::error title=failed%2C measured before%3A softmax/N=1 triton on alpha::out of memory",)
    assert found.worse


def test_a_change_within_the_users_threshold_is_none(since):
    """A quarter slower, half allowed."""
    found = since(measured(1.0), measured(1.25), Asked(threshold=0.5))

    assert (found.worse, found.annotations) == ("", ())
    assert found.page


def test_code_that_got_worse_is_named_by_the_gravest_concern_that_was_asked_about(since):
    """With the figure of that concern, and the case that launched it; the page shows it in any case."""
    before = run(cases=(), samples=(), compiled=(compiled(spills=0, registers=30),))
    after = run(cases=(), samples=(), compiled=(compiled(spills=4, registers=255),))
    registers = since(before, after, Asked((Concern.SHARED, Concern.REGISTERS)))
    every = since(before, after, Asked(tuple(Concern)))
    nothing = since(before, after, Asked())

    assert [line.partition("; ")[0] for line in registers.annotations] == [
        "::error title=registers%3A _softmax_fwd for sy_90::registers: 30 → 255"
    ]
    assert [line.partition("; ")[0] for line in every.annotations] == [
        "::error title=spills%3A _softmax_fwd for sy_90::spilled registers: 0 → 4"
    ]
    assert every.annotations[0].endswith("bench")
    assert registers.worse
    assert every.worse
    assert (nothing.annotations, nothing.worse) == ((), "")
    assert "_softmax_fwd" in nothing.page


def test_a_test_that_is_lost_is_a_warning_or_an_error(since):
    """As it is asked about; a test that HEAD skipped says why, one that is gone says that."""
    both = (case("k.py::test_a"), case("k.py::test_b"), case("k.py::test_c"))
    before = run(cases=both, samples=(), compiled=())
    after = run(cases=(both[2], case("k.py::test_a", Verdict.NOT_RUN, message="no card")), samples=(), compiled=())
    strict, lax = since(before, after, Asked(lost_tests=True)), since(before, after, Asked())

    assert sorted(strict.annotations) == [
        "::error title=test is gone%3A k.py%3A%3Atest_b on alpha::is gone",
        "::error title=test is skipped now%3A k.py%3A%3Atest_a on alpha::no card",
    ]
    assert strict.worse.startswith("2 tests that passed before are ")
    assert sorted(lax.annotations) == [line.replace("::error", "::warning") for line in sorted(strict.annotations)]
    assert lax.worse == ""
    assert since(before, run(cases=both[1:], samples=(), compiled=()), Asked(lost_tests=True)).worse.startswith(
        "1 test that passed before is "
    )


SAME = "✅ None of 3 tests changed."


def of_tests(*found):
    return run(samples=(), compiled=(), cases=found)


def spilling(count):
    return run(samples=(), compiled=(compiled(spills=count),))


@pytest.mark.parametrize(
    ("before", "after", "heads"),
    [
        (of_tests(case("a"), case("b")), of_tests(case("a"), case("b")), ["✅ None of 2 tests changed."]),
        (of_tests(case("a")), of_tests(case("a", Verdict.FAILED)), ["❌ 1 test fails now."]),
        (of_tests(case("a"), case("b")), of_tests(case("a")), ["❌ 1 test is gone."]),
        (measured(1.0), measured(1.0), [SAME, "✅ None of 1 point is slower, 1 same."]),
        (measured(1.0), measured(2.0), [SAME, "❌ 1 of 1 point is slower."]),
        (measured(1.0), measured(None), [SAME, "❌ 1 point failed that did not before."]),
        (spilling(0), spilling(4), [SAME, "❌ 1 regression (1 spills) in 1 compared configuration: 0 unchanged."]),
        (spilling(4), spilling(0), [SAME, "✅ No regression in 1 compared configuration: 1 better, 0 unchanged."]),
    ],
)
def test_each_part_of_the_page_says_first_whether_it_is_good(since, before, after, heads):
    """One part a kind, behind an empty line each."""
    page = since(before, after, Asked(tuple(Concern), lost_tests=True, threshold=0.05)).page

    assert page.startswith(f"\n## Since the base branch\n\n### {heads[0]}\n")
    assert re.findall(r"(?<=\n\n)### (.*)\n", page) == heads


def test_all_that_got_worse_is_said_in_one_line(since):
    """A sentence a kind, without a full stop at the end."""
    before = run(cases=(case("a"), case("b")), samples=(sample(1, median_ms=1.0, scatter=0.001),), compiled=(compiled(spills=0),))
    after = run(cases=(case("a"),), samples=(sample(1, median_ms=2.0, scatter=0.001),), compiled=(compiled(spills=4),))
    found = since(before, after, Asked(tuple(Concern), lost_tests=True, threshold=0.05))

    assert found.worse.startswith("1 test that passed before ")
    assert found.worse.count(". ") >= 2
    assert not found.worse.endswith(".")
    assert len(found.annotations) == 3
    assert found.page.count("## Since the base branch") == 1


def test_what_both_sides_lack_is_no_section(since):
    """Nothing measured, nothing compiled, no test: no page."""
    empty = run(cases=(), samples=(), compiled=())
    found = since(empty, empty, Asked(tuple(Concern), lost_tests=True))

    assert (found.page, found.worse, found.annotations) == ("", "", ())


def test_what_one_side_lacks_is_not_compared_and_no_regression(since):
    """Each kind by itself: the other two are compared."""
    empty = run(cases=(), samples=(), compiled=())
    for before, after in ((empty, run()), (run(), empty)):
        found = since(before, after, Asked(tuple(Concern), threshold=0.05))

        assert found.worse == ""
        assert found.page.count("_Not compared with the base branch: ") == 2
        assert ": speeds. " in found.page
        assert ": generated code. " in found.page


def test_an_error_is_on_the_page_and_no_regression(monkeypatch, tmp_path):
    """The report is made after this: a base that cannot be read must not stop it."""
    monkeypatch.setattr(since_base, "latest", lambda folders: SimpleNamespace(none=1)[0])
    found = against_base(tmp_path, [tmp_path], Asked())

    assert found.page.startswith("\n_Not compared with the base branch: this run. ")
    assert (found.worse, found.annotations) == ("", ())


def test_another_target_is_another_run(since):
    """Its tests are not lost, and its speeds are not compared."""
    found = since(run(), run("beta", record=record("beta")), Asked(lost_tests=True))

    assert (found.worse, found.annotations) == ("", ())
