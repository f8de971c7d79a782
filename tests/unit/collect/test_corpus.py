"""What fuzzing has found to reach new code, read again without a fuzzer. tests/fuzz/session.py --keep writes it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
CORPUS = REPOSITORY / "tests" / "data" / "corpus"
sys.path.append(str(REPOSITORY / "tests" / "fuzz"))

import readers  # noqa: E402 - not a package


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The readers' own folder, gone afterwards."""
    readers.FOLDER.mkdir(exist_ok=True)
    yield
    shutil.rmtree(readers.FOLDER)


@pytest.mark.parametrize("name", readers.READERS)
def test_every_input_is_read_or_refused(name):
    """No exception out of any reader, and what was let in is what is written again."""
    inputs = sorted((CORPUS / name).iterdir())

    assert inputs
    for path in inputs:
        readers.READERS[name](path.read_bytes())
