"""Fixtures of the tests that read raw folders."""

from __future__ import annotations

import pytest
from whole_run import write_whole


@pytest.fixture
def folder(tmp_path):
    """A raw folder with every file that there can be."""
    return write_whole(tmp_path)
