"""Shared by the emulator's tests."""

import sys

import pytest


@pytest.fixture(autouse=True)
def same_numbers_in_every_order():
    """A test draws the same numbers whichever tests ran before it in its process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
