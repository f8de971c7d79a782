"""A test that its file does not have is refused before anything starts; one that it may have is not."""

import pytest

from warpwave.run.choice import missing

FILE = """
import torch
from base import Shared, test_imported

def test_add(): ...

class TestAll:
    def test_one(self): ...

class TestMore(Shared): ...
"""


@pytest.mark.parametrize(
    "name",
    ["test_add", "test_add[1::2-nowhere]", "TestAll::test_one", "TestMore::test_inherited", "test_imported", "module", "test_ops", "a.b"],
)
def test_what_may_be_there_is_let_through(tmp_path, name):
    (tmp_path / "test_ops.py").write_text(FILE)

    assert missing(f"test_ops.py::{name}", tmp_path) is None


@pytest.mark.parametrize(
    ("name", "where", "close"),
    [
        ("test_ad", "<Module test_ops.py>", "; did you mean test_add?"),
        ("test_ad[(1, 2)]", "<Module test_ops.py>", "; did you mean test_add?"),
        ("TestAll::test_nothing_like_it", "<Class TestAll>", ""),
        ("zzz", "<Module test_ops.py>", ""),
    ],
)
def test_what_cannot_be_there_is_told_in_pytests_words(tmp_path, name, where, close):
    (tmp_path / "test_ops.py").write_text(FILE)

    assert missing(f"test_ops.py::{name}", tmp_path) == f"not found: test_ops.py::{name} (no match in any of [{where}]){close}"


@pytest.mark.parametrize("more", ["from base import *", "globals()['test_x'] = test_add", "setattr(TestAll, 'test_x', test_add)", "def ("])
def test_a_file_that_makes_names_is_not_judged(tmp_path, more):
    """Neither is one that Python cannot parse: pytest says why."""
    (tmp_path / "test_ops.py").write_text(f"{FILE}\n{more}\n")

    assert missing("test_ops.py::test_made", tmp_path) is None
