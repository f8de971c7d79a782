"""Fixtures of the tests that read raw folders."""

from pathlib import Path

import pytest
from synthetic import run, write_raw, write_whole


@pytest.fixture
def folder(tmp_path):
    return write_whole(tmp_path)


@pytest.fixture
def raw(tmp_path) -> Path:
    return write_raw(tmp_path / "raw" / "alpha", run())
