"""A traced launch and an interpreted one: the same results to the last bit, the same findings and errors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import command
import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
CONFTEST = """
from warpwave.inside.fake_gpu import traces

replay, replayed = traces.Trace._replay, {}

def counted(trace, arguments):
    served = replay(trace, arguments)
    name = trace._function.__name__
    replayed[name] = replayed.get(name, 0) + (served is None)
    return served

traces.Trace._replay = counted
traces._FEWEST_PROGRAMS = LEAST

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("replayed: " + " ".join(f"{name}={number}" for name, number in sorted(replayed.items())))
"""


def said_of(folder, fewest_programs):
    """Run the package, and return what is said of each test, and how many programs were replayed."""
    shutil.copytree(REPOSITORY / "tests" / "data" / "traced", folder)
    (folder / "conftest.py").write_text(CONFTEST.replace("LEAST", str(fewest_programs)))
    words = ["-p", "warpwave.pytest_entry", "--warpwave", "cpu", "-q", "-p", "no:cacheprovider", "--junitxml", "tests.xml"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}
    done = command.python("-m", "pytest", *words, cwd=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ElementTree.parse(folder / "tests.xml").iter("testcase")
    said = {
        case.get("name"): ([each.get("message") for each in case.iter("failure")], [each.get("value") for each in case.iter("property")])
        for case in cases
    }
    line = next(line for line in done.stdout.splitlines() if line.startswith("replayed: "))
    return said, {name: int(number) for name, _, number in (each.partition("=") for each in line.split()[1:])}


def test_a_traced_launch_computes_and_finds_the_same(tmp_path):
    (traced, replayed), (interpreted, none) = said_of(tmp_path / "traced", 3), said_of(tmp_path / "interpreted", 1 << 30)

    assert traced == interpreted
    assert not none
    failed = {name: messages[0] for name, (messages, _) in traced.items() if messages}
    assert sorted(failed) == ["test_beyond", "test_one_place", "test_promise[40]"], failed
    assert "program (3, 0, 0)" in failed["test_beyond"]
    assert "kernels.py:93" in failed["test_promise[40]"]
    # Those that find their branch. A program that waits for others ends the trace, and so does what is printed.
    assert replayed.pop("decide_kernel") >= 4
    whole = {"assembly_kernel": 3, "beyond_kernel": 18, "counted_kernel": 7, "described_kernel": 3, "one_place_kernel": 4}
    assert replayed == {**whole, "product_kernel": 7, "promise_kernel": 3}, replayed
