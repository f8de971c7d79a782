"""Shared by the emulator's tests."""

import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[2] / name) for name in ("emulator_reference", "fuzz")]


@pytest.fixture(autouse=True)
def same_numbers_in_every_order():
    """A test draws the same numbers whichever tests ran before it in its process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
