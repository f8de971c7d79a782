"""Each test leaves a line of the card that it ran on; fixtures of a module are set up once."""

import os
from pathlib import Path

import pytest

STATE, CARD = Path(os.environ["STUB_STATE"]), os.environ.get("STUB_VISIBLE_DEVICES", "")


@pytest.fixture(scope="module")
def once():
    with open(STATE / "set-up", "a") as file:
        file.write(f"{CARD}\n")


@pytest.mark.parametrize("n", range(6))
def test_flat(once, n):
    with open(STATE / "ran", "a") as file:
        file.write(f"test_flat[{n}] {CARD}\n")
