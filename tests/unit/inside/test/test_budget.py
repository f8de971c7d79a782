"""A run with a budget: what comes first, what is left out in time, and what that means."""

import itertools
import json

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.multi_gpu.pytest_plugin import PART
from warpwave.inside.test.budget import Pace, in_order
from warpwave.records import Budget, Limits, Stage

PACKAGE = """\
import time
import pytest


@pytest.mark.parametrize("size", range(200))
def test_slow(size):
    time.sleep(0.2)


@pytest.mark.parametrize("size", range(3))
def test_last(size):
    pass


def test_of_last_time():
    pass
"""


def _report(output, stage):
    return next(each for each in json.loads((output / "stages.json").read_text())["reports"] if each["stage"] == stage)


def _started(journal):
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event["id"].partition("::")[2] for event in events if event["event"] == "start"]


@pytest.fixture
def package(tmp_path):
    """A slow function in front, and two quick ones."""
    (tmp_path / "test_it.py").write_text(PACKAGE)
    return tmp_path


def test_a_budget_spreads_over_functions_and_leaves_out_the_rest(run_inside, package):
    """What failed last time is first, then a small test of each function; the stage passes, and counts what is left out."""
    limits = Limits(budget=Budget(16.0, failed=("test_it.py::test_of_last_time",)))
    output = run_inside(package, Stage.TEST, light=True, benches=(), limits=limits)
    report, started = _report(output, "test"), _started(output / "test" / "journal.jsonl")

    assert [name.partition("[")[0] for name in started[:3]] == ["test_of_last_time", "test_slow", "test_last"]
    assert started[1] in ("test_slow[0]", "test_slow[1]")
    assert (report["verdict"], report["exit_code"], report["out_of_time"]) == ("passed", 0, True)
    assert report["counts"]["passed"] + report["left_out"] == 204
    assert report["left_out_s"] > 1


def test_a_test_that_hangs_ends_with_the_budget(run_inside, tmp_path):
    """It is named and left out. Its own limit, if that is shorter, makes it a failure as ever."""
    (tmp_path / "test_it.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(1e6)\n\n\ndef test_good():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(14.0)))
    report = _report(output, "test")
    assert (report["counts"], report["left_out"], report["out_of_time"]) == ({}, 2, True)
    assert "test_it.py::test_hangs" in report["notes"][0]

    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(test_s=1.0, budget=Budget(30.0)))
    assert _report(output, "test")["counts"] == {"passed": 1, "timeout": 1}


def test_with_a_budget_compiling_comes_first(run_inside, package):
    """It is cheap, and for every card. A stage that no time is left for says so."""
    output = run_inside(package, Stage.TEST, Stage.COMPILE, light=True, benches=(), limits=Limits(budget=Budget(9.0)))
    reports = json.loads((output / "stages.json").read_text())["reports"]

    assert [each["stage"] for each in reports] == ["facts", "compile", "test"]
    assert [(each["verdict"], each["out_of_time"]) for each in reports[1:]] == [("not-run", True)] * 2


class Item:
    """What the order looks at in a test."""

    parent = None

    def __init__(self, name: str) -> None:
        self.nodeid, self.name, self.originalname, self.stash = name, name.partition("::")[2], name.partition("::")[2].partition("[")[0], {}


def test_what_a_change_touches_comes_before_the_rest():
    items = [Item(f"test_{file}.py::test_{name}[{size}]") for file in "ab" for name in "xy" for size in range(9)]
    order = [item.nodeid for item in in_order(items, Budget(60.0, changed=("test_b.py",)))]

    assert sorted(order) == sorted(item.nodeid for item in items)
    assert {name.partition("[")[0] for name in order[:2]} == {"test_b.py::test_x", "test_b.py::test_y"}
    assert all(name.startswith("test_b") for name in order[:18])
    assert {name.partition("[")[0] for name in order[18:20]} == {"test_a.py::test_x", "test_a.py::test_y"}


def test_the_choice_of_a_file_does_not_depend_on_others():
    """A list of known failures has counts alone: with as many tests of a file, the next run must have the same ones."""
    names = ["".join(pair) for pair in itertools.product("abcdefghij", repeat=2)]
    own, others = ([Item(f"test_{file}.py::test_{file}{name}") for name in names] for file in "ab")
    both = [item for item in in_order([*own, *others], Budget(60.0)) if item in own]

    assert both == in_order(own, Budget(60.0))
    assert {item.stash[PART] for item in both} == {3 * 2}


def test_an_estimate_has_each_functions_own_time(monkeypatch):
    """The first test of a process also imports and compiles: it counts only if there is no other."""
    now = iter([0.0, 50.0, 50.0, 52.0, 52.0, 53.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    pace = Pace()
    for name in ("t.py::a[1]", "t.py::a[2]", "t.py::b[1]"):
        pace.note({"event": "start", "id": name})
        pace.note({"event": "finish", "id": name})

    assert pace.estimate({"t.py::a": 10, "t.py::b": 100}) == 10 * 2.0 + 100 * 1.0
    assert pace.estimate({"t.py::c": 2}) == 2 * 1.5
    assert pace.estimate({}) is None


def test_a_budget_makes_only_tests_that_it_may_reach(run_inside, tmp_path):
    """A function with a million parameters takes no memory and no time for those; they are counted, and what failed last time runs."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('b', range(100))\n@pytest.mark.parametrize('a', range(100))\n"
        "def test_many(a, b):\n    assert a < 99 or b != 77\n\n\n@pytest.mark.parametrize('c', range(3))\ndef test_few(c):\n    pass\n"
    )
    failed = "test_it.py::test_many[99-77]"
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0, failed=(failed,))))
    events = [json.loads(line) for line in (output / "test" / "journal.jsonl").read_text().splitlines()]
    report, [ids] = _report(output, "test"), [event["ids"] for event in events if event["event"] == "collected"]

    assert len(ids) == 303
    assert sum(report["counts"].values()) + report["left_out"] == 10_003
    assert (report["verdict"], report["counts"]["failed"]) == ("failed", 1)
    assert {name.partition("[")[2].partition("-")[0] for name in ids} >= {"0", "99"}

    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0)), pytest_args=("-k", "99-77"))
    assert _report(output, "test")["counts"] == {"failed": 1}


def test_a_budget_goes_no_further_than_the_list_of_known_failures(run_inside, package):
    """What fails beyond it would look new. What failed last time runs all the same."""
    (package / "test_unseen.py").write_text("import no_such_module_of_ours as missing, test_it.wrong\n")
    budget = Budget(60.0, failed=("test_it.py::test_slow[9]",), seen={"it": {"test test_it.py": 3, "compile gfx942": 1}})
    output = run_inside(package, Stage.TEST, light=True, benches=(), limits=Limits(budget=budget))
    report, started = _report(output, "test"), _started(output / "test" / "journal.jsonl")

    assert (report["verdict"], report["counts"], report["left_out"], report["out_of_time"]) == ("passed", {"passed": 4}, 201, False)
    assert started[0] == "test_slow[9]"
    assert {name.partition("[")[0] for name in started} == {"test_slow", "test_last", "test_of_last_time"}
    assert (report["reached"], report["budget_s"]) == ({"test_it.py": 4}, 60.0)


def test_a_budget_is_not_spent_on_collecting(run_inside, tmp_path):
    """Files that pytest comes to late are left out, and what is collected runs: one with tests at least, and what failed last time."""
    late = "import os, time, pytest\ntime.sleep((float(os.environ['WARPWAVE_UNTIL']) - time.monotonic()) * 0.45)\n"
    late += "pytest.skip('no', allow_module_level=True)\n"
    (tmp_path / "test_a.py").write_text(late)
    for name in "bcd":
        (tmp_path / f"test_{name}.py").write_text(f"def test_of_{name}():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0, failed=("test_d.py::test_of_d",))))
    report = _report(output, "test")

    assert _started(output / "test" / "journal.jsonl") == ["test_of_d", "test_of_b"]
    assert (report["verdict"], report["counts"], report["left_out"]) == ("passed", {"passed": 2, "not-run": 1}, 1)
