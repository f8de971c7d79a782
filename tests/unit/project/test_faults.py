"""`docs/faults.md` is whole: each of the 28 faults has a row, and each row a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.records import Verdict

REPOSITORY = Path(__file__).parents[3]
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in (REPOSITORY / "docs" / "faults.md").read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]
NAMED = [(row[0], name) for row in ROWS for name in re.findall(r"`([^`]+::[^`]+)`", row[-1])]


def test_every_fault_has_one_row():
    """28 of them, in order, none twice, with all columns."""
    assert [int(row[0]) for row in ROWS] == list(range(1, 29))
    assert {len(row) for row in ROWS} == {8}
    assert len({row[1] for row in ROWS}) == 28


def test_no_test_stands_for_two_faults():
    """A test is named once, so that a fault cannot hide behind another one's."""
    names = [name for _, name in NAMED]

    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(("number", "name"), NAMED)
def test_every_named_test_exists(number, name):
    """The file is there, and the function in it."""
    path, _, function = name.partition("::")
    tree = ast.parse((REPOSITORY / "tests" / path).read_text())

    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert function.startswith("test_")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_words_are_those_of_the_house(row):
    """Verdicts and exit codes that the harness has."""
    assert set(re.findall(r"`([a-z-]+)`", row[3])) <= {verdict.value for verdict in Verdict}
    assert {int(code) for code in re.findall(r"\d+", row[4])} <= {int(code) for code in ExitCode}
