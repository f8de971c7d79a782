"""Autotuned launches: a candidate that spills or does not fit is a finding only where no candidate is clean."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
from slow_cases import slow_but

from warpwave.config.targets import load_targets
from warpwave.inside.compile.candidates import Discarded, key
from warpwave.inside.compile.stage import Expected
from warpwave.inside.process.journal import Audit
from warpwave.records import CompiledKernel, Gates, NotRun, Stage, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


@pytest.fixture(scope="module")
def compiled(run_inside, data):
    """The stage's report, and its rows by the launch that they are of, for one card on which one warp spills."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")

    def run(candidates):
        gates = Gates(candidates=candidates)
        output = run_inside(data / "candidates", Stage.COMPILE, architectures=(card,), benches=("bench_*.py",), gates=gates)
        rows = defaultdict(list)
        for line in (output / "compile" / "kernels.jsonl").read_text().splitlines():
            row = json.loads(line)
            rows[row["origin"].partition("[")[2][:-1]].append(row)
        return json.loads((output / "compile" / "report.json").read_text()), dict(rows)

    return run


@pytest.fixture(scope="module")
def judged(compiled):
    """Under the default, where one clean candidate is enough."""
    return compiled("best")


def verdicts(rows):
    return Counter((row["verdict"], row["not_run"]) for row in rows)


DISCARDED = Counter({("not-run", "discarded"): 1, ("passed", None): 1})


@pytest.mark.parametrize(
    "launch", slow_but(["guessed", "tuned_guess", "derived", "warmed", "product"], ["guessed", "tuned_guess", "product"])
)
def test_a_candidate_beside_a_clean_one_is_discarded(judged, launch):
    """Heuristics around the tuner or in it, a tuner of a package's own, a warm-up, and one that does not fit the card."""
    assert verdicts(judged[1][launch]) == DISCARDED


def test_a_remembered_candidate_is_not_the_only_one(judged):
    """A tuner's key leaves out what the compiler specializes on: for 1023 elements, the others are tried as well."""
    rows = judged[1]["tuned"]
    lengths = Counter((bool(row["attributes"].get("n")), row["not_run"]) for row in rows)

    assert lengths == {(aligned, why): 1 for aligned in (True, False) for why in (None, "discarded")}


@pytest.mark.parametrize(("launch", "failed"), [("hopeless", 2), ("pruned", 1), ("plain", 1)])
def test_where_nothing_is_clean_the_kernel_fails(judged, launch, failed):
    """All candidates spill, the only one that pruning leaves does, or nobody tunes."""
    assert verdicts(judged[1][launch]) == {("failed", None): failed}


def test_what_another_launch_needs_is_not_discarded(judged):
    """A tuner has a clean one; the same kernel is launched without the tuner too."""
    assert verdicts(judged[1]["shared"]) == {("failed", None): 2, ("passed", None): 1}


def test_a_discarded_row_keeps_its_figures_and_says_what_is_clean(judged):
    """It is counted by its reason, and the stage's own reason is a real finding."""
    report, rows = judged
    row = next(row for row in rows["guessed"] if row["not_run"])

    assert row["spills"] > 0
    assert row["broken"]["spills"] in row["reason"]
    assert row["reason"].endswith("1 of 2 candidates for this launch is clean")
    assert report["not_run"] == {"discarded": 7}
    assert (report["verdict"], "candidates" in report["reason"]) == ("failed", False)


@pytest.mark.slow
def test_a_strict_package_is_judged_by_every_candidate(compiled):
    """As before there were candidates."""
    report, rows = compiled("all")

    assert report["not_run"] == {}
    assert verdicts(rows["guessed"]) == {("failed", None): 1, ("passed", None): 1}


def row(**more):
    return CompiledKernel("k", "f", "sm_90", Verdict.FAILED, reason="spills: 3 registers, 0 allowed", **more)


def test_one_launch_that_needs_it_is_enough():
    """In whatever order they come, from whatever worker; a row is known whatever launched it first."""
    names = [key(row(num_warps=warps)) for warps in (1, 2)]
    for events in ([(names, 1), (names[:1], 0)], [(names[:1], 0), (names, 1)]):
        discarded = Discarded()
        for rows, clean in events:
            discarded.note({"event": "candidates", "rows": rows, "clean": clean, "of": 3})
        marked = [discarded.mark(row(num_warps=warps, origin="elsewhere", seconds=2.0)) for warps in (1, 2, 4)]
        assert [each.not_run for each in marked] == [None, NotRun.DISCARDED, None]


@pytest.mark.parametrize("fields", [{}, {"rows": "x", "clean": 1, "of": 2}, {"rows": ["x"], "clean": None, "of": 2}])
def test_a_note_that_means_nothing_is_left_out(fields):
    """The package's code shares a process with what writes it."""
    audit = Audit()
    audit.begin()

    assert audit.check({"event": "candidates", **fields}) is None
    assert audit.check({"event": "candidates", "rows": ["x"], "clean": 1, "of": 2}) is not None


def test_what_a_test_expects_is_no_failure_of_that_test_alone():
    """The same refusal in another test fails; a note without a row is left out."""
    expected, audit = Expected(), Audit()
    audit.begin()
    expected.note({"event": "expected", "row": f"{key(row(origin='here'))} here"})

    assert expected.mark(row(origin="here", seconds=1.0)).not_run is NotRun.SKIPPED
    assert expected.mark(row(origin="elsewhere")).verdict is Verdict.FAILED
    assert audit.check({"event": "expected"}) is None
