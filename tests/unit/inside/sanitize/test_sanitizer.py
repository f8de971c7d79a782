"""The sanitizer finds what is planted in tests/planted, and nothing in the right twin of each fault: one run, as a user does it.

The table of docs/guides/sanitize.md is made from the same faults (`python tests/planted/table.py`).
"""

import os
import re
import runpy
from collections import defaultdict
from pathlib import Path

import command
import pytest
from slow_cases import slow_but

from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.records import Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
PLANTED = REPOSITORY / "tests" / "planted"
EXACT = (
    "test_bounds.py::test_load_without_mask",
    "test_bounds.py::test_write_stride",
    "test_races.py::test_one_place_for_all",
)  # whose findings are told in full below
TABLE = runpy.run_path(str(PLANTED / "table.py"))["faults"]()


def sanitized(folder, kernels, *options):
    words = ["run", "cpu", "--engine", "local", "--stage", "test", "--kernels", kernels, "--out", "out", "--quiet", *options]
    done = command.warpwave(*words, cwd=folder, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}, timeout=900)
    return done, collect(folder / "out" / "raw" / "cpu")


def soon():
    """The faults that run each time: every third of each kind. The rest have the marker `slow`."""
    alike = defaultdict(list)
    for test, fault in TABLE.items():
        alike[test.partition("::")[0], fault.defect].append(test)
    return [test for tests in alike.values() for test in tests[::3]]


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory):
    """What the command said, and what it left: of the faults that this session asks for."""
    wanted = {item.callspec.params["test"] for item in request.session.items if item.path == request.path and hasattr(item, "callspec")}
    names = " or ".join(test.partition("::")[2] for test in ({*soon(), *EXACT} if wanted <= {*soon()} else TABLE))
    return sanitized(tmp_path_factory.mktemp("planted"), PLANTED, "-k", names)


@pytest.fixture(scope="module")
def findings(ran):
    """The findings by test."""
    found = defaultdict(list)
    for row in ran[1].findings:
        found[row.case].append(row)
    return found


def test_at_least_forty_faults_of_each_kind_are_planted():
    """So many that the interpreter can show, and some that it cannot."""
    kinds = [fault.defect for fault in TABLE.values()]

    assert sum(kind is not None for kind in kinds) >= 40
    assert min(kinds.count(kind) for kind in ("out-of-bounds", "uninitialised-read", "race")) >= 10


@pytest.mark.parametrize("test", slow_but(TABLE, soon()))
def test_a_fault_is_found_and_its_twin_is_not_blamed(test, ran, findings):
    """With the tensor, the kernel's line and its text; the test fails with the finding as its message."""
    fault, verdicts = TABLE[test], {case.id: case for case in ran[1].cases}
    found = [row for row in findings[f"{test}[fault]"] if row.defect == fault.defect and fault.tensor in (None, row.tensor)]

    assert findings[f"{test}[twin]"] == []
    assert verdicts[f"{test}[twin]"].verdict is Verdict.PASSED
    assert verdicts[f"{test}[fault]"].verdict is (Verdict.FAILED if fault.in_order else Verdict.PASSED)
    assert bool(found) == (fault.defect is not None)
    for row in found:
        lines = Path(row.file).read_text().splitlines()
        assert (Path(row.file).parent, lines[row.line - 1].strip()) == (PLANTED, row.text)
        assert f"{row.access}" in ("load", "store", "atomic")
        assert row.sentence in verdicts[row.case].message + verdicts[row.case].detail


def test_the_first_example_is_exact(findings):
    """1000 elements in blocks of 128: the last program has 24 lanes too many, and the first of them reads element 1000."""
    (row,) = findings["test_bounds.py::test_load_without_mask[fault]"]

    assert (row.tensor, row.shape, row.index, row.indices) == ("x", (1000,), 1000, (1000,))
    assert (row.program, row.lane, row.lanes, row.block) == ((7, 0, 0), 104, 24, (128,))
    assert row.sentence.startswith("out-of-bounds in copy at bounds.py:")


def test_an_index_has_a_number_for_each_dimension(findings):
    """Row 8 of a tensor of 8 rows begins where its last row ends."""
    (row,) = findings["test_bounds.py::test_write_stride[fault]"]

    assert (row.tensor, row.shape, row.index, row.indices) == ("out", (8, 100), 800, (8, 0))


def test_a_race_names_both_programs(findings):
    """The later one as the place, the other one in words."""
    (row,) = findings["test_races.py::test_one_place_for_all[fault]"]

    assert (row.program, row.times) == ((1, 0, 0), 7)
    assert re.search(r"^program \(0, 0, 0\) stores to it, and nothing orders the two; line \d+: tl.store", row.other)


def test_findings_fail_the_run_and_are_shown(ran):
    """In the terminal, in Markdown and on the page; the exit code is that of a failed test."""
    done, run = ran
    comparison = compare([run])

    assert done.returncode == 1
    assert len(comparison.findings) == len(run.findings) > len(soon()) * 0.7
    for text in (done.stdout, render_markdown(comparison), render_html(comparison)):
        assert "What kernels do to memory" in text
        assert "out-of-bounds" in text


def test_it_can_be_switched_off(tmp_path):
    """Then only results are compared: a race that the interpreter cannot lose passes."""
    (tmp_path / "planted").mkdir()
    for name in ("planted.py", "races.py", "test_races.py"):
        (tmp_path / "planted" / name).write_text((PLANTED / name).read_text())
    done, run = sanitized(tmp_path, tmp_path / "planted", "--no-sanitize", "-k", "test_sum or test_running_total")

    assert (done.returncode, run.findings) == (0, ())
    assert {case.verdict for case in run.cases} == {Verdict.PASSED}
