"""Fixtures of the tests that read raw folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import run, write_raw, write_whole


@pytest.fixture
def folder(tmp_path):
    """A raw folder with every file that there can be."""
    return write_whole(tmp_path)


@pytest.fixture
def raw(tmp_path) -> Path:
    """One complete, synthetic raw folder."""
    return write_raw(tmp_path / "raw" / "alpha", run())
