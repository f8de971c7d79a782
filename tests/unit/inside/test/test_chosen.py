"""Tests that were asked for by their ids: exactly those run, in both stages, and nothing else of the package is touched."""

from __future__ import annotations

import json

import pytest
from slow_cases import slow_but

from warpwave.config.targets import load_targets
from warpwave.records import Chosen, Selection, Stage

TESTS = """\
import pytest


@pytest.mark.parametrize("value", ["(1, 2)", "a::b", "x/y[z]", "it's plain"])
def test_values(value):
    pass


class TestIn:
    def test_one(self):
        pass


def test_other():
    pass
"""
FILES = {
    "tests/test_a.py": TESTS,
    "tests/test_b.py": TESTS,
    "tests/test_broken.py": "import no_such_module",
    "behind/conftest.py": "import no_such_module",
    "behind/test_c.py": "def test_c(): pass",
    "bench_d.py": "raise SystemExit('a bench that nobody asked for')",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Two files with six tests each, and several that do not import."""
    folder = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _chosen(*tests, without=(), must_exist=True):
    return Chosen(tests or None, without, how=("--test",), must_exist=must_exist)


IDS = {
    "parentheses and spaces": "tests/test_a.py::test_values[(1, 2)]",
    "colons": "tests/test_a.py::test_values[a::b]",
    "slash and brackets": "tests/test_a.py::test_values[x/y[z]]",
    "a quote": "tests/test_a.py::test_values[it's plain]",
    "in a class": "tests/test_a.py::TestIn::test_one",
}
ALL = [*IDS.values(), "tests/test_a.py::test_other"]
# What is asked for → the tests that run.
CHOICES = {
    **{what: ([nodeid], [nodeid]) for what, nodeid in IDS.items()},
    "a function": (["tests/test_a.py::test_values"], ALL[:4]),
    "a class": (["tests/test_a.py::TestIn"], [ALL[4]]),
    "a file": (["tests/test_a.py"], ALL),
    "two files": (["tests/test_a.py::test_other", "tests/test_b.py::test_other"], [ALL[5], "tests/test_b.py::test_other"]),
}


def test_ids_stand_for_what_is_below_them():
    """And for nothing that only begins with the same letters."""
    selection = Selection(_chosen("tests/test_a.py::test_values", "unit"))

    assert selection.takes("tests/test_a.py::test_values[a::b]")
    assert selection.takes("unit/deep/test_x.py::test_y")
    assert not selection.takes("tests/test_a.py::test_values_too")
    assert not selection.takes("united/test_x.py::test_y")
    assert [selection.looks_into(path) for path in (".", "tests", "tests/test_a.py", "unit/deep", "tests/test_b.py", "other")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_shard_of_a_choice_is_what_both_have():
    """An id of another shard's file is not missed here."""
    selection = Selection(_chosen("test_a.py", "test_b.py::test_x", "test_c.py::test_y"), files=["test_a.py", "test_c.py"])

    assert [selection.takes(f"test_{name}.py::test_x") for name in "abc"] == [True, False, False]
    assert selection.unmet(["test_a.py::test_x"]) == (["test_c.py::test_y"], [])
    assert not Selection(Chosen(), files=[]).looks_into("test_a.py")


def _report(output):
    return json.loads((output / "stages.json").read_text())["reports"][1]


def _started(journal):
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event["id"] for event in events if event["event"] == "start"]


@pytest.mark.parametrize("what", slow_but(CHOICES, ("colons", "a class", "two files")))
def test_the_test_stage_runs_what_was_asked_for(run_inside, package, what):
    """Files without a chosen test are not imported: those here would fail."""
    asked, expected = CHOICES[what]
    output = run_inside(package, Stage.TEST, light=True, chosen=_chosen(*asked))
    report = _report(output)

    assert _started(output / "test" / "journal.jsonl") == expected
    files = len({nodeid.partition("::")[0] for nodeid in asked})
    assert (report["verdict"], report["counts"]) == ("passed", {"passed": len(expected)})
    assert report["deselected"] == 6 * files - len(expected)


def test_the_compile_stage_runs_the_same_tests(run_inside, package):
    """On each architecture."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    chosen = _chosen(*IDS.values(), "bench_d.py::module", "tests/test_a.py::test_gone")
    output = run_inside(package, Stage.COMPILE, architectures=cards, launches=("test",), chosen=chosen)

    for card in cards:  # the test stage alone loads benches as tests
        assert set(_started(output / "compile" / f"journal-{card.name}.jsonl")) == {*IDS.values(), "tests/test_a.py::test_gone"}


def test_tests_are_left_out_by_their_ids(run_inside, package):
    """The rest runs; an id that no test has is named."""
    without = (IDS["colons"], "tests/test_b.py", "tests/test_broken.py", "behind", "tests/test_a.py::test_gone")
    output = run_inside(package, Stage.TEST, light=True, benches=(), chosen=_chosen(without=without))
    report = _report(output)

    assert sorted(_started(output / "test" / "journal.jsonl")) == sorted(set(ALL) - {IDS["colons"]})
    assert (report["counts"], report["deselected"]) == ({"passed": 5}, 1)
    assert report["notes"] == ["1 of the ids to leave out have no test here: tests/test_a.py::test_gone"]


@pytest.mark.parametrize(("must_exist", "verdict", "outcome"), [(True, "error", "error"), (False, "passed", "not-run")])
def test_an_id_without_a_test_is_named(run_inside, package, must_exist, verdict, outcome):
    """It is an error if somebody typed it, and a row if it was listed before the test was deleted."""
    quiet = () if must_exist else ("pyproject.toml", "tests/test_nowhere.py")
    chosen = _chosen("tests/test_a.py::test_other", "tests/test_a.py::test_gone", *quiet, must_exist=must_exist)
    report = _report(run_inside(package, Stage.TEST, light=True, chosen=chosen))

    assert (report["verdict"], report["counts"]) == (verdict, {"passed": 1, outcome: 1})


def test_an_import_that_fails_is_the_reason(run_inside, package):
    """Not that there is no such test: nobody knows."""
    report = _report(run_inside(package, Stage.TEST, light=True, chosen=_chosen("tests/test_broken.py::test_x")))

    assert (report["verdict"], report["counts"]) == ("error", {"error": 1})
    assert "no_such_module" in report["reason"]


def test_a_shard_runs_its_files(run_inside, package):
    """And says nothing of the others."""
    report = _report(run_inside(package, Stage.TEST, light=True, benches=(), files=("tests/test_b.py",), division="x"))

    assert (report["verdict"], report["counts"], report["deselected"]) == ("passed", {"passed": 6}, 0)


def test_a_quick_run_chooses_from_what_was_asked_for(run_inside, package):
    """Three of the four, and one is counted."""
    report = _report(run_inside(package, Stage.TEST, light=True, quick=True, chosen=_chosen("tests/test_a.py::test_values")))

    assert (report["counts"], report["left_out"], report["deselected"]) == ({"passed": 3}, 1, 2)
