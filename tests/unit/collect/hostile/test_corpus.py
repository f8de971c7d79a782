"""Inputs with which the fuzzer reached new code, read again without it. tests/fuzz/session.py --keep writes them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
CORPUS = REPOSITORY / "tests" / "data" / "corpus"
sys.path.append(str(REPOSITORY / "tests" / "fuzz"))

import readers


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The readers' own folder, removed afterwards."""
    readers.FOLDER.mkdir(exist_ok=True)
    yield
    shutil.rmtree(readers.FOLDER)


@pytest.mark.parametrize("name", readers.READERS)
def test_every_input_is_read_or_refused(name):
    """No reader raises an exception, and accepted inputs can be written again."""
    inputs = sorted((CORPUS / name).iterdir())

    assert inputs
    for path in inputs:
        readers.READERS[name](path.read_bytes())
